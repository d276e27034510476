"""Choosing GPUs and places for one or several equal slices: exhaustive, pure, able to say why.

No existing instance moves. A GPU in MIG mode wins over one that must change its mode; then the place wins that takes
the least capacity away from later requests (``Board.measure_room``).

A slice that is a whole GPU instance (``1g.10gb``) needs a place for that. A slice that is a part of one
(``1c.3g.40gb``) goes into an instance of other attachments that has capacity for it, or else into a new one, which the
next slice of the same request then joins. Exact: each place is taken only if as many slices as are still needed fit
beside it, and how many fit on one GPU is known exactly (``count_fits``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpumgr.errors import MigNotSupportedError, NoRoomError, ProfileNotFoundError
from vgpumgr.mig.layout.board import (
    ENGINES,
    Board,
    find_engine_totals,
    list_near_profiles,
    make_board,
)
from vgpumgr.mig.layout.compute import list_places, list_present
from vgpumgr.mig.selection import check_visible
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigProfile,
    MigProfileName,
    Placement,
    Variant,
)
from vgpumgr.model.text import tell_count


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the instance goes. ``room_before`` and ``room_after`` only serve to compare."""

    gpu: Gpu
    profile: MigProfile
    placement: Placement
    needs_mig_mode: bool
    room_before: int
    room_after: int
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one GPU cannot take the profile.

    ``distance`` orders refusals: how many instances would have to go, or a large number where none
    would help. ``in_the_way`` names these instances.
    """

    gpu: Gpu
    reason: str
    distance: int
    in_the_way: tuple[GpuInstance, ...] = ()


_PROCESSES = 1_000
_PENDING = 2_000
_NO_PROFILE = 10_000
_NO_MIG = 20_000


def find_profile(gpu: Gpu, name: MigProfileName) -> MigProfile | None:
    """The GPU's profile of that name; the ``c`` part does not matter here."""
    return next((p for p in gpu.profiles if p.name == name.gpu_instance), None)


def list_choices(gpus: Sequence[Gpu], name: MigProfileName) -> list[Choice]:
    """Every possible choice, best first."""
    found = [choice for gpu in gpus for choice in _list_gpu_choices(gpu, name)]
    return sorted(found, key=choice_rank)


def list_refusals(gpus: Sequence[Gpu], name: MigProfileName) -> list[Refusal]:
    """For each GPU that cannot take the profile, why not; the closest first."""
    found = [refusal for gpu in gpus if (refusal := _refuse(gpu, name)) is not None]
    return sorted(found, key=lambda refusal: (refusal.distance, refusal.gpu.index))


def _list_gpu_choices(gpu: Gpu, name: MigProfileName) -> list[Choice]:
    profile = find_profile(gpu, name)
    if profile is None or refuse_mode(gpu) or _driver_says_full(gpu, profile):
        return []
    board = make_board(gpu)
    layout = board.read_layout(gpu.instances)
    index = board.index(profile)
    return [
        _make_choice(gpu, profile, board, layout, placement)
        for placement in board.list_places(layout, index)
    ]


def _make_choice(
    gpu: Gpu, profile: MigProfile, board: Board, layout: int, placement: Placement
) -> Choice:
    after = layout | (board.bit(board.index(profile), placement) or 0)
    mode = "" if gpu.mig.current else "; MIG mode must be turned on"
    return Choice(
        gpu=gpu,
        profile=profile,
        placement=placement,
        needs_mig_mode=not gpu.mig.current,
        room_before=board.measure_room(layout),
        room_after=board.measure_room(after),
        why=f"{gpu} at {placement} loses the least room; {board.describe_rest(after)}{mode}",
    )


def list_fits(gpu: Gpu, profile: MigProfile) -> tuple[Placement, ...]:
    """Every place where one more instance of the profile fits by the rules of its board."""
    board = make_board(gpu)
    return board.list_places(board.read_layout(gpu.instances), board.index(profile))


def count_fits(gpu: Gpu, profile: MigProfile) -> int:
    """How many more instances of the profile fit by the rules of its board, if nothing else comes."""
    board = make_board(gpu)
    return board.list_packable(board.read_layout(gpu.instances))[board.index(profile)]


