"""Every way in which a target is refused, in a sentence that an administrator understands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vgpumgr.mig.layout.board import Board
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, Reason, Refusal, StepKind, unique
from vgpumgr.mig.layout.compute import list_places, list_sizes
from vgpumgr.mig.layout.solver import Solution, Wanted, count_wanted
from vgpumgr.mig.layout.target import GpuTarget, Pinned, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfile, MigProfileName, Placement
from vgpumgr.model.text import list_near


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


def unknown_gpu(uuid: str, gpus: Sequence[Gpu]) -> Refusal:
    """A target for a GPU that is not here."""
    known = f"this machine has {len(gpus)} GPU{'s' if len(gpus) != 1 else ''}"
    return Refusal(
        Reason.UNKNOWN_GPU, f"there is no GPU {uuid}", known, uuid, helps="vgpumgr gpu list"
    )


def named_twice(gpu: Gpu) -> Refusal:
    """Two targets for one GPU."""
    sentence = "two targets name it, and a GPU has one layout"
    return Refusal(Reason.CONTRADICTION, f"cannot plan for {gpu}", sentence, gpu.uuid)


def no_mig(gpu: Gpu) -> Refusal:
    """MIG is wanted of a board that has none."""
    return Refusal(
        Reason.NO_MIG,
        f"cannot partition {gpu}",
        f"{gpu.model} has no MIG",
        gpu.uuid,
        helps="vgpumgr gpu list",
    )


def instances_without_mig(gpu: Gpu) -> Refusal:
    """Instances are wanted, and MIG mode off."""
    sentence = "instances are asked for together with MIG mode off"
    return Refusal(Reason.CONTRADICTION, f"cannot plan for {gpu}", sentence, gpu.uuid)


def mode_in_use(gpu: Gpu, enabled: bool, users: Sequence[str]) -> Refusal:
    """MIG mode is to change while somebody uses the GPU as a whole."""
    return Refusal(
        Reason.BUSY,
        f"cannot turn MIG {'on' if enabled else 'off'} on {gpu}",
        "the mode changes only while nothing uses the GPU as a whole",
        gpu.uuid,
        holders=tuple(users),
        helps="stop what holds it, then plan again",
    )


def malformed(gpu: Gpu, instance: TargetInstance, error: str) -> Refusal:
    """A name that is none, or compute instances of another profile."""
    what = f"cannot have {instance} on {gpu}"
    return Refusal(Reason.CONTRADICTION, what, error, gpu.uuid, helps="vgpumgr mig profiles")


def unknown_profile(gpu: Gpu, name: MigProfileName) -> Refusal:
    """The board does not offer the profile; near names are offered."""
    known = [str(profile.name) for profile in gpu.profiles]
    near = [str(p.name) for p in gpu.profiles if p.name.slices == name.slices]
    near += list_near(str(name.gpu_instance), known, n=3, cutoff=0.6)
    offered = unique(near)[:4] or known
    sentence = f"{gpu.model} has no such profile"
    if offered:
        sentence += f"; near ones: {', '.join(offered)}"
    return Refusal(
        Reason.UNKNOWN_PROFILE,
        f"cannot have {name.gpu_instance} on {gpu}",
        sentence,
        gpu.uuid,
        helps=f"vgpumgr mig profiles --gpu {gpu.index}",
    )


def compute_does_not_fit(gpu: Gpu, instance: TargetInstance, slices: int) -> Refusal:
    """These compute instances are more than the GPU instance has, or it has no such size."""
    offers = ", ".join(f"{len(list_places(slices, s))}x {s}c" for s in list_sizes(slices))
    return Refusal(
        Reason.IMPOSSIBLE,
        f"cannot have {instance} on {gpu}",
        f"{instance.profile} has {slices} compute slices and offers at most {offers}, "
        "not overlapping",
        gpu.uuid,
    )


def no_such_place(gpu: Gpu, profile: MigProfile, placement: Placement) -> Refusal:
    """The profile cannot be there."""
    places = ", ".join(str(p) for p in profile.placements)
    return Refusal(
        Reason.IMPOSSIBLE,
        f"cannot have {profile.name} at {placement} on {gpu}",
        f"its places on this board are {places}",
        gpu.uuid,
        helps=f"vgpumgr mig profiles --gpu {gpu.index} -o wide",
    )


def overlap(gpu: Gpu, board: Board, one: Wanted, other: Wanted) -> Refusal:
    """Two instances are asked for at places that overlap."""
    names = [f"{board.profiles[w.profile].name} at {w.placement}" for w in (one, other)]
    return Refusal(
        Reason.CONTRADICTION,
        f"cannot have both {names[0]} and {names[1]} on {gpu}",
        "these places on the memory axis overlap",
        gpu.uuid,
    )


def driver_full(gpu: Gpu, profile: str) -> Refusal:
    """Our rules allow it, the driver says no."""
    return Refusal(
        Reason.BUSY,
        f"cannot add {profile} on {gpu}",
        f"the driver reports that no further {profile} fits beside what is there",
        gpu.uuid,
        helps=f"vgpumgr why {profile} --gpu {gpu.index}",
    )


def busy(gpu: Gpu, touched: Sequence[Pinned], alternative: LayoutPlan) -> Refusal:
    """Only at the expense of somebody who uses a slice."""
    instances = {i.id: i for i in gpu.instances}
    moved = unique(
        f"{instances[p.instance_id].profile} at {instances[p.instance_id].placement}"
        for p in touched
    )
    plural = "slices that are" if len(moved) > 1 else "a slice that is"
    return Refusal(
        Reason.BUSY,
        f"cannot reach the layout on {gpu}",
        f"it takes destroying {plural} in use: {', '.join(moved)}",
        gpu.uuid,
        in_the_way=tuple(touched),
        helps="stop or detach the holders, or name the slices with --allow-disruptive",
        alternative=alternative,
    )


def impossible(gpu: Gpu, board: Board, wanted: Sequence[Wanted]) -> Refusal:
    """The board never has these instances at once."""
    names = tally(str(board.profiles[one.profile].name) for one in wanted)
    reasons = board.list_excesses(count_wanted(board, wanted))
    if not reasons:
        reasons = ["no arrangement of their places on the memory axis avoids an overlap"]
    fewer = _find_removable(board, wanted)
    return Refusal(
        Reason.IMPOSSIBLE,
        f"{gpu} cannot have {names}",
        "; ".join(reasons),
        gpu.uuid,
        helps=f"leave out {' or '.join(fewer)}" if fewer else None,
    )


def _find_removable(board: Board, wanted: Sequence[Wanted]) -> list[str]:
    """Which one instance less would make it possible."""
    found = []
    for index, one in enumerate(wanted):
        rest = [*wanted[:index], *wanted[index + 1 :]]
        if _is_possible(board, rest):
            found.append(str(board.profiles[one.profile].name))
    return unique(found)


def _is_possible(board: Board, wanted: Sequence[Wanted]) -> bool:
    places = [(one.profile, one.placement) for one in wanted if one.placement is not None]
    needed = sum(board.bit(profile, place) or 0 for profile, place in places)
    layouts = board.list_layouts(count_wanted(board, wanted))
    return any(layout & needed == needed for layout in layouts)
