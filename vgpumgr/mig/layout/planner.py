"""The least change that brings GPUs to a layout, or why there is none. Pure: observed models in, steps out.

A refusal is known before the first call of the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from vgpumgr.mig.layout.board import Board, list_near_profiles, make_board
from vgpumgr.mig.layout.change import (
    LayoutPlan,
    MigStepSpec,
    PlanCost,
    Reason,
    Refusal,
    StepKind,
    advise_release,
    list_steps,
    unique,
)
from vgpumgr.mig.layout.compute import ComputeChange, list_places, list_sizes, pack
from vgpumgr.mig.layout.solver import Problem, Solution, Wanted, count_wanted, split_held
from vgpumgr.mig.layout.target import (
    GpuTarget,
    Pinned,
    SliceKey,
    TargetInstance,
    list_present_targets,
    list_process_pins,
    merge_pins,
    parse_name,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfile, MigProfileName, Placement
from vgpumgr.model.text import tell_count


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
            names = [f"{board.profiles[w.profile].name} at {w.placement}" for w in (other, one)]
            what = f"cannot have both {names[0]} and {names[1]} on {gpu}"
            sentence = "these places on the memory axis overlap"
            return Refusal(Reason.CONTRADICTION, what, sentence, gpu.uuid)
        found.append(one)
    return found


def _read_one(gpu: Gpu, board: Board, instance: TargetInstance) -> Wanted | Refusal:
    try:
        name = parse_name(instance.profile)
        sizes = instance.compute_slices
    except ValueError as error:
        what = f"cannot have {instance} on {gpu}"
        hint = "vgpumgr mig profiles"
        return Refusal(Reason.CONTRADICTION, what, str(error), gpu.uuid, helps=hint)
    index = board.find(name)
    if index is None or board.profiles[index].id not in {p.id for p in gpu.profiles}:
        return unknown_profile(gpu, name)
    profile = board.profiles[index]
    if instance.compute is None:
        # the board's word counts, not the number in the name
        sizes = (profile.slices,)
    if pack(profile.slices, sizes, ()) is None:
        return _compute_does_not_fit(gpu, instance, profile.slices)
    if instance.placement is not None and board.bit(index, instance.placement) is None:
        return _no_such_place(gpu, profile, instance.placement)
    return Wanted(index, sizes, instance.placement)


def _find_overlap(found: Sequence[Wanted], one: Wanted) -> Wanted | None:
    for other in found:
        if other.placement and one.placement and one.placement.overlaps(other.placement):
            return other
    return None


Allowed = AbstractSet[SliceKey]
#: what lets a layout take slices in use, where a command has it
_NAMED = "name the slices with --allow-disruptive"


def plan_layout(
    gpus: Sequence[Gpu],
    targets: Sequence[GpuTarget],
    pinned: Sequence[Pinned] = (),
    allow_disruptive: Allowed = frozenset(),
) -> LayoutPlan:
    """The least change; raises the error of the refusal where there is none (``try_layout``)."""
    outcome = try_layout(gpus, targets, pinned, allow_disruptive)
    if isinstance(outcome, Refusal):
        raise outcome.as_error()
    return outcome


def try_layout(
    gpus: Sequence[Gpu],
    targets: Sequence[GpuTarget],
    pinned: Sequence[Pinned] = (),
    allow_disruptive: Allowed = frozenset(),
) -> LayoutPlan | Refusal:
    """As ``plan_layout``, but a refusal is a value, with the disruptive plan where one exists.

    Slices in which NVML sees a process are held, whether ``pinned`` names them or not. GPUs without
    a target stay as they are. One GPU that cannot be refuses the whole.
    """
    by_uuid = {str(gpu.uuid): gpu for gpu in gpus}
    seen: set[str] = set()
    plan = LayoutPlan()
    for target in targets:
        gpu = by_uuid.get(target.gpu_uuid)
        if gpu is None:
            what, known = f"there is no GPU {target.gpu_uuid}", tell_count(len(gpus), "GPU")
            return Refusal(
                Reason.UNKNOWN_GPU,
                what,
                f"this machine has {known}",
                target.gpu_uuid,
                helps="vgpumgr gpu list",
            )
        if target.gpu_uuid in seen:
            return _contradiction(gpu, "two targets name it, and a GPU has one layout")
        seen.add(target.gpu_uuid)
        outcome = _plan_gpu(gpu, target, pinned, allow_disruptive)
        if isinstance(outcome, Refusal):
            return outcome
        plan += outcome
    return plan


def plan_destruction(gpu: Gpu, gone: Collection[int]) -> LayoutPlan:
    """Destroys the unused GPU instances of some ids, and changes nothing else: not even what this board's
    rules do not know.
    """
    board, target = make_board(gpu), GpuTarget(gpu.uuid, True, list_present_targets(gpu, gone))
    left = [i for i in gpu.instances if i.id not in gone]
    solution = Solution(
        kept=tuple((i, ComputeChange(kept=len(i.compute_instances))) for i in left),
        destroyed=tuple(i for i in gpu.instances if i.id in gone),
        created=(),
        touched=(),
        layout=board.read_layout(left),
    )
    steps = list_steps(gpu, board, target, solution, changes_mode=False)
    sentence = _explain(gpu, board, target, solution, steps)
    return LayoutPlan(steps, PlanCost.of(steps, len(left)), ((target.gpu_uuid, sentence),))


def _plan_gpu(
    gpu: Gpu, target: GpuTarget, pinned: Sequence[Pinned], allowed: Allowed
) -> LayoutPlan | Refusal:
    """One GPU: first MIG mode, then its instances."""
    if not gpu.mig.supported:
        if target.mig_enabled or target.instances:
            what, why = f"cannot partition {gpu}", f"{gpu.model} has no MIG"
            return Refusal(Reason.NO_MIG, what, why, gpu.uuid, helps="vgpumgr gpu list")
        return LayoutPlan(explanations=((target.gpu_uuid, f"{gpu} has no MIG, as asked"),))
    if not target.mig_enabled and target.instances:
        return _contradiction(gpu, "instances are asked for together with MIG mode off")
    if _changes_mode(gpu, target) and (users := list_whole_users(gpu)):
        return _mode_in_use(gpu, target.mig_enabled, users)
    pins = merge_pins(gpu, pinned, list_process_pins(gpu))
    if target.mig_enabled and target.instances is None:
        return _finish(gpu, make_board(gpu), target, None)
    board = make_board(gpu)
    wanted = read_wanted(gpu, board, target.instances or ())
    if isinstance(wanted, Refusal):
        return wanted
    solution = Problem(gpu, board, wanted, split_held(pins, allowed)).solve()
    if solution is None:
        return _explain_none(gpu, board, target, wanted, pins, allowed)
    if full := _find_full(gpu, board, solution):
        return Refusal(
            Reason.BUSY,
            f"cannot add {full} on {gpu}",
            f"the driver reports that no further {full} fits beside what is there",
            gpu.uuid,
            helps=f"vgpumgr why {full} --gpu {gpu.index}",
        )
    return _finish(gpu, board, target, solution)


def _explain_none(
    gpu: Gpu,
    board: Board,
    target: GpuTarget,
    wanted: Sequence[Wanted],
    pins: Sequence[Pinned],
    allowed: Allowed,
) -> Refusal:
    """If the layout is possible without holders, that plan is offered."""
    everyone = {pin.key for pin in pins}
    solution = Problem(gpu, board, wanted, split_held(pins, everyone)).solve()
    if solution is not None:
        held = [pin for pin in solution.touched if pin.key not in allowed]
        return _busy(gpu, held, _finish(gpu, board, target, solution))
    if staying := [pin for pin in pins if pin.stays]:
        freed = [replace(pin, is_vgpu=False, is_share=False) for pin in pins]
        # what is allowed to go comes before what would have to be allowed, too
        for keys in ({pin.key for pin in staying} | allowed, everyone):
            solution = Problem(gpu, board, wanted, split_held(freed, keys)).solve()
            if solution is None:
                continue
            there = {pin.instance_id for pin in solution.touched}
            for_good = [pin for pin in staying if pin.instance_id in there]
            rest = [p for p in solution.touched if p in pins and p.key not in allowed]
            return _held_for_good(gpu, for_good, rest)
    return _impossible(gpu, board, wanted)


def _finish(gpu: Gpu, board: Board, target: GpuTarget, solution: Solution | None) -> LayoutPlan:
    steps = list_steps(gpu, board, target, solution, changes_mode=_changes_mode(gpu, target))
    sentence = _explain(gpu, board, target, solution, steps)
    cost = (
        PlanCost.of(steps, len(solution.kept), len(solution.touched))
        if solution
        else PlanCost.of(steps, len(gpu.instances))
    )
    return LayoutPlan(steps, cost, ((target.gpu_uuid, sentence),))


def _changes_mode(gpu: Gpu, target: GpuTarget) -> bool:
    """Also where the mode is right and a pending request would change it at the next reset."""
    return not gpu.mig.current == gpu.mig.pending == target.mig_enabled


def list_whole_users(gpu: Gpu) -> list[str]:
    """Who uses the GPU as a whole, by a share or as a process: while there is one, MIG mode does not change."""
    whole = [p for p in gpu.processes if p.gpu_instance_id is None]
    # what runs in a share is its holder's
    return [*gpu.shared_by, *(str(p) for p in whole if not (gpu.shared_by and p.is_holder))]


def _find_full(gpu: Gpu, board: Board, solution: Solution) -> str | None:
    """A profile that is to be added to what there is, and of which NVML says that none fits.

    Only a plan that destroys nothing can be held against NVML's count.
    """
    if solution.destroyed or not gpu.mig.current:
        return None
    remaining = {p.id: p.remaining for p in gpu.profiles}
    for cell, _ in solution.created:
        profile = board.profiles[cell.profile]
        if remaining.get(profile.id) == 0:
            return str(profile.name)
    return None


def _explain(
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
            parts.append(board.describe_rest(solution.layout))
    return f"{gpu}: " + "; ".join(parts)


def _list_mode_parts(gpu: Gpu, target: GpuTarget, steps: Sequence[MigStepSpec]) -> Iterable[str]:
    if any(step.kind in (StepKind.MODE_ENABLE, StepKind.MODE_DISABLE) for step in steps):
        reset = ", which takes a reset of the GPU" if gpu.mig.needs_reset else ""
        yield f"turns MIG mode {'on' if target.mig_enabled else 'off'}{reset}"


def _list_instance_parts(board: Board, solution: Solution) -> Iterable[str]:
    if solution.kept:
        yield "keeps " + _tally(str(i.profile) for i, _ in solution.kept)
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
        yield f"changes compute instances in {_tally(changed)}"
    if solution.touched:
        yield "takes from " + ", ".join(dict.fromkeys(pin.holder for pin in solution.touched))


def _tally(names: Iterable[str]) -> str:
    """``2x 1g.10gb, 3g.40gb``."""
    return ", ".join(f"{n}x {name}" if n > 1 else name for name, n in Counter(names).items())


def _contradiction(gpu: Gpu, sentence: str) -> Refusal:
    return Refusal(Reason.CONTRADICTION, f"cannot plan for {gpu}", sentence, gpu.uuid)


def _mode_in_use(gpu: Gpu, enabled: bool, users: Sequence[str]) -> Refusal:
    """MIG mode is to change while the GPU as a whole is in use."""
    return Refusal(
        Reason.BUSY,
        f"cannot turn {'on' if enabled else 'off'} MIG mode of {gpu}",
        "the mode changes only while nothing uses the GPU as a whole",
        gpu.uuid,
        holders=tuple(users),
        helps="stop what holds it, then plan again",
    )


def unknown_profile(gpu: Gpu, name: MigProfileName) -> Refusal:
    """The board does not offer the profile; near names are offered."""
    sentence = f"{gpu.model} has no such profile"
    if offered := list_near_profiles(gpu.profiles, name):
        sentence += f"; near ones: {', '.join(offered)}"
    return Refusal(
        Reason.UNKNOWN_PROFILE,
        f"cannot have {name.gpu_instance} on {gpu}",
        sentence,
        gpu.uuid,
        helps=f"vgpumgr mig profiles --gpu {gpu.index}",
    )


def _compute_does_not_fit(gpu: Gpu, instance: TargetInstance, slices: int) -> Refusal:
    """These compute instances are more than the GPU instance has, or it has no such size."""
    offers = ", ".join(f"{len(list_places(slices, s))}x {s}c" for s in list_sizes(slices))
    return Refusal(
        Reason.IMPOSSIBLE,
        f"cannot have {instance} on {gpu}",
        f"{instance.profile} has {slices} compute slices and offers at most {offers}, "
        "not overlapping",
        gpu.uuid,
    )


def _no_such_place(gpu: Gpu, profile: MigProfile, placement: Placement) -> Refusal:
    """The profile cannot be there."""
    places = ", ".join(str(p) for p in profile.placements)
    return Refusal(
        Reason.IMPOSSIBLE,
        f"cannot have {profile.name} at {placement} on {gpu}",
        f"its places on this board are {places}",
        gpu.uuid,
        helps=f"vgpumgr mig profiles --gpu {gpu.index} -o wide",
    )


def _list_touched(gpu: Gpu, touched: Sequence[Pinned]) -> list[str]:
    instances = {i.id: i for i in gpu.instances}
    return unique(
        f"{instances[p.instance_id].profile} at {instances[p.instance_id].placement}"
        for p in touched
    )


def _held_for_good(gpu: Gpu, touched: Sequence[Pinned], rest: Sequence[Pinned]) -> Refusal:
    """Only without GPU instances that vGPUs or shares are in; ``rest`` are the other slices that it takes, and that
    are not allowed to go.
    """
    vgpus, shares = ([p for p in touched if p.is_vgpu], [p for p in touched if p.is_share])
    reasons = []
    if vgpus:
        names = ", ".join(_list_touched(gpu, vgpus))
        reasons.append(
            f"it takes destroying GPU instances that vGPUs are in, which the driver refuses: {names}"
        )
    if shares:
        names = ", ".join(_list_touched(gpu, shares))
        reasons.append(f"an instance with shares is changed by no layout: {names}")
    if rest:
        reasons.append(_describe_taken(gpu, rest))
    return Refusal(
        Reason.BUSY,
        f"cannot reach the layout on {gpu}",
        "; ".join(reasons),
        gpu.uuid,
        in_the_way=(*touched, *rest),
        helps=advise_release([*touched, *rest], _NAMED),
    )


def _busy(gpu: Gpu, touched: Sequence[Pinned], alternative: LayoutPlan) -> Refusal:
    """Only at the expense of slices in use."""
    return Refusal(
        Reason.BUSY,
        f"cannot reach the layout on {gpu}",
        _describe_taken(gpu, touched),
        gpu.uuid,
        in_the_way=tuple(touched),
        helps=advise_release(touched, _NAMED),
        alternative=alternative,
    )


def _describe_taken(gpu: Gpu, touched: Sequence[Pinned]) -> str:
    moved = _list_touched(gpu, touched)
    plural = "slices that are" if len(moved) > 1 else "a slice that is"
    return f"it takes destroying {plural} in use: {', '.join(moved)}"


def _impossible(gpu: Gpu, board: Board, wanted: Sequence[Wanted]) -> Refusal:
    """The board never has these instances at once."""
    names = _tally(str(board.profiles[one.profile].name) for one in wanted)
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
