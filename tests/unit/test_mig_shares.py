"""Shares of MIG instances on fakes: where they go, what is recorded, changed, refused and left alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import GIB, make_gpu, make_instance, make_uuid
from tests.support.service import Bench, make_bench
from vgpumgr.app.documents.gpus import describe_gpu, index_owners
from vgpumgr.app.operations.capacity import defrag, why
from vgpumgr.app.operations.layouts import LayoutService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.app.operations.restore import Restorer
from vgpumgr.app.operations.runs import start_run
from vgpumgr.app.operations.shares import set_share
from vgpumgr.errors import Exit, GpuDrainedError, LayoutBusyError, NoRoomError, VgpumgrError
from vgpumgr.model.attachment import (
    AttachmentRecord,
)
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.gpu import Drain
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import MigProfileName, Placement
from vgpumgr.model.pci import Function
from vgpumgr.model.request import AttachRequest, ShareRequest, parse_profile_request
from vgpumgr.model.shares import Share
from vgpumgr.state.domain_metadata import rebuild_records

MIB = 1 << 20
NAME = MigProfileName.parse("1g.10gb")
PROFILE = "share:4GiB,40%@1g.10gb"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """An A100 in MIG mode with one idle 2g.20gb, and one without MIG mode."""
    gpus = [make_gpu(layout=[("2g.20gb", 0)]), make_gpu(index=1, layout=None)]
    functions = [Function(gpu.pci, 0x10DE, 0x20B2, 0x030200, "nvidia") for gpu in gpus]
    return make_bench(tmp_path, gpus, functions=functions)


def attach(bench: Bench, profile: str = PROFILE, vm: str = "vm01", **more: Any) -> Any:
    return bench.service.attach(replace(AttachRequest(vm, profile, **more)))


def get_record(bench: Bench, vm: str = "vm01") -> AttachmentRecord:
    return next(r for r in bench.store.list_attachments() if r.vm_name == vm)


def find_idle(bench: Bench) -> str:
    return str(bench.gpu.instances[0].compute_instances[0].uuid)


def start_training(bench: Bench, profile: str, gpu: str) -> Any:
    """A command of the host with a share."""
    return start_run(
        bench.service.parts,
        name="train",
        command="train",
        profile=profile,
        pid=os.getpid(),
        gpu=gpu,
    )


def refuse(bench: Bench, profile: str, vm: str = "vm02", **more: Any) -> VgpumgrError:
    """The error of an attach that changes nothing."""
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        attach(bench, profile, vm, **more)
    assert bench.snapshot() == before
    return caught.value


def say(error: VgpumgrError) -> str:
    return " ".join([error.error, error.why or "", error.cause or "", *error.held_by])


# --- reading


@pytest.mark.parametrize(
    "text",
    ["share:4GiB,50%@1g.10gb", "share:1/4@3g.40gb", "share:4GiB@1g.10gb+me", "share:4GiB,12.5%"],
)
def test_what_is_read_is_written_the_same(text: str) -> None:
    wanted = parse_profile_request(text)
    assert isinstance(wanted, ShareRequest)
    assert str(wanted) == text
    assert (wanted.instance is None) == ("@" not in text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("share:4GiB,50%@", "not a MIG profile name"),
        ("share:4GiB,50%@0", "not a MIG profile name"),
        ("share:4GiB,50%@1c.2g.20gb", "a share is of a whole GPU instance"),
        ("share:4GiB,0%@1g.10gb", "1% to 100%"),
        ("share:64MiB,5%@1g.10gb", "one CUDA context takes 128 MiB"),
    ],
)
def test_malformed_ones(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_profile_request(text)


# --- attach and detach


def test_two_vms_share_an_instance_that_is_made_for_the_first_and_goes_with_the_last(
    bench: Bench,
) -> None:
    before = bench.snapshot()
    attach(bench, gpu="1")
    first = get_record(bench)
    assert (first.profile, first.memory_bytes) == (PROFILE, 4 * GIB)
    assert first.mig is not None
    assert first.mig_mode_enabled
    document = attach(bench, vm="vm02")
    second = get_record(bench, "vm02")
    assert second.mig == first.mig
    assert not second.mig_mode_enabled
    assert document.attachment.device == str(first.mig.uuid)
    assert document.attachment.share.compute == 40
    for record in (first, second):
        spec = bench.channels.specs[record.id]
        assert spec.cuda_device == str(first.mig.uuid)
        assert (spec.gpu, spec.gpu_instance_id) == (str(first.gpu), first.mig.gpu_instance_id)
        assert (spec.limits.device_memory, spec.compute) == (4 * GIB, 40)
        assert rebuild_records(bench.hypervisor.read_vm(record.vm_name)) == (record,)
    bench.service.detach("vm01")
    assert get_record(bench, "vm02").mig == first.mig
    assert get_record(bench, "vm02").mig_mode_enabled
    assert len(bench.nvml.gpus[first.gpu].instances) == 1
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_several_at_once_are_packed_into_as_few_instances_as_hold_them(bench: Bench) -> None:
    before = bench.snapshot()
    dry = bench.service.attach(AttachRequest("vm01", PROFILE, gpu="1", count=3), dry_run=True)
    kinds = [step.kind for step in dry.plan.steps]
    assert (kinds.count("mig.gi.create"), kinds.count("attachment.take")) == (2, 1)
    assert any("share 1g.10gb at" in step.description for step in dry.plan.steps)
    attach(bench, gpu="1", count=3)
    places = Counter(r.cuda_device for r in bench.store.list_attachments())
    assert sorted(places.values()) == [1, 2]
    bench.service.detach("vm01", every=True)
    assert bench.snapshot() == before


def test_spread_gives_each_an_instance_of_its_own_as_long_as_there_are(bench: Bench) -> None:
    attach(bench, gpu="1")
    attach(bench, vm="vm02", gpu="1", spread=True)
    assert len({r.cuda_device for r in bench.store.list_attachments()}) == 2


def test_a_named_instance_stays_when_its_last_share_goes(bench: Bench) -> None:
    before, uuid = bench.snapshot(), find_idle(bench)
    attach(bench, "share:8GiB,30%", gpu=uuid)
    attach(bench, "share:1/4", "vm02", gpu=uuid)
    first, second = get_record(bench), get_record(bench, "vm02")
    assert first.profile == "share:8GiB,30%@2g.20gb"
    assert second.share_part is not None
    memory = bench.gpu.instances[0].memory_bytes
    assert second.share_part.share == Share(memory // 4 // MIB * MIB, 25)
    assert first.is_taken
    assert second.is_taken
    bench.service.detach("vm01")
    assert find_idle(bench) == uuid
    notes = bench.service.detach("vm02").plan.notes
    assert any("stays at" in note for note in notes)
    assert bench.snapshot() == before


def test_a_run_has_a_share_of_an_instance(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%", gpu=find_idle(bench))
    document = start_training(bench, "share:8GiB,70%@2g.20gb", "0")
    assert document.attachment is not None
    assert document.attachment.device == find_idle(bench)
    assert "2g.20gb" in say(refuse(bench, "share:1GiB,1%", gpu=find_idle(bench)))


def test_several_to_spread_have_an_instance_each_and_the_rest_the_emptiest(bench: Bench) -> None:
    attach(bench, "4g.40gb", "vm02", gpu="1")
    attach(bench, "2g.20gb", "vm02", gpu="1", add=True)
    attach(bench, "share:2GiB,20%@1g.10gb", gpu="1", count=3, spread=True)
    assert len({r.cuda_device for r in bench.store.list_attachments() if r.share_part}) == 1
    bench.service.detach("vm01", every=True)
    bench.service.detach("vm02", attachment="2g.20gb")
    attach(bench, "share:2GiB,20%@1g.10gb", gpu="1", count=5, spread=True)
    found = Counter(r.cuda_device for r in bench.store.list_attachments() if r.share_part)
    assert sorted(found.values()) == [1, 2, 2]


def test_the_policy_of_an_instance_is_what_its_shares_are_kept_to(bench: Bench) -> None:
    attach(bench, "share:4GiB,60%@1g.10gb", gpu="1", compute_policy="fixed")
    fixed = get_record(bench)
    assert bench.channels.specs[fixed.id].compute_policy is ComputePolicy.FIXED
    # the other policy, and what does not fit, is of another instance
    attach(bench, "share:4GiB,30%@1g.10gb", "vm02", gpu="1")
    assert get_record(bench, "vm02").cuda_device != fixed.cuda_device
    bench.service.detach("vm02")
    attach(bench, "share:4GiB,60%@1g.10gb", "vm02", gpu="1", compute_policy="fixed")
    assert get_record(bench, "vm02").cuda_device != fixed.cuda_device
    bench.service.detach("vm02")
    attach(bench, "share:4GiB,40%@1g.10gb", "vm02", gpu="1", compute_policy="fixed")
    assert get_record(bench, "vm02").cuda_device == fixed.cuda_device


def test_best_effort_shares_of_an_instance_reserve_memory_and_no_time(bench: Bench) -> None:
    words: dict[str, Any] = {"gpu": find_idle(bench), "compute_policy": "best-effort"}
    attach(bench, "share:8GiB", **words)
    attach(bench, "share:8GiB,80%", "vm02", **words)
    assert get_record(bench).profile == "share:8GiB,100%@2g.20gb"
    error = refuse(bench, "share:8GiB", "vm02", add=True, **words)
    assert "more fits beside its shares" in say(error)
    assert len(error.held_by) == 2


def test_a_vm_has_a_share_of_an_instance_beside_another_slice(bench: Bench) -> None:
    before = bench.snapshot()
    attach(bench, gpu="1")
    attach(bench, "1g.10gb", gpu="1", add=True)
    attach(bench, PROFILE, gpu="1", add=True)
    share, slice_, second = sorted(bench.store.list_attachments(), key=lambda r: r.number)
    assert share.cuda_device == second.cuda_device != slice_.cuda_device
    assert slice_.share_part is None
    assert [r.mig_mode_enabled for r in (share, slice_, second)] == [True, False, False]
    assert len(bench.nvml.gpus[share.gpu].instances) == 2  # type: ignore[index]
    bench.service.detach("vm01", every=True)
    assert bench.snapshot() == before


# --- refusals


def test_what_does_not_fit_is_refused_with_what_does_and_who_has_the_rest(bench: Bench) -> None:
    uuid = find_idle(bench)
    attach(bench, "share:8GiB,60%", gpu=uuid)
    error = refuse(bench, "share:8GiB,60%", gpu=uuid)
    assert (error.id, error.exit_code) == ("VG104", Exit.BUSY)
    assert "40% more fits beside its shares" in say(error)
    assert 'vm "vm01" (share:8GiB,60%@2g.20gb' in " ".join(error.held_by)
    assert "--profile share:8GiB,40% fits" in (error.hint or "")
    error = refuse(bench, "share:8GiB,10%", gpu=uuid, compute_policy="fixed")
    assert "its shares are burst, and one instance has one policy" in say(error)
    assert error.hint == "--compute-policy burst"
    error = refuse(bench, "share:4GiB,10%@1g.10gb", gpu=uuid)
    assert "it is a 2g.20gb" in say(error)


def test_more_than_a_whole_instance_has_is_refused_and_nothing_is_made(bench: Bench) -> None:
    error = refuse(bench, "share:11GiB,10%@1g.10gb")
    assert "100% for shares, and share:11GiB,10% is more" in say(error)
    # nothing is beside it, so that nothing can be detached
    assert str(error.hint).endswith("@1g.10gb fits")
    error = refuse(bench, "share:4GiB,10%@9g.90gb")
    assert error.id == "VG103"


def test_full_gpus_are_refused_with_both_reasons(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[])])
    attach(bench, "7g.80gb", "vm02")
    error = refuse(bench, PROFILE, "vm01")
    assert isinstance(error, NoRoomError)
    assert 'vm "vm02"' in " ".join(error.held_by)
    bench.service.detach("vm02")
    attach(bench, "share:40GiB,50%@7g.80gb", "vm02")
    error = refuse(bench, "share:60GiB,50%@7g.80gb", "vm01")
    assert "50% more fits beside its shares" in say(error)
    assert "for another 7g.80gb: " in say(error)


def test_an_instance_with_shares_goes_to_nobody_as_a_whole(bench: Bench) -> None:
    uuid = find_idle(bench)
    attach(bench, "share:8GiB,30%", gpu=uuid)
    error = refuse(bench, "2g.20gb", gpu=uuid)
    assert 'vm "vm01" (share:8GiB,30%@2g.20gb)' in " ".join(error.held_by)
    layouts = LayoutService(bench.service.parts)
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        layouts.destroy_instances(instances=[uuid])
    assert "vm01" in say(caught.value)
    with pytest.raises(VgpumgrError) as caught:
        layouts.set_mode(gpu="0", enabled=False)
    assert "vm01" in say(caught.value)
    text = "version: v1\nmig-configs:\n  x:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n"
    for allow in ([], ["vm01"], ["0/1"], [uuid]):
        with pytest.raises(LayoutBusyError) as caught:
            layouts.apply(text=text, source="x", allow=allow)
        assert "an instance with shares is changed by no layout" in say(caught.value)
        assert "vm01" in say(caught.value)
        hint = "detach the holders of these shares (vgpumgr detach), then repeat"
        assert caught.value.hint == hint
    assert bench.snapshot() == before
    # a whole attach finds another place
    attach(bench, "2g.20gb", "vm02", gpu="0")
    assert get_record(bench, "vm02").cuda_device != uuid


def test_a_layout_takes_from_whole_slices_before_it_is_refused_for_shares(bench: Bench) -> None:
    attach(bench, "share:8GiB,30%@4g.40gb", gpu="1")
    attach(bench, "3g.40gb", "vm02", gpu="1")
    layouts, shared = LayoutService(bench.service.parts), get_record(bench).cuda_device
    text = (
        "version: v1\nmig-configs:\n  x:\n  - devices: [1]\n    mig-enabled: true\n"
        "    mig-devices: {4g.40gb: 1, 1g.10gb: 3}\n"
    )
    with pytest.raises(LayoutBusyError) as caught:
        layouts.plan(text=text, source="x")
    own = get_record(bench, "vm02").gpu_instance_id
    assert f"--allow-disruptive 1/{own}" in (caught.value.hint or "")
    assert "vm01" not in say(caught.value)
    plan = layouts.plan(text=text, source="x", allow=[f"1/{own}", str(shared)])
    gone = [step for step in plan.steps if step.kind == "mig.gi.destroy"]
    assert [step.profile for step in gone] == ["3g.40gb"]


def test_whole_slices_beside_shares_are_named_with_them(bench: Bench) -> None:
    """A GPU with one whole slice and one with shares: who frees only the shares would be refused once more."""
    uuid = find_idle(bench)
    attach(bench, "1g.10gb", gpu="0")
    attach(bench, "share:4GiB,30%", "vm02", gpu=uuid)
    start_training(bench, "share:2GiB,20%", uuid)
    layouts, own = LayoutService(bench.service.parts), get_record(bench).gpu_instance_id
    text = "version: v1\nmig-configs:\n  x:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {7g.80gb: 1}\n"
    shares = {
        f'{noun} "{name}" ({profile}@2g.20gb, attachment {get_record(bench, name).id})'
        for noun, name, profile in (
            ("vm", "vm02", "share:4GiB,30%"),
            ("run", "train", "share:2GiB,20%"),
        )
    }
    taken = f"it takes destroying a slice that is in use: 1g.10gb at {get_record(bench).placement}"
    release = "detach the holders of these shares (vgpumgr detach)"
    own_too = f"{release}; stop or detach the other holders"
    before = bench.snapshot()

    def read(call: Callable[[], object]) -> VgpumgrError:
        with pytest.raises(LayoutBusyError) as caught:
            call()
        assert bench.snapshot() == before
        return caught.value

    error = read(lambda: layouts.set_mode(gpu="0", enabled=False))
    assert set(error.held_by) == {*shares, 'vm "vm01"'}
    assert taken in str(error.why)
    assert "an instance with shares is changed by no layout: 2g.20gb at 0:2" in str(error.why)
    assert error.hint == f"{own_too}, then repeat"
    error = read(lambda: layouts.apply(text=text, source="x"))
    assert set(error.held_by) == {*shares, 'vm "vm01"'}
    assert error.hint == f"{own_too}, or add --allow-disruptive 0/{own}, then repeat"
    # slices that --allow-disruptive names are not listed as holders
    for name in (f"0/{own}", "vm01"):
        error = read(lambda name=name: layouts.apply(text=text, source="x", allow=[name]))  # type: ignore[misc]
        assert set(error.held_by) == shares
        assert taken not in str(error.why)
        assert error.hint == f"{release}, then repeat"
    # with the shares gone that is all that is needed
    bench.service.detach("vm02")
    bench.service.detach("train")
    layouts.apply(text=text, source="x", allow=[f"0/{own}"])


def test_an_instance_in_use_as_a_whole_has_no_shares(bench: Bench) -> None:
    uuid = find_idle(bench)
    attach(bench, "2g.20gb", gpu=uuid)
    error = refuse(bench, "share:8GiB,30%", gpu=uuid)
    assert "in use as a whole" in say(error)
    assert 'vm "vm01"' in " ".join(error.held_by)


def test_a_part_of_an_instance_has_no_shares(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=[])])
    attach(bench, "1c.2g.20gb")
    error = refuse(bench, "share:4GiB,30%", gpu=str(get_record(bench).cuda_device))
    assert "only a whole GPU instance is shared" in say(error)


def test_a_gpu_with_shares_of_its_own_has_no_shares_of_instances(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=None)])
    attach(bench, "share:8GiB,30%")
    assert "while VMs have shares of the GPU" in say(refuse(bench, PROFILE))
    bench.service.detach("vm01")
    attach(bench, PROFILE)
    error = refuse(bench, "share:8GiB,30%")
    assert "it is in MIG mode" in say(error)
    assert "share:8GiB,30%@PROFILE" in (error.hint or "")


def test_why_says_what_fits_in_instances(bench: Bench) -> None:
    attach(bench, "share:8GiB,60%", gpu=find_idle(bench))
    document = why(bench.service.parts, "share:8GiB,40%", find_idle(bench))
    assert document.fits
    assert "it has shares already" in document.gpus[0].sentence
    document = why(bench.service.parts, "share:8GiB,50%@2g.20gb")
    assert [row.fits for row in document.gpus] == [True, True]
    assert "made for it" in document.gpus[0].sentence


def test_shares_of_instances_are_in_the_way_of_defrag(bench: Bench) -> None:
    parts, uuid = bench.service.parts, find_idle(bench)
    attach(bench, "2g.20gb", gpu=uuid)
    # the VM is shut off: its slice can move
    (option,) = defrag(parts, "4g.40gb", "0").options
    assert [move.profile for move in option.moves] == ["2g.20gb"]
    bench.service.detach("vm01")
    attach(bench, "share:8GiB,60%", gpu=uuid)
    with pytest.raises(NoRoomError) as caught:
        defrag(parts, "4g.40gb", "0")
    assert "vm01" in say(caught.value)
    (option,) = defrag(parts, "3g.40gb", "0").options
    assert option.moves == []


# --- after a boot, changes, drift


def test_restore_finds_the_instance_by_its_place_for_all_of_its_shares(bench: Bench) -> None:
    attach(bench, gpu="1")
    attach(bench, vm="vm02")
    old = get_record(bench)
    assert old.gpu is not None
    bench.nvml.gpus[old.gpu] = make_gpu(index=1, layout=None)  # a boot takes mode and instances
    bench.channels.running.clear()
    kinds = {one.kind for one in Recovery(bench.service.parts).diff().drift}
    assert "slice-gone" in kinds
    done = Restorer(bench.service.parts).restore()
    assert done.problems == []
    first, second = get_record(bench), get_record(bench, "vm02")
    assert first.mig == second.mig
    (instance,) = bench.nvml.gpus[old.gpu].instances
    assert {c.uuid for c in instance.compute_instances} == {first.mig and first.mig.uuid}
    assert bench.channels.specs[second.id].cuda_device == second.cuda_device
    Recovery(bench.service.parts).recover(Policy())  # writes the domain metadata again
    assert Recovery(bench.service.parts).diff().drift == []


def test_another_uuid_at_the_same_place_is_bound_for_all_shares(bench: Bench) -> None:
    attach(bench, "share:4GiB,30%", gpu=find_idle(bench))
    attach(bench, "share:4GiB,30%@2g.20gb", "vm02", gpu="0")
    gpu = bench.gpu
    (instance,) = gpu.instances
    (compute,) = instance.compute_instances
    made = replace(compute, uuid="MIG-11111111-2222-4333-8444-555555555555")
    bench.nvml.gpus[gpu.uuid] = replace(
        gpu, instances=(replace(instance, id=9, compute_instances=(made,)),)
    )
    bench.channels.running.clear()
    assert Restorer(bench.service.parts).restore().problems == []
    for vm in ("vm01", "vm02"):
        assert get_record(bench, vm).cuda_device == made.uuid
        assert get_record(bench, vm).gpu_instance_id == 9


def test_set_changes_a_share_within_its_instance(bench: Bench) -> None:
    attach(bench, gpu="1")
    attach(bench, vm="vm02")
    parts = bench.service.parts
    document = set_share(parts, vm="vm01", memory_bytes=5 * GIB, compute=60, priority="high")
    assert document.plan.result["profile"] == "share:5GiB,60%@1g.10gb"
    record = get_record(bench)
    assert record.profile == "share:5GiB,60%@1g.10gb"
    assert bench.channels.shares[record.id] == (5 * GIB, 60)
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    with pytest.raises(NoRoomError) as caught:
        set_share(parts, vm="vm01", memory_bytes=8 * GIB)
    assert f"{record.cuda_device} has" in say(caught.value)
    assert 'vm "vm02"' in " ".join(caught.value.held_by)


def test_memory_in_use_waits_for_the_end_of_programs_on_an_instance(bench: Bench) -> None:
    uuid = find_idle(bench)
    attach(bench, "share:8GiB,30%", gpu=uuid)
    record, parts = get_record(bench), bench.service.parts
    bench.channels.used[record.id] = 5 * GIB
    set_share(parts, vm="vm01", memory_bytes=4 * GIB, at_exit=True)
    waiting = get_record(bench)
    assert waiting.profile == "share:8GiB,30%@2g.20gb"
    assert waiting.share_part is not None
    assert waiting.share_part.memory_at_exit == 4 * GIB
    # what waits is in no other share before
    assert "more fits" in say(refuse(bench, "share:12GiB,10%", gpu=uuid))
    bench.channels.used[record.id] = 3 * GIB
    Recovery(parts).recover(Policy())
    shrunk = get_record(bench)
    assert (shrunk.profile, shrunk.memory_bytes) == ("share:4GiB,30%@2g.20gb", 4 * GIB)
    assert bench.channels.shares[record.id] == (4 * GIB, 30)
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (shrunk,)
    attach(bench, "share:12GiB,10%", "vm02", gpu=uuid)


def test_a_lost_state_file_comes_back_from_the_metadata(bench: Bench) -> None:
    attach(bench, gpu="1")
    attach(bench, vm="vm02")
    before = {r.id: r for r in bench.store.list_attachments()}
    for id_ in before:
        bench.store.delete_attachment(id_)
    Recovery(bench.service.parts).recover(Policy())
    assert {r.id: r for r in bench.store.list_attachments()} == before


# --- GPUs and instances that wait


def test_a_drained_gpu_gives_no_share_of_its_instances(bench: Bench) -> None:
    attach(bench, gpu="1")
    record = get_record(bench)
    gpu = bench.nvml.gpus[record.gpu]  # type: ignore[index]
    drain = Drain(gpu.pci, gpu.uuid, "test", 0.0)
    bench.store.save_drain(drain)
    error = refuse(bench, PROFILE, gpu=str(record.cuda_device))
    assert error.id == GpuDrainedError.id
    error = refuse(bench, PROFILE, gpu="1")
    assert error.id == GpuDrainedError.id
    attach(bench, vm="vm02")
    assert get_record(bench, "vm02").gpu != record.gpu
    bench.store.forget_drain(drain)
    bench.service.detach("vm02")
    attach(bench, vm="vm02", gpu="1")
    assert get_record(bench, "vm02").cuda_device == record.cuda_device


def test_an_instance_whose_shares_wait_for_a_restore_has_none_before(bench: Bench) -> None:
    for taken in (True, False):
        words: dict[str, Any] = {"gpu": find_idle(bench)} if taken else {"gpu": "1"}
        attach(bench, "share:4GiB,30%" if taken else PROFILE, **words)
        record = get_record(bench)
        gpu = bench.nvml.gpus[record.gpu]  # type: ignore[index]
        (instance,) = gpu.instances
        (compute,) = instance.compute_instances
        made = replace(
            compute,
            uuid=MigUuid(make_uuid("MIG", 7, int(taken))),
            placement=Placement(0, instance.slices),
        )
        bench.nvml.gpus[gpu.uuid] = replace(
            gpu, instances=(replace(instance, compute_instances=(made,)),)
        )
        error = refuse(bench, "share:4GiB,30%", gpu=str(made.uuid))
        assert error.why == "its shares are not restored yet"
        assert error.hint == "vgpumgr restore"
        assert 'vm "vm01"' in " ".join(error.held_by)
        assert Restorer(bench.service.parts).restore().problems == []
        attach(bench, "share:4GiB,30%", "vm02", gpu=str(made.uuid))
        bench.service.detach("vm02")
        bench.service.detach("vm01")


def test_a_strangers_instance_in_the_place_of_shares_is_said_to_be_one(bench: Bench) -> None:
    """``restore`` would not give the shares back: another profile stands there."""
    attach(bench, "share:4GiB,30%", gpu=find_idle(bench))
    record, gpu = get_record(bench), bench.gpu
    profile = next(p for p in gpu.profiles if str(p.name) == "1g.20gb")
    (compute,) = make_instance(0, 7, profile, 0).compute_instances
    made = replace(make_instance(0, 7, profile, 0), compute_instances=(compute,))
    bench.nvml.gpus[gpu.uuid] = replace(gpu, instances=(made,))
    error = refuse(bench, "share:4GiB,30%", gpu=str(compute.uuid))
    assert error.why == (
        f'vm "vm01": its slice {record.profile} at {record.placement} on {gpu} is gone; '
        "in its place is 1g.20gb at 0:2 (GPU instance 7)"
    )
    assert str(error.hint).startswith(f"vgpumgr detach vm01 --attachment {record.id}, then ")
    assert "destroy what is in its place" in str(error.hint)
    assert error.held_by == (record.share_holder,)


def test_the_vm_of_an_instance_is_named_beside_runs_that_share_it(bench: Bench) -> None:
    uuid = find_idle(bench)
    start_training(bench, "share:2GiB,10%", uuid)
    attach(bench, "share:4GiB,30%", gpu=uuid)
    gpu = bench.gpu
    run, vm = sorted(bench.store.list_owners(), key=lambda owner: owner.kind)
    for owners in ([run, vm], [vm, run]):
        document = describe_gpu(gpu, index_owners(owners)).instances[0]
        for one in (document, document.compute_instances[0]):
            assert one.vm == "vm01"
            assert one.holder is not None
            assert (one.holder.name, one.attachment) == ("vm01", vm.attachment_id)
