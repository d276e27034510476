"""Plans of operations on vGPUs, and the least change from the vGPUs of GPUs to those that a layout wants: pure.

What a layout wants is counted by type. Only vGPUs of ours are ever taken away, and none that a VM has; everything
that already is as wanted stays.
"""

from __future__ import annotations

import uuid as uuids
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.errors import (
    LayoutBusyError,
    LayoutImpossibleError,
    VgpuBusyError,
    VgpuNotSupportedError,
)
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.text import tell_count
from vgpumgr.model.vgpu import (
    Attributes,
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuDevice,
    VgpuInstance,
    VgpuParent,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    VgpuType,
)
from vgpumgr.planning.reservations import list_reserved_on
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import NewInstance, plan_instance, plan_without_instance
from vgpumgr.planning.vgpu_selection import VgpuChoice, select_type
from vgpumgr.steps.vgpu import (
    AdoptVgpu,
    CreateVgpu,
    DefineVgpu,
    DeleteVgpu,
    SetMixedSizes,
    UndefineVgpu,
    make_definition,
)

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


def plan_mode_steps(spec: VgpuSpec, board: VgpuBoard, gpu: Gpu | None, count: int) -> Steps:
    """Mixed sizes, where they are wanted and off. ``gpu``: NVML's side of the board; ``count``: vGPUs on it, with
    which the mode cannot change. Raises VgpuNotSupportedError, VgpuBusyError.
    """
    if not spec.mixed_sizes or board.mixed_sizes:
        return ()
    what = f"cannot let {gpu or board.name} hold vGPUs of several sizes"
    if board.mixed_sizes is None or board.gpu is None:
        raise VgpuNotSupportedError(what, why="its driver has no such mode")
    if count:
        raise VgpuBusyError(
            what,
            why=f"the mode changes only on a GPU without vGPUs, and it has {count}",
            hint="vgpumgr mdev list",
        )
    return (SetMixedSizes(board.gpu, gpu_index=gpu.index if gpu else None),)


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
    record: VgpuRecord, spec: VgpuSpec, instance: NewInstance | None, boot_id: str, mode: Steps = ()
) -> Plan:
    """A defined vGPU; ``spec`` has its type as the driver numbers it now."""
    steps: list[Step] = [*mode, *plan_instance(instance)]
    made = describe_instance(instance)
    steps.append(CreateVgpu(spec, record.attachment, made, record.is_missing(boot_id)))
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


@dataclass(frozen=True, slots=True)
class VgpuTarget:
    """What is wanted of one GPU: types as they are written, and how many of each. ``place`` says
    where in the file; ``instances`` are the GPU instances that the same layout makes, by profile,
    None where it leaves them as they are.
    """

    gpu_uuid: str
    wanted: tuple[tuple[str, int], ...]
    place: str | None = None
    instances: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class VgpuChange:
    """What happens on one GPU."""

    gpu: Gpu
    deletes: tuple[VgpuRecord, ...]
    creates: tuple[VgpuSpec, ...]
    kept: int

    @property
    def text(self) -> str:
        """A sentence."""
        gone = Counter(record.spec.type_name for record in self.deletes)
        new = Counter(spec.type_name for spec in self.creates)
        parts = [f"keeps {tell_count(self.kept, 'vGPU')}"] if self.kept else []
        parts += [f"deletes {n} x {name}" for name, n in sorted(gone.items())]
        parts += [f"creates {n} x {name}" for name, n in sorted(new.items())]
        return f"{self.gpu}: {'; '.join(parts) or 'no vGPUs, as asked'}"


def _find_board(observed: Snapshot, target: VgpuTarget) -> tuple[Gpu, VgpuBoard]:
    """A GPU without virtual functions, or that is no vGPU host, has no vGPUs: where none are wanted, it is as wanted.
    Raises VgpuNotSupportedError.
    """
    gpu = next(gpu for gpu in observed.gpus if str(gpu.uuid) == target.gpu_uuid)
    board = observed.vgpus.find_board(str(gpu.pci))
    if board is None and not any(count for _, count in target.wanted):
        return gpu, VgpuBoard(str(gpu.pci))
    if board is None:
        raise VgpuNotSupportedError(
            f"{_prefix(target)}{gpu} is no vGPU host",
            why="its driver offers no vGPU types, or its virtual functions are not enabled",
            hint="vgpumgr mdev types",
        )
    return gpu, board


