"""From a planned change of layout to steps for the executor, and what the journal says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpumgr.engine.journal import Event
from vgpumgr.engine.mig_state import MigState, find_id
from vgpumgr.engine.step import Plan, Step, decode_step
from vgpumgr.errors import LayoutBusyError, LayoutChangedError
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.slices import list_records
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.slice import SliceOwner
from vgpumgr.steps.mig import (
    CreateComputeInstance,
    CreateGpuInstance,
    MigStep,
    make_step,
)

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
            raise LayoutChangedError(f"GPU {spec.gpu_uuid} is gone", hint="vgpumgr gpu list")
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
        f'vm "{o.vm_name}"'
        for o in owners
        if o.gpu == gpu.uuid and concerns(o.gpu_instance_id, o.compute_instance_id)
    ]


def list_begun(events: Sequence[Event]) -> list[MigStep]:
    """The steps of an interrupted operation that may have happened, in order: those on MIG, not what
    was written down with them. Raises JournalError.
    """
    rows = events[0].data.get("steps", ())
    begun = sorted({int(e.data["step"]) for e in events if e.event == "intent"})
    steps = [decode_step(rows[number]) for number in begun]
    return [step for step in steps if isinstance(step, MigStep)]


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
