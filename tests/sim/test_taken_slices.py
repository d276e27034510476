"""Attachments that take an idle instance of a layout, or the one that --gpu names: detach leaves it there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attached_machine import Attached, machine_of_vms
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.errors import LayoutBusyError, NoRoomError, VgpumgrError
from vgpumgr.model.attachment import AttachmentState

pytestmark = pytest.mark.native
LAYOUTS = """
schema: vgpumgr/mig-layout/v1
layouts:
  full: [{gpus: [0], instances: [2g.20gb, 2g.20gb, 3g.40gb]}]
  parts: [{gpus: [0], instances: [{profile: 3g.40gb, compute: [1c, 2c]}, 4g.40gb]}]
  other: [{gpus: [0], instances: [7g.80gb]}]
"""


@pytest.fixture
def machine() -> Iterator[Attached]:
    with machine_of_vms() as it:
        try:
            yield it
        finally:
            for vm in {r.vm_name for r in it.application.parts.store.list_attachments()}:
                it.call("detach", vm=vm, every=True)


def apply(machine: Attached, name: str, **asked: object) -> None:
    machine.call("apply_layout", text=LAYOUTS, source="l.yaml", name=name, **asked)


def see(machine: Attached, gpu: int = 0) -> list[tuple[str, str, str | None]]:
    """Profile, MIG UUID and VM of every MIG device on a GPU, in the order of places."""
    rows = machine.call("list_mig_instances", selector=str(gpu))["instances"]
    rows.sort(key=lambda row: row["placement"]["start"])
    return [(r["profile"], c["uuid"], c["vm"]) for r in rows for c in r["compute_instances"]]


def kinds(document: dict[str, Any]) -> list[str]:
    return [step["kind"] for step in document["plan"]["steps"]]


def test_an_idle_instance_of_the_layout_is_taken_and_stays(machine: Attached) -> None:
    apply(machine, "full")
    before = see(machine)
    plan = machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0", dry_run=True)
    assert not [kind for kind in kinds(plan) if kind.startswith("mig.")]
    (take,) = [step for step in plan["plan"]["steps"] if step["kind"] == "attachment.take"]
    taken = take["target"]["mig"]
    assert taken in take["description"]
    assert any(taken in note for note in plan["plan"]["notes"])
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    assert see(machine) == [(p, u, "vm01" if u == taken else None) for p, u, _ in before]
    # the second one takes the other, the third has no place there
    machine.call("attach", vm="vm02", profile="2g.20gb", gpu="0")
    assert sorted(vm for p, _, vm in see(machine) if p == "2g.20gb" and vm) == ["vm01", "vm02"]
    with pytest.raises(NoRoomError):
        machine.call("attach", vm="vm02", profile="2g.20gb", gpu="0", add=True)
    with pytest.raises(LayoutBusyError):
        apply(machine, "other")
    gone = machine.call("detach", vm="vm01")
    assert not [kind for kind in kinds(gone) if kind.startswith("mig.")]
    assert any(taken in note and "stays" in note for note in gone["plan"]["notes"])
    machine.call("detach", vm="vm02")
    assert see(machine) == before


def test_without_a_gpu_the_layouts_instance_comes_first(machine: Attached) -> None:
    apply(machine, "full")
    document = machine.call("attach", vm="vm01", profile="3g.40gb")
    assert "attachment.take" in kinds(document)
    assert document["plan"]["result"]["gpu_index"] == 0


def test_several_at_once_take_and_create(machine: Attached) -> None:
    apply(machine, "full")
    document = machine.call("attach", vm="vm01", profile="2g.20gb", count=3)
    assert kinds(document).count("attachment.take") == 2
    assert kinds(document).count("mig.gi.create") == 1
    machine.call("detach", vm="vm01", every=True)
    assert [p for p, _, _ in see(machine)].count("2g.20gb") == 2
    assert see(machine, 1) == []


def test_parts_of_a_layouts_instance(machine: Attached) -> None:
    apply(machine, "parts")
    before = see(machine)
    document = machine.call("attach", vm="vm01", profile="1c.3g.40gb", gpu="0")
    assert "attachment.take" in kinds(document)
    # nothing is created in a layout's instance, and none goes with the part
    with pytest.raises(NoRoomError):
        machine.call("attach", vm="vm02", profile="1c.3g.40gb", gpu="0")
    machine.call("attach", vm="vm02", profile="2c.3g.40gb", gpu="0")
    machine.call("detach", vm="vm01")
    machine.call("detach", vm="vm02")
    assert see(machine) == before


def test_the_device_that_is_named(machine: Attached) -> None:
    apply(machine, "full")
    second = [uuid for profile, uuid, _ in see(machine) if profile == "2g.20gb"][1]
    whole = next(uuid for profile, uuid, _ in see(machine) if profile == "3g.40gb")
    document = machine.call("attach", vm="vm01", profile="2g.20gb", gpu=second)
    (take,) = [step for step in document["plan"]["steps"] if step["kind"] == "attachment.take"]
    assert take["target"]["mig"] == second
    for gpu, why in ((second, "in use"), (whole, "it is a 3g.40gb")):
        with pytest.raises(NoRoomError) as refused:
            machine.call("attach", vm="vm02", profile="2g.20gb", gpu=gpu)
        assert why in str(refused.value.why)
    assert refused.value.held_by == ()


def test_what_another_program_made_is_taken_only_by_name(machine: Attached) -> None:
    apply(machine, "full")
    parts = machine.application.parts
    gpu = parts.read_inventory().gpus[1]
    nvml = parts.nvml
    nvml.set_mig_mode(gpu.uuid, True)
    whole = next(p for p in gpu.profiles if str(p.name) == "7g.80gb")
    made = nvml.create_gpu_instance(gpu.uuid, whole.id, whole.placements[0])
    mig = nvml.create_compute_instance(gpu.uuid, made.id, whole.slices).uuid
    with pytest.raises(NoRoomError) as refused:
        machine.call("attach", vm="vm01", profile="7g.80gb", gpu="1")
    assert f"--gpu {mig}" in str(refused.value.hint)
    machine.call("attach", vm="vm01", profile="7g.80gb", gpu=mig)
    machine.call("detach", vm="vm01")
    assert [uuid for _, uuid, _ in see(machine, 1)] == [mig]


def test_an_attach_that_fails_leaves_the_instance(machine: Attached) -> None:
    apply(machine, "full")
    before = see(machine)
    machine.hypervisor.fail["attach_device config"] = VgpumgrError("refused")
    with pytest.raises(VgpumgrError):
        machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    assert see(machine) == before
    assert machine.application.parts.store.list_attachments() == ()


def test_half_an_attachment_without_a_journal_is_detached_and_leaves_it(machine: Attached) -> None:
    apply(machine, "full")
    before = see(machine)
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    parts = machine.application.parts
    (record,) = parts.store.list_attachments()
    parts.store.save_attachment(dataclasses.replace(record, state=AttachmentState.ATTACHING))
    machine.call("detach", vm="vm01")
    assert see(machine) == before


def test_a_record_that_is_rebuilt_from_the_domain_still_leaves_it(machine: Attached) -> None:
    apply(machine, "full")
    before = see(machine)
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    parts = machine.application.parts
    (record,) = parts.store.list_attachments()
    parts.store.delete_attachment(record.id)
    (parts.state_dir / "journal").unlink()
    Recovery(parts).recover(Policy())
    assert [r.is_taken for r in parts.store.list_attachments()] == [True]
    machine.call("detach", vm="vm01")
    assert see(machine) == before


def test_the_layout_is_remembered_with_what_was_taken(machine: Attached) -> None:
    apply(machine, "full")
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    apply(machine, "full")
    (layout,) = machine.application.parts.store.read_layouts().values()
    assert sorted(i.profile for i in layout.instances) == ["2g.20gb", "2g.20gb", "3g.40gb"]


def test_an_instance_of_mig_create_is_taken_and_stays(machine: Attached) -> None:
    machine.call("set_mig_mode", gpu="0", enabled=True)
    machine.call("create_mig", gpu="0", profile="2g.20gb")
    ((_, uuid, _),) = see(machine)
    document = machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    assert "attachment.take" in kinds(document)
    assert see(machine) == [("2g.20gb", uuid, "vm01")]
    # a VM that is shut off has it, too: also by its holder, which is not named twice
    with pytest.raises(LayoutBusyError) as refused:
        machine.call("destroy_mig", instances=[uuid])
    (holder,) = refused.value.held_by
    assert holder.startswith('vm "vm01" (0/')
    assert str(refused.value.hint) == "vgpumgr detach vm01; then repeat"
    machine.call("detach", vm="vm01")
    assert see(machine) == [("2g.20gb", uuid, None)]
    machine.call("destroy_mig", instances=[uuid])
    assert see(machine) == []


def test_what_an_attachment_made_is_not_destroyed_under_it(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    for asked in ({"gpus": ["0"]}, {"instances": ["0/1"]}):
        with pytest.raises(VgpumgrError):
            machine.call("destroy_mig", **asked)
    assert [vm for _, _, vm in see(machine)] == ["vm01"]
    # and nothing beside it concerns it: what was created is remembered, the VM's slice is not
    machine.call("create_mig", gpu="0", profile="1g.10gb")
    (layout,) = machine.application.parts.store.read_layouts().values()
    assert [i.profile for i in layout.instances] == ["1g.10gb"]
    machine.call("detach", vm="vm01")
    assert [profile for profile, _, _ in see(machine)] == ["1g.10gb"]


def test_the_id_of_a_slice_that_is_gone_makes_no_owner(machine: Attached) -> None:
    """NVML gives it again: here to an instance elsewhere, as after a boot."""
    parts = machine.application.parts
    machine.call("attach", vm="vm01", profile="1g.10gb", gpu="0")
    (record,) = parts.store.list_attachments()
    old = record.gpu_instance_id
    machine.call("create_mig", gpu="0", profile="2g.20gb")
    gpu = parts.read_inventory().gpus[0]
    other = next(i for i in gpu.instances if i.id != old)
    stale = record.with_mig(gpu_instance_id=other.id)
    assert stale.mig is not None
    stale = stale.with_mig(ref=dataclasses.replace(stale.mig, gpu_instance_id=other.id))
    parts.store.save_attachment(stale)
    try:
        assert stale.placement != other.placement
        assert [o for o in parts.list_owners([gpu]) if o.gpu_instance_id == other.id] == []
        assert {p: vm for p, _, vm in see(machine)}["2g.20gb"] is None
        machine.call("destroy_mig", instances=[f"0/{other.id}"])
    finally:
        parts.store.save_attachment(record)
    assert [profile for profile, _, _ in see(machine)] == ["1g.10gb"]
