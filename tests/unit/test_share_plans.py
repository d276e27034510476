"""Attaching, refusing and changing shares on fakes: what is recorded, started, and left alone."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import GIB, make_gpu
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.capacity import why
from vgpumgr.app.operations.layouts import LayoutService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.app.operations.restore import Restorer
from vgpumgr.app.operations.runs import start_run
from vgpumgr.app.operations.shares import set_share
from vgpumgr.engine.executor import Executor
from vgpumgr.errors import (
    BackendUnsupportedError,
    ChannelStartError,
    Exit,
    NoRoomError,
    RolledBackError,
    ShareInUseError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.gpu import GpuMemory
from vgpumgr.model.pci import Function
from vgpumgr.model.request import AttachRequest
from vgpumgr.model.shares import Share
from vgpumgr.planning.shares import measure_shares
from vgpumgr.state.domain_metadata import rebuild_records

MIB = 1 << 20


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One A100 of 80 GiB without MIG mode."""
    return make_bench(tmp_path)


def attach(bench: Bench, profile: str, vm: str = "vm01", **more: Any) -> Any:
    return bench.service.attach(replace(AttachRequest(vm, profile, **more)))


def get_record(bench: Bench, vm: str = "vm01") -> AttachmentRecord:
    return next(r for r in bench.store.list_attachments() if r.vm_name == vm)


def refuse(bench: Bench, profile: str, vm: str = "vm01", **more: Any) -> VgpumgrError:
    """The error of an attach that changes nothing."""
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        attach(bench, profile, vm, **more)
    assert bench.snapshot() == before
    return caught.value


def say(error: VgpumgrError) -> str:
    return " ".join([error.error, error.why or "", error.cause or "", *error.held_by])


# --- attach and detach


def test_a_share_is_recorded_started_and_noted(bench: Bench) -> None:
    document = attach(bench, "share:8GiB,30%")
    record, spec = get_record(bench), next(iter(bench.channels.specs.values()))
    assert record.profile == "share:8GiB,30%"
    assert record.share_part is not None
    assert record.share_part.policy is ComputePolicy.BURST
    assert record.memory_bytes == 8 * GIB
    assert record.mig_part is None
    assert (spec.cuda_device, spec.gpu) == (str(bench.gpu.uuid),) * 2
    assert spec.limits.device_memory == 8 * GIB
    assert (spec.compute, spec.compute_policy) == (30, ComputePolicy.BURST)
    assert spec.gpu_instance_id is None
    vm = bench.hypervisor.read_vm("vm01")
    assert rebuild_records(vm) == (record,)
    shown = document.attachment
    assert (shown.share.compute, shown.share.policy) == (30, "burst")
    assert shown.device == str(bench.gpu.uuid)
    assert not bench.gpu.mig.current


def test_the_plan_says_where_why_and_how_much_of_the_time(bench: Bench) -> None:
    plan = bench.service.attach(AttachRequest("vm01", "share:8GiB,30%"), dry_run=True).plan
    (start,) = [step for step in plan.steps if step.kind == "channel.start"]
    assert "at most device-memory=8GiB, 30% of the time, burst" in start.description
    assert any("it has no shares yet; share:72GiB,70% stays free" in note for note in plan.notes)
    assert not bench.store.list_attachments()


def test_detach_leaves_nothing_and_the_share_is_free_again(bench: Bench) -> None:
    before = bench.snapshot()
    attach(bench, "share:80GiB,100%")
    error = refuse(bench, "share:1GiB,1%", "vm02")
    assert (error.id, error.exit_code) == ("VG104", Exit.BUSY)
    bench.service.detach("vm01")
    assert bench.snapshot() == before
    attach(bench, "share:80GiB,100%", "vm02")


