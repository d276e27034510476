"""A layout that another program changed after ``apply``: ``status`` and ``diff`` say what, where, and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.attached_machine import Attached, machine_of_vms
from vgpumgr.model.gpu import Gpu

pytestmark = pytest.mark.native
LAYOUTS = """
schema: vgpumgr/mig-layout/v1
layouts:
  a: [{gpus: [1], instances: [2g.20gb, {profile: 3g.40gb, compute: [1c, 2c]}]}]
  off: [{gpus: [2], mig: false}]
"""


@pytest.fixture
def machine() -> Iterator[Attached]:
    with machine_of_vms() as it:
        it.call("apply_layout", text=LAYOUTS, source="l.yaml", name="a")
        assert list_drift(it) == []
        try:
            yield it
        finally:
            for vm in {r.vm_name for r in it.application.parts.store.list_attachments()}:
                it.call("detach", vm=vm)


def list_drift(machine: Attached) -> list[tuple[str, str, str, str]]:
    """Kind, GPU, text and hint; the same in ``status``, ``diff`` and ``recover``."""
    status = machine.call("status")
    assert status["problems"] == []
    assert machine.call("diff")["drift"] == status["drift"]
    assert machine.call("recover")["drift"] == status["drift"]
    return [(d["kind"], d["subject"], d["text"], d["hint"]) for d in status["drift"]]


def find_gpu(machine: Attached) -> Gpu:
    return machine.application.parts.read_inventory().gpus[1]


def destroy(machine: Attached, profile: str, *, slices: int | None = None) -> None:
    """As another program: an instance with all in it, or one compute instance."""
    gpu, nvml = find_gpu(machine), machine.application.parts.nvml
    instance = next(i for i in gpu.instances if str(i.profile) == profile)
    for compute in instance.compute_instances:
        if slices in (None, compute.slices):
            nvml.destroy_compute_instance(gpu.uuid, instance.id, compute.id)
    if slices is None:
        nvml.destroy_gpu_instance(gpu.uuid, instance.id)


def create(machine: Attached, profile: str) -> None:
    gpu, nvml = find_gpu(machine), machine.application.parts.nvml
    row = next(p for p in gpu.profiles if str(p.name) == profile)
    place = next(
        p for p in row.placements if not any(p.overlaps(i.placement) for i in gpu.instances)
    )
    nvml.create_gpu_instance(gpu.uuid, row.id, place)


def test_what_is_gone_is_named_and_restore_puts_it_back(machine: Attached) -> None:
    destroy(machine, "2g.20gb")
    destroy(machine, "3g.40gb", slices=1)
    ((kind, subject, text, hint),) = list_drift(machine)
    assert (kind, subject) == ("layout-changed", "GPU 1 (0000:0f:00.0)")
    assert "2g.20gb at" in text
    assert "is gone" in text
    assert "has 1 compute instance, expected 2" in text
    assert hint.startswith("vgpumgr restore puts it back; ")
    assert machine.call("restore")["problems"] == []
    assert list_drift(machine) == []


def test_what_was_added_is_named_and_can_be_accepted(machine: Attached) -> None:
    create(machine, "1g.10gb")
    ((_, _, text, hint),) = list_drift(machine)
    assert "1g.10gb at" in text
    assert "is not of it" in text
    assert "vgpumgr mig layout apply FILE" in hint
    assert "vgpumgr mig layout export --out now.yaml" in hint
    document = machine.call("export_layout", dialect="vgpumgr", label="now", placements=True)
    machine.call("apply_layout", text=json.dumps(document["file"]), source="now.yaml")
    assert list_drift(machine) == []


def test_applying_it_again_puts_it_back(machine: Attached) -> None:
    destroy(machine, "2g.20gb")
    create(machine, "1g.10gb")
    assert len(list_drift(machine)) == 1
    machine.call("apply_layout", text=LAYOUTS, source="l.yaml", name="a")
    assert list_drift(machine) == []


def test_mode_is_a_part_of_it(machine: Attached) -> None:
    machine.call("apply_layout", text=LAYOUTS, source="l.yaml", name="off")
    parts = machine.application.parts
    parts.nvml.set_mig_mode(parts.read_inventory().gpus[2].uuid, True)
    ((_, subject, text, hint),) = list_drift(machine)
    assert subject.startswith("GPU 2 ")
    assert "MIG mode is on, expected off" in text
    assert hint.startswith("vgpumgr mig disable 2 ")


def test_attachments_are_no_drift(machine: Attached) -> None:
    for vm, profile in (("vm01", "2g.20gb"), ("vm02", "1g.10gb")):
        machine.call("attach", vm=vm, profile=profile, gpu="1")
    assert list_drift(machine) == []
    machine.call("detach", vm="vm01")
    machine.call("detach", vm="vm02")
    assert list_drift(machine) == []


def test_create_and_destroy_change_the_layout_and_hide_no_drift(machine: Attached) -> None:
    destroy(machine, "2g.20gb")
    before = list_drift(machine)
    assert "2g.20gb at" in before[0][2]
    machine.call("create_mig", gpu="1", profile="1g.10gb")
    # what another program destroyed is still missing; what was created is not of it, but part of the layout
    assert list_drift(machine) == before
    (made,) = [i for i in find_gpu(machine).instances if str(i.profile) == "1g.10gb"]
    destroy(machine, "1g.10gb")
    ((_, _, text, _),) = list_drift(machine)
    assert f"1g.10gb at {made.placement} is gone" in text
    assert machine.call("restore")["problems"] == []
    assert list_drift(machine) == []
    gone = next(i for i in find_gpu(machine).instances if str(i.profile) == "3g.40gb")
    machine.call("destroy_mig", instances=[f"1/{gone.id}"])
    assert list_drift(machine) == []
    assert machine.call("restore")["problems"] == []
    assert sorted(str(i.profile) for i in find_gpu(machine).instances) == ["1g.10gb", "2g.20gb"]
    # in the place of what is missing stands what was created there last
    destroy(machine, "2g.20gb")
    destroy(machine, "1g.10gb")
    machine.call("create_mig", gpu="1", profile="7g.80gb")
    assert list_drift(machine) == []
