"""The vGPUs that a layout wants of GPUs, against those that there are: the least change, pure.

What is wanted is counted by type. Only vGPUs of ours are ever taken away, and none that somebody has;
everything that already is as wanted stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpumgr.errors import LayoutBusyError, LayoutImpossibleError, VgpuNotSupportedError
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.text import tell_count
from vgpumgr.model.vgpu import VgpuBoard, VgpuDevice, VgpuParent, VgpuSpec, VgpuType
from vgpumgr.model.vgpu_record import VgpuRecord
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_reservations import list_reserved_on
from vgpumgr.planning.vgpu_selection import select_type
from vgpumgr.planning.vgpus import Steps
from vgpumgr.steps.vgpu import CreateVgpu, DeleteVgpu
from vgpumgr.steps.vgpu_definition import DefineVgpu, UndefineVgpu


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


@dataclass(frozen=True, slots=True)
class VgpuView:
    """What the planner looks at. ``holders``: who has a vGPU; ``release``: the command that makes them
    let go, where there is one.
    """

    observed: Snapshot
    records: Sequence[VgpuRecord]
    holders: Callable[[VgpuRecord], Sequence[str]]
    new_uuid: Callable[[], str]
    release: Callable[[VgpuRecord], str | None] = lambda _: None

    def find_board(self, target: VgpuTarget) -> tuple[Gpu, VgpuBoard]:
        """Raises VgpuNotSupportedError."""
        gpu = next(gpu for gpu in self.observed.gpus if str(gpu.uuid) == target.gpu_uuid)
        board = self.observed.vgpus.find_board(str(gpu.pci))
        if board is None:
            raise VgpuNotSupportedError(
                f"{_prefix(target)}{gpu} is no vGPU host",
                why="its driver offers no vGPU types, or its virtual functions are not enabled",
                hint="vgpumgr mdev types",
            )
        return gpu, board

    def find_record(self, device: VgpuDevice) -> VgpuRecord | None:
        """Whether it is ours."""
        for record in self.records:
            same = record.spec.framework is device.framework and record.takes_room
            key = (record.spec.uuid, record.spec.parent)
            if same and key == (device.uuid or record.spec.uuid, device.parent):
                return record
        return None


def list_vgpu_differences(
    view: VgpuView, targets: Sequence[VgpuTarget]
) -> Iterator[tuple[Gpu, str]]:
    """How GPUs differ from what is wanted, in sentences."""
    for target in targets:
        gpu, board = view.find_board(target)
        wanted = _resolve(board, target)
        have = Counter(device.type_id for device in view.observed.vgpus.list_on(board.name))
        for id_ in sorted(have.keys() | wanted.keys()):
            if have[id_] != wanted[id_]:
                type_ = board.find_type(id_)
                name = type_.name if type_ else id_
                yield gpu, f"{have[id_]} x vGPU {name}, expected {wanted[id_]}"


def plan_vgpus(view: VgpuView, targets: Sequence[VgpuTarget]) -> tuple[VgpuChange, ...]:
    """The least change for each GPU.

    Raises VgpuNotSupportedError, VgpuTypeNotFoundError, VgpuTypeAmbiguousError,
    LayoutImpossibleError, LayoutBusyError.
    """
    return tuple(_plan_one(view, target) for target in targets)


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


def _plan_one(view: VgpuView, target: VgpuTarget) -> VgpuChange:
    gpu, board = view.find_board(target)
    wanted = _resolve(board, target)
    _check_possible(view, target, gpu, board, wanted)
    missing = Counter(wanted)
    surplus: list[VgpuDevice] = []
    devices = view.observed.vgpus.list_on(board.name)
    # those that cannot go count first
    for device in sorted(devices, key=lambda d: not _list_users(view, d)):
        if missing[device.type_id] > 0:
            missing[device.type_id] -= 1
        else:
            surplus.append(device)
    deletes = tuple(_check_removable(view, target, gpu, device) for device in surplus)
    free = _list_places(view, board, {record.spec.parent for record in deletes})
    creates = []
    for id_, count in sorted(missing.items()):
        type_ = board.find_type(id_)
        assert type_ is not None
        for _ in range(count):
            creates.append(_make_spec(view, type_, next(free)))
    return VgpuChange(gpu, deletes, tuple(creates), len(devices) - len(surplus))


def _resolve(board: VgpuBoard, target: VgpuTarget) -> Counter[str]:
    """Counts by the kernel's id."""
    counts: Counter[str] = Counter()
    for name, count in target.wanted:
        counts[select_type([board], name).id] += count
    return +counts


def _list_users(view: VgpuView, device: VgpuDevice) -> list[str]:
    """Who keeps it from being taken away; one that is not ours is never taken away."""
    record = view.find_record(device)
    if record is None:
        return [f"vGPU {device.key}, which is not ours"]
    return list(view.holders(record))


def _check_removable(
    view: VgpuView, target: VgpuTarget, gpu: Gpu, device: VgpuDevice
) -> VgpuRecord:
    users = _list_users(view, device)
    record = view.find_record(device)
    if users or record is None:
        raise LayoutBusyError(
            f"{_prefix(target)}cannot take vGPU {device.type_name} from {gpu}",
            why=f"the layout has no room for {device.key}",
            held_by=users,
            hint=_tell_release(view, device, record),
        )
    return record


def _tell_release(view: VgpuView, device: VgpuDevice, record: VgpuRecord | None) -> str:
    if record is None:
        return f"vgpumgr mdev adopt {device.key}"
    return view.release(record) or "shut its VM down"


def _list_places(view: VgpuView, board: VgpuBoard, freed: set[str]) -> Iterator[VgpuParent]:
    """Parents for new ones: the GPU itself again and again, or one free function after another;
    those where something is defined come last, and where that starts at boot at the very end.
    """
    taken = {device.parent for device in view.observed.vgpus.devices}
    taken |= {claim.parent for claim in view.observed.claims}

    def rank(parent: VgpuParent) -> tuple[bool, bool]:
        there = list_reserved_on(view.observed.reservations, parent)
        return any(reservation.auto for reservation in there), bool(there)

    for parent in sorted(view.observed.vgpus.list_parents(board.name), key=rank):
        while not parent.is_virtual_function:
            yield parent
        if parent.name not in taken - freed:
            yield parent


def _make_spec(view: VgpuView, type_: VgpuType, parent: VgpuParent) -> VgpuSpec:
    return VgpuSpec(view.new_uuid(), parent.framework, parent.name, type_.id, type_.name)


def _check_possible(
    view: VgpuView, target: VgpuTarget, gpu: Gpu, board: VgpuBoard, wanted: Counter[str]
) -> None:
    """Whether the GPU can have all of them at once, whatever is removed before."""
    types = {id_: type_ for id_ in wanted if (type_ := board.find_type(id_)) is not None}
    reason = (
        _find_mode_conflict(target, gpu, list(types.values()))
        or _find_size_conflict(board, list(types.values()))
        or _find_lack(view, target, gpu, board, types, wanted)
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
    view: VgpuView,
    target: VgpuTarget,
    gpu: Gpu,
    board: VgpuBoard,
    types: Mapping[str, VgpuType],
    wanted: Counter[str],
) -> str | None:
    parents = view.observed.vgpus.list_parents(board.name)
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
