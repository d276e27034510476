"""Plans of operations on vGPUs, and the way back from the journal to their steps: pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpumgr.errors import VgpuBusyError, VgpuNotSupportedError
from vgpumgr.mig.layout.steps import list_create_steps, list_destroy_steps
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance
from vgpumgr.model.vgpu import (
    Attributes,
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuSpec,
    read_spec,
)
from vgpumgr.plan.layout_plan import MIG, make_step, read_layout_step
from vgpumgr.plan.remember_step import RememberLayouts, read_remembering
from vgpumgr.plan.step import OnFailure, Plan, Step
from vgpumgr.plan.vgpu_choice import VgpuChoice
from vgpumgr.plan.vgpu_definition_steps import (
    AdoptVgpu,
    DefineVgpu,
    ForgetVgpu,
    UndefineVgpu,
    make_definition,
)
from vgpumgr.plan.vgpu_instance import NewInstance
from vgpumgr.plan.vgpu_mode_steps import SetMixedSizes
from vgpumgr.plan.vgpu_record import VgpuInstance, VgpuRecord, VgpuState
from vgpumgr.plan.vgpu_steps import CreateVgpu, DeleteVgpu
from vgpumgr.plan.vgpu_world import VgpuOperation

#: in the journal, and in sentences: "cannot create vGPU ..."
CREATE, DELETE, DEFINE = "create vGPU", "delete vGPU", "define vGPU"
START, STOP, ADOPT = "start vGPU", "stop vGPU", "adopt vGPU"
LAYOUT = "apply the layout of"
OPERATIONS = (CREATE, DELETE, DEFINE, START, STOP, ADOPT, LAYOUT)
#: when these are interrupted they go on; the others are undone
FORWARD = (DELETE, STOP)

Steps = tuple[Step[VgpuOperation], ...]


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
) -> Plan[VgpuOperation]:
    """A new vGPU, with the GPU instance that it needs; without ``start`` only its definition."""
    steps: list[Step[VgpuOperation]] = []
    if start:
        steps += [*mode, *plan_instance_steps(choice.instance)]
        steps.append(CreateVgpu(spec, instance=describe_instance(choice.instance)))
    if definition.wanted:
        steps.append(DefineVgpu(spec, definition.auto))
    operation = CREATE if start else DEFINE
    return _plan(operation, spec, tuple(steps), OnFailure.UNDO, (choice.why, *choice.notes))


def plan_instance_steps(instance: NewInstance | None) -> Steps:
    """The GPU instance and its compute instance; none where there is room already."""
    if instance is None:
        return ()
    specs = list_create_steps(instance.gpu, instance.profile, instance.placement)
    return tuple(make_step(spec) for spec in specs)


def describe_instance(instance: NewInstance | None) -> VgpuInstance | None:
    """For the record."""
    if instance is None:
        return None
    return VgpuInstance(instance.gpu.uuid, str(instance.profile.name), instance.placement)


def plan_start(
    record: VgpuRecord, spec: VgpuSpec, instance: NewInstance | None, mode: Steps = ()
) -> Plan[VgpuOperation]:
    """A defined vGPU; ``spec`` has its type as the driver numbers it now."""
    steps: list[Step[VgpuOperation]] = [*mode, *plan_instance_steps(instance)]
    steps.append(CreateVgpu(spec, record.attachment, describe_instance(instance)))
    if spec.type_id != record.spec.type_id:
        steps.append(DefineVgpu(spec, record.auto, record.spec, record.auto))
    return _plan(START, spec, tuple(steps))


def plan_nothing(operation: str, record: VgpuRecord, why: str) -> Plan[VgpuOperation]:
    """It is as asked for already."""
    return _plan(operation, record.spec, (), notes=(f"nothing to do: {why}",))


def plan_stop(record: VgpuRecord, instance_steps: Steps = ()) -> Plan[VgpuOperation]:
    """The vGPU goes, its definition stays."""
    return _plan(STOP, record.spec, (*_remove_steps(record), *instance_steps), OnFailure.STOP)


def plan_delete(record: VgpuRecord, instance_steps: Steps = ()) -> Plan[VgpuOperation]:
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
    found = next((_find(gpu, made) for gpu in gpus if gpu.uuid == made.gpu), None)
    if found is None:
        return ()
    gpu, instance = found
    if any(process.gpu_instance_id == instance.id for process in gpu.processes):
        return ()
    return tuple(make_step(spec) for spec in list_destroy_steps(gpu, instance))


def _find(gpu: Gpu, made: VgpuInstance) -> tuple[Gpu, GpuInstance] | None:
    for instance in gpu.instances:
        if instance.placement == made.placement and str(instance.profile) == made.profile:
            return gpu, instance
    return None


def plan_define(
    record: VgpuRecord,
    *,
    auto: bool | None,
    attributes: Attributes | None,
    written: Collection[VgpuDefinition] = (),
    notes: Sequence[str] = (),
) -> Plan[VgpuOperation]:
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


def plan_adopt(step: AdoptVgpu) -> Plan[VgpuOperation]:
    """Somebody else's becomes ours."""
    return _plan(ADOPT, step.spec, (step,))


def _plan(
    operation: str,
    spec: VgpuSpec,
    steps: Steps,
    on_failure: OnFailure = OnFailure.UNDO,
    notes: Sequence[str] = (),
) -> Plan[VgpuOperation]:
    return Plan(
        operation=operation,
        subject=f"{spec.type_name} ({spec.uuid})",
        steps=steps,
        on_failure=on_failure,
        notes=tuple(notes),
        result={"vgpu": spec.uuid, "parent": spec.parent, "type": spec.type_name},
        repair="vgpumgr recover",
    )


def read_step(kind: str, target: Mapping[str, Any]) -> Step[VgpuOperation]:
    """A step as the journal has it. Raises KeyError, ValueError, TypeError."""
    if kind.startswith(MIG):
        return read_layout_step(target)
    if kind == RememberLayouts.kind:
        return read_remembering(target)
    if kind == SetMixedSizes.kind:
        return SetMixedSizes(GpuUuid(str(target["gpu"])))
    spec = read_spec(target)
    if kind == CreateVgpu.kind:
        return CreateVgpu(spec, target.get("attachment"))
    if kind == DeleteVgpu.kind:
        return DeleteVgpu(spec)
    if kind == DefineVgpu.kind:
        before = target.get("before")
        return DefineVgpu(
            spec,
            bool(target["auto"]),
            None if before is None else read_spec(before),
            bool(target["before_auto"]),
        )
    if kind == UndefineVgpu.kind:
        return UndefineVgpu(spec, bool(target["auto"]))
    if kind == ForgetVgpu.kind:
        return ForgetVgpu(spec)
    if kind == AdoptVgpu.kind:
        return AdoptVgpu(
            spec,
            bool(target["active"]),
            bool(target["defined"]),
            bool(target["auto"]),
            target.get("iommu_group"),
        )
    raise ValueError(f"no step is called {kind}")