def test_several_vms_of_one_gpu_and_several_shares_of_a_vm(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%", "vm01", count=2)
    attach(bench, "share:16GiB,20%", "vm02")
    attach(bench, "share:1/8", "vm02", add=True)
    profiles = sorted(r.profile for r in bench.store.list_attachments())
    assert profiles == ["share:10GiB,12.5%", "share:16GiB,20%", "share:8GiB,30%", "share:8GiB,30%"]


def test_a_failure_undoes_all_of_it(bench: Bench) -> None:
    before = bench.snapshot()
    bench.channels.fail["start"] = ChannelStartError("no arbiter")
    with pytest.raises(RolledBackError):
        attach(bench, "share:8GiB,30%")
    assert bench.snapshot() == before


def test_a_run_has_a_share(bench: Bench) -> None:
    document = start_run(
        bench.service.parts, name="one", command="true", profile="share:2GiB,25%", pid=os.getpid(),
        compute_policy="fixed",
    )  # fmt: skip
    assert document.attachment is not None
    assert document.attachment.share is not None
    assert document.attachment.share.policy == "fixed"
    spec = next(iter(bench.channels.specs.values()))
    assert (spec.compute, spec.limits.device_memory) == (25, 2 * GIB)
    with pytest.raises(UsageError, match="--compute-policy is for shares"):
        start_run(
            bench.service.parts, name="two", command="true", profile="1g.10gb", pid=os.getpid(),
            compute_policy="fixed",
        )  # fmt: skip


# --- bad input


def test_what_does_not_fit_is_refused_with_what_does_and_who_has_the_rest(bench: Bench) -> None:
    attach(bench, "share:60GiB,50%")
    error = refuse(bench, "share:30GiB,40%", "vm02")
    assert "share:20GiB,50% more fits" in say(error)
    assert 'vm "vm01" (share:60GiB,50%, attachment' in " ".join(error.held_by)
    assert (error.hint or "").startswith("--profile share:20GiB,40% fits")
    attach(bench, "share:20GiB,40%", "vm02")


def test_of_several_it_says_how_many_fit(bench: Bench) -> None:
    error = refuse(bench, "share:30GiB,10%", count=3)
    assert "2 fit: 2 on GPU 0" in say(error)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("share:8GiB,0%", "1% to 100%"),
        ("share:8GiB,101%", "1% to 100%"),
        ("share:100MiB,30%", "one CUDA context takes 128 MiB"),
        ("share:8,30%", "one CUDA context takes 128 MiB"),
        ("share:much,30%", "not a size"),
        ("share:8GiB;30%", "write it like share:8GiB,30%"),
        ("share:1/0", "1 to 64 equal shares"),
        ("share:1/65", "1 to 64 equal shares"),
        ("share:2/4", "write it like share:8GiB,30%"),
    ],
)
def test_malformed_shares(bench: Bench, profile: str, words: str) -> None:
    error = refuse(bench, profile)
    assert (error.id, error.exit_code) == ("VG100", Exit.USAGE)
    assert words in say(error)
    with pytest.raises(UsageError, match="cannot read --profile"):
        why(bench.service.parts, profile)


def test_options_that_contradict_a_share(bench: Bench) -> None:
    limits = ("device-memory=1GiB",)
    assert "contradicts it" in refuse(bench, "share:8GiB,30%", limits=limits).error
    assert "is for shares" in refuse(bench, "1g.10gb", compute_policy="fixed").error
    assert "is for shares" in refuse(bench, "passthrough", compute_policy="fixed").error
    error = refuse(bench, "share:8GiB,30%", compute_policy="fairest")
    assert "burst, fixed, best-effort" in say(error)
    attach(bench, "share:8GiB,30%", limits=("calls=100",))
    assert set(get_record(bench).channel.limits) == {"device-memory=8GiB", "calls=100"}  # type: ignore[union-attr]


