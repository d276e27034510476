"""Recovery on fakes: what differs is told, what may be repaired is, and what is not ours stays."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.service import Bench, make_bench
from vgpumgr.app.context import list_late_processes
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.engine.journal import Journal
from vgpumgr.engine.step import Plan
from vgpumgr.errors import (
    Exit,
    HelperLateError,
    JournalFailedError,
    LibvirtDownError,
    NotPermittedError,
    NvmlInUseError,
    OutcomePendingError,
    RollbackIncompleteError,
)
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import ProcessId, read_identity
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.mig import Placement
from vgpumgr.model.request import AttachRequest
from vgpumgr.nvml.client import READ_INVENTORY, STUCK
from vgpumgr.state.store import Store
from vgpumgr.steps.domain import list_controllers
from vgpumgr.steps.mig import EnableMigMode


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def recovery(bench: Bench) -> Recovery:
    return Recovery(bench.service.parts)


def attach(bench: Bench, vm: str = "vm01") -> str:
    done = bench.service.attach(AttachRequest(vm, "1g.10gb"))
    assert done.attachment is not None
    return done.attachment.id


def kinds(bench: Bench) -> list[str]:
    return [drift.kind for drift in recovery(bench).diff().drift]


def check_at_rest(bench: Bench) -> None:
    """Nothing differs, and recovering again changes nothing."""
    before = bench.snapshot()
    again = recovery(bench).recover(Policy())
    assert (again.actions, again.drift) == ([], [])
    assert bench.snapshot() == before


def test_nothing_differs_after_attach(bench: Bench) -> None:
    attach(bench)
    assert kinds(bench) == []
    status = recovery(bench).status()
    assert (status.journal, status.attachments, status.drift, status.problems) == ("ok", 1, [], [])
    check_at_rest(bench)


def test_a_dead_keeper_is_started_again(bench: Bench) -> None:
    id_ = attach(bench)
    bench.channels.running.clear()
    assert kinds(bench) == ["keeper-gone"]
    done = recovery(bench).recover(Policy())
    assert [a.text for a in done.actions] == ["started its keeper again"]
    assert id_ in bench.channels.running
    check_at_rest(bench)


def test_a_keeper_of_nobody_is_stopped(bench: Bench) -> None:
    id_ = attach(bench)
    bench.store.delete_attachment(id_)
    bench.hypervisor.machines[UUID_PC].notes = ()
    assert sorted(kinds(bench)) == ["stray-channel", "stray-devices"]
    recovery(bench).recover(Policy())
    assert bench.channels.running == {}
    bench.service.detach("vm01")
    assert kinds(bench) == []


@pytest.mark.parametrize("limits", ["contexts=2 device-mem=8GB", "contexts=\x1f"])
def test_a_channel_whose_limits_cannot_be_read_goes_on(bench: Bench, limits: str) -> None:
    id_ = attach(bench)
    record = bench.store.list_attachments()[0]
    bench.store.delete_attachment(id_)
    machine = bench.hypervisor.machines[UUID_PC]
    (note,) = machine.notes
    machine.notes = (replace(note, limits=limits),)
    found = recovery(bench).recover(Policy())
    assert (found.actions, [drift.kind for drift in found.drift]) == ([], ["metadata-unreadable"])
    (drift,) = found.drift
    assert "cannot be read: " in drift.text
    assert drift.text.endswith("; its channel stays as it is")
    assert id_ in bench.channels.running
    assert recovery(bench).recover(Policy()).actions == []
    machine.notes = (note,)
    recovery(bench).recover(Policy())
    assert bench.store.list_attachments() == (record,)
    assert id_ in bench.channels.running
    check_at_rest(bench)


def test_recorded_limits_that_cannot_be_read_stop_nothing_else(bench: Bench) -> None:
    id_ = attach(bench)
    record = bench.store.list_attachments()[0]
    bench.store.save_attachment(record.with_channel(limits=("gadgets=2",)))
    done = recovery(bench).recover(Policy())
    assert done.drift == []
    assert id_ in bench.channels.running, "what runs is not asked for them"
    bench.channels.running.clear()
    (action,) = recovery(bench).recover(Policy()).actions
    assert not action.done
    assert "there is no limit 'gadgets'" in action.text
    assert bench.store.list_attachments()[0].id == id_
    assert [one.id for one in bench.service.list_channels().channels] == [id_]


def test_lost_devices_are_given_again_only_if_asked(bench: Bench) -> None:
    attach(bench)
    machine = bench.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    before = set(machine.config.own_aliases())
    machine.config = machine.config.changed(shmems=())
    left = recovery(bench).recover(Policy())
    assert [drift.kind for drift in left.drift] == ["device-gone"]
    done = recovery(bench).recover(Policy(readd=True))
    assert done.drift == []
    assert machine.config is not None
    assert set(machine.config.own_aliases()) == before


def test_an_undefined_vm_keeps_its_slice_until_told_otherwise(bench: Bench) -> None:
    attach(bench)
    del bench.hypervisor.machines[UUID_PC]
    assert [d.kind for d in recovery(bench).recover(Policy()).drift] == ["vm-gone"]
    assert len(bench.gpu.instances) == 1
    assert recovery(bench).recover(Policy(release=True)).drift == []
    assert bench.gpu.instances == ()
    assert bench.store.list_attachments() == ()


def test_a_renamed_vm_is_followed(bench: Bench) -> None:
    attach(bench)
    bench.hypervisor.machines[UUID_PC].name = "web"
    assert kinds(bench) == ["vm-renamed"]
    recovery(bench).recover(Policy())
    assert bench.store.list_attachments()[0].vm_name == "web"
    check_at_rest(bench)


def test_a_slice_that_is_gone_is_told(bench: Bench) -> None:
    attach(bench)
    bench.nvml.gpus[bench.gpu.uuid] = replace(bench.gpu, instances=())
    (drift,) = recovery(bench).diff().drift
    assert (drift.kind, drift.hint) == ("slice-gone", "vgpumgr restore")


def test_the_whole_state_comes_back_from_libvirt_alone(bench: Bench) -> None:
    for vm in ("vm01", "vm02"):
        attach(bench, vm)
    before = bench.store.list_attachments()
    for path in (*bench.state_dir.parent.glob("state.[!l]*"), bench.state_dir / "journal"):
        path.unlink()
    assert kinds(bench) == ["record-gone", "record-gone"]
    done = recovery(bench).recover(Policy())
    assert done.drift == []
    assert bench.store.list_attachments() == before
    check_at_rest(bench)


def test_a_clone_of_a_domain_is_no_owner(bench: Bench) -> None:
    id_ = attach(bench)
    notes = bench.hypervisor.machines[UUID_PC].notes
    bench.hypervisor.machines[UUID_Q35].notes = notes
    bench.store.delete_attachment(id_)
    recovery(bench).recover(Policy())
    assert [r.vm_uuid for r in bench.store.list_attachments()] == [UUID_PC]


def test_a_failed_sync_is_final_until_recovered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = bench.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(Exception, match="journal"):
            attach(bench)
    for _ in range(2):  # the disk is well again, what is on it is not known
        with pytest.raises(JournalFailedError):
            attach(bench)
    assert recovery(bench).status().journal == "failed"
    assert bench.service.list_vms().vms, "reads are served"
    assert bench.snapshot() == before
    recovery(bench).recover(Policy())
    attach(bench)
    assert list(bench.state_dir.glob("journal.failed-*")), "kept, not deleted"


def test_a_journal_of_junk_is_not_taken_for_an_empty_one(bench: Bench) -> None:
    attach(bench)
    path = bench.state_dir / "journal"
    path.write_bytes(bytes(range(1, 256)) * 20)
    status = recovery(bench).status()
    assert status.journal == "corrupt"
    assert status.problems == ["journal: line 1 is no line that was cut off"]
    assert "journal" in {action.subject for action in recovery(bench).recover(Policy()).actions}
    assert recovery(bench).status().journal == "ok"
    (kept,) = bench.state_dir.glob("journal.corrupt-*")
    assert kept.read_bytes() == bytes(range(1, 256)) * 20


def test_a_journal_that_is_a_link_is_one_problem_with_its_reason(
    bench: Bench, tmp_path: Path
) -> None:
    attach(bench)
    path = bench.state_dir / "journal"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    problem = f"{path} is not to be trusted: it is a symbolic link, and none is followed here"
    assert recovery(bench).status().problems == [problem]


class Stuck:
    """A helper that does not come back; whether it still runs is up to the test."""

    def __init__(self) -> None:
        self.processes: Sequence[str] = ()


def with_helpers(bench: Bench, stuck: Stuck) -> Bench:
    parts = replace(bench.service.parts, list_late=lambda: stuck.processes)
    return replace(bench, service=AttachmentService(parts))


@pytest.mark.parametrize(
    "method", ["create_gpu_instance", "create_compute_instance", "set_mig_mode"]
)
@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_late_helper_is_waited_for_and_what_it_did_is_undone(
    tmp_path: Path, method: str, takes_effect: bool
) -> None:
    stuck = Stuck()
    bench = with_helpers(make_bench(tmp_path, [make_gpu(layout=None), make_gpu(index=1)]), stuck)
    bench.nvml.fail[method] = HelperLateError("no answer")
    before = bench.snapshot()
    stuck.processes = ["process 4711 (create)"]
    with pytest.raises(OutcomePendingError) as caught:
        bench.service.attach(AttachRequest("vm01", "1g.10gb", gpu="0"))
    assert (caught.value.exit_code, caught.value.held_by) == (Exit.PENDING, tuple(stuck.processes))
    waiting = bench.snapshot()
    done = recovery(bench).recover(Policy())
    assert [a.done for a in done.actions] == [False]
    assert bench.snapshot() == waiting, "nothing is undone before it has ended"
    with pytest.raises(OutcomePendingError):
        bench.service.detach("vm01")
    # another VM on another GPU is not concerned
    bench.service.attach(AttachRequest("vm02", "1g.10gb", gpu="1"))
    bench.service.detach("vm02")
    if takes_effect:
        take_effect(bench, method)
    stuck.processes = ()
    recovery(bench).recover(Policy())
    assert bench.snapshot() == before
    check_at_rest(bench)


def take_effect(bench: Bench, method: str) -> None:
    (record,) = bench.store.list_attachments()
    if method == "set_mig_mode":
        bench.nvml.set_mig_mode(record.gpu, True)
    elif method == "create_gpu_instance":
        bench.nvml.create_gpu_instance(record.gpu, record.mig_part.gpu_profile_id, record.placement)
    else:
        (instance,) = bench.gpu.instances
        bench.nvml.create_compute_instance(record.gpu, instance.id, 1)


def test_somebody_elses_instance_in_the_place_of_an_interrupted_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[])])
    monkeypatch.setattr("vgpumgr.engine.executor.Executor._fail", lambda *_: exit(1))
    bench.nvml.fail["create_gpu_instance"] = RuntimeError("dies here")
    with pytest.raises(SystemExit):
        attach(bench)
    (record,) = bench.store.list_attachments()
    monkeypatch.undo()
    other = bench.nvml.create_gpu_instance(record.gpu, 19, record.placement)
    bench.nvml.create_compute_instance(record.gpu, other.id, 1)
    done = recovery(bench).recover(Policy())
    assert "not its own and stays" in done.actions[0].text
    assert [i.id for i in bench.gpu.instances] == [other.id]
    assert bench.store.list_attachments() == ()


def test_without_journal_what_may_be_anybodys_is_kept_and_said(bench: Bench) -> None:
    id_ = attach(bench)
    (record,) = bench.store.list_attachments()
    bench.service.detach("vm01")
    (bench.state_dir / "journal").unlink()
    half = replace(record, state=AttachmentState.ATTACHING).with_mig(ref=None, gpu_instance_id=None)
    bench.store.save_attachment(half)
    bench.nvml.set_mig_mode(record.gpu, True)
    bench.nvml.create_gpu_instance(record.gpu, record.mig_part.gpu_profile_id, record.placement)
    done = recovery(bench).recover(Policy())
    assert [a.done for a in done.actions] == [False]
    assert f"vgpumgr detach {record.vm_name}" in done.actions[0].text
    assert bench.store.list_attachments()[0].id == id_
    bench.service.detach("vm01")
    assert bench.gpu.instances == ()


def test_a_completed_attach_knows_the_controllers_that_came_with_it(bench: Bench) -> None:
    """And counts none that others add from then on."""
    attach(bench)
    (record,) = bench.store.list_attachments()
    there = list_controllers(bench.hypervisor.read_vm("vm01").config)
    (bench.state_dir / "journal").unlink()
    bench.store.save_attachment(
        replace(record, state=AttachmentState.ATTACHING, controllers_before=there[:1])
    )
    done = recovery(bench).recover(Policy())
    assert "the interrupted attach was completed" in done.actions[0].text
    (after,) = bench.store.list_attachments()
    assert (after.state, after.controllers) == (AttachmentState.ATTACHED, there[1:])
    assert after.controllers_before is None


def test_the_next_command_settles_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpumgr.engine.executor.Executor._fail", lambda *_: exit(1))
    bench.hypervisor.fail["set_notes config"] = RuntimeError("dies here")
    with pytest.raises(SystemExit):
        attach(bench)
    monkeypatch.undo()
    assert recovery(bench).diff().interrupted[0].operation == "attach"
    done = bench.service.attach(AttachRequest("vm02", "1g.10gb"))
    assert any("the interrupted attach was undone" in note for note in done.notes)
    assert [r.vm_name for r in bench.store.list_attachments()] == ["vm02"]


@pytest.mark.parametrize("operation", ["apply", "vf enable", "create vGPU"])
def test_what_undoing_had_to_say_is_in_the_report(tmp_path: Path, operation: str) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[("1g.10gb", 0)])])
    step = EnableMigMode(bench.gpu.uuid)
    with closing(bench.service.parts.open_journal()) as journal:
        journal.append("one", "begin", Plan(operation, "subject", (step,)).encode())
        journal.append("one", "intent", {"step": 0, "kind": step.kind})
    (action,) = recovery(bench).recover(Policy()).actions
    assert action.done
    assert f"undone; MIG mode stays on on {bench.gpu}: it has instances of others" in action.text


def test_what_undoing_an_attach_had_to_say_is_in_the_report(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpumgr.engine.executor.Executor._fail", lambda *_: exit(1))
    bench.hypervisor.fail["set_notes config"] = RuntimeError("dies here")
    with pytest.raises(SystemExit):
        attach(bench)
    monkeypatch.undo()
    bench.nvml.fail["set_mig_mode"] = NvmlInUseError("a client has it open")
    (action,) = recovery(bench).recover(Policy()).actions
    assert "the interrupted attach was undone" in action.text
    assert "MIG mode stays on" in action.text
    assert "a client has it open" in action.text


def test_status_names_an_operation_of_another_version(bench: Bench) -> None:
    with closing(bench.service.parts.open_journal()) as journal:
        begin = {**Plan("attach", "vm01", ()).encode(), "steps": [{"kind": "fly"}]}
        journal.append("one", "begin", begin)
        journal.append("one", "intent", {"step": 0, "kind": "fly"})
    status = recovery(bench).status()
    assert [i.operation for i in status.interrupted] == ["attach"]
    assert status.problems == [
        "attach vm01: cannot read a step in the journal: no step is called 'fly'; "
        "vgpumgr recover, with the version that began the operation"
    ]
    attach(bench, "vm02")
    bench.service.detach("vm02")
    assert [i.subject for i in recovery(bench).status().interrupted] == ["vm01"]


def test_a_command_holds_the_store_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    hold = Store.held_open
    monkeypatch.setattr(Store, "held_open", lambda store: held.append(store) or hold(store))
    attach(bench)
    assert held == [bench.store]


@pytest.mark.parametrize("lost", ["detach_device config", "stop", "destroy_gpu_instance"])
def test_what_could_not_be_undone_is_not_forgotten(bench: Bench, lost: str) -> None:
    """As when libvirt dies in the middle of an attach and is not back while it is undone."""
    before = bench.snapshot()
    part = {"stop": bench.channels, "destroy_gpu_instance": bench.nvml}.get(lost, bench.hypervisor)
    bench.hypervisor.fail["set_notes config"] = LibvirtDownError("libvirt is gone")
    part.fail[lost] = LibvirtDownError("it is gone")
    with pytest.raises(RollbackIncompleteError):
        attach(bench)
    assert [r.vm_name for r in bench.store.list_attachments()] == ["vm01"]
    assert bench.snapshot() != before
    recovery(bench).recover(Policy())
    assert bench.snapshot() == before
    check_at_rest(bench)


def test_status_tells_what_does_not_answer(bench: Bench) -> None:
    bench.hypervisor.fail["list_vms"] = LibvirtDownError("libvirt does not answer")
    status = recovery(bench).status()
    assert (status.vms, status.gpus, status.drift) == (None, 1, None)
    assert status.problems == ["libvirt does not answer"]


def test_status_does_not_join_a_read_that_is_stuck(bench: Bench) -> None:
    records = LateRecords(bench.service.parts.run_dir)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            identity = read_identity(process.pid)
            assert identity is not None
            records.record(identity, READ_INVENTORY)
            before = list(bench.nvml.calls)
            status = recovery(bench).status()
        finally:
            process.kill()
    assert (status.vms, status.gpus, status.drift) == (3, None, None)
    assert [problem.startswith(STUCK) for problem in status.problems] == [True]
    assert bench.nvml.calls == before
    assert recovery(bench).status().problems == []


def test_recovering_needs_root(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, privileged=False)
    with pytest.raises(NotPermittedError):
        recovery(bench).recover(Policy())


def test_a_helper_whose_command_was_killed_is_found(tmp_path: Path) -> None:
    records = LateRecords(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = read_identity(process.pid)
        assert identity is not None
        records.note_start(identity)
        assert records.list_orphans() == [], "its owner is this process"
        (path,) = (tmp_path / "late").glob("*.run")
        mine = read_identity(os.getpid())
        assert mine is not None
        path.write_text(path.read_text().replace(str(mine.start_ticks), "1"))
        assert [late.process for late in records.list_orphans()] == [identity]
        process.kill()
    assert records.list_orphans() == []
    records.note_end(ProcessId(1, 1))


def test_a_late_helper_whose_command_has_ended_is_told_once_by_what_it_does(tmp_path: Path) -> None:
    machine = Machine("m", tmp_path, tmp_path, tmp_path, "test:///default")
    records = LateRecords(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = read_identity(process.pid)
        mine = read_identity(os.getpid())
        assert identity is not None
        assert mine is not None
        records.note_start(identity)
        (path,) = (tmp_path / "late").glob("*.run")
        path.write_text(path.read_text().replace(str(mine.start_ticks), "1"))
        records.record(identity, "give 0000:01:00.0 back to nvidia")
        told = f"process {process.pid} (give 0000:01:00.0 back to nvidia)"
        assert list_late_processes(machine) == [told]
        process.kill()
    assert list_late_processes(machine) == []


def test_status_says_that_an_operation_waits_only_while_its_helper_lives(bench: Bench) -> None:
    late = ["process 7 (create it)"]
    parts = replace(bench.service.parts, list_late=lambda: late)
    with closing(parts.open_journal()) as journal:
        begin = Plan("attach", "vm01", (), result={"attachment": "a1"}).encode()
        journal.append("op", "begin", begin)
        journal.append("op", "late", {"step": 0, "kind": "mig.gi.create"})
    assert [i.waits for i in Recovery(parts).status().interrupted] == [True]
    late.clear()
    assert [i.waits for i in Recovery(parts).status().interrupted] == [False]


def test_interrupted_operations_count_as_placed(bench: Bench) -> None:
    """The journal alone is enough to go on from: the state file may be lost in the middle."""
    attach(bench)
    place = bench.gpu.instances[0].placement
    assert isinstance(place, Placement)
    events = list(Journal(bench.state_dir / "journal", "test").read())
    last = [e for e in events if "record" in e.data][-1]
    assert last.data["record"]["state"] == "attached"


@pytest.fixture
def without_libvirt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LibvirtDownError("libvirt does not answer", cause="Connection refused")

    for method in ("list_vms", "read_vm"):
        monkeypatch.setattr(bench.hypervisor, method, refuse)


def test_without_libvirt_and_attachments_nothing_waits(bench: Bench, without_libvirt: None) -> None:  # noqa: ARG001
    told = recovery(bench).recover(Policy())
    assert (told.actions, told.drift) == ([], [])


def test_without_libvirt_keepers_come_back_and_what_waits_is_told(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    attach(bench)
    (record,) = bench.store.list_attachments()
    bench.channels.running.pop(record.id)
    request.getfixturevalue("without_libvirt")
    told = recovery(bench).recover(Policy())
    assert record.id in bench.channels.running
    started, waits = told.actions
    assert (started.done, waits.done, waits.subject) == (True, False, "vm01")
    assert "libvirt does not answer" in waits.text
    assert told.drift == []
    assert bench.store.list_attachments() == (record,), "nothing is freed without asking libvirt"
    policy = Policy(release=True, readd=True)
    again = Recovery(bench.service.parts).recover(policy)
    assert [a.done for a in again.actions] == [False]
    with pytest.raises(LibvirtDownError):
        Recovery(bench.service.parts).recover(policy, needs_libvirt=True)


def test_without_libvirt_an_interrupted_attach_waits_and_is_named(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    attach(bench)
    (record,) = bench.store.list_attachments()
    bench.store.save_attachment(replace(record, state=AttachmentState.ATTACHING))
    request.getfixturevalue("without_libvirt")
    told = recovery(bench).recover(Policy())
    assert [a.done for a in told.actions] == [False, False]
    assert "is not recovered: libvirt does not answer" in told.actions[0].text
    assert bench.store.list_attachments()[0].state is AttachmentState.ATTACHING
