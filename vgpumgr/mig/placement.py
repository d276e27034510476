"""Choosing a GPU and a placement for a profile: exhaustive, pure, able to say why.

Nothing that exists is moved. Of all GPUs and all placements that fit, the one wins that takes the
least room away from later requests (``rules.measure_room``). A GPU in MIG mode wins over one that
would have to change its mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from vgpumgr.errors import MigNotSupportedError, NoRoomError, ProfileNotFoundError
from vgpumgr.mig.rules import Occupancy, Occupant, measure_room
from vgpumgr.mig.selection import check_visible
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfile, MigProfileName, Placement
from vgpumgr.model.slice import SliceOwner
from vgpumgr.model.text import list_near


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
    in_the_way: tuple[Occupant, ...] = ()


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
    before = Occupancy.of(gpu)
    room_before = measure_room(before)
    return [
        _make_choice(gpu, profile, placement, before, room_before)
        for placement in before.list_fits(profile)
    ]


def _make_choice(
    gpu: Gpu, profile: MigProfile, placement: Placement, before: Occupancy, room_before: int
) -> Choice:
    after = before.with_instance(profile, placement)
    open_names = [str(p.name) for p in after.profiles if after.list_fits(p)]
    room = f"then still fits: {', '.join(open_names)}" if open_names else "then it is full"
    mode = "" if gpu.mig.current else "; MIG mode must be turned on"
    return Choice(
        gpu=gpu,
        profile=profile,
        placement=placement,
        needs_mig_mode=not gpu.mig.current,
        room_before=room_before,
        room_after=measure_room(after),
        why=f"{gpu} at {placement} loses the least room; {room}{mode}",
    )


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
    occupancy = Occupancy.of(gpu)
    if not occupancy.list_fits(profile):
        return _refuse_room(gpu, profile, occupancy)
    if _driver_says_full(gpu, profile):
        reason = f"the driver reports that no further {profile.name} fits"
        return Refusal(gpu, reason, len(gpu.instances) + 1)
    return None


def _refuse_room(gpu: Gpu, profile: MigProfile, occupancy: Occupancy) -> Refusal:
    """Names the smallest set of instances without which the profile would fit."""
    if not profile.placements:
        # NVML tells an unprivileged user neither placements nor instances
        return Refusal(gpu, "only root can see where there is room", len(gpu.instances) + 1)
    obstacles = find_obstacles(occupancy, profile)
    reasons = list(occupancy.missing_budgets(profile))
    taken = [o.placement for o in occupancy.occupants]
    if all(any(p.overlaps(t) for t in taken) for p in profile.placements):
        places = ", ".join(str(p) for p in profile.placements)
        reasons.append(f"each of its places on the memory axis ({places}) is taken")
    if obstacles:
        reasons.append("in the way: " + ", ".join(str(o) for o in obstacles))
    return Refusal(gpu, "; ".join(reasons), len(obstacles), obstacles)


def find_obstacles(occupancy: Occupancy, profile: MigProfile) -> tuple[Occupant, ...]:
    """The fewest instances whose removal makes room for ``profile``; among equals the smallest
    ones.
    """
    for count in range(len(occupancy.occupants) + 1):
        sets = [
            group
            for group in combinations(occupancy.occupants, count)
            if occupancy.without(group).list_fits(profile)
        ]
        if sets:
            return min(sets, key=lambda group: sum(o.profile.slices for o in group))
    return ()


def explain_refusal(
    gpus: Sequence[Gpu], name: MigProfileName, owners: Sequence[SliceOwner] = ()
) -> NoRoomError | ProfileNotFoundError | MigNotSupportedError:
    """The error for a profile that none of ``gpus`` can take.

    Raises NotPermittedError where the driver does not show this user where there is room.
    """
    which = str(gpus[0]) if len(gpus) == 1 else f"any of {len(gpus)} GPUs"
    error = f"cannot place {name.gpu_instance} on {which}"
    if not any(gpu.mig.supported for gpu in gpus):
        models = ", ".join(sorted({gpu.model for gpu in gpus})) or "there is no GPU"
        return MigNotSupportedError(
            error, why=f"no GPU here has MIG: {models}", hint="vgpumgr gpu list"
        )
    if not any(find_profile(gpu, name) for gpu in gpus):
        return _explain_unknown(error, gpus, name)
    closest = list_refusals(gpus, name)[0]
    check_visible([closest.gpu])
    return NoRoomError(
        error,
        why=_tell_closest(gpus, closest),
        held_by=_list_holders(closest, owners),
        hint=f"vgpumgr gpu show {closest.gpu.index}",
    )


def _tell_closest(gpus: Sequence[Gpu], closest: Refusal) -> str:
    prefix = f"{closest.gpu} came closest: " if len(gpus) > 1 else ""
    return prefix + closest.reason


def _explain_unknown(error: str, gpus: Sequence[Gpu], name: MigProfileName) -> ProfileNotFoundError:
    known = list(dict.fromkeys(str(p.name) for gpu in gpus for p in gpu.profiles))
    near = list_near(str(name.gpu_instance), known, n=3, cutoff=0.6)
    same = [n for n in known if MigProfileName.parse(n).slices == name.slices and n not in near]
    offered = near + same or known
    return ProfileNotFoundError(
        error,
        why=f"no such profile here; near ones: {', '.join(offered)}",
        hint="vgpumgr mig profiles",
    )


def _list_holders(refusal: Refusal, owners: Sequence[SliceOwner]) -> list[str]:
    names = {(o.gpu, o.gpu_instance_id): o.holder for o in owners}
    holders = []
    for occupant in refusal.in_the_way:
        whose = names.get((refusal.gpu.uuid, occupant.id if occupant.id is not None else -1))
        holders.append(f"{whose} ({occupant})" if whose else f"{occupant} on {refusal.gpu}")
    if not refusal.in_the_way and refusal.distance == _PROCESSES:
        holders = [str(process) for process in refusal.gpu.processes]
    return holders
