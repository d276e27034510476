"""Reading a target against a board: names become profiles, or a refusal says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.mig.layout import refusal as refuse
from vgpumgr.mig.layout.board import Board
from vgpumgr.mig.layout.change import Refusal
from vgpumgr.mig.layout.compute import pack
from vgpumgr.mig.layout.solver import Wanted
from vgpumgr.mig.layout.target import TargetInstance, parse_name
from vgpumgr.model.gpu import Gpu


def read_wanted(
    gpu: Gpu, board: Board, instances: Sequence[TargetInstance]
) -> list[Wanted] | Refusal:
    """What is wanted, checked one by one and for places that exclude each other."""
    found: list[Wanted] = []
    for instance in instances:
        one = _read_one(gpu, board, instance)
        if isinstance(one, Refusal):
            return one
        if one.placement is not None and (other := _find_overlap(found, one)):
            return refuse.overlap(gpu, board, other, one)
        found.append(one)
    return found


def _read_one(gpu: Gpu, board: Board, instance: TargetInstance) -> Wanted | Refusal:
    try:
        name = parse_name(instance.profile)
        sizes = instance.compute_slices
    except ValueError as error:
        return refuse.malformed(gpu, instance, str(error))
    index = board.find(name)
    if index is None or board.profiles[index].id not in {p.id for p in gpu.profiles}:
        return refuse.unknown_profile(gpu, name)
    profile = board.profiles[index]
    if instance.compute is None:
        # the board's word counts, not the number in the name
        sizes = (profile.slices,)
    if pack(profile.slices, sizes, ()) is None:
        return refuse.compute_does_not_fit(gpu, instance, profile.slices)
    if instance.placement is not None and board.bit(index, instance.placement) is None:
        return refuse.no_such_place(gpu, profile, instance.placement)
    return Wanted(index, sizes, instance.placement)


def _find_overlap(found: Sequence[Wanted], one: Wanted) -> Wanted | None:
    for other in found:
        if other.placement and one.placement and one.placement.overlaps(other.placement):
            return other
    return None
