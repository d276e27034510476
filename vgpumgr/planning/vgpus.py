"""Plans of operations on vGPUs: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.errors import VgpuBusyError, VgpuNotSupportedError
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.vgpu import (
    Attributes,
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuSpec,
)
from vgpumgr.model.vgpu_record import VgpuInstance, VgpuRecord, VgpuState
from vgpumgr.planning.vgpu_instance import NewInstance, plan_instance, plan_without_instance
from vgpumgr.planning.vgpu_selection import VgpuChoice
from vgpumgr.steps.vgpu import CreateVgpu, DeleteVgpu
from vgpumgr.steps.vgpu_definition import (
    AdoptVgpu,
    DefineVgpu,
    UndefineVgpu,
    make_definition,
)
from vgpumgr.steps.vgpu_mode import SetMixedSizes

#: in the journal, and in sentences: "cannot create vGPU ..."
CREATE, DELETE, DEFINE = "create vGPU", "delete vGPU", "define vGPU"
START, STOP, ADOPT = "start vGPU", "stop vGPU", "adopt vGPU"
LAYOUT = "apply the layout of"
OPERATIONS = (CREATE, DELETE, DEFINE, START, STOP, ADOPT, LAYOUT)
#: when these are interrupted they go on; the others are undone
FORWARD = (DELETE, STOP)

Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """Whether and how a new vGPU is to be defined."""

    wanted: bool = False
    auto: bool = False


def plan_mode_steps(spec: VgpuSpec, board: VgpuBoard, count: int) -> Steps:
    """Mixed sizes, where they are wanted and off. ``count``: vGPUs on the GPU, with which the mode
    cannot change. Raises VgpuNotSupportedError, VgpuBusyError.
    """
    if not spec.mixed_sizes or board.mixed_sizes:
        return ()
    what = f"cannot let {board.name} hold vGPUs of several sizes"
    if board.mixed_sizes is None or board.gpu is None:
        raise VgpuNotSupportedError(what, why="its driver has no such mode")
    if count:
        raise VgpuBusyError(
            what,
            why=f"the mode changes only on a GPU without vGPUs, and it has {count}",
            hint="vgpumgr mdev list",
        )
    return (SetMixedSizes(board.gpu),)


def plan_create(
    spec: VgpuSpec,
    choice: VgpuChoice,
    definition: Definition,
    *,
    start: bool = True,
    mode: Steps = (),
) -> Plan:
    """A new vGPU, with the GPU instance that it needs; without ``start`` only its definition."""
    steps: list[Step] = []
    if start:
        steps += [*mode, *plan_instance(choice.instance)]
        steps.append(CreateVgpu(spec, instance=describe_instance(choice.instance)))
    if definition.wanted:
        steps.append(DefineVgpu(spec, definition.auto))
    operation = CREATE if start else DEFINE
    return _plan(operation, spec, tuple(steps), OnFailure.UNDO, (choice.why, *choice.notes))


def describe_instance(instance: NewInstance | None) -> VgpuInstance | None:
    """For the record."""
    if instance is None:
        return None
    return VgpuInstance(instance.gpu.uuid, str(instance.profile.name), instance.placement)


def plan_start(
    record: VgpuRecord, spec: VgpuSpec, instance: NewInstance | None, mode: Steps = ()
) -> Plan:
    """A defined vGPU; ``spec`` has its type as the driver numbers it now."""
    steps: list[Step] = [*mode, *plan_instance(instance)]
    steps.append(CreateVgpu(spec, record.attachment, describe_instance(instance)))
    if spec.type_id != record.spec.type_id:
        steps.append(DefineVgpu(spec, record.auto, record.spec, record.auto))
    return _plan(START, spec, tuple(steps))


def plan_nothing(operation: str, record: VgpuRecord, why: str) -> Plan:
    """It is as asked for already."""
    return _plan(operation, record.spec, (), notes=(f"nothing to do: {why}",))


def plan_stop(record: VgpuRecord, instance_steps: Steps = ()) -> Plan:
    """The vGPU goes, its definition stays."""
    return _plan(STOP, record.spec, (*_remove_steps(record), *instance_steps), OnFailure.STOP)


def plan_delete(record: VgpuRecord, instance_steps: Steps = ()) -> Plan:
    """The vGPU and its definition go, and the GPU instance that was made for it."""
    steps = list(_remove_steps(record))
    if record.defined:
        steps.append(UndefineVgpu(record.spec, record.auto))
    return _plan(DELETE, record.spec, (*steps, *instance_steps), OnFailure.STOP)


def _remove_steps(record: VgpuRecord) -> Steps:
    return () if record.state is VgpuState.INACTIVE else (DeleteVgpu(record.spec),)


def list_instance_steps(
    record: VgpuRecord, gpus: Sequence[Gpu], others: Sequence[VgpuRecord]
) -> Steps:
    """The GPU instance that was made for a vGPU goes with the last one that was made in it."""
    made = record.instance
    if made is None or any(other.instance == made for other in others if other != record):
        return ()
    return plan_without_instance(made, gpus, ())


def plan_define(
    record: VgpuRecord,
    *,
    auto: bool | None,
    attributes: Attributes | None,
    written: Collection[VgpuDefinition] = (),
    notes: Sequence[str] = (),
) -> Plan:
    """A vGPU of ours gets a definition, or its definition is changed; None leaves what there is.
    ``written``: mdevctl's definitions, which somebody else may have changed.
    """
    spec = record.spec if attributes is None else replace(record.spec, attributes=attributes)
    starts = (record.defined and record.auto) if auto is None else auto
    before = record.spec if record.defined else None
    is_there = spec.framework is not Framework.MDEV or make_definition(spec, starts) in written
    if before == spec and record.auto == starts and is_there:
        return plan_nothing(DEFINE, record, "it is defined so already")
    step = DefineVgpu(spec, starts, before, record.auto)
    return _plan(DEFINE, spec, (step,), notes=notes)


def plan_adopt(step: AdoptVgpu) -> Plan:
    """Somebody else's becomes ours."""
    return _plan(ADOPT, step.spec, (step,))


def _plan(
    operation: str,
    spec: VgpuSpec,
    steps: Steps,
    on_failure: OnFailure = OnFailure.UNDO,
    notes: Sequence[str] = (),
) -> Plan:
    return Plan(
        operation=operation,
        subject=f"{spec.type_name} ({spec.uuid})",
        steps=steps,
        on_failure=on_failure,
        notes=tuple(notes),
        result={"vgpu": spec.uuid, "parent": spec.parent, "type": spec.type_name},
        repair="vgpumgr recover",
    )
