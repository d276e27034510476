"""The least change that brings GPUs to a layout. Pure: observed models in, steps out.

Nothing here looks at a device; a refusal is known before the first call of the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from vgpumgr.mig.layout import refusal as refuse
from vgpumgr.mig.layout.board import Board, make_board
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, PlanCost, Refusal, StepKind
from vgpumgr.mig.layout.compute import pack
from vgpumgr.mig.layout.pins import list_process_pins, merge_pins
from vgpumgr.mig.layout.refusal import explain
from vgpumgr.mig.layout.solver import Problem, Solution, Wanted, split_held
from vgpumgr.mig.layout.steps import list_steps
from vgpumgr.mig.layout.target import GpuTarget, Pinned, SliceKey, TargetInstance, parse_name
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


Allowed = AbstractSet[SliceKey]


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
            return refuse.unknown_gpu(target.gpu_uuid, gpus)
        if target.gpu_uuid in seen:
            return refuse.named_twice(gpu)
        seen.add(target.gpu_uuid)
        outcome = _plan_gpu(gpu, target, pinned, allow_disruptive)
        if isinstance(outcome, Refusal):
            return outcome
        plan = LayoutPlan(
            plan.steps + outcome.steps,
            plan.cost + outcome.cost,
            plan.explanations + outcome.explanations,
        )
    return plan


def _plan_gpu(
    gpu: Gpu, target: GpuTarget, pinned: Sequence[Pinned], allowed: Allowed
) -> LayoutPlan | Refusal:
    """One GPU: first MIG mode, then its instances."""
    if not gpu.mig.supported:
        if target.mig_enabled or target.instances:
            return refuse.no_mig(gpu)
        return LayoutPlan(explanations=((target.gpu_uuid, f"{gpu} has no MIG, as asked"),))
    if not target.mig_enabled and target.instances:
        return refuse.instances_without_mig(gpu)
    if _changes_mode(gpu, target) and (users := list_whole_users(gpu)):
        return refuse.mode_in_use(gpu, target.mig_enabled, users)
    pins = merge_pins(gpu, pinned, list_process_pins(gpu))
    if target.mig_enabled and target.instances is None:
        return _finish(gpu, make_board(gpu), target, None)
    board = make_board(gpu)
    wanted = read_wanted(gpu, board, target.instances or ())
    if isinstance(wanted, Refusal):
        return wanted
    solution = Problem(gpu, board, wanted, split_held(pins, allowed)).solve()
    if solution is None:
        return _explain_none(gpu, board, target, wanted, pins)
    if full := _find_full(gpu, board, solution):
        return refuse.driver_full(gpu, full)
    return _finish(gpu, board, target, solution)


def _explain_none(
    gpu: Gpu, board: Board, target: GpuTarget, wanted: Sequence[Wanted], pins: Sequence[Pinned]
) -> Refusal:
    """Would it be possible if nobody held anything? Then that is the plan to offer."""
    everyone = {pin.key for pin in pins}
    solution = Problem(gpu, board, wanted, split_held(pins, everyone)).solve()
    if solution is None:
        return refuse.impossible(gpu, board, wanted)
    return refuse.busy(gpu, solution.touched, _finish(gpu, board, target, solution))


def _finish(gpu: Gpu, board: Board, target: GpuTarget, solution: Solution | None) -> LayoutPlan:
    steps = list_steps(gpu, board, target, solution, changes_mode=_changes_mode(gpu, target))
    sentence = explain(gpu, board, target, solution, steps)
    return LayoutPlan(steps, _count(steps, solution, gpu), ((target.gpu_uuid, sentence),))


def _count(steps: Sequence[MigStepSpec], solution: Solution | None, gpu: Gpu) -> PlanCost:
    kinds = [step.kind for step in steps]
    return PlanCost(
        disruptions=len(solution.touched) if solution else 0,
        gi_destroys=kinds.count(StepKind.GI_DESTROY),
        gi_creates=kinds.count(StepKind.GI_CREATE),
        ci_destroys=kinds.count(StepKind.CI_DESTROY),
        ci_creates=kinds.count(StepKind.CI_CREATE),
        mode_changes=kinds.count(StepKind.MODE_ENABLE) + kinds.count(StepKind.MODE_DISABLE),
        kept=len(solution.kept) if solution else len(gpu.instances),
    )


def _changes_mode(gpu: Gpu, target: GpuTarget) -> bool:
    """Also where the mode is right and a pending request would change it at the next reset."""
    return not gpu.mig.current == gpu.mig.pending == target.mig_enabled


def list_whole_users(gpu: Gpu) -> list[str]:
    """Processes on the GPU as a whole: while there is one, MIG mode does not change."""
    return [str(p) for p in gpu.processes if p.gpu_instance_id is None]


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
