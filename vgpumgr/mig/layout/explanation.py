"""A plan for one GPU in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vgpumgr.mig.layout.board import Board
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.mig.layout.solver import Solution
from vgpumgr.mig.layout.target import GpuTarget
from vgpumgr.model.gpu import Gpu


def explain(
    gpu: Gpu,
    board: Board,
    target: GpuTarget,
    solution: Solution | None,
    steps: Sequence[MigStepSpec],
) -> str:
    """What stays, goes and comes, and what is possible afterwards."""
    if not steps:
        return f"{gpu} is as asked; nothing is touched"
    parts = list(_list_mode_parts(gpu, target, steps))
    if solution is not None:
        parts += _list_instance_parts(board, solution)
        if target.mig_enabled:
            parts.append(tell_room(board, solution.layout))
    return f"{gpu}: " + "; ".join(parts)


def _list_mode_parts(gpu: Gpu, target: GpuTarget, steps: Sequence[MigStepSpec]) -> Iterable[str]:
    if any(step.kind in (StepKind.MODE_ENABLE, StepKind.MODE_DISABLE) for step in steps):
        reset = ", which takes a reset of the GPU" if gpu.mig.needs_reset else ""
        yield f"turns MIG mode {'on' if target.mig_enabled else 'off'}{reset}"


def _list_instance_parts(board: Board, solution: Solution) -> Iterable[str]:
    if solution.kept:
        yield "keeps " + tally(str(i.profile) for i, _ in solution.kept)
    if solution.destroyed:
        gone = ", ".join(f"{i.profile} at {i.placement}" for i in solution.destroyed)
        yield f"destroys {gone}"
    if solution.created:
        made = sorted(
            (cell.placement, str(board.profiles[cell.profile].name)) for cell, _ in solution.created
        )
        yield "creates " + ", ".join(f"{name} at {place}" for place, name in made)
    changed = [str(instance.profile) for instance, c in solution.kept if c.destroy or c.create]
    if changed:
        yield f"changes compute instances in {tally(changed)}"
    if solution.touched:
        yield "takes from " + ", ".join(dict.fromkeys(pin.holder for pin in solution.touched))


def tell_room(board: Board, layout: int) -> str:
    """What still fits beside a layout."""
    packable = board.list_packable(layout)
    fits = [str(p.name) for p, n in zip(board.profiles, packable, strict=True) if n]
    return f"then still fits: {', '.join(fits)}" if fits else "then it is full"


def tally(names: Iterable[str]) -> str:
    """``2x 1g.10gb, 3g.40gb``."""
    return ", ".join(f"{n}x {name}" if n > 1 else name for name, n in Counter(names).items())