def choice_rank(choice: Choice) -> tuple[bool, int, int, int, int]:
    """Mode changes last; then the least loss, the fuller GPU, the lower index, the higher start."""
    loss = choice.room_before - choice.room_after
    return (
        choice.needs_mig_mode,
        loss,
        choice.room_before,
        choice.gpu.index,
        -choice.placement.start,
    )


def _driver_says_full(gpu: Gpu, profile: MigProfile) -> bool:
    return gpu.mig.current and profile.remaining == 0


def refuse_mode(gpu: Gpu) -> Refusal | None:
    """MIG mode that is off and cannot be turned on now, or that is about to change."""
    if gpu.mig.current != gpu.mig.pending:
        word = "on" if gpu.mig.pending else "off"
        return Refusal(gpu, f"MIG mode is to be turned {word} by a reset of the GPU", _PENDING)
    if not gpu.mig.current and gpu.shared_by:
        reason = "MIG mode is off and cannot change while VMs have shares of the GPU"
        return Refusal(gpu, f"{reason}: {'; '.join(gpu.shared_by)}", _PROCESSES)
    if not gpu.mig.current and gpu.processes:
        holders = ", ".join(str(process) for process in gpu.processes)
        return Refusal(gpu, f"MIG mode is off and cannot change while {holders} runs", _PROCESSES)
    if not gpu.mig.current and gpu.vfs_enabled:
        reason = f"MIG mode is off and cannot change beside {gpu.vfs_enabled} virtual functions"
        return Refusal(gpu, reason, _PROCESSES)
    return None


def _refuse(gpu: Gpu, name: MigProfileName) -> Refusal | None:
    if not gpu.mig.supported:
        return Refusal(gpu, f"{gpu.model} has no MIG", _NO_MIG)
    profile = find_profile(gpu, name)
    if profile is None:
        return Refusal(gpu, f"{gpu.model} has no profile {name.gpu_instance}", _NO_PROFILE)
    if refusal := refuse_mode(gpu):
        return refusal
    if not list_fits(gpu, profile):
        return _refuse_capacity(gpu, profile)
    if _driver_says_full(gpu, profile):
        reason = f"the driver reports that no further {profile.name} fits"
        return Refusal(gpu, reason, len(gpu.instances) + 1)
    return None


def _refuse_capacity(gpu: Gpu, profile: MigProfile) -> Refusal:
    """Names the smallest set of instances without which the profile would fit."""
    if not profile.placements:
        # NVML shows an unprivileged user neither placements nor instances
        return Refusal(gpu, "only root can see where a place is free", len(gpu.instances) + 1)
    board = make_board(gpu)
    obstacles = min(
        board.list_removals(gpu.instances, board.index(profile)),
        key=lambda group: (len(group), sum(i.slices for i in group)),
        default=(),
    )
    reasons = list(_list_exceeded(gpu, profile))
    taken = [i.placement for i in gpu.instances]
    if all(any(p.overlaps(t) for t in taken) for p in profile.placements):
        places = ", ".join(str(p) for p in profile.placements)
        reasons.append(f"each of its places on the memory axis ({places}) is taken")
    if obstacles:
        reasons.append("in the way: " + ", ".join(map(_describe_instance, obstacles)))
    return Refusal(gpu, "; ".join(reasons), len(obstacles), obstacles)


def _list_exceeded(gpu: Gpu, profile: MigProfile) -> Iterator[str]:
    """Which rules other than geometry forbid one more of ``profile``, in words."""
    free = gpu.compute_slices - sum(i.slices for i in gpu.instances)
    if profile.slices > free:
        yield f"it needs {profile.slices} compute slices, {free} free"
    if sum(i.profile_id == profile.id for i in gpu.instances) >= profile.max_instances:
        yield f"the GPU allows {tell_count(profile.max_instances, 'instance')} of it"
    own = profile.name.variant
    for instance in gpu.instances:
        variants = {own, instance.profile.variant}
        if Variant.ALL_MEDIA in variants and Variant.NO_MEDIA not in variants:
            yield f"{_describe_instance(instance)} has or needs media engines"
            return
    by_id = {p.id: p for p in gpu.profiles}
    present = [profile, *(by_id[i.profile_id] for i in gpu.instances if i.profile_id in by_id)]
    for engine, total in find_engine_totals(gpu.profiles).items():
        if sum(getattr(p, engine) for p in present) > total:
            yield f"too few {ENGINES[engine]} engines are left"


