"""Where a new vGPU may be told its place (``--placement``): pure.

A driver in equal-size mode places all vGPUs itself and refuses to be told; so it does inside a GPU
instance. Only a GPU in mixed-size mode takes a place, in the driver's own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpumgr.errors import VgpuAttributeError, VgpuTakenError
from vgpumgr.model.vgpu import VgpuBoard, VgpuHost, VgpuSpec, VgpuType
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_selection import list_boards, select_type


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