def test_two_policies_on_one_gpu(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%", compute_policy="fixed")
    error = refuse(bench, "share:8GiB,30%", "vm02")
    assert "its shares are fixed, and one GPU has one policy" in say(error)
    assert "vm01" in " ".join(error.held_by)
    assert error.hint == "--compute-policy fixed"
    attach(bench, "share:8GiB,30%", "vm02", compute_policy="fixed")


def test_each_policy_has_gpus_of_its_own(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=None), make_gpu(index=1, layout=None)])
    attach(bench, "share:8GiB,30%", "vm01", compute_policy="fixed")
    attach(bench, "share:8GiB,30%", "vm02")
    attach(bench, "share:8GiB,30%", "vm02", add=True, compute_policy="fixed")
    gpus = {
        r.id: (r.gpu, r.share_part.policy) for r in bench.store.list_attachments() if r.share_part
    }
    assert len(set(gpus.values())) == 2


def test_a_gpu_in_mig_mode_takes_no_share(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[("1g.10gb", 0)])])
    error = refuse(bench, "share:8GiB,30%")
    assert (error.id, error.exit_code) == ("VG104", Exit.BUSY)
    assert "it is in MIG mode" in say(error)
    assert "vgpumgr mig disable 0" in (error.hint or "")
    assert "--profile share:8GiB,30%@PROFILE" in (error.hint or "")