def _describe_instance(instance: GpuInstance) -> str:
    return f"instance {instance.id} ({instance.profile} at {instance.placement})"


def explain_refusal(
    gpus: Sequence[Gpu], name: MigProfileName, owners: Sequence[SliceOwner] = ()
) -> NoRoomError | ProfileNotFoundError | MigNotSupportedError:
    """The error for a profile that none of ``gpus`` can take.

    Raises NotPermittedError where the driver does not show this user which places are free.
    """
    which = str(gpus[0]) if len(gpus) == 1 else f"any of {len(gpus)} GPUs" if gpus else "any GPU"
    error = f"cannot place {name.gpu_instance} on {which}"
    if not any(gpu.mig.supported for gpu in gpus):
        models = ", ".join(sorted({gpu.model for gpu in gpus})) or "there is no GPU"
        return MigNotSupportedError(
            error, why=f"no GPU here has MIG: {models}", hint="vgpumgr gpu list"
        )
    if not any(find_profile(gpu, name) for gpu in gpus):
        near = list_near_profiles([p for gpu in gpus for p in gpu.profiles], name)
        why = f"no such profile here; near ones: {', '.join(near)}"
        return ProfileNotFoundError(error, why=why, hint="vgpumgr mig profiles")
    closest = list_refusals(gpus, name)[0]
    check_visible([closest.gpu])
    prefix = f"{closest.gpu} came closest: " if len(gpus) > 1 else ""
    return NoRoomError(
        error,
        why=prefix + closest.reason,
        held_by=_list_holders(closest, owners),
        hint=f"vgpumgr gpu show {closest.gpu.index}",
    )


def _list_holders(refusal: Refusal, owners: Sequence[SliceOwner]) -> list[str]:
    names = {(o.gpu, o.gpu_instance_id): o.holder for o in owners}
    holders = []
    for instance in refusal.in_the_way:
        shown, whose = _describe_instance(instance), names.get((refusal.gpu.uuid, instance.id))
        holders.append(f"{whose} ({shown})" if whose else f"{shown} on {refusal.gpu}")
    if not refusal.in_the_way and refusal.distance == _PROCESSES:
        gpu = refusal.gpu
        holders = list(gpu.shared_by) or [str(process) for process in gpu.processes]
    return holders


def present_places(instance: GpuInstance) -> tuple[Placement, ...]:
    """The places that are taken; where the driver states none, as if packed upwards."""
    return tuple(place for _, place in list_present(instance))


def find_compute_place(slices: int, size: int, taken: Sequence[Placement]) -> Placement | None:
    """The lowest free place for one of that size, as a driver without a placement chooses it."""
    for place in list_places(slices, size):
        if not any(place.overlaps(other) for other in taken):
            return place
    return None


#: the GPU instances that a slice may join: what attachments have made, never a layout's or a stranger's
Joinable = Collection[tuple[GpuUuid, int]]
#: an instance that is only planned has no id yet
_PLANNED = -1


