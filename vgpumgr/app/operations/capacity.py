"""The operations ``why`` and ``plan_defrag``: observed GPUs and owners in, documents out."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from vgpumgr.app.documents.base import PlacementDocument
from vgpumgr.app.documents.capacity import (
    DefragDocument,
    DefragRow,
    MoveDocument,
    ObstacleDocument,
    WhyDocument,
    WhyRow,
)
from vgpumgr.errors import UsageError, VgpumgrError
from vgpumgr.mig.layout.defrag import Move, Option, plan_defrag
from vgpumgr.mig.layout.pins import list_owner_pins
from vgpumgr.mig.layout.room import Answer, Obstacle, explain_profile
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.mig.placement import explain_refusal, find_profile
from vgpumgr.mig.selection import check_visible
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName, Placement
from vgpumgr.model.slice import SliceOwner
from vgpumgr.planning.reservations import (
    LostSlice,
    explain_kept,
    is_reserved,
    keep_places,
    list_kept_pins,
)


def describe_why(
    gpus: Sequence[Gpu],
    profile: str,
    owners: Sequence[SliceOwner],
    stopped: Collection[str],
    lost: Sequence[LostSlice] = (),
) -> WhyDocument:
    """``stopped`` are the names of VMs that are shut off, ``lost`` slices whose places are kept.
    Raises UsageError, and ProfileNotFoundError or MigNotSupportedError where no GPU offers the
    profile, NotPermittedError where the driver hides what there is.
    """
    check_visible(gpus)
    name = _read_name(gpus, profile)
    gpus, owners = keep_places(gpus, lost), _list_present(owners, lost)
    kept = list_kept_pins(gpus, lost)
    options = {o.gpu.uuid: o for o in plan_defrag(gpus, name, *_split(owners, stopped), kept)}
    answers = explain_profile(gpus, name, list_owner_pins(owners), kept)
    rows = [_describe_answer(answer, options[answer.gpu.uuid]) for answer in answers]
    return WhyDocument(profile=str(name), fits=any(row.fits for row in rows), gpus=rows)


def describe_defrag(
    gpus: Sequence[Gpu],
    profile: str,
    owners: Sequence[SliceOwner],
    stopped: Collection[str],
    lost: Sequence[LostSlice] = (),
) -> DefragDocument:
    """As ``describe_why``; raises NoRoomError, too, where no GPU can get room."""
    check_visible(gpus)
    name = _read_name(gpus, profile)
    gpus, owners = keep_places(gpus, lost), _list_present(owners, lost)
    options = plan_defrag(gpus, name, *_split(owners, stopped), list_kept_pins(gpus, lost))
    if all(option.plan is None for option in options):
        error = explain_refusal(gpus, name, owners)
        explain_kept(error, lost)
        raise error
    return DefragDocument(profile=str(name), options=[_describe_option(o) for o in options])


def _list_present(owners: Sequence[SliceOwner], lost: Sequence[LostSlice]) -> list[SliceOwner]:
    """Without those whose slice is gone: its number may be another instance's by now."""
    gone = {one.attachment for one in lost}
    return [owner for owner in owners if owner.attachment_id not in gone]


def _split(
    owners: Sequence[SliceOwner], stopped: Collection[str]
) -> tuple[list[Pinned], list[Pinned]]:
    """Slices of VMs that may run, and of those that are shut off."""
    running = list_owner_pins(owners, free=stopped)
    return list(running), [pin for pin in list_owner_pins(owners) if pin not in running]


def _read_name(gpus: Sequence[Gpu], text: str) -> MigProfileName:
    try:
        name = MigProfileName.parse(text).gpu_instance
    except ValueError as error:
        raise UsageError(
            str(error),
            why="for vGPU types and whole GPUs the lists say it: mdev types -o wide, passthrough list",
            hint=_advise(text),
        ) from error
    if not any(find_profile(gpu, name) for gpu in gpus):
        refusal: VgpumgrError = explain_refusal(gpus, name)
        raise refusal
    return name


def _advise(text: str) -> str:
    """Where the kind of thing that was named is listed."""
    is_vgpu = re.search(r"-\d+[abcq]?$", text.strip(), re.IGNORECASE) is not None
    return "vgpumgr mdev types -o wide" if is_vgpu else "vgpumgr mig profiles"


def _describe_answer(answer: Answer, option: Option) -> WhyRow:
    moves = bool(option.moves) and not option.removed
    return WhyRow(
        gpu_index=answer.gpu.index,
        gpu_uuid=answer.gpu.uuid,
        fits=answer.fits,
        places=[_place(p) for p in answer.places],
        rules=list(answer.rules),
        remove=[_describe_obstacle(o) for o in answer.remove],
        kept=[_describe_obstacle(o) for o in answer.kept],
        sentence=answer.sentence,
        moving=option.sentence if moves else None,
    )


def _describe_option(option: Option) -> DefragRow:
    removed = [Obstacle(instance, ()) for instance in option.removed]
    return DefragRow(
        gpu_index=option.gpu.index,
        gpu_uuid=option.gpu.uuid,
        possible=option.plan is not None,
        moves=[_describe_move(move) for move in option.moves],
        remove=[_describe_obstacle(o) for o in removed],
        at=_place(option.at) if option.at else None,
        steps=[step.as_dict() for step in option.plan.steps] if option.plan else None,
        sentence=option.sentence,
    )


def _describe_move(move: Move) -> MoveDocument:
    return MoveDocument(
        instance=move.instance.id,
        profile=str(move.instance.profile),
        from_=_place(move.instance.placement),
        to=_place(move.to),
        vms=list(move.vms),
        onto=move.onto.id if move.onto else None,
    )


def _describe_obstacle(obstacle: Obstacle) -> ObstacleDocument:
    return ObstacleDocument(
        instance=None if is_reserved(obstacle.instance) else obstacle.instance.id,
        profile=str(obstacle.instance.profile),
        placement=_place(obstacle.instance.placement),
        holders=list(obstacle.holders),
    )


def _place(placement: Placement) -> PlacementDocument:
    return PlacementDocument(start=placement.start, size=placement.size)