def _find_record(observed: Snapshot, device: VgpuDevice) -> VgpuRecord | None:
    """Whether it is ours."""
    for record in observed.vgpu_records:
        same = record.spec.framework is device.framework and record.takes_room
        key = (record.spec.uuid, record.spec.parent)
        if same and key == (device.uuid or record.spec.uuid, device.parent):
            return record
    return None


def list_vgpu_differences(
    observed: Snapshot, targets: Sequence[VgpuTarget]
) -> Iterator[tuple[Gpu, str]]:
    """How GPUs differ from what is wanted, in sentences."""
    for target in targets:
        gpu, board = _find_board(observed, target)
        wanted = _resolve(board, target)
        have = Counter(device.type_id for device in observed.vgpus.list_on(board.name))
        for id_ in sorted(have.keys() | wanted.keys()):
            if have[id_] != wanted[id_]:
                type_ = board.find_type(id_)
                name = type_.name if type_ else id_
                yield gpu, f"{have[id_]} x vGPU {name}, expected {wanted[id_]}"


def plan_vgpus(observed: Snapshot, targets: Sequence[VgpuTarget]) -> tuple[VgpuChange, ...]:
    """The least change for each GPU.

    Raises VgpuNotSupportedError, VgpuTypeNotFoundError, VgpuTypeAmbiguousError,
    LayoutImpossibleError, LayoutBusyError.
    """
    return tuple(_plan_one(observed, target) for target in targets)


def make_steps(changes: Sequence[VgpuChange]) -> tuple[Steps, Steps]:
    """What goes, and what comes; between them the GPU instances change. What comes is defined, so
    that it comes back after a boot.
    """
    gone: list[DeleteVgpu | UndefineVgpu] = []
    new: list[CreateVgpu | DefineVgpu] = []
    for change in changes:
        for record in change.deletes:
            gone.append(DeleteVgpu(record.spec))
            if record.defined:
                gone.append(UndefineVgpu(record.spec, record.auto))
        for spec in change.creates:
            new += [CreateVgpu(spec), DefineVgpu(spec, auto=True)]
    return tuple(gone), tuple(new)


def _plan_one(observed: Snapshot, target: VgpuTarget) -> VgpuChange:
    gpu, board = _find_board(observed, target)
    wanted = _resolve(board, target)
    _check_possible(observed, target, gpu, board, wanted)
    missing = Counter(wanted)
    surplus: list[VgpuDevice] = []
    devices = observed.vgpus.list_on(board.name)
    # those that cannot go count first
    for device in sorted(devices, key=lambda d: not _list_users(observed, d)):
        if missing[device.type_id] > 0:
            missing[device.type_id] -= 1
        else:
            surplus.append(device)
    deletes = tuple(_check_removable(observed, target, gpu, device) for device in surplus)
    free = _list_places(observed, board, {record.spec.parent for record in deletes})
    creates = []
    for id_, count in sorted(missing.items()):
        type_ = board.find_type(id_)
        assert type_ is not None
        for _ in range(count):
            creates.append(_make_spec(type_, next(free)))
    return VgpuChange(gpu, deletes, tuple(creates), len(devices) - len(surplus))


def _resolve(board: VgpuBoard, target: VgpuTarget) -> Counter[str]:
    """Counts by the kernel's id."""
    counts: Counter[str] = Counter()
    for name, count in target.wanted if board.types else ():
        counts[select_type([board], name).id] += count
    return +counts


def _list_users(observed: Snapshot, device: VgpuDevice) -> list[str]:
    """Who keeps it from being taken away; one that is not ours is never taken away."""
    record = _find_record(observed, device)
    if record is None:
        return [f"vGPU {device.key}, which is not ours"]
    return list(observed.vgpu_holders.get(record.spec.uuid, ()))


def _check_removable(
    observed: Snapshot, target: VgpuTarget, gpu: Gpu, device: VgpuDevice
) -> VgpuRecord:
    users = _list_users(observed, device)
    record = _find_record(observed, device)
    if users or record is None:
        raise LayoutBusyError(
            f"{_prefix(target)}cannot take vGPU {device.type_name} from {gpu}",
            why=f"the layout has no capacity for {device.key}",
            held_by=users,
            hint=_tell_release(observed, device, record),
        )
    return record


def _tell_release(observed: Snapshot, device: VgpuDevice, record: VgpuRecord | None) -> str:
    if record is None:
        return f"vgpumgr mdev adopt {device.key}"
    return observed.vgpu_releases.get(record.spec.uuid) or "shut its VM down"