@dataclass(frozen=True, slots=True)
class IdleSlice:
    """A compute instance that is there and unused: a slice without anything to be created."""

    gpu: GpuUuid
    instance: GpuInstance
    compute: ComputeInstance

    def suits(self, name: MigProfileName) -> bool:
        """Whether it is a slice of that profile."""
        if self.instance.profile != name.gpu_instance or self.compute.uuid is None:
            return False
        if name.compute_slices is None:
            return self.compute.slices == self.instance.slices
        return self.compute.slices == name.compute_slices and self.compute.placement is not None

    def place(self, gpu: Gpu, name: MigProfileName, profile: MigProfile) -> SlicePlacement:
        """The slice as a place for an attachment, on its GPU."""
        where = f"an idle {profile.name} at {self.instance.placement}"
        why = f"{gpu}: takes {self.compute.uuid}, {where}; detach leaves it there"
        choice = Choice(gpu, profile, self.instance.placement, False, 0, 0, why)
        place = None if name.compute_slices is None else self.compute.placement
        return SlicePlacement(choice, place, self.instance.id, creates=False, takes=self)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a GPU is preferred by, among those with capacity."""

    spread: bool = False
    #: NUMA nodes of the VM; empty: anywhere
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SlicePlacement:
    """Where one slice goes. ``joins`` is the id of a GPU instance that is there; ``creates`` is false
    as well where an earlier one of the same request makes the instance. ``compute`` is None for a
    slice that is all of its instance.
    """

    choice: Choice
    compute: Placement | None = None
    joins: int | None = None
    creates: bool = True
    #: the slice, where it is there already
    takes: IdleSlice | None = None


def choose_placements(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    count: int,
    owners: Sequence[SliceOwner] = (),
    joinable: Joinable = (),
    constraints: Constraints | None = None,
    idle: Sequence[IdleSlice] = (),
) -> tuple[SlicePlacement, ...]:
    """Places for ``count`` slices of that profile; those that are there already (``idle``) first.

    Raises ProfileNotFoundError, MigNotSupportedError or NoRoomError, which says how many would fit.
    """
    real = {gpu.uuid: gpu for gpu in gpus}
    now, left_idle = list(gpus), list(idle)
    placed: list[SlicePlacement] = []
    constraints = constraints or Constraints()
    while len(placed) < count:
        left = count - len(placed)
        found = _choose_one(now, name, left, joinable, constraints, left_idle)
        if found is None:
            raise _refuse_count(gpus, name, count, owners, joinable, idle)
        left_idle = [one for one in left_idle if one != found.takes]
        placed.append(replace(found, choice=replace(found.choice, gpu=real[found.choice.gpu.uuid])))
        now = [
            _with_placement(gpu, found) if gpu.uuid == found.choice.gpu.uuid else gpu for gpu in now
        ]
    return tuple(placed)


def count_free(
    gpu: Gpu, name: MigProfileName, joinable: Joinable = (), idle: Sequence[IdleSlice] = ()
) -> int:
    """How many more slices of that profile the GPU takes."""
    profile = find_profile(gpu, name)
    if profile is None or refuse_mode(gpu) is not None:
        return 0
    there = sum(one.gpu == gpu.uuid and one.suits(name) for one in idle)
    return there + _count_new(gpu, name, profile, joinable)


def _count_new(gpu: Gpu, name: MigProfileName, profile: MigProfile, joinable: Joinable) -> int:
    fresh = count_fits(gpu, profile)
    if gpu.mig.current and profile.remaining is not None:
        fresh = min(fresh, profile.remaining)
    if name.compute_slices is None:
        return fresh
    each = _count_inside(profile.slices, name.compute_slices, ())
    old = sum(
        _count_inside(i.slices, name.compute_slices, present_places(i))
        for i in _list_joinable(gpu, name, joinable)
    )
    return fresh * each + old


def _count_inside(slices: int, size: int, taken: Sequence[Placement]) -> int:
    count, places = 0, list(taken)
    while (place := find_compute_place(slices, size, places)) is not None:
        places.append(place)
        count += 1
    return count


def _list_joinable(gpu: Gpu, name: MigProfileName, joinable: Joinable) -> list[GpuInstance]:
    return [
        instance
        for instance in gpu.instances
        if instance.profile == name.gpu_instance
        and (instance.id <= _PLANNED or (gpu.uuid, instance.id) in joinable)
    ]


def _choose_one(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    left: int,
    joinable: Joinable,
    constraints: Constraints,
    idle: Sequence[IdleSlice],
) -> SlicePlacement | None:
    """The best place beside which the others that are needed still fit."""
    capacity = {gpu.uuid: count_free(gpu, name, joinable, idle) for gpu in gpus}
    if sum(capacity.values()) < left:
        return None
    candidates = _list_takes(gpus, name, idle)
    candidates += _list_joins(gpus, name, joinable) + _list_fresh(gpus, name)
    for one in sorted(candidates, key=lambda one: _rank(one, constraints)):
        gpu = one.choice.gpu
        others = [other for other in idle if other != one.takes]
        after = count_free(_with_placement(gpu, one), name, joinable, others)
        if sum(capacity.values()) - capacity[gpu.uuid] + after >= left - 1:
            return _explain(one, constraints)
    return None


def _list_takes(
    gpus: Sequence[Gpu], name: MigProfileName, idle: Sequence[IdleSlice]
) -> list[SlicePlacement]:
    return [
        one.place(gpu, name, profile)
        for gpu in gpus
        for one in idle
        if one.gpu == gpu.uuid and one.suits(name) and refuse_mode(gpu) is None
        if (profile := find_profile(gpu, name)) is not None
    ]


def _list_fresh(gpus: Sequence[Gpu], name: MigProfileName) -> list[SlicePlacement]:
    choices = list_choices(gpus, name)
    if name.compute_slices is None:
        return [SlicePlacement(choice) for choice in choices]
    return [
        SlicePlacement(choice, compute=place)
        for choice in choices
        if (place := find_compute_place(choice.profile.slices, name.compute_slices, ()))
    ]


def _list_joins(
    gpus: Sequence[Gpu], name: MigProfileName, joinable: Joinable
) -> list[SlicePlacement]:
    if name.compute_slices is None:
        return []
    found = []
    for gpu in gpus:
        for instance in _list_joinable(gpu, name, joinable):
            taken = present_places(instance)
            place = find_compute_place(instance.slices, name.compute_slices, taken)
            profile = find_profile(gpu, name)
            if place is None or profile is None:
                continue
            why = f"{gpu}: the GPU instance at {instance.placement} has room for it"
            choice = Choice(gpu, profile, instance.placement, False, 0, 0, why)
            planned = instance.id <= _PLANNED
            joins = None if planned else instance.id
            found.append(SlicePlacement(choice, place, joins=joins, creates=False))
    return found


def _rank(one: SlicePlacement, constraints: Constraints) -> tuple[object, ...]:
    """No change of MIG mode; the VM's own NUMA node; an instance that is there already; then spread,
    or else the least loss of capacity.
    """
    gpu = one.choice.gpu
    far = bool(constraints.nodes) and gpu.numa_node not in constraints.nodes
    load = len(gpu.instances) if constraints.spread else 0
    return (one.choice.needs_mig_mode, far, one.creates, load, *choice_rank(one.choice))


def _explain(one: SlicePlacement, constraints: Constraints) -> SlicePlacement:
    gpu, words = one.choice.gpu, [one.choice.why]
    if constraints.nodes:
        nodes = ", ".join(map(str, sorted(constraints.nodes)))
        near = gpu.numa_node in constraints.nodes
        # one that is near and would have to change its mode comes after this one
        none = "no GPU" if one.choice.needs_mig_mode else "no GPU in MIG mode"
        words.append(
            f"on the VM's NUMA node {gpu.numa_node}"
            if near
            else f"on NUMA node {gpu.numa_node}: {none} on the VM's ({nodes}) has room"
        )
    if constraints.spread and one.creates:
        words.append(f"to spread: {len(gpu.instances)} instances are on it so far")
    return replace(one, choice=replace(one.choice, why="; ".join(words)))


def _with_placement(gpu: Gpu, one: SlicePlacement) -> Gpu:
    """The GPU as it is to be with the slice placed."""
    if one.takes is not None:
        return gpu
    profile, placement = one.choice.profile, one.choice.placement
    # what it is called does not matter: only its place does
    compute = ComputeInstance(
        _PLANNED, 0, one.compute.size if one.compute else profile.slices, None, one.compute
    )
    if not one.creates:
        instances = tuple(
            replace(i, compute_instances=(*i.compute_instances, compute))
            if i.placement == placement
            else i
            for i in gpu.instances
        )
        return replace(gpu, instances=instances)
    made = GpuInstance(
        id=_PLANNED - len(gpu.instances),
        profile_id=profile.id,
        profile=profile.name,
        placement=placement,
        slices=profile.slices,
        memory_bytes=profile.memory_bytes,
        compute_instances=(compute,),
    )
    profiles = tuple(
        replace(p, remaining=max(0, p.remaining - 1)) if p.id == profile.id and p.remaining else p
        for p in gpu.profiles
    )
    mode = replace(gpu.mig, current=True, pending=True)
    return replace(gpu, instances=(*gpu.instances, made), profiles=profiles, mig=mode)


def _refuse_count(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    count: int,
    owners: Sequence[SliceOwner],
    joinable: Joinable,
    idle: Sequence[IdleSlice],
) -> Exception:
    fits: Mapping[str, int] = {
        str(gpu): n for gpu in gpus if (n := count_free(gpu, name, joinable, idle))
    }
    if not fits:
        return explain_refusal(gpus, name, owners)
    each = ", ".join(f"{n} on {gpu}" for gpu, n in fits.items())
    return NoRoomError(
        f"cannot place {count} times {name}",
        why=f"{sum(fits.values())} fit: {each}",
        hint=f"vgpumgr why {name}",
    )