def test_a_gpu_with_shares_takes_nothing_else_even_while_nothing_runs(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.channels.running.clear()
    error = refuse(bench, "1g.10gb", "vm02")
    assert "while VMs have shares of the GPU" in say(error)
    assert "vm01" in " ".join(error.held_by)
    with pytest.raises(VgpumgrError) as caught:
        LayoutService(bench.service.parts).set_mode(gpu="0", enabled=True)
    assert "vm01" in say(caught.value)


def test_a_gpu_whose_mig_slices_come_back_takes_no_share(bench: Bench) -> None:
    attach(bench, "1g.10gb")
    bench.nvml.gpus[bench.gpu.uuid] = make_gpu(layout=None)  # a boot took the mode
    assert "MIG mode comes back on it with 1g.10gb" in say(refuse(bench, "share:8GiB,30%", "vm02"))


def test_a_drained_gpu_takes_no_share(tmp_path: Path) -> None:
    from vgpumgr.app.operations.gpus import drain_gpu

    bench = make_bench(tmp_path)
    drain_gpu(bench.service.parts, selector="0")
    assert refuse(bench, "share:8GiB,30%").id == "VG107"


def test_why_says_what_fits_of_each_gpu(tmp_path: Path) -> None:
    gpus = [make_gpu(layout=None), make_gpu(index=1, layout=[])]
    bench = make_bench(tmp_path, gpus)
    attach(bench, "share:60GiB,50%")
    document = why(bench.service.parts, "share:30GiB,40%")
    first, second = document.gpus
    assert not document.fits
    assert "share:20GiB,50% more fits" in first.sentence
    assert "MIG mode" in second.sentence
    assert why(bench.service.parts, "share:20GiB,50%").gpus[0].fits


# --- after a boot, drift


def test_restore_starts_the_channel_of_a_share_again(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.channels.running.clear()
    drift = Recovery(bench.service.parts).diff().drift
    assert [one.kind for one in drift] == ["keeper-gone"]
    done = Restorer(bench.service.parts).restore()
    assert done.problems == []
    assert get_record(bench).id in bench.channels.running
    assert bench.channels.specs[get_record(bench).id].compute == 30


def test_mig_mode_by_another_program_is_drift(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.nvml.gpus[bench.gpu.uuid] = make_gpu(layout=[])
    (drift,) = Recovery(bench.service.parts).diff().drift
    assert (drift.kind, "MIG mode" in drift.text) == ("slice-gone", True)
    problems = Restorer(bench.service.parts).restore().problems
    assert any("MIG mode" in text for text in problems)


def test_a_lost_state_file_comes_back_from_the_metadata(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%", compute_policy="fixed")
    record = get_record(bench)
    bench.store.delete_attachment(record.id)
    Recovery(bench.service.parts).recover(Policy())
    assert get_record(bench) == record


def test_status_names_a_share_whose_work_is_overdue(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    assert Recovery(bench.service.parts).status().warnings == []
    bench.channels.share_more = {"overdue_s": 12.0}
    (warning,) = Recovery(bench.service.parts).status().warnings
    assert "vm01: for 12 s its work has been on the GPU after its turn" in warning


def test_an_arbiter_that_has_gone_is_drift_and_recover_starts_another(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.channels.share_more = {"kept": False}
    (drift,) = Recovery(bench.service.parts).diff().drift
    assert (drift.kind, drift.hint) == ("arbiter-gone", "vgpumgr recover")
    assert "30% of the time is not kept" in drift.text
    done = Recovery(bench.service.parts).recover(Policy())
    assert [action.text for action in done.actions] == ["started the arbiter of its share again"]
    assert done.drift == []
    assert get_record(bench).id in bench.channels.running


# --- virtio set


def change(bench: Bench, vm: str = "vm01", **how: Any) -> Any:
    return set_share(bench.service.parts, vm=vm, **how)


def test_set_changes_channel_record_and_metadata(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    dry = change(bench, memory_bytes=6 * GIB, compute=40, dry_run=True)
    assert [step.kind for step in dry.plan.steps] == ["channel.share"]
    assert get_record(bench).profile == "share:8GiB,30%"
    change(bench, memory_bytes=6 * GIB, compute=40)
    record = get_record(bench)
    assert (record.profile, record.memory_bytes) == ("share:6GiB,40%", 6 * GIB)
    assert record.channel is not None
    assert record.channel.limits == ("device-memory=6GiB",)
    assert bench.channels.shares[record.id] == (6 * GIB, 40)
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    assert change(bench, compute=40).plan.steps == []
    attach(bench, "share:74GiB,60%", "vm02")


def test_parts_of_a_percent_are_kept_exactly(bench: Bench) -> None:
    attach(bench, "share:8GiB,12.5%")
    record = get_record(bench)
    assert record.profile == "share:8GiB,12.5%"
    assert bench.channels.specs[record.id].compute == 12.5
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    change(bench, compute=33.3333)
    assert get_record(bench).profile == "share:8GiB,33.3333%"
    assert bench.channels.shares[record.id] == (8 * GIB, 33.3333)
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (get_record(bench),)
    attach(bench, "share:8GiB,66.6667%", "vm02")
    for compute in (12.50001, 0.9999, 100.0001, float("nan")):
        with pytest.raises(UsageError):
            change(bench, compute=compute)
    assert get_record(bench).profile == "share:8GiB,33.3333%"


def test_set_one_of_both(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    change(bench, compute=50)
    assert get_record(bench).profile == "share:8GiB,50%"
    change(bench, memory_bytes=1 * GIB)
    assert get_record(bench).profile == "share:1GiB,50%"


def test_set_beyond_what_is_left_is_refused_with_the_nearest(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    attach(bench, "share:60GiB,50%", "vm02")
    before = bench.snapshot()
    with pytest.raises(NoRoomError) as caught:
        change(bench, memory_bytes=30 * GIB, compute=40)
    error = caught.value
    assert "share:20GiB,50% for it beside the shares of others" in say(error)
    assert "vm02" in " ".join(error.held_by)
    assert f"virtio set {get_record(bench).id} --memory 20GiB --compute 40" in (error.hint or "")
    assert bench.snapshot() == before


def test_shrinking_below_what_is_used_is_refused_with_the_figure(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.channels.used[get_record(bench).id] = 5 * GIB
    before = bench.snapshot()
    with pytest.raises(ShareInUseError) as caught:
        change(bench, memory_bytes=4 * GIB)
    assert "use 5 GiB of it now" in say(caught.value)
    assert (caught.value.hint or "").startswith("--memory 5GiB")
    assert bench.snapshot() == before
    change(bench, memory_bytes=5 * GIB)


def test_a_worker_that_refuses_after_all_leaves_all_as_it_was(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    before = bench.snapshot()
    bench.channels.fail["set_share"] = ShareInUseError("more is used by now")
    with pytest.raises(VgpumgrError, match="more is used"):
        change(bench, memory_bytes=4 * GIB)
    assert bench.snapshot() == before


@pytest.mark.parametrize("memory", [4 * GIB, 16 * GIB])
@pytest.mark.parametrize("fails", ["set_share", "set_notes config"])
def test_a_failed_change_is_undone(bench: Bench, memory: int, fails: str) -> None:
    attach(bench, "share:8GiB,30%")
    before = bench.snapshot()
    part = bench.channels if fails == "set_share" else bench.hypervisor
    part.fail[fails] = ChannelStartError("it does not answer")
    with pytest.raises(VgpumgrError):
        change(bench, memory_bytes=memory)
    assert bench.snapshot() == before
    assert bench.channels.shares[get_record(bench).id] == (8 * GIB, 30)


@pytest.mark.parametrize(("memory", "used"), [(4 * GIB, 0), (16 * GIB, 0), (16 * GIB, 12 * GIB)])
def test_an_interrupted_change_is_undone_or_completed(
    bench: Bench, memory: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between channel and record; what the guest has taken meanwhile cannot be taken back."""
    attach(bench, "share:8GiB,30%")
    record = get_record(bench)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "_fail", die)
        bench.channels.killed_in_set = True
        with pytest.raises(KeyboardInterrupt):
            change(bench, memory_bytes=memory)
    bench.channels.killed_in_set = False
    bench.channels.used[record.id] = used
    reports = Recovery(bench.service.parts).recover(Policy())
    word = "completed" if used else "undone"
    assert any(
        f"interrupted change of its share was {word}" in text for text in map(str, reports.actions)
    )
    expected = Share(memory if used else 8 * GIB, 30)
    assert get_record(bench).profile == str(expected)
    assert bench.channels.shares[record.id] == (expected.memory, 30)
    assert Recovery(bench.service.parts).diff().drift == []


def test_set_of_what_is_no_share_and_bad_values(bench: Bench, tmp_path: Path) -> None:
    attach(bench, "share:8GiB,30%", "vm01")
    for how, words in (
        ({}, "neither --memory nor --compute nor --priority"),
        ({"compute": 0}, "1% to 100%"),
        ({"compute": 101}, "1% to 100%"),
        ({"memory_bytes": 1 * MIB}, "one CUDA context takes 128 MiB"),
    ):
        with pytest.raises(UsageError) as caught:
            change(bench, **how)
        assert words in say(caught.value)
    other = make_bench(tmp_path / "other", [make_gpu(layout=[])])
    attach(other, "1g.10gb")
    with pytest.raises(BackendUnsupportedError, match="has no share"):
        change(other, compute=40)
    with pytest.raises(VgpumgrError, match="no channel of"):
        change(bench, "vm09", compute=40)


def test_set_of_several_shares_needs_one_by_its_id(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%", count=2)
    with pytest.raises(VgpumgrError, match="2 shares that could be meant") as caught:
        change(bench, compute=40)
    assert caught.value.id == "VG216"
    first = bench.store.list_attachments()[0]
    change(bench, first.id, compute=40)
    assert sorted(r.profile for r in bench.store.list_attachments()) == [
        "share:8GiB,30%",
        "share:8GiB,40%",
    ]


def test_the_limit_of_a_share_is_not_changed_by_a_restart(bench: Bench) -> None:
    from vgpumgr.app.operations.channels import restart_channel

    attach(bench, "share:8GiB,30%")
    with pytest.raises(UsageError, match="a share, which says by itself") as caught:
        restart_channel(bench.service.parts, vm="vm01", limits=("device-memory=4GiB",))
    assert "virtio set" in (caught.value.hint or "")
    restart_channel(bench.service.parts, vm="vm01")
    assert bench.channels.specs[get_record(bench).id].compute == 30


# --- what else wants the GPU


def test_a_gpu_given_to_vfio_takes_no_share_and_is_named_with_its_vm(tmp_path: Path) -> None:
    gpu = make_gpu(layout=None)
    function = Function(gpu.pci, 0x10DE, 0x20B2, 0x030200, "nvidia", group=10)
    bench = make_bench(tmp_path, [gpu, make_gpu(index=1, layout=None)], functions=[function])
    bench.service.attach(AttachRequest("vm01", "passthrough", gpu=str(gpu.pci)))
    del bench.nvml.gpus[gpu.uuid]  # NVML has it no more
    error = refuse(bench, "share:8GiB,30%", "vm02", gpu=str(gpu.pci))
    assert (error.id, error.exit_code) == ("VG104", Exit.BUSY)
    assert "its driver is vfio-pci" in say(error)
    assert 'vm "vm01"' in " ".join(error.held_by)
    assert f"vgpumgr passthrough unbind {gpu.pci}" in (error.hint or "")
    attach(bench, "share:8GiB,30%", "vm02")
    assert get_record(bench, "vm02").gpu != gpu.uuid


def test_a_gpu_with_shares_goes_to_no_vm_as_a_whole(tmp_path: Path) -> None:
    gpu = make_gpu(layout=None)
    function = Function(gpu.pci, 0x10DE, 0x20B2, 0x030200, "nvidia", group=10)
    bench = make_bench(tmp_path, [gpu], functions=[function])
    attach(bench, "share:8GiB,30%", "vm01")
    error = refuse(bench, "passthrough", "vm02", gpu=str(gpu.pci))
    assert 'vm "vm01" (share:8GiB,30%' in say(error)
    assert error.exit_code == Exit.BUSY


def test_a_gpu_with_virtual_functions_takes_no_share(tmp_path: Path) -> None:
    gpu = replace(make_gpu(layout=None), vfs_enabled=4, vfs_total=16)
    error = refuse(make_bench(tmp_path, [gpu]), "share:8GiB,30%")
    assert "it has 4 virtual functions" in say(error)


def test_layouts_leave_a_gpu_with_shares_alone(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%")
    bench.channels.running.clear()
    text = "version: v1\nmig-configs:\n  x:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.10gb: 2}\n"
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        LayoutService(bench.service.parts).apply(text=text, source="x", allow=[])
    assert "vm01" in say(caught.value)
    with pytest.raises(VgpumgrError) as caught:
        LayoutService(bench.service.parts).create_instances(gpu="0", profile="1g.10gb")
    assert bench.snapshot() == before


# --- the acceptance split, from request to record


def test_128_runs_have_4_gib_each_of_sixteen_gpus_of_32_and_nothing_is_left(tmp_path: Path) -> None:
    gpus = [
        replace(make_gpu(index=index, layout=None), memory=GpuMemory(32 * GIB, 0))
        for index in range(16)
    ]
    bench = make_bench(tmp_path, gpus)
    for number in range(128):
        start_run(
            bench.service.parts, name=f"run-{number}", command="true", profile="share:1/8",
            pid=os.getpid(),
        )  # fmt: skip
    records = bench.store.list_attachments()
    assert {r.profile for r in records} == {"share:4GiB,12.5%"}
    assert {spec.limits.device_memory for spec in bench.channels.specs.values()} == {4 * GIB}
    for gpu in gpus:
        free = measure_shares(gpu, records).free
        assert (free.memory, free.compute) == (0, 0)
    per_gpu = Counter(r.gpu for r in records)
    assert len(per_gpu) == 16
    assert set(per_gpu.values()) == {8}
    with pytest.raises(NoRoomError) as caught:
        start_run(
            bench.service.parts, name="more", command="true", profile="share:128MiB,1%",
            pid=os.getpid(),
        )  # fmt: skip
    assert "nothing more fits" in say(caught.value)
