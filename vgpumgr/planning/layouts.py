"""From a planned change of layout to steps for the executor; and what is missing after a boot, with the steps that
bring it back: pure.

A restore creates only what is missing, at its old place. What stands in the way, and what is there besides, is reported
and left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.engine.journal import Event
from vgpumgr.engine.mig_state import MigState, find_id
from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import LayoutBusyError, LayoutChangedError
from vgpumgr.mig.instances import list_records, size_of
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind, name_compute
from vgpumgr.mig.layout.compute import pack
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import (
    DesiredInstance,
    DesiredLayout,
    GpuInstance,
    MigProfile,
    Placement,
)
from vgpumgr.model.text import tell_count
from vgpumgr.planning.drift import RESTORE, Drift, DriftKind
from vgpumgr.steps.mig import CreateComputeInstance, CreateGpuInstance, make_step

OPERATION = "apply"
#: the subject of every operation on layouts, in the journal and in messages
SUBJECT = "the MIG layout"


def make_plan(plan: LayoutPlan) -> Plan:
    """The plan for the executor."""
    return Plan(
        operation=OPERATION,
        subject=SUBJECT,
        steps=tuple(make_step(spec) for spec in plan.steps),
        notes=tuple(text for _, text in plan.explanations),
        repair="vgpumgr mig list",
    )


def make_restore_plan(piece: LayoutPlan, records: Sequence[AttachmentRecord]) -> Plan:
    """The plan for a piece of a restore; where attachments have their slices there, it ends with theirs."""
    plan = make_plan(piece)
    spec = piece.steps[0]
    place = spec.parent_placement or spec.placement
    mine = [r for r in list_records(records) if (r.gpu, r.placement) == (spec.gpu_uuid, place)]
    if not mine or place is None:
        return plan
    from vgpumgr.steps.record import BindSlices

    return replace(plan, steps=(*plan.steps, BindSlices(GpuUuid(spec.gpu_uuid), place)))


def is_complete(events: Sequence[Event]) -> bool:
    """Whether an interrupted operation has bound the slices that it made: only its end is missing."""
    from vgpumgr.steps.record import BindSlices

    return any(e.event == "done" and e.data.get("kind") == BindSlices.kind for e in events)


def check_fresh(plan: LayoutPlan, gpus: Sequence[Gpu], owners: Sequence[SliceOwner] = ()) -> None:
    """Before the first call: is everything that goes still what was planned for, and unused?

    Raises:
        LayoutChangedError: somebody changed a GPU since the plan was made.
        LayoutBusyError: somebody has begun to use a slice since then.
    """
    by_uuid = {str(gpu.uuid): gpu for gpu in gpus}
    for spec in plan.steps:
        gpu = by_uuid.get(spec.gpu_uuid)
        if gpu is None:
            raise LayoutChangedError(f"{spec.gpu_uuid} is gone", hint="vgpumgr gpu list")
        if spec.kind in (StepKind.GI_DESTROY, StepKind.CI_DESTROY):
            _check_destroy(spec, gpu, owners)


def _check_destroy(spec: MigStepSpec, gpu: Gpu, owners: Sequence[SliceOwner]) -> None:
    place = spec.placement if spec.kind is StepKind.GI_DESTROY else spec.parent_placement
    instance = find_id(gpu.instances, spec.instance_id if spec.instance_id is not None else -1)
    inside = [c.id for c in instance.compute_instances] if instance else []
    gone = instance is None or instance.placement != place
    if gone or spec.compute_instance_id not in (None, *inside):
        raise LayoutChangedError(
            f"cannot {make_step(spec, gpu.index).describe()}",
            why=f"{gpu} was changed since the plan was made",
            hint="repeat the command: it plans anew",
        )
    users = _list_users(spec, gpu, owners)
    if users and not spec.disrupts:
        raise LayoutBusyError(
            f"cannot {make_step(spec, gpu.index).describe()}",
            why="it is used since the plan was made",
            held_by=users,
            hint="repeat the command: it plans around them",
        )


def _list_users(spec: MigStepSpec, gpu: Gpu, owners: Sequence[SliceOwner]) -> list[str]:
    def concerns(instance_id: int | None, compute_id: int | None) -> bool:
        compute = spec.compute_instance_id
        return instance_id == spec.instance_id and (
            compute is None or compute_id in (None, compute)
        )

    users = [str(p) for p in gpu.processes if concerns(p.gpu_instance_id, p.compute_instance_id)]
    return users + [
        o.holder
        for o in owners
        if o.gpu == gpu.uuid and concerns(o.gpu_instance_id, o.compute_instance_id)
    ]


def claim_begun(mig: MigState, steps: Sequence[Step]) -> None:
    """What stands at the places where an interrupted operation created is that operation's."""
    for step in steps:
        if isinstance(step, CreateGpuInstance):
            for instance in mig.expect(step.gpu):
                if (str(instance.profile), instance.placement) == (step.profile, step.placement):
                    mig.made.add((step.gpu, instance.id))
        if isinstance(step, CreateComputeInstance):
            for instance in mig.expect(step.gpu):
                for compute in instance.compute_instances:
                    places = instance.placement, compute.placement
                    if places == (step.parent_placement, step.placement):
                        key = (step.gpu, instance.id, compute.id, str(compute.uuid))
                        mig.made_compute.add(key)


