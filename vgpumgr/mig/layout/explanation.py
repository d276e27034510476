"""A plan for one GPU in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vgpumgr.mig.layout.board import make_board
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.mig.layout.solver import Solution
from vgpumgr.mig.layout.target import GpuTarget
from vgpumgr.model.gpu import Gpu

_INSIDE = (StepKind.CI_CREATE, StepKind.CI_DESTROY)


def explain(
    gpu: Gpu, target: GpuTarget, solution: Solution | None, steps: Sequence[MigStepSpec]
) -> str:
    """What stays, goes and comes, and what is possible afterwards."""
    if not steps:
        return f"{gpu} is as asked; nothing is touched"
    parts = list(_list_parts(gpu, target, solution, steps))
    return f"{gpu}: " + "; ".join(parts)


def _list_parts(
    gpu: Gpu, target: GpuTarget, solution: Solution | None, steps: Sequence[MigStepSpec]
) -> Iterable[str]:
    if any(step.kind in (StepKind.MODE_ENABLE, StepKind.MODE_DISABLE) for step in steps):
        reset = ", which takes a reset of the GPU" if gpu.mig.needs_reset else ""
        yield f"turns MIG mode {'on' if target.mig_enabled else 'off'}{reset}"
    if solution is None:
        return
    if solution.kept:
        yield "keeps " + tally(str(i.profile) for i, _ in solution.kept)
    if solution.destroyed:
        gone = ", ".join(f"{i.profile} at {i.placement}" for i in solution.destroyed)
        yield f"destroys {gone}"
    board = make_board(gpu)
    if solution.created:
        made = sorted(
            (c.placement, str(board.profiles[c.profile].name)) for c, _ in solution.created
        )
        yield "creates " + ", ".join(f"{name} at {place}" for place, name in made)
    changed = [str(instance.profile) for instance, c in solution.kept if c.destroy or c.create]
    if changed:
        yield f"changes compute instances in {tally(changed)}"
    if solution.touched:
        yield "takes from " + ", ".join(dict.fromkeys(pin.holder for pin in solution.touched))
    if target.mig_enabled:
        yield tell_room(gpu, solution.layout)


def tell_room(gpu: Gpu, layout: int) -> str:
    """What still fits beside a layout."""
    board = make_board(gpu)
    fits = [str(p.name) for n, p in enumerate(board.profiles) if board.count_packable(layout, n)]
    return f"then still fits: {', '.join(fits)}" if fits else "then it is full"


def tally(names: Iterable[str]) -> str:
    """``2x 1g.10gb, 3g.40gb``."""
    return ", ".join(f"{n}x {name}" if n > 1 else name for name, n in Counter(names).items())
