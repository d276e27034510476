"""Making room for one more instance: which moves would do, and whom they cost nothing.

A move destroys an instance and creates the same elsewhere on its GPU. Running holders stay where
they are. An instance that nobody holds, or only VMs that are shut off, can move: the VM finds its
slice at the new place when it starts. Where moving is not enough, instances that nobody holds at
all may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from vgpumgr.mig.layout.board import Board, make_board
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, PlanCost, StepKind, unique
from vgpumgr.mig.layout.compute import Sizes
from vgpumgr.mig.layout.pins import list_process_pins, merge_pins
from vgpumgr.mig.layout.room import Answer, explain_profile
from vgpumgr.mig.layout.solver import Held, Problem, Solution, Wanted, bit_of
from vgpumgr.mig.layout.steps import list_steps
from vgpumgr.mig.layout.target import GpuTarget, Pinned
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement


@dataclass(frozen=True, slots=True)
class Move:
    """An instance that goes to another place; ``vms`` are the shut-off VMs whose slice it is.

    ``onto``: the unused instance of the same kind there, which takes its part; nothing is created.
    """

    instance: GpuInstance
    to: Placement
    vms: tuple[str, ...] = ()
    onto: GpuInstance | None = None

    def __str__(self) -> str:
        who = f" of {' and '.join(self.vms)}, which is shut off," if self.vms else ""
        kind = ", where an unused one takes its part" if self.onto else ""
        return (
            f"{self.instance.profile}{who} moves from {self.instance.placement} to {self.to}{kind}"
        )


@dataclass(frozen=True, slots=True)
class Option:
    """How one GPU would get room for the profile.

    ``plan`` None: it cannot without taking from running holders, and ``answer`` says whom.
    ``removed`` are unused instances that have to go. The plan ends with the new instance itself.
    """

    gpu: Gpu
    answer: Answer
    moves: tuple[Move, ...] = ()
    removed: tuple[GpuInstance, ...] = ()
    at: Placement | None = None
    plan: LayoutPlan | None = None

    @property
    def sentence(self) -> str:
        """The option as an administrator reads it."""
        if self.plan is None:
            return self.answer.sentence
        if self.answer.fits:
            return f"{self.answer.sentence}; nothing has to move"
        parts = [str(move) for move in self.moves]
        parts += [f"{i.profile} at {i.placement}, which nobody uses, goes" for i in self.removed]
        return f"{'; '.join(parts)}; then it fits at {self.at}"


def plan_defrag(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    running: Sequence[Pinned] = (),
    stopped: Sequence[Pinned] = (),
    kept: Sequence[Pinned] = (),
) -> list[Option]:
    """The options, GPU by GPU, the cheapest first; GPUs that cannot are last. ``kept`` as
    ``explain_profile`` has it: such a place is nobody else's, and what it is kept for moves nowhere.
    """
    answers = explain_profile(gpus, name, [*running, *stopped], kept)
    fixed = [*running, *kept]
    return sorted((_plan_gpu(answer, name, fixed, stopped) for answer in answers), key=_rank)


def _rank(option: Option) -> tuple[bool, int, int, int]:
    calls = option.plan.cost.calls if option.plan else 0
    return (option.plan is None, len(option.removed), calls, option.gpu.index)


def _plan_gpu(
    answer: Answer, name: MigProfileName, running: Sequence[Pinned], stopped: Sequence[Pinned]
) -> Option:
    gpu = answer.gpu
    board = make_board(gpu)
    profile = board.find(name)
    if profile is None or not gpu.mig.supported or (not answer.fits and not gpu.mig.current):
        return Option(gpu, answer)
    fixed = merge_pins(gpu, running, list_process_pins(gpu))
    held = Held(fixed, merge_pins(gpu, stopped))
    busy = {pin.instance_id for pin in (*held.fixed, *held.movable)}
    # an unused instance of the profile itself does not go: it is what is asked for
    id_ = board.profiles[profile].id
    idle = [i for i in gpu.instances if i.id not in busy and i.profile_id != id_]
    new = Wanted(profile, (board.profiles[profile].slices,))
    for removed in _list_removals(idle):
        stay = [instance for instance in gpu.instances if instance not in removed]
        wanted = [*(_want(gpu, board, instance) for instance in stay), new]
        solution = Problem(gpu, board, wanted, held).solve()
        option = _describe(answer, board, solution, profile, held) if solution else None
        if option is not None:
            return option
    return Option(gpu, answer)


def _list_removals(idle: Sequence[GpuInstance]) -> list[tuple[GpuInstance, ...]]:
    """Sets of unused instances, the smallest loss first; the first is none."""
    groups = [group for n in range(len(idle) + 1) for group in combinations(idle, n)]
    return sorted(groups, key=lambda group: (len(group), sum(i.slices for i in group)))


def _want(gpu: Gpu, board: Board, instance: GpuInstance) -> Wanted:
    """An instance as it is, anywhere."""
    cell = board.list_cells(bit_of(gpu, board, instance))[0]
    return Wanted(cell.profile, _sizes(instance))


def _describe(
    answer: Answer, board: Board, solution: Solution, profile: int, held: Held
) -> Option | None:
    """The solution as moves; None where a VM would not find its slice again."""
    gpu = answer.gpu
    moves, removed, at = _pair(board, solution, profile, held)
    if any(_list_vms(instance, solution.touched) for instance in removed):
        return None
    if not answer.fits and not solution.destroyed:
        # the driver knows a reason that our rules do not
        return None
    # a VM that is shut off loses nothing
    undisturbed = replace(solution, touched=())
    mode = not gpu.mig.current
    steps = list_steps(gpu, board, GpuTarget(gpu.uuid), undisturbed, changes_mode=mode)
    plan = LayoutPlan(steps, _count(steps, len(solution.kept)), ())
    return Option(gpu, answer, tuple(moves), tuple(removed), at, plan)


def _list_vms(instance: GpuInstance, pins: Sequence[Pinned]) -> tuple[str, ...]:
    return tuple(unique(pin.holder for pin in pins if pin.instance_id == instance.id))


def _pair(
    board: Board, solution: Solution, profile: int, held: Held
) -> tuple[list[Move], list[GpuInstance], Placement | None]:
    """Which destroyed instance is created again where, which is not, and where the new one is.

    Those that VMs have choose first, and may also get an unused instance that stays.
    """
    created = list(solution.created)
    busy = {pin.instance_id for pin in (*held.fixed, *held.movable)}
    unused = [i for i, c in solution.kept if i.id not in busy and not c.destroy and not c.create]
    moves: list[Move] = []
    removed: list[GpuInstance] = []
    for instance in sorted(solution.destroyed, key=lambda i: i.id not in busy):
        vms = _list_vms(instance, solution.touched)
        kind = (instance.profile_id, _sizes(instance))
        same = [pair for pair in created if (board.profiles[pair[0].profile].id, pair[1]) == kind]
        spare = [i for i in unused if vms and (i.profile_id, _sizes(i)) == kind]
        if same:
            created.remove(same[0])
            moves.append(Move(instance, same[0][0].placement, vms))
        elif spare:
            unused.remove(spare[0])
            moves.append(Move(instance, spare[0].placement, vms, spare[0]))
        else:
            removed.append(instance)
    rest = [cell.placement for cell, _ in created if cell.profile == profile]
    return moves, removed, rest[0] if rest else None


def _sizes(instance: GpuInstance) -> Sizes:
    return tuple(sorted((c.slices for c in instance.compute_instances), reverse=True))


def _count(steps: Sequence[MigStepSpec], kept: int) -> PlanCost:
    """Nobody who runs loses anything, so nothing here counts as a disruption."""
    kinds = [step.kind for step in steps]
    return PlanCost(
        gi_destroys=kinds.count(StepKind.GI_DESTROY),
        gi_creates=kinds.count(StepKind.GI_CREATE),
        ci_destroys=kinds.count(StepKind.CI_DESTROY),
        ci_creates=kinds.count(StepKind.CI_CREATE),
        mode_changes=kinds.count(StepKind.MODE_ENABLE),
        kept=kept,
    )
