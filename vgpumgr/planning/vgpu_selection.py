"""Choosing a type, a GPU and a parent for a new vGPU: pure, and able to say why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.errors import (
    VgpuNoRoomError,
    VgpuNotSupportedError,
    VgpuParentGoneError,
    VgpuTypeAmbiguousError,
    VgpuTypeNotFoundError,
)
from vgpumgr.mdev.capacity import Room, list_free_parents, measure_room
from vgpumgr.mig.seats import count_seats
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfile, Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import list_near, tell_count
from vgpumgr.model.vgpu import (
    VgpuBoard,
    VgpuDevice,
    VgpuParent,
    VgpuType,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import NewInstance, has_planned, place_instance
from vgpumgr.planning.vgpu_reservations import (
    Reservation,
    describe_kept,
    describe_shared,
    keep_unreserved,
    list_reserved_on,
)


@dataclass(frozen=True, slots=True)
class VgpuChoice:
    """Where a new vGPU goes, and why there."""

    board: VgpuBoard
    type: VgpuType
    parent: VgpuParent
    why: str
    instance: NewInstance | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """What ``--gpu`` says: a board, or one parent on it. ``define``: it is to come back there."""

    boards: Sequence[VgpuBoard]
    parent: str | None = None
    define: bool = False


@dataclass(frozen=True, slots=True)
class TypeRoom:
    """A type on a board, with its room; ``instance`` where a GPU instance is to be made first."""

    board: VgpuBoard
    type: VgpuType
    room: Room
    instance: NewInstance | None = None
    parents: list[VgpuParent] = field(default_factory=list)
    #: definitions that keep functions which are free otherwise
    kept: Sequence[Reservation] = ()


def choose_vgpu(
    observed: Snapshot,
    wanted: str,
    selector: str | None = None,
    *,
    spread: bool = False,
    define: bool = False,
) -> VgpuChoice:
    """The place for one more vGPU of the type that ``wanted`` names, on the GPU or parent that
    ``selector`` names, else on the fullest GPU that has room (``spread``: the emptiest). A function
    with a definition of another comes last, or not at all (``keep_unreserved``), unless it is named.

    Raises VgpuNotSupportedError, VgpuTypeNotFoundError, VgpuTypeAmbiguousError, VgpuNoRoomError,
    VgpuParentGoneError, GpuNotFoundError, GpuAmbiguousError.
    """
    place = replace(_select_place(observed, selector), define=define)
    kind = select_type(place.boards, wanted)
    rooms = [
        _look(observed, board, type_, place)
        for board in _list_near(observed, place.boards, kind)
        for type_ in board.types
        if (type_.id, type_.name) == (kind.id, kind.name)
    ]
    open_ = [room for room in rooms if room.room.free and room.parents]
    if not open_:
        raise _explain_full(kind, rooms, place)

    def rank(room: TypeRoom) -> tuple[bool, bool, bool, int, str]:
        used = len(observed.vgpus.list_on(room.board.name))
        far = observed.numa.is_far(observed.find_node(room.board))
        shared = bool(list_reserved_on(observed.reservations, room.parents[0]))
        return (far, shared, room.instance is not None, used if spread else -used, room.board.name)

    best = min(open_, key=rank)
    parent = best.parents[0]
    count = len(observed.vgpus.list_on(best.board.name))
    gpu = observed.find_board_gpu(best.board) or best.board.name
    near = observed.numa.describe(observed.find_node(best.board))
    why = f"{gpu}: {tell_count(count, 'vGPU')} so far, room for {best.room.free} more of this type{near}"
    notes = describe_shared(observed.reservations, parent)
    return VgpuChoice(best.board, best.type, parent, why, best.instance, notes)


def _list_near(
    observed: Snapshot, boards: Sequence[VgpuBoard], kind: VgpuType
) -> Sequence[VgpuBoard]:
    """Those that the VM may have. Raises NoRoomError where they are all on other NUMA nodes."""
    near = observed.numa
    left = [board for board in boards if not near.is_refused(observed.find_node(board))]
    if boards and not left:
        error = near.explain([f"{b.name} on {observed.find_node(b)}" for b in boards])
        error.error = f"cannot create {kind.name}: {error.error}"
        raise error
    return left


def list_rooms(observed: Snapshot, selector: str | None = None) -> list[TypeRoom]:
    """Every type of every board, with its room."""
    place = _select_place(observed, selector, missing_ok=True)
    return [_look(observed, board, type_, place) for board in place.boards for type_ in board.types]


def list_boards(observed: Snapshot, selector: str | None = None) -> Sequence[VgpuBoard]:
    """The GPU that ``selector`` names or that has the parent of that name, else all. Raises as
    ``choose_vgpu``.
    """
    return _select_place(observed, selector).boards


def select_type(boards: Sequence[VgpuBoard], wanted: str) -> VgpuType:
    """The type of that id, name or unique part of a name, in any case of letters.

    Raises VgpuTypeNotFoundError, VgpuTypeAmbiguousError.
    """
    known = list({(t.id, t.name): t for board in boards for t in board.types}.values())
    text = wanted.strip().lower()
    for names in (_names_exactly, _names_partly):
        found = [type_ for type_ in known if names(type_, text)]
        if len(found) == 1:
            return found[0]
        if found:
            raise VgpuTypeAmbiguousError(
                f'"{wanted}" is not one vGPU type',
                why="it fits " + ", ".join(f"{t.name} ({t.id})" for t in found[:8]),
                hint="the whole name, or the id",
            )
    raise _explain_unknown(wanted, known)


def _names_exactly(type_: VgpuType, text: str) -> bool:
    return text in (type_.id.lower(), type_.name.lower(), type_.short_name.lower())


def _names_partly(type_: VgpuType, text: str) -> bool:
    return bool(text) and (text in type_.name.lower() or text in type_.id.lower())


def _explain_unknown(wanted: str, known: Sequence[VgpuType]) -> VgpuTypeNotFoundError:
    names = [name for t in known for name in dict.fromkeys((t.name, t.short_name, t.id))]
    near = list_near(wanted, names, n=3, cutoff=0.5)
    why = f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)} types"
    return VgpuTypeNotFoundError(
        f'no GPU here has a vGPU type "{wanted}"', why=why, hint="vgpumgr mdev types"
    )


def _select_place(observed: Snapshot, selector: str | None, *, missing_ok: bool = False) -> _Place:
    boards = observed.vgpus.boards
    if not boards and not missing_ok:
        raise VgpuNotSupportedError(
            "this machine has no vGPU host",
            why="no device offers mediated devices, and no virtual function takes a vGPU type",
            hint="load the vGPU driver; on SR-IOV GPUs first: vgpumgr vf enable GPU",
        )
    if selector is None:
        return _Place(boards)
    text = _full_address(selector)
    if (board := observed.vgpus.find_board(text)) is not None:
        return _Place((board,))
    if (parent := observed.vgpus.find_parent(text)) is not None:
        return _Place([b for b in boards if b.name == parent.board], parent.name)
    if not observed.gpus and not boards:
        raise VgpuNotSupportedError(
            f'no vGPU host is "{selector}"',
            why="no device offers mediated devices, and no virtual function takes a vGPU type",
            hint=f"vgpumgr vf enable {selector}",
        )
    if not observed.gpus:
        names = ", ".join(board.name for board in boards)
        raise VgpuParentGoneError(
            f'no vGPU host is "{selector}"', why=f"there are: {names}", hint="vgpumgr mdev types"
        )
    gpu = select_gpu(observed.gpus, selector)
    found = [board for board in boards if board.name == str(gpu.pci)]
    if not found:
        raise VgpuNotSupportedError(
            f"{gpu} is no vGPU host",
            why="its driver offers no vGPU types, or its virtual functions are not enabled",
            hint=f"vgpumgr vf enable {gpu.index}",
        )
    return _Place(found)


def _full_address(selector: str) -> str:
    return str(PciAddress.read(selector) or selector.strip())


def _look(observed: Snapshot, board: VgpuBoard, type_: VgpuType, place: _Place) -> TypeRoom:
    gpu = observed.find_board_gpu(board)
    if gpu is not None and (refusal := _refuse_mode(gpu, type_)):
        return TypeRoom(board, type_, Room(0, refusal))
    offering = list_free_parents(observed.vgpus, board, type_, observed.claims)
    parents, kept = _keep(observed, offering, place)
    if type_.is_mig_backed and gpu is not None:
        return _look_for_instance(observed, board, type_, gpu, parents, place)
    room = measure_room(observed.vgpus, board, type_, observed.claims)
    if kept and room.free:
        room = Room(min(room.free, len(parents)), None if parents else describe_kept(kept))
    if place.parent is not None and not parents and room.free:
        room = Room(0, f"{place.parent} has a vGPU already, or offers none of it")
    return TypeRoom(board, type_, room, None, parents, kept)


def _keep(
    observed: Snapshot, parents: Sequence[VgpuParent], place: _Place
) -> tuple[list[VgpuParent], Sequence[Reservation]]:
    """The one that is named, whatever is defined there; else those that a new one may have."""
    if place.parent is not None:
        return [parent for parent in parents if parent.name == place.parent], ()
    return keep_unreserved(observed.reservations, parents, define=place.define)


def _refuse_mode(gpu: Gpu, type_: VgpuType) -> str | None:
    """Time-sliced and MIG-backed vGPUs never share a GPU: its MIG mode decides."""
    if type_.is_mig_backed and not gpu.mig.current:
        return f"it lives in a GPU instance, and MIG mode is off on {gpu}"
    if gpu.mig.current and not type_.is_mig_backed:
        return f"it is time-sliced, and MIG mode is on on {gpu}"
    return None


def _look_for_instance(
    observed: Snapshot,
    board: VgpuBoard,
    type_: VgpuType,
    gpu: Gpu,
    offering: list[VgpuParent],
    place: _Place,
) -> TypeRoom:
    """In a GPU instance that is there, else in one that can be made."""
    unused, kept = _keep(observed, _list_unused(observed, board), place)
    profile = next((p for p in gpu.profiles if p.id == type_.gpu_instance_profile_id), None)
    if profile is None:
        return TypeRoom(board, type_, Room(0, f"{gpu} has no GPU-instance profile for it"))
    if not unused:
        reason = describe_kept(kept) if kept else "each of its virtual functions has a vGPU"
        return TypeRoom(board, type_, Room(0, reason), kept=kept)
    if places := _list_slices(observed, gpu, profile):
        reason = f"the driver chooses its GPU instance, and could take {places[0]}, a VM's slice"
        return TypeRoom(board, type_, Room(0, reason))
    each = type_.max_per_gpu_instance or 1
    planned = [p for p in unused if has_planned(gpu, profile)]
    there = _count_inside(observed, board, type_, gpu) if offering or planned else 0
    reserved = observed.find_reserved(gpu)
    new = count_seats(reserved, profile.name)
    free = min(len(unused), there + new * each)
    if there:
        return TypeRoom(board, type_, Room(free), None, offering or planned)
    if not new:
        reason = f"it lives in a {profile.name}, and there is no room for another one on {gpu}"
        return TypeRoom(board, type_, Room(0, reason))
    made = replace(place_instance(reserved, profile), gpu=gpu)
    return TypeRoom(board, type_, Room(free), made, unused)


def _list_slices(observed: Snapshot, gpu: Gpu, profile: MigProfile) -> list[Placement]:
    """GPU instances of the profile that VMs have: nobody can keep the driver from choosing one."""
    return [
        instance.placement
        for instance in gpu.instances
        if instance.profile_id == profile.id and (gpu.uuid, instance.placement) in observed.slices
    ]


def _count_inside(observed: Snapshot, board: VgpuBoard, type_: VgpuType, gpu: Gpu) -> int:
    """How many more fit into GPU instances that are there: one size in each."""
    there = 0
    devices = observed.vgpus.list_on(board.name)
    for instance in gpu.instances:
        if instance.profile_id != type_.gpu_instance_profile_id:
            continue
        inside = [board.find_type(d.type_id) for d in devices if d.gpu_instance_id == instance.id]
        if all(t is None or t.framebuffer_bytes == type_.framebuffer_bytes for t in inside):
            there += max(0, (type_.max_per_gpu_instance or 1) - len(inside))
    # mediated devices do not say which instance they are in
    return max(0, there - sum(_is_unplaced(d, board, type_) for d in devices))


def _is_unplaced(device: VgpuDevice, board: VgpuBoard, type_: VgpuType) -> bool:
    other = board.find_type(device.type_id)
    same = other is not None and other.gpu_instance_profile_id == type_.gpu_instance_profile_id
    return device.gpu_instance_id is None and same


def _list_unused(observed: Snapshot, board: VgpuBoard) -> list[VgpuParent]:
    taken = {device.parent for device in observed.vgpus.devices}
    taken |= {claim.parent for claim in observed.claims}
    return [
        parent
        for parent in observed.vgpus.list_parents(board.name)
        if not parent.is_virtual_function or parent.name not in taken
    ]


def _explain_full(kind: VgpuType, rooms: Sequence[TypeRoom], place: _Place) -> VgpuNoRoomError:
    where = place.parent or (
        rooms[0].board.name if len(rooms) == 1 else f"any of {len(rooms)} GPUs"
    )
    reasons = [f"{room.board.name}: {room.room.reason}" for room in rooms if room.room.reason]
    return VgpuNoRoomError(
        f"cannot create {kind.name} on {where}",
        why="; ".join(dict.fromkeys(reasons)) or "no parent has room for it",
        hint=_advise(rooms, place),
    )


def _advise(rooms: Sequence[TypeRoom], place: _Place) -> str:
    """What would make room, where that is a definition alone."""
    keeping = [
        reservation
        for room in rooms
        for reservation in room.kept
        if reservation.auto and reservation.ours
    ]
    if keeping and not place.define:
        return f"vgpumgr mdev define {keeping[0].uuid} --manual"
    return "vgpumgr mdev types -o wide"
