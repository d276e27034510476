"""A change of layout that takes slices from VMs: no worker is left on a slice that is no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.layout_changes import apply_layout
from tests.support.service import Bench, make_bench
from vgpumgr.app.application import Application
from vgpumgr.errors import LayoutBusyError, NvmlError, RolledBackError
from vgpumgr.host.machine import Machine
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.mig import Placement
from vgpumgr.model.request import AttachRequest

PROFILE = "1g.10gb"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = make_bench(tmp_path)
    made.service.attach(AttachRequest("vm01", PROFILE, gpu="0"))
    return made


def the_record(bench: Bench) -> AttachmentRecord:
    (record,) = bench.service.parts.store.list_attachments()
    return record


def destroy(bench: Bench) -> list[MigStepSpec]:
    """As the planner's steps with --allow-disruptive vm01."""
    record = the_record(bench)
    assert record.mig is not None
    gpu, instance = str(record.gpu), record.mig.gpu_instance_id
    return [
        MigStepSpec(
            StepKind.CI_DESTROY,
            gpu,
            profile=PROFILE,
            placement=Placement(0, 1),
            parent_profile=PROFILE,
            parent_placement=record.placement,
            instance_id=instance,
            compute_instance_id=record.mig.compute_instance_id,
            disrupts=("vm",),
        ),
        MigStepSpec(
            StepKind.GI_DESTROY,
            gpu,
            profile=PROFILE,
            placement=record.placement,
            instance_id=instance,
            disrupts=("vm",),
        ),
    ]


def create(bench: Bench, place: Placement) -> list[MigStepSpec]:
    gpu = str(the_record(bench).gpu)
    return [
        MigStepSpec(StepKind.GI_CREATE, gpu, profile=PROFILE, placement=place, key="new"),
        MigStepSpec(
            StepKind.CI_CREATE,
            gpu,
            profile=PROFILE,
            placement=Placement(0, 1),
            parent_profile=PROFILE,
            parent_placement=place,
            key="new",
        ),
    ]


def another_place(bench: Bench) -> Placement:
    gpu = bench.gpu
    profile = next(p for p in gpu.profiles if str(p.name) == PROFILE)
    taken = [i.placement for i in gpu.instances]
    return next(p for p in profile.placements if not any(p.overlaps(t) for t in taken))


def test_a_vm_whose_slice_goes_is_detached(bench: Bench) -> None:
    outcome = apply_layout(LayoutPlan(tuple(destroy(bench))), bench.service.parts)
    assert "vm01: 1g.10gb is gone with its slice, and was detached" in outcome.notes
    assert bench.service.parts.store.list_attachments() == ()
    assert bench.channels.running == {}
    vm = bench.service.show_vm("vm01").vm
    assert (vm.attachments, vm.devices_config, vm.problems) == ([], [], [])


def test_a_vm_whose_slice_moves_goes_along(bench: Bench) -> None:
    before, place = the_record(bench), another_place(bench)
    plan = LayoutPlan((*destroy(bench), *create(bench, place)))
    outcome = apply_layout(plan, bench.service.parts)
    after = the_record(bench)
    assert (after.id, after.placement) == (before.id, place)
    assert "vm01: 1g.10gb is at" in " ".join(outcome.notes)
    assert bench.service.show_vm("vm01").vm.problems == []
    assert after.mig is not None
    assert bench.channels.specs[after.id].cuda_device == str(after.mig.uuid)


def test_a_change_that_is_undone_gives_the_slice_back(bench: Bench) -> None:
    place = another_place(bench)
    before = the_record(bench)
    plan = LayoutPlan((*destroy(bench), *create(bench, place)))
    bench.nvml.fail["create_gpu_instance"] = NvmlError("no")
    with pytest.raises(RolledBackError) as caught:
        apply_layout(plan, bench.service.parts)
    after = the_record(bench)
    assert after.placement == before.placement
    assert "vm01: 1g.10gb is at" in (caught.value.why or "")
    assert bench.service.show_vm("vm01").vm.problems == []


LAYOUT = """schema: vgpumgr/mig-layout/v1
layouts:
  full:
    - gpus: 0
      instances: [{instances}]
"""


@pytest.mark.parametrize("instances", [["7g.80gb"], ["1g.10gb"] * 7])
def test_a_layout_takes_no_place_that_a_restore_needs(bench: Bench, instances: list[str]) -> None:
    """After a boot the slice is gone; a new one in its place could have its very UUID."""
    record = the_record(bench)
    gpu = bench.gpu
    bench.nvml.gpus[gpu.uuid] = replace(gpu, instances=())
    machine = Machine("test", bench.state_dir, bench.state_dir, bench.state_dir, "test:///default")
    application = Application(machine, bench.service.parts)
    asked = {
        "text": LAYOUT.format(instances=", ".join(instances)),
        "source": "a.yaml",
        "name": "full",
    }
    for call in (application.plan_layout, application.apply_layout):
        with pytest.raises(LayoutBusyError) as refused:
            call(**asked)
        assert refused.value.held_by == (
            f'vm "vm01", attachment {record.id}: {PROFILE} at {record.placement}',
        )
        assert str(refused.value.hint).startswith("vgpumgr restore")
    with pytest.raises(LayoutBusyError, match="turn MIG off"):
        application.set_mig_mode(gpu="0", enabled=False)
    assert bench.gpu.instances == ()
    bench.service.detach("vm01")
    application.plan_layout(**asked)