def takes_slice(spec: MigStepSpec, record: AttachmentRecord) -> bool:
    """Whether a step destroys the slice of an attachment."""
    if spec.kind not in (StepKind.GI_DESTROY, StepKind.CI_DESTROY) or record.mig is None:
        return False
    if (spec.gpu_uuid, spec.instance_id) != (record.gpu, record.mig.gpu_instance_id):
        return False
    return spec.compute_instance_id in (None, record.mig.compute_instance_id)


def find_layout_drift(
    gpus: Sequence[Gpu],
    layouts: Mapping[str, DesiredLayout],
    records: Sequence[AttachmentRecord],
    made: Collection[tuple[GpuUuid, Placement]] = (),
    busy: Collection[str] = (),
) -> Iterator[Drift]:
    """For each GPU that is not as the layout that was applied to it, what differs. ``made``: GPU instances that were
    made for vGPUs; ``busy``: GPUs of an unfinished operation. A GPU without NVML is another's concern.
    """
    for gpu in gpus:
        layout = layouts.get(str(gpu.uuid))
        if layout is None or str(gpu.uuid) in busy:
            continue
        own = [r.mig_part.placement for r in records if r.gpu == gpu.uuid and r.mig_part]
        own += [place for uuid, place in made if uuid == gpu.uuid]
        missing, extra = list(_list_missing(gpu, layout, own)), list(_list_extra(gpu, layout, own))
        if missing or extra:
            text = f"is not as the layout that was applied: {'; '.join((*missing, *extra))}"
            yield Drift(
                DriftKind.LAYOUT_CHANGED, str(gpu), text, hint=_describe_ways(gpu, layout, extra)
            )


def _list_missing(gpu: Gpu, layout: DesiredLayout, own: Sequence[Placement]) -> Iterator[str]:
    if gpu.mig.current != layout.mig_enabled:
        words = "off", "on"
        yield f"MIG mode is {words[gpu.mig.current]}, expected {words[layout.mig_enabled]}"
        return
    for wanted in layout.instances:
        there = next((i for i in gpu.instances if i.placement == wanted.placement), None)
        if there is None or str(there.profile) != wanted.profile:
            if not any(wanted.placement.overlaps(place) for place in own):
                yield f"{wanted.profile} at {wanted.placement} is gone"
        elif len(there.compute_instances) != len(wanted.compute):
            counts = len(there.compute_instances), len(wanted.compute)
            yield (
                f"{wanted.profile} at {wanted.placement} has {tell_count(counts[0], 'compute instance')}, "
                f"expected {counts[1]}"
            )


def _list_extra(gpu: Gpu, layout: DesiredLayout, own: Sequence[Placement]) -> Iterator[str]:
    """A layout without instances is MIG mode alone."""
    known = {(i.profile, i.placement) for i in layout.instances}
    for instance in gpu.instances if known else ():
        if (
            str(instance.profile),
            instance.placement,
        ) not in known and instance.placement not in own:
            yield f"{instance.profile} at {instance.placement} is not of it"


def _describe_ways(gpu: Gpu, layout: DesiredLayout, extra: Sequence[str]) -> str:
    if gpu.mig.current and not layout.mig_enabled:
        back = f"vgpumgr mig disable {gpu.index}"
    elif extra:
        back = "vgpumgr mig layout apply FILE, as before,"
    else:
        back = RESTORE
    accept = "vgpumgr mig layout export --out now.yaml, then vgpumgr mig layout apply now.yaml"
    return f"{back} puts it back; {accept}, accepts it"


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
            plan.problems.append(f"{uuid} is gone")
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
        own = next((i for i in layout.instances if i.placement == place), None) if layout else None
        if own is not None and any(record.is_taken for record in group):
            yield own
            continue
        name = group[0].mig_profile.gpu_instance
        profile = _find_profile(gpu, str(name))
        slices = profile.slices if profile else name.slices
        # shares of one instance have one compute instance together
        owners = [r for r in group if r.share_part is None or r is group[0]]
        sizes = tuple(sorted((size_of(r, slices) for r in owners), reverse=True))
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
