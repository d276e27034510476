"""From a planned change of layout to steps for the executor, and back from the journal to steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgpumgr.errors import LayoutBusyError, LayoutChangedError
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement
from vgpumgr.model.slice import SliceOwner
from vgpumgr.plan.journal import Event
from vgpumgr.plan.layout_steps import STEPS, describe_spec
from vgpumgr.plan.layout_world import LayoutWorld, find_id
from vgpumgr.plan.step import Plan, Step

OPERATION = "apply"
#: the subject of every operation on layouts, in the journal and in messages
SUBJECT = "the MIG layout"
#: the step of a restore that no layout has, see ``restore_steps``
BIND = "attachment.bind"
#: with this the kinds of all steps on MIG begin
MIG = "mig."


def make_plan(plan: LayoutPlan) -> Plan[LayoutWorld]:
    """The plan for the executor."""
    return Plan(
        operation=OPERATION,
        subject=SUBJECT,
        steps=tuple(make_step(spec) for spec in plan.steps),
        notes=tuple(text for _, text in plan.explanations),
        repair="vgpumgr mig list",
    )


def make_step(spec: MigStepSpec) -> Step[LayoutWorld]:
    """The step that carries a specification out."""
    return STEPS[spec.kind](spec)


def read_layout_step(target: Mapping[str, Any]) -> Step[LayoutWorld]:
    """A step as its ``target`` in the journal says it."""
    return make_step(_read_spec(target))


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
            f"cannot {describe_spec(spec)}",
            why=f"{gpu} was changed since the plan was made",
            hint="repeat the command: it plans anew",
        )
    users = _list_users(spec, gpu, owners)
    if users and not spec.disrupts:
        raise LayoutBusyError(
            f"cannot {describe_spec(spec)}",
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


def list_begun(events: Sequence[Event]) -> list[Step[LayoutWorld]]:
    """The steps of an interrupted operation that may have happened, in order: those on MIG, not what
    was written down with them.
    """
    rows = events[0].data.get("steps", ())
    begun = sorted({int(e.data["step"]) for e in events if e.event == "intent"})
    chosen = [rows[number] for number in begun]
    return [make_step(_read_spec(row["target"])) for row in chosen if row["kind"].startswith(MIG)]


def claim_begun(world: LayoutWorld, steps: Sequence[Step[LayoutWorld]]) -> None:
    """What stands at the places where an interrupted operation created is that operation's."""
    for step in steps:
        spec = _read_spec(step.target)
        gpu = world.find_gpu(spec.gpu_uuid)
        for instance in world.expected[gpu.uuid]:
            if spec.kind is StepKind.GI_CREATE and (
                str(instance.profile) == spec.profile and instance.placement == spec.placement
            ):
                world.made.add((gpu.uuid, instance.id))
            if spec.kind is StepKind.CI_CREATE and instance.placement == spec.parent_placement:
                for compute in instance.compute_instances:
                    if compute.placement == spec.placement:
                        key = (gpu.uuid, instance.id, compute.id, str(compute.uuid))
                        world.made_compute.add(key)


def _read_spec(target: Mapping[str, Any]) -> MigStepSpec:
    return MigStepSpec(
        kind=StepKind(target["kind"]),
        gpu_uuid=str(target["gpu"]),
        profile=target.get("profile"),
        placement=_read_place(target.get("placement")),
        instance_id=target.get("instance"),
        compute_instance_id=target.get("compute_instance"),
        key=target.get("key"),
        parent_profile=target.get("parent_profile"),
        parent_placement=_read_place(target.get("parent_placement")),
        disrupts=tuple(target.get("disrupts", ())),
    )


def _read_place(value: Mapping[str, int] | None) -> Placement | None:
    return None if value is None else Placement(int(value["start"]), int(value["size"]))
