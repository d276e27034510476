"""What is missing after a boot, and the steps that bring it back: pure.

Only what is missing is created, at its old place. What stands in the way, and what is there besides,
is somebody else's: it is told and left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.layout.compute import pack
from vgpumgr.mig.layout.steps import name_compute
from vgpumgr.mig.slices import list_records, size_of
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.desired_layout import DesiredInstance, DesiredLayout
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfile, MigProfileName, Placement


@dataclass
class RestorePlan:
    """Independent pieces: each is done or undone as a whole, and none hinders another."""

    pieces: list[LayoutPlan] = field(default_factory=list)
    #: what cannot be brought back, in words
    problems: list[str] = field(default_factory=list)


def plan_modes(
    gpus: Sequence[Gpu],
    layouts: Mapping[str, DesiredLayout],
    records: Sequence[AttachmentRecord],
) -> RestorePlan:
    """MIG mode, where it is needed and off. Mode is never turned off by a restore."""
    plan = RestorePlan()
    by_uuid = {str(gpu.uuid): gpu for gpu in gpus}
    for uuid in _list_wanted(layouts, records):
        gpu = by_uuid.get(uuid)
        if gpu is None:
            plan.problems.append(f"GPU {uuid} is gone")
        elif not gpu.mig.supported:
            plan.problems.append(f"{gpu} has no MIG any more")
        elif not gpu.mig.current:
            plan.pieces.append(LayoutPlan((MigStepSpec(StepKind.MODE_ENABLE, uuid),)))
    return plan


def plan_instances(
    gpus: Sequence[Gpu],
    layouts: Mapping[str, DesiredLayout],
    records: Sequence[AttachmentRecord],
) -> RestorePlan:
    """Instances, one piece for each GPU instance."""
    plan = RestorePlan()
    wanted = set(_list_wanted(layouts, records))
    for gpu in gpus:
        if str(gpu.uuid) in wanted and gpu.mig.current:
            layout = layouts.get(str(gpu.uuid))
            for one in _list_instances(gpu, layout, records):
                _plan_instance(gpu, one, plan)
    return plan


def _list_wanted(
    layouts: Mapping[str, DesiredLayout], records: Sequence[AttachmentRecord]
) -> list[str]:
    """GPUs that must be in MIG mode."""
    layout_gpus = [uuid for uuid, layout in layouts.items() if layout.mig_enabled]
    return list(dict.fromkeys(layout_gpus + [str(r.gpu) for r in list_records(records)]))


def _list_instances(
    gpu: Gpu, layout: DesiredLayout | None, records: Sequence[AttachmentRecord]
) -> Iterator[DesiredInstance]:
    """Attachments first: where somebody has destroyed a part of the layout, they may be there now."""
    by_place: dict[Placement, list[AttachmentRecord]] = {}
    for record in list_records(records):
        if record.gpu == gpu.uuid and record.placement is not None:
            by_place.setdefault(record.placement, []).append(record)
    for place, group in by_place.items():
        name = MigProfileName.parse(group[0].profile).gpu_instance
        profile = _find_profile(gpu, str(name))
        slices = profile.slices if profile else name.slices
        sizes = tuple(sorted((size_of(r, slices) for r in group), reverse=True))
        yield DesiredInstance(str(name), place, pack(slices, sizes, ()) or ())
    for instance in layout.instances if layout else ():
        if not any(instance.placement.overlaps(place) for place in by_place):
            yield instance


def _find_profile(gpu: Gpu, name: str) -> MigProfile | None:
    return next((p for p in gpu.profiles if str(p.name) == name), None)


def _plan_instance(gpu: Gpu, wanted: DesiredInstance, plan: RestorePlan) -> None:
    profile = _find_profile(gpu, wanted.profile)
    what = f"{wanted.profile} at {wanted.placement} on {gpu}"
    if profile is None:
        plan.problems.append(f"{what}: the GPU has no such profile any more")
        return
    there = next((i for i in gpu.instances if i.placement == wanted.placement), None)
    if there is not None and there.profile_id == profile.id:
        steps = list(_complete(gpu, profile, there, wanted))
    elif others := [i for i in gpu.instances if i.placement.overlaps(wanted.placement)]:
        names = ", ".join(f"{i.profile} at {i.placement}" for i in others)
        plan.problems.append(f"{what}: in its place is {names}")
        return
    else:
        steps = list(_create(gpu, profile, wanted))
    if steps:
        plan.pieces.append(LayoutPlan(tuple(steps)))


def _create(gpu: Gpu, profile: MigProfile, wanted: DesiredInstance) -> Iterator[MigStepSpec]:
    key = f"{gpu.uuid}/{wanted.profile}@{wanted.placement}"
    yield MigStepSpec(
        StepKind.GI_CREATE, gpu.uuid, profile=wanted.profile, placement=wanted.placement, key=key
    )
    for place in wanted.compute:
        yield replace(_compute_step(gpu, profile, wanted, place), key=key)


def _complete(
    gpu: Gpu, profile: MigProfile, there: GpuInstance, wanted: DesiredInstance
) -> Iterator[MigStepSpec]:
    """The compute instances that an instance lacks, as far as there is room for them."""
    taken = [c.placement for c in there.compute_instances if c.placement is not None]
    for place in wanted.compute:
        if not any(place.overlaps(t) for t in taken):
            yield replace(_compute_step(gpu, profile, wanted, place), instance_id=there.id)


def _compute_step(
    gpu: Gpu, profile: MigProfile, wanted: DesiredInstance, place: Placement
) -> MigStepSpec:
    return MigStepSpec(
        StepKind.CI_CREATE,
        gpu.uuid,
        profile=name_compute(profile.name, place.size, profile.slices),
        placement=place,
        parent_profile=wanted.profile,
        parent_placement=wanted.placement,
    )
