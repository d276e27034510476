"""Attach and detach on fakes: refusals that change nothing, and a failure at every step."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards import make_gpu, make_uuid
from tests.support.domains import UUID_PC
from tests.support.service import Bench, make_bench
from vgpumgr.domain.hypervisor import Scope
from vgpumgr.engine.journal import Journal
from vgpumgr.errors import (
    Exit,
    HelperLateError,
    LibvirtDownError,
    LibvirtError,
    LockHeldError,
    NvmlError,
    NvmlInUseError,
    RollbackIncompleteError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.host.lock import lock_file
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.choices import Transport
from vgpumgr.model.gpu import GpuProcess, ProcessKind
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.request import AttachRequest

FULL_GPU = [("7g.80gb", 0)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def ask(vm: str = "vm01", profile: str = "1g.10gb", **more: object) -> AttachRequest:
    return replace(AttachRequest(vm, profile), **more)  # type: ignore[arg-type]


def check_refused(
    bench: Bench, request: AttachRequest, exit_code: Exit, id_: str, words: str
) -> VgpumgrError:
    """The error is the one; nothing was changed, no device call made, nothing even journalled."""
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(request)
    error = caught.value
    assert (error.id, error.exit_code) == (id_, exit_code)
    assert words in " ".join([error.error, error.why or "", error.cause or "", *error.held_by])
    assert bench.snapshot() == before
    assert set(bench.nvml.calls) <= {"read_inventory"}
    assert not (bench.state_dir / "journal").exists()
    return error


@pytest.mark.parametrize(
    ("request_", "exit_code", "id_", "words"),
    [
        (ask(vm="vm99"), Exit.NOT_FOUND, "VG201", "vm99"),
        (ask(profile="1g.11gb"), Exit.NOT_FOUND, "VG103", "1g.10gb"),
        (ask(profile="9c.1g.10gb"), Exit.USAGE, "VG100", "compute slices"),
        (ask(profile=""), Exit.USAGE, "VG100", "empty"),
        (ask(gpu="7"), Exit.NOT_FOUND, "VG101", "7"),
        (ask(backend="passthrough"), Exit.NOT_SUPPORTED, "VG212", "forward or mdev or vf"),
        (ask(backend="mdev"), Exit.NOT_FOUND, "VG401", "MIG-backed"),
        (ask(profile="1g.10gb", display="on"), Exit.USAGE, "VG100", ""),
        (ask(backend="x"), Exit.USAGE, "VG100", "there are: auto"),
        (ask(profile="share:8GiB"), Exit.USAGE, "VG100", "best-effort"),
        (ask(profile="passthrough"), Exit.BUSY, "VG481", "has none"),
        (ask(profile="vf:0"), Exit.USAGE, "VG100", ""),
        (ask(profile="vf"), Exit.BUSY, "VG481", "has none"),
        (
            ask(profile="NVIDIA A100-2-10C"),
            Exit.NOT_SUPPORTED,
            "VG400",
            "no profile here is called",
        ),
        (ask(vm="vm03"), Exit.BUSY, "VG207", "all slots of its i440fx PCI bus are taken"),
        (ask(live=True), Exit.NOT_SUPPORTED, "VG215", "it is shut off"),
        (ask(hello_timeout_s=-1.0), Exit.USAGE, "VG100", "from 0 to 3600"),
        (ask(hello_timeout_s=float("nan")), Exit.USAGE, "VG100", "from 0 to 3600"),
        (ask(hello_timeout_s=float("inf")), Exit.USAGE, "VG100", "from 0 to 3600"),
        (ask(limits=("event=1",)), Exit.USAGE, "VG100", "there is no limit 'event': events?"),
        (ask(limits=("jit=1", "cpu=x")), Exit.USAGE, "VG100", "cpu=x: not a number"),
        (ask(profile="passthrough", limits=("jit=1",)), Exit.USAGE, "VG100", "forwarded"),
    ],
)
def test_refusals(
    bench: Bench, request_: AttachRequest, exit_code: Exit, id_: str, words: str
) -> None:
    check_refused(bench, request_, exit_code, id_, words)


def test_no_room_names_the_closest_gpu_and_the_vm_in_the_way(tmp_path: Path) -> None:
    one, two = make_gpu(index=0, layout=FULL_GPU), make_gpu(index=1, layout=[("3g.40gb", 0)])
    bench = make_bench(tmp_path, [one, two])
    bench.service.attach(ask("vm01", "3g.40gb", gpu="1"))
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask("vm02", "3g.40gb"))
    error = caught.value
    assert (error.id, error.exit_code) == ("VG104", Exit.BUSY)
    assert "came closest" in str(error.why)
    assert any("instance" in holder for holder in error.held_by)
    assert bench.snapshot() == before


def test_serial_needs_no_slot(bench: Bench) -> None:
    done = bench.service.attach(ask("vm03", transport=Transport.SERIAL))
    assert done.usable == "next-start"


def test_second_attachment_of_a_vm(bench: Bench) -> None:
    first = bench.service.attach(ask())
    assert first.attachment is not None
    before = bench.snapshot()
    bench.nvml.calls.clear()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(profile="2g.20gb"))
    assert (caught.value.id, caught.value.exit_code) == ("VG210", Exit.BUSY)
    assert first.attachment.id in caught.value.held_by[0]
    assert "vgpumgr attach vm01 --profile 2g.20gb --add" in (caught.value.hint or "")
    assert bench.snapshot() == before
    assert not bench.nvml.calls


def test_unprivileged(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, privileged=False)
    check_refused(bench, ask(), Exit.NOT_PERMITTED, "VG213", "root")
    assert bench.service.attach(ask(), dry_run=True).dry_run
    with pytest.raises(VgpumgrError) as caught:
        bench.service.detach("vm01")
    assert caught.value.exit_code is Exit.NOT_PERMITTED


def test_libvirt_down(bench: Bench) -> None:
    bench.hypervisor.fail["read_vm"] = LibvirtDownError("cannot reach libvirt", cause="refused")
    check_refused(bench, ask(), Exit.ERROR, "VG202", "refused")


def test_somebody_else_is_at_it(bench: Bench, tmp_path: Path) -> None:
    with lock_file(tmp_path / "run" / "vgpumgr.lock"), pytest.raises(LockHeldError):
        bench.service.attach(ask())
    assert bench.store.list_attachments() == ()


def test_dry_run_changes_nothing_and_shows_the_plan(bench: Bench) -> None:
    before = bench.snapshot()
    done = bench.service.attach(ask(), dry_run=True)
    assert done.dry_run
    assert done.attachment is None
    assert [step.kind for step in done.plan.steps] == [
        "attachment.record",
        "mig.mode.enable",
        "mig.gi.create",
        "mig.ci.create",
        "channel.start",
        "domain.attach",
        "domain.note",
        "attachment.mark",
    ]
    assert bench.snapshot() == before
    assert not bench.state_dir.exists()
    json.dumps(done.as_data())


def test_running_vm_gets_both_scopes_and_hello_counts(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, running=True)
    bench.channels.hello = True
    assert bench.service.attach(ask("vm02")).usable == "now"
    kinds = [s.kind for s in bench.service.detach("vm02", dry_run=True).plan.steps]
    assert kinds == [
        "attachment.mark",
        "domain.detach",
        "domain.detach",
        "domain.note.remove",
        "channel.stop",
        "mig.ci.destroy",
        "mig.gi.destroy",
        "mig.mode.disable",
        "attachment.forget",
    ]


def test_detach_destroys_no_slice_that_is_gone(bench: Bench) -> None:
    before = bench.snapshot()
    bench.service.attach(ask())
    uuid = bench.gpu.uuid
    (instance,) = bench.gpu.instances
    bench.nvml.gpus[uuid] = replace(bench.gpu, instances=(replace(instance, compute_instances=()),))
    kinds = [s.kind for s in bench.service.detach("vm01", dry_run=True).plan.steps]
    assert [kind for kind in kinds if kind.startswith("mig.")] == [
        "mig.gi.destroy",
        "mig.mode.disable",
    ]
    bench.nvml.gpus[uuid] = replace(bench.gpu, instances=())
    plan = bench.service.detach("vm01", dry_run=True).plan
    assert [s.kind for s in plan.steps if s.kind.startswith("mig.")] == ["mig.mode.disable"]
    assert f"its slice 1g.10gb at {instance.placement} on {bench.gpu} is gone already" in plan.notes
    bench.service.detach("vm01")
    assert bench.snapshot() == before


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("transport", list(Transport))
@pytest.mark.parametrize("vm", ["vm01", "vm02"])
def test_detach_restores_what_was(
    tmp_path: Path, vm: str, transport: Transport, running: bool
) -> None:
    bench = make_bench(tmp_path, running=running)
    before = bench.snapshot()
    bench.service.attach(ask(vm, transport=transport, hello_timeout_s=0.1))
    assert bench.snapshot() != before
    bench.service.detach(vm)
    assert bench.snapshot() == before


def test_mode_goes_off_with_the_last_of_ours(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    before = bench.snapshot()
    bench.service.attach(ask("vm01"))
    bench.service.attach(ask("vm02"))
    done = bench.service.detach("vm01")
    assert "attachment.handover" in [step.kind for step in done.plan.steps]
    assert bench.gpu.mig.current
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_mode_stays_on_for_strangers(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(ask("vm01"))
    bench.nvml.create_gpu_instance(bench.gpu.uuid, 19, bench.gpu.profiles[0].placements[0])
    done = bench.service.detach("vm01")
    assert "not vgpumgr's" in done.plan.notes[0]
    assert bench.gpu.mig.current


def test_mode_that_was_on_stays_on(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[])])
    bench.service.attach(ask())
    bench.service.detach("vm01")
    assert bench.gpu.mig.current


HALF_GONE = ["keeper", "domain", "instance", "compute", "gpu", "devices", "note"]


@given(st.sets(st.sampled_from(HALF_GONE)))
@settings(max_examples=40, deadline=None)
def test_broken_attachments_can_always_be_detached(gone: set[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = make_bench(Path(directory))
        done = bench.service.attach(ask())
        assert done.attachment is not None
        _break(bench, done.attachment.id, gone)
        bench.service.list_vms()
        bench.service.list_channels()
        bench.service.detach("vm01")
        assert bench.store.list_attachments() == ()
        assert bench.channels.running == {}
        assert all(not gpu.instances for gpu in bench.nvml.gpus.values())
        machine = bench.hypervisor.machines.get(UUID_PC)
        if machine is not None and machine.config is not None:
            assert machine.config.own_aliases() == ()


def _break(bench: Bench, id_: str, gone: set[str]) -> None:
    gpu = bench.gpu
    if "keeper" in gone:
        bench.channels.running.pop(id_)
    machine = bench.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    if "devices" in gone:
        machine.config = machine.config.changed(shmems=())
    if "note" in gone:
        machine.notes = ()
    if "domain" in gone:
        del bench.hypervisor.machines[UUID_PC]
    if "compute" in gone or "instance" in gone:
        instance = gpu.instances[0]
        bench.nvml.destroy_compute_instance(gpu.uuid, instance.id, 0)
    if "instance" in gone:
        bench.nvml.destroy_gpu_instance(gpu.uuid, gpu.instances[0].id)
    if "gpu" in gone:
        bench.nvml.gpus.clear()


@pytest.mark.parametrize("same_id", [False, True])
def test_somebody_elses_instance_in_our_place_is_left_alone(bench: Bench, same_id: bool) -> None:
    """After a reboot the instance is gone, and another VM's may stand there; the driver gives its
    number again, but never its UUID.
    """
    bench.service.attach(ask())
    gpu = bench.gpu
    ours = gpu.instances[0]
    bench.nvml.destroy_compute_instance(gpu.uuid, ours.id, 0)
    bench.nvml.destroy_gpu_instance(gpu.uuid, ours.id)
    other = bench.nvml.create_gpu_instance(gpu.uuid, 19, ours.placement)
    bench.nvml.create_compute_instance(gpu.uuid, other.id, 1)
    if same_id:
        (made,) = bench.gpu.instances[0].compute_instances
        made = replace(made, uuid=MigUuid(make_uuid("MIG", 7, 7)))
        other = replace(other, id=ours.id, compute_instances=(made,))
        bench.nvml.gpus[gpu.uuid] = replace(bench.gpu, instances=(other,))
    before = bench.gpu.instances
    bench.service.detach("vm01")
    assert bench.gpu.instances == before


def test_an_instance_that_was_put_elsewhere_is_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing, create = bench.snapshot(), bench.nvml.create_gpu_instance
    elsewhere = Placement(0, 1)
    monkeypatch.setattr(
        bench.nvml, "create_gpu_instance", lambda gpu, id_, _: create(gpu, id_, elsewhere)
    )
    with pytest.raises(RolledBackError, match="asked for 6:1, it was put at 0:1"):
        bench.service.attach(ask())
    assert bench.snapshot() == nothing


def test_a_device_without_a_uuid_is_given_to_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing, create = bench.snapshot(), bench.nvml.create_compute_instance
    monkeypatch.setattr(
        bench.nvml, "create_compute_instance", lambda *asked: replace(create(*asked), uuid=None)
    )
    with pytest.raises(RolledBackError, match="no UUID"):
        bench.service.attach(ask())
    assert bench.snapshot() == nothing


def test_a_slice_that_is_never_released_is_not_called_detached(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.service.attach(ask())

    def refuse(*_: object) -> None:
        raise NvmlInUseError("in use")

    with monkeypatch.context() as patch:
        patch.setattr(bench.nvml, "destroy_compute_instance", refuse)
        with pytest.raises(NvmlInUseError):
            bench.service.detach("vm01")
    assert bench.store.list_attachments() != ()
    bench.service.detach("vm01")
    assert [i.profile for i in bench.gpu.instances] == []
    assert bench.store.list_attachments() == ()


#: where a failure can be put: (part, method), in the order of an attach to a running VM
FAILURES = [
    ("nvml", "set_mig_mode"),
    ("nvml", "create_gpu_instance"),
    ("nvml", "create_compute_instance"),
    ("channels", "start"),
    ("hypervisor", "attach_device config"),
    ("hypervisor", "attach_device live"),
    ("hypervisor", "set_notes config"),
    ("channels", "set_memory"),
]
ERRORS = [
    NvmlError("the driver refuses", cause="NVML 999", why="who knows"),
    HelperLateError("no answer"),
    LibvirtError("refused", cause="libvirt error 1"),
    RuntimeError("a bug"),
]


@given(
    st.sampled_from(FAILURES),
    st.sampled_from(ERRORS),
    st.booleans(),
    st.sampled_from(["vm01", "vm02"]),
)
@settings(max_examples=60, deadline=None)
def test_failure_at_any_step_leaves_the_world_as_before(
    where: tuple[str, str], error: Exception, running: bool, vm: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = make_bench(Path(directory), running=running)
        before = bench.snapshot()
        part, method = where
        getattr(bench, part).fail[method] = error
        try:
            bench.service.attach(ask(vm, hello_timeout_s=0.1))
        except RolledBackError as caught:
            assert caught.exit_code is Exit.ROLLED_BACK
            assert "everything done before it was undone" in str(caught.why)
            assert caught.__cause__ is error
            assert bench.snapshot() == before
            assert Journal(bench.state_dir / "journal", "test").unfinished() == {}
            assert method not in getattr(bench, part).fail
        else:
            # the plan had no such step
            assert method in getattr(bench, part).fail
            assert not running or vm == "vm01"


UNDOS = [
    ("nvml", "destroy_gpu_instance", "GPU instance"),
    ("channels", "stop", "worker"),
    ("hypervisor", "detach_device config", "devices"),
]


@pytest.mark.parametrize(("part", "method", "word"), UNDOS)
def test_failing_undo_is_exit_10_and_says_what_is_left(
    bench: Bench, part: str, method: str, word: str
) -> None:
    before = bench.snapshot()
    bench.hypervisor.fail["set_notes config"] = LibvirtError("refused")
    getattr(bench, part).fail[method] = LibvirtError("this as well")
    with pytest.raises(RollbackIncompleteError) as caught:
        bench.service.attach(ask())
    error = caught.value
    assert error.exit_code is Exit.ROLLBACK_INCOMPLETE
    assert "could not undo" in str(error.why)
    assert word in str(error.why) or "give vm01" in str(error.why)
    assert error.hint == "vgpumgr detach vm01"
    assert bench.snapshot() != before
    assert len(Journal(bench.state_dir / "journal", "test").unfinished()) == 1


def test_failed_undo_that_a_later_one_makes_good(bench: Bench) -> None:
    """Destroying the GPU instance takes along the compute instance that could not be destroyed."""
    before = bench.snapshot()
    bench.hypervisor.fail["set_notes config"] = LibvirtError("refused")
    bench.nvml.fail["destroy_compute_instance"] = NvmlError("not now")
    with pytest.raises(RolledBackError):
        bench.service.attach(ask())
    assert bench.snapshot() == before


def test_worker_that_never_gets_ready(bench: Bench) -> None:
    before = bench.snapshot()
    bench.channels.never_ready = True
    with pytest.raises(RolledBackError) as caught:
        bench.service.attach(ask())
    assert caught.value.cause == "no CUDA device"
    assert bench.snapshot() == before


def test_refusal_of_the_first_change_keeps_its_own_exit_code(tmp_path: Path) -> None:
    """A race: somebody else took the place after planning. Only our record existed, and it is gone."""
    bench = make_bench(tmp_path, [make_gpu(layout=[])])
    before = bench.snapshot()
    bench.nvml.fail["create_gpu_instance"] = NvmlInUseError("in use", held_by=["process 1 (x)"])
    with pytest.raises(RolledBackError) as caught:
        bench.service.attach(ask())
    assert caught.value.held_by == ("process 1 (x)",)
    assert bench.snapshot() == before


def test_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bench.snapshot()

    def interrupt(_spec: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.channels, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.service.attach(ask())
    assert bench.snapshot() == before


def test_crash_in_the_middle_leaves_something_to_detach(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step the process dies in: the record names what may be there, and detach removes it."""
    before = bench.snapshot()

    def crash(*_arguments: object) -> None:
        raise SystemExit

    monkeypatch.setattr("vgpumgr.engine.executor.Executor._fail", crash)
    for method in ("create_gpu_instance", "create_compute_instance"):
        bench.nvml.fail[method] = RuntimeError("dies here")
        with pytest.raises(SystemExit):
            bench.service.attach(ask())
        (record,) = bench.store.list_attachments()
        assert record.state is AttachmentState.ATTACHING
        assert "interrupted" in bench.service.show_vm("vm01").vm.problems[0]
        bench.service.detach("vm01")
        assert bench.snapshot() == before