def _list_places(observed: Snapshot, board: VgpuBoard, freed: set[str]) -> Iterator[VgpuParent]:
    """Parents for new ones: the GPU itself again and again, or one free function after another;
    those where something is defined come last, and where that starts at boot at the very end.
    """
    taken = {device.parent for device in observed.vgpus.devices}
    taken |= {claim.parent for claim in observed.claims}

    def rank(parent: VgpuParent) -> tuple[bool, bool]:
        there = list_reserved_on(observed.reservations, parent)
        return any(reservation.auto for reservation in there), bool(there)

    for parent in sorted(observed.vgpus.list_parents(board.name), key=rank):
        while not parent.is_virtual_function:
            yield parent
        if parent.name not in taken - freed:
            yield parent


def _make_spec(type_: VgpuType, parent: VgpuParent) -> VgpuSpec:
    return VgpuSpec(str(uuids.uuid4()), parent.framework, parent.name, type_.id, type_.name)


def _check_possible(
    observed: Snapshot, target: VgpuTarget, gpu: Gpu, board: VgpuBoard, wanted: Counter[str]
) -> None:
    """Whether the GPU can have all of them at once, whatever is removed before."""
    types = {id_: type_ for id_ in wanted if (type_ := board.find_type(id_)) is not None}
    reason = (
        _find_mode_conflict(target, gpu, list(types.values()))
        or _find_size_conflict(board, list(types.values()))
        or _find_lack(observed, target, gpu, board, types, wanted)
    )
    if reason is not None:
        names = ", ".join(f"{wanted[id_]} x {types[id_].name}" for id_ in sorted(types))
        raise LayoutImpossibleError(
            f"{_prefix(target)}{gpu} cannot have {names}", why=reason, hint="vgpumgr mdev types"
        )


def _find_mode_conflict(target: VgpuTarget, gpu: Gpu, types: Sequence[VgpuType]) -> str | None:
    """Time-sliced and MIG-backed ones never share a GPU."""
    mig = gpu.mig.current if target.instances is None else True
    for type_ in types:
        if type_.is_mig_backed and not mig:
            return f"{type_.name} lives in a GPU instance, and MIG mode is off"
        if mig and not type_.is_mig_backed:
            return f"{type_.name} is time-sliced, and MIG mode is on"
    return None


def _find_size_conflict(board: VgpuBoard, types: Sequence[VgpuType]) -> str | None:
    sizes = {t.framebuffer_bytes for t in types if not t.is_mig_backed}
    if board.equal_sizes and len(sizes - {None}) > 1:
        return "in equal-size mode all its vGPUs have one size"
    return None


def _find_lack(
    observed: Snapshot,
    target: VgpuTarget,
    gpu: Gpu,
    board: VgpuBoard,
    types: Mapping[str, VgpuType],
    wanted: Counter[str],
) -> str | None:
    parents = observed.vgpus.list_parents(board.name)
    if all(p.is_virtual_function for p in parents) and wanted.total() > len(parents):
        return f"it has {tell_count(len(parents), 'virtual function')}, and each takes one"
    sliced = [t for t in types.values() if not t.is_mig_backed and t.max_instances]
    if sum(wanted[t.id] / (t.max_instances or 1) for t in sliced) > 1 + 1e-9:
        rooms = ", ".join(f"{t.max_instances} x {t.name}" for t in sliced)
        return f"it holds at most {rooms}"
    return _find_instance_lack(target, gpu, [t for t in types.values() if t.is_mig_backed], wanted)


def _find_instance_lack(
    target: VgpuTarget, gpu: Gpu, types: Sequence[VgpuType], wanted: Counter[str]
) -> str | None:
    """MIG-backed ones need GPU instances that are there, or that the same layout makes. In each,
    all have one size.
    """
    needed: Counter[int] = Counter()
    by_size: Counter[tuple[int, int, int]] = Counter()
    for type_ in types:
        profile = type_.gpu_instance_profile_id
        assert profile is not None
        each = type_.max_per_gpu_instance or 1
        by_size[(profile, type_.framebuffer_bytes or 0, each)] += wanted[type_.id]
    for (profile, _, each), count in by_size.items():
        needed[profile] += -(-count // each)
    for id_, count in needed.items():
        name = next((str(p.name) for p in gpu.profiles if p.id == id_), str(id_))
        there = sum(i.profile_id == id_ for i in gpu.instances)
        if target.instances is not None:
            there = target.instances.get(name, 0)
        if there < count:
            return f"they live in {count} x {name}, and the layout has {there}: add them to it"
    return None


def _prefix(target: VgpuTarget) -> str:
    return f"{target.place}: " if target.place else ""
