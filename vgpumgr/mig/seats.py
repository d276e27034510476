"""Choosing places for one or several equal slices at once: pure and exact.

A slice of a whole GPU instance (``1g.10gb``) needs a place for that. A slice that is a part of one
(``1c.3g.40gb``) goes into an instance that has room and that others of ours are in already, or else
into a new one, which the next slice of the same request then joins.

Exact: where so many fit, they are found. Each place is taken only if as many as are still needed fit
beside it, and how many fit on one GPU is known exactly (``rules.count_packable``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpumgr.errors import NoRoomError
from vgpumgr.mig.layout.compute import list_places, list_present
from vgpumgr.mig.placement import (
    Choice,
    choice_rank,
    explain_refusal,
    find_profile,
    list_choices,
    refuse_mode,
)
from vgpumgr.mig.rules import Occupancy, count_packable
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfileName, Placement
from vgpumgr.model.slice import SliceOwner


def present_places(instance: GpuInstance) -> tuple[Placement, ...]:
    """The places that are taken; where the driver states none, as if packed upwards."""
    return tuple(place for _, place in list_present(instance))


def find_compute_place(slices: int, size: int, taken: Sequence[Placement]) -> Placement | None:
    """The lowest free place for one of that size, where a driver that is not told would put it, too."""
    for place in list_places(slices, size):
        if not any(place.overlaps(other) for other in taken):
            return place
    return None


#: the GPU instances that a slice may join: what attachments have made, never a layout's or a stranger's
Joinable = Collection[tuple[GpuUuid, int]]
#: an instance that is only planned has no id yet
_PLANNED = -1


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a GPU is preferred by, after there being room on it."""

    spread: bool = False
    #: NUMA nodes of the VM; empty: anywhere
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one slice goes. ``joins`` is the id of a GPU instance that is there; ``creates`` is false
    as well where an earlier seat of the same request makes the instance. ``compute`` is None for a
    slice that is all of its instance.
    """

    choice: Choice
    compute: Placement | None = None
    joins: int | None = None
    creates: bool = True


def choose_seats(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    count: int,
    owners: Sequence[SliceOwner] = (),
    joinable: Joinable = (),
    wishes: Wishes | None = None,
) -> tuple[Seat, ...]:
    """Places for ``count`` slices of that profile.

    Raises ProfileNotFoundError, MigNotSupportedError or NoRoomError, which says how many would fit.
    """
    real = {gpu.uuid: gpu for gpu in gpus}
    now = list(gpus)
    seats: list[Seat] = []
    wishes = wishes or Wishes()
    while len(seats) < count:
        left = count - len(seats)
        found = _choose_one(now, name, left, joinable, wishes)
        if found is None:
            raise _refuse(gpus, name, count, owners, joinable)
        seats.append(replace(found, choice=replace(found.choice, gpu=real[found.choice.gpu.uuid])))
        now = [_with_seat(gpu, found) if gpu.uuid == found.choice.gpu.uuid else gpu for gpu in now]
    return tuple(seats)


def count_seats(gpu: Gpu, name: MigProfileName, joinable: Joinable = ()) -> int:
    """How many more slices of that profile the GPU takes."""
    profile = find_profile(gpu, name)
    if profile is None or refuse_mode(gpu) is not None:
        return 0
    fresh = count_packable(Occupancy.of(gpu), profile)
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
    gpus: Sequence[Gpu], name: MigProfileName, left: int, joinable: Joinable, wishes: Wishes
) -> Seat | None:
    """The best place beside which the others that are needed still fit."""
    capacity = {gpu.uuid: count_seats(gpu, name, joinable) for gpu in gpus}
    if sum(capacity.values()) < left:
        return None
    candidates = _list_joins(gpus, name, joinable) + _list_fresh(gpus, name)
    for seat in sorted(candidates, key=lambda seat: _rank(seat, wishes)):
        gpu = seat.choice.gpu
        after = count_seats(_with_seat(gpu, seat), name, joinable)
        if sum(capacity.values()) - capacity[gpu.uuid] + after >= left - 1:
            return _explain(seat, wishes)
    return None


def _list_fresh(gpus: Sequence[Gpu], name: MigProfileName) -> list[Seat]:
    choices = list_choices(gpus, name)
    if name.compute_slices is None:
        return [Seat(choice) for choice in choices]
    return [
        Seat(choice, compute=place)
        for choice in choices
        if (place := find_compute_place(choice.profile.slices, name.compute_slices, ()))
    ]


def _list_joins(gpus: Sequence[Gpu], name: MigProfileName, joinable: Joinable) -> list[Seat]:
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
            found.append(Seat(choice, place, joins=joins, creates=False))
    return found


def _rank(seat: Seat, wishes: Wishes) -> tuple[object, ...]:
    """No change of MIG mode; the VM's own NUMA node; an instance that is there already; then spread,
    or else the least loss of room.
    """
    gpu = seat.choice.gpu
    far = bool(wishes.nodes) and gpu.numa_node not in wishes.nodes
    load = len(gpu.instances) if wishes.spread else 0
    return (seat.choice.needs_mig_mode, far, seat.creates, load, *choice_rank(seat.choice))


def _explain(seat: Seat, wishes: Wishes) -> Seat:
    gpu, words = seat.choice.gpu, [seat.choice.why]
    if wishes.nodes:
        nodes = ", ".join(map(str, sorted(wishes.nodes)))
        near = gpu.numa_node in wishes.nodes
        words.append(
            f"on the VM's NUMA node {gpu.numa_node}"
            if near
            else f"on NUMA node {gpu.numa_node}: no GPU on the VM's ({nodes}) has room"
        )
    if wishes.spread and seat.creates:
        words.append(f"to spread: {len(gpu.instances)} instances are on it so far")
    return replace(seat, choice=replace(seat.choice, why="; ".join(words)))


def _with_seat(gpu: Gpu, seat: Seat) -> Gpu:
    """The GPU as it is to be with the seat taken."""
    profile, placement = seat.choice.profile, seat.choice.placement
    # what it is called does not matter: only its place does
    compute = ComputeInstance(
        _PLANNED, 0, seat.compute.size if seat.compute else profile.slices, None, seat.compute
    )
    if not seat.creates:
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


def _refuse(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    count: int,
    owners: Sequence[SliceOwner],
    joinable: Joinable,
) -> Exception:
    fits: Mapping[str, int] = {
        str(gpu): n for gpu in gpus if (n := count_seats(gpu, name, joinable))
    }
    if not fits:
        return explain_refusal(gpus, name, owners)
    each = ", ".join(f"{n} on {gpu}" for gpu, n in fits.items())
    return NoRoomError(
        f"cannot place {count} times {name}",
        why=f"{sum(fits.values())} fit: {each}",
        hint=f"vgpumgr why {name}",
    )