def test_guest_that_keeps_its_device(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, running=True)
    bench.service.attach(ask(hello_timeout_s=0.1))
    bench.hypervisor.guest_releases = False
    done = bench.service.detach("vm01")
    assert sum("has not released" in note for note in done.notes) == 2
    assert bench.gpu.instances == ()
    machine = bench.hypervisor.machines[UUID_PC]
    assert machine.live is not None
    assert machine.live.own_aliases() != ()
    assert bench.hypervisor.read_vm("vm01").definition(Scope.CONFIG).own_aliases() == ()  # type: ignore[union-attr]


def test_processes_in_the_way_of_mig_mode(tmp_path: Path) -> None:
    process = GpuProcess(4711, "python3", ProcessKind.COMPUTE, 1 << 20)
    bench = make_bench(tmp_path, [make_gpu(layout=None, processes=[process])])
    check_refused(bench, ask(), Exit.BUSY, "VG104", "python3")


def test_nothing_to_detach(bench: Bench) -> None:
    for selector, id_ in (("vm01", "VG211"), ("vm99", "VG201")):
        with pytest.raises(VgpumgrError) as caught:
            bench.service.detach(selector)
        assert (caught.value.id, caught.value.exit_code) == (id_, Exit.NOT_FOUND)
    with pytest.raises(VgpumgrError) as caught:
        bench.service.show_channel("vm01")
    assert caught.value.id == "VG220"


def test_a_keeper_that_does_not_answer_hides_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.service.attach(ask())

    def hang(_id: str) -> None:
        raise LibvirtError("the keeper does not answer", cause="timed out")

    monkeypatch.setattr(bench.channels, "read_status", hang)
    (channel,) = bench.service.list_channels().channels
    assert channel.problem == "the keeper does not answer: timed out"
    assert len(bench.service.list_vms().vms) == 3
