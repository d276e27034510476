"""Choosing a type, a GPU and a parent for new vGPUs: pure, and able to say why not.

Of several vGPUs each is chosen as if those before it were there. A driver in equal-size mode places all vGPUs
itself and refuses to be told (``--placement``); so it does inside a GPU instance. Only a GPU in mixed-size mode
takes a place, in the driver's own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from vgpumgr.errors import (
    VgpuAttributeError,
    VgpuNoRoomError,
    VgpuNotSupportedError,
    VgpuParentGoneError,
    VgpuTakenError,
    VgpuTypeAmbiguousError,
    VgpuTypeNotFoundError,
)
from vgpumgr.mdev.observe import Capacity, list_free_parents, measure_capacity
from vgpumgr.mig.placement import count_free
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import MigProfile, Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import list_near, tell_count
from vgpumgr.model.vgpu import (
    Attributes,
    VgpuBoard,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)
from vgpumgr.planning.reservations import (
    Reservation,
    describe_kept,
    describe_shared,
    keep_unreserved,
    list_reserved_on,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import NewInstance, has_planned, place_instance, with_instance

#: the refusal where no device has vGPUs
NO_HOST = "this machine has no vGPU host"


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
    room: Capacity
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
    VgpuParentGoneError, GpuDrainedError, GpuNotFoundError, GpuAmbiguousError.
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
        boards = dict.fromkeys(room.board.name for room in rooms)
        observed.check_not_drained(f"cannot create {kind.name}", *map(PciAddress.read, boards))
        raise _explain_full(observed, kind, rooms, place)

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
    before, after = tell_count(count, "vGPU"), best.room.free - 1
    why = f"{gpu}: {before} before it, room for {after} more of this type after it{near}"
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
    """The type of that id, name or unique part of a name, in any case of letters. Drivers have called the same types
    GRID and NVIDIA.

    Raises VgpuTypeNotFoundError, VgpuTypeAmbiguousError.
    """
    known = list({(t.id, t.name): t for board in boards for t in board.types}.values())
    text = wanted.strip().lower()
    for names in (_names_exactly, _names_without_brand, _names_partly):
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


def _names_without_brand(type_: VgpuType, text: str) -> bool:
    return text.removeprefix("grid ").removeprefix("nvidia ") == type_.short_name.lower()


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
            NO_HOST,
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
    if (drain := observed.find_drain(PciAddress.read(board.name))) is not None:
        return TypeRoom(board, type_, Capacity(0, str(drain)))
    gpu = observed.find_board_gpu(board)
    if gpu is not None and (refusal := _refuse_mode(gpu, type_) or _refuse_stuck(gpu, observed)):
        return TypeRoom(board, type_, Capacity(0, refusal))
    offering = list_free_parents(observed.vgpus, board, type_, observed.claims)
    parents, kept = _keep(observed, offering, place)
    if type_.is_mig_backed and gpu is not None:
        return _look_for_instance(observed, board, type_, gpu, parents, place)
    room = measure_capacity(observed.vgpus, board, type_, observed.claims)
    if kept and room.free:
        room = Capacity(min(room.free, len(parents)), None if parents else describe_kept(kept))
    if place.parent is not None and not parents and room.free:
        room = Capacity(0, f"{place.parent} has a vGPU already, or offers none of it")
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
    if gpu.shared_by:
        return f"{gpu} has shares: {'; '.join(gpu.shared_by)}"
    if type_.is_mig_backed and not gpu.mig.current:
        return f"it lives in a GPU instance, and MIG mode is off on {gpu}"
    if gpu.mig.current and not type_.is_mig_backed:
        return f"it is time-sliced, and MIG mode is on on {gpu}"
    return None


def _refuse_stuck(gpu: Gpu, observed: Snapshot) -> str | None:
    """A call that is stuck may yet make what the driver would put the vGPU into, or take it away."""
    return observed.stuck.get(str(gpu.uuid))


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
        return TypeRoom(board, type_, Capacity(0, f"{gpu} has no GPU-instance profile for it"))
    if not unused:
        reason = describe_kept(kept) if kept else "each of its virtual functions has a vGPU"
        return TypeRoom(board, type_, Capacity(0, reason), kept=kept)
    if places := _list_slices(observed, gpu, profile):
        reason = f"the driver chooses its GPU instance, and could take {places[0]}"
        return TypeRoom(board, type_, Capacity(0, reason))
    each = type_.max_per_gpu_instance or 1
    planned = [p for p in unused if has_planned(gpu, profile)]
    there = _count_inside(observed, board, type_, gpu) if offering or planned else 0
    reserved = observed.find_reserved(gpu)
    new = count_free(reserved, profile.name)
    free = min(len(unused), there + new * each)
    if there:
        return TypeRoom(board, type_, Capacity(free), None, offering or planned)
    if not new:
        reason = f"it lives in a {profile.name}, and there is no room for another one on {gpu}"
        return TypeRoom(board, type_, Capacity(0, reason))
    made = replace(place_instance(reserved, profile), gpu=gpu)
    return TypeRoom(board, type_, Capacity(free), made, unused)


def _list_slices(observed: Snapshot, gpu: Gpu, profile: MigProfile) -> list[str]:
    """GPU instances of the profile that VMs or unfinished operations have, in words: nothing keeps the driver from
    choosing one.
    """
    whose: dict[tuple[GpuUuid | None, Placement | None], str] = {}
    whose |= dict.fromkeys(observed.unsettled, "of an operation that has not ended")
    whose |= dict.fromkeys(observed.slices, "a VM's slice")
    return [
        f"{instance.placement}, {whose[gpu.uuid, instance.placement]}"
        for instance in gpu.instances
        if instance.profile_id == profile.id and (gpu.uuid, instance.placement) in whose
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


def _explain_full(
    observed: Snapshot, kind: VgpuType, rooms: Sequence[TypeRoom], place: _Place
) -> VgpuNoRoomError:
    names = [str(observed.find_board_gpu(room.board) or room.board.name) for room in rooms]
    where = place.parent or (names[0] if len(rooms) == 1 else f"any of {len(rooms)} GPUs")
    rows = zip(names, rooms, strict=True)
    gpus = (observed.find_board_gpu(room.board) for room in rooms)
    stuck = [text for gpu in gpus if gpu and (text := _refuse_stuck(gpu, observed))]
    reasons = [f"{name}: {room.room.reason}" for name, room in rows if room.room.reason]
    return VgpuNoRoomError(
        f"cannot create {kind.name} on {where}",
        why="; ".join(dict.fromkeys(reasons)) or "no parent has capacity for it",
        held_by=list(dict.fromkeys(stuck)),
        hint="vgpumgr status" if stuck else _advise(rooms, place),
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


def choose_vgpus(
    observed: Snapshot,
    wanted: str,
    selector: str | None,
    uuids: Sequence[str],
    *,
    spread: bool = False,
) -> tuple[tuple[VgpuChoice, VgpuSpec], ...]:
    """Places for as many vGPUs as there are ``uuids``: each is chosen as if those before it were
    there. Raises what ``choose_vgpu`` does; VgpuNoRoomError says how many would fit.
    """
    found: list[tuple[VgpuChoice, VgpuSpec]] = []
    real = {gpu.uuid: gpu for gpu in observed.gpus}
    for uuid in uuids:
        try:
            choice = choose_vgpu(observed, wanted, selector, spread=spread)
        except VgpuNoRoomError as error:
            if found:
                name = found[0][0].type.name
                error.error = f"cannot create {len(uuids)} times {name}: {len(found)} fit"
            raise
        spec = make_spec(choice, uuid)
        observed = with_vgpu(observed, choice, spec)
        if (made := choice.instance) is not None:
            choice = replace(choice, instance=replace(made, gpu=real[made.gpu.uuid]))
        found.append((choice, spec))
    return tuple(found)


def make_spec(
    choice: VgpuChoice,
    uuid: str,
    attributes: Attributes = (),
    placement_id: int | None = None,
    *,
    mixed_sizes: bool = False,
) -> VgpuSpec:
    """The vGPU that a choice leads to."""
    return VgpuSpec(
        uuid=uuid,
        framework=choice.parent.framework,
        parent=choice.parent.name,
        type_id=choice.type.id,
        type_name=choice.type.name,
        attributes=attributes,
        placement_id=placement_id,
        mixed_sizes=mixed_sizes,
    )


def with_vgpu(observed: Snapshot, choice: VgpuChoice, spec: VgpuSpec) -> Snapshot:
    """What is to be once the vGPU is there, with the GPU instance that is made for it."""
    host, inside = observed.vgpus, None
    if choice.instance is not None:
        gpus, inside = with_instance(observed.gpus, choice.instance)
        reserved, _ = with_instance(observed.reserved, choice.instance)
        observed = observed.replace(gpus=gpus, reserved=reserved)
    device = VgpuDevice(
        spec.uuid,
        spec.parent,
        spec.framework,
        spec.type_id,
        spec.type_name,
        spec.pci,
        gpu_instance_id=inside,
    )
    parents = tuple(
        replace(p, offers=_without_one(p, choice.type)) if p.name == spec.parent else p
        for p in host.parents
    )
    host = replace(host, parents=parents, devices=(*host.devices, device))
    return observed.replace(vgpus=host)


def _without_one(parent: VgpuParent, type_: VgpuType) -> tuple[VgpuOffer, ...]:
    if parent.is_virtual_function:
        return ()
    return tuple(
        replace(o, available=max(0, o.available - 1)) if o.type.id == type_.id else o
        for o in parent.offers
    )


@dataclass(frozen=True, slots=True)
class Placing:
    """What is asked of a GPU besides room. ``mixed_sizes``: it is switched to vGPUs of several sizes
    first, where it is not yet.
    """

    placement: int | None = None
    mixed_sizes: bool = False


def keep_placeable(
    observed: Snapshot, wanted: str, selector: str | None, placing: Placing
) -> Snapshot:
    """With those GPUs alone that can do what is asked. Raises VgpuAttributeError where none takes a
    place, and what finding GPU and type raises.
    """
    if placing == Placing():
        return observed
    boards = list_boards(observed, selector)
    type_ = select_type(boards, wanted)
    offering = [board for board in boards if board.find_type(type_.id) is not None]
    left = [b for b in offering if _can(observed.vgpus, b, type_, placing)]
    if not left:
        if placing.placement is not None:
            _refuse(observed.vgpus, offering, type_, placing)
        return observed  # planning the change of mode says what is in its way
    return observed.replace(vgpus=replace(observed.vgpus, boards=tuple(left)))


def check_place(spec: VgpuSpec, host: VgpuHost) -> None:
    """That nobody is there already. Raises VgpuTakenError."""
    parent = host.find_parent(spec.parent)
    if spec.placement_id is None or parent is None:
        return
    there = [d for d in host.list_on(parent.board) if d.placement_id == spec.placement_id]
    if there:
        raise VgpuTakenError(
            f"cannot place {spec.type_name} at {spec.placement_id} on {parent.board}",
            why="another vGPU begins there",
            held_by=[f"vGPU {device.type_name} {device.key}" for device in there],
            hint="another --placement, or none: the driver chooses then; vgpumgr mdev list -o json",
        )


def _can(host: VgpuHost, board: VgpuBoard, type_: VgpuType, placing: Placing) -> bool:
    if type_.is_mig_backed:
        return placing.placement is None
    if board.mixed_sizes:
        return True
    return placing.mixed_sizes and board.mixed_sizes is False and not host.list_on(board.name)


def _refuse(host: VgpuHost, boards: Sequence[VgpuBoard], type_: VgpuType, placing: Placing) -> None:
    able = [board for board in boards if board.mixed_sizes is False]
    if placing.mixed_sizes and able and not type_.is_mig_backed:
        return  # likewise
    one = boards[0].name if len(boards) == 1 else None
    held = [d for board in able for d in host.list_on(board.name)]
    if type_.is_mig_backed:
        why, held, advice = "the driver places it inside its GPU instance", [], ""
    elif not able:
        why, advice = (
            "its driver has no mode with vGPUs of several sizes, and places all itself",
            "",
        )
    else:
        why = "the GPU holds vGPUs of one size, and its driver places them itself"
        empty = next((board.name for board in able if not host.list_on(board.name)), None)
        more = f"--gpu {empty or able[0].name} --placement {placing.placement} --mixed-sizes"
        command = f"vgpumgr mdev create {type_.short_name} {more}"
        advice = f"{command}, or " if empty else f"once no vGPU is left there: {command}; or "
    raise VgpuAttributeError(
        f"cannot place {type_.name} at {placing.placement} on {one or f'any of {len(boards)} GPUs'}",
        why=why,
        held_by=[f"vGPU {d.type_name} {d.key}" for d in held],
        hint=f"{advice}without --placement",
    )
