"""Whether a GPU has capacity for one more instance of a profile, why not, and which moves would make it.

A move destroys an instance and creates the same elsewhere on its GPU. Running holders stay where they are. An instance
without a holder, or of VMs that are shut off, can move: the VM finds its slice at the new place when it starts. Where
moving is not enough, instances without a holder may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from vgpumgr.mig.layout.board import Board, make_board
from vgpumgr.mig.layout.change import LayoutPlan, PlanCost, list_steps, unique
from vgpumgr.mig.layout.compute import Sizes
from vgpumgr.mig.layout.planner import unknown_profile
from vgpumgr.mig.layout.solver import Held, Problem, Solution, Wanted
from vgpumgr.mig.layout.target import GpuTarget, Pinned, list_process_pins, merge_pins
from vgpumgr.mig.placement import refuse_mode
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An instance that is in the way, with its holders; it is unused where ``holders`` is empty."""

    instance: GpuInstance
    holders: tuple[str, ...]

    def __str__(self) -> str:
        who = " and ".join(self.holders) or "nobody uses it"
        return f"{self.instance.profile} at {self.instance.placement} ({who})"


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one GPU can have one more instance of a profile now, and if not, why not.

    ``places`` are where it fits; ``rules`` which rules forbid it; ``remove`` the fewest instances
    whose removal would make it fit, unused ones first. ``kept`` are instances that are not there, but
    whose places are kept for their holders.
    """

    gpu: Gpu
    places: tuple[Placement, ...]
    rules: tuple[str, ...] = ()
    remove: tuple[Obstacle, ...] = ()
    needs_mig_mode: bool = False
    kept: tuple[Obstacle, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it can be had now."""
        return bool(self.places)

    @property
    def sentence(self) -> str:
        """The answer as an administrator reads it."""
        if self.fits:
            mode = " once MIG mode is on, which attaching does" if self.needs_mig_mode else ""
            return f"fits at {', '.join(map(str, self.places))}{mode}"
        text = "does not fit: " + "; ".join(self.rules)
        if self.kept:
            text += f"; not there, but kept until vgpumgr restore: {', '.join(map(str, self.kept))}"
        ways = [
            f"{word} {', '.join(map(str, some))}"
            for word, some in (("removing", self.removed), ("giving up", self.given_up))
            if some
        ]
        return f"{text}; room would come from {' and '.join(ways)}" if ways else text

    @property
    def removed(self) -> tuple[Obstacle, ...]:
        """Those of ``remove`` that are there."""
        return tuple(one for one in self.remove if one not in self.kept)

    @property
    def given_up(self) -> tuple[Obstacle, ...]:
        """Those of ``remove`` whose places are only kept."""
        return tuple(one for one in self.remove if one in self.kept)


def explain_profile(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    pinned: Sequence[Pinned] = (),
    kept: Sequence[Pinned] = (),
) -> list[Answer]:
    """Why, GPU by GPU; those where it fits first. ``kept``: who has the places that are kept, where
    ``gpus`` have them as if the instances were there.
    """
    answers = [_with_kept(_explain_gpu(gpu, name, [*pinned, *kept]), kept) for gpu in gpus]
    return sorted(answers, key=lambda answer: not answer.fits)


def _with_kept(answer: Answer, kept: Sequence[Pinned]) -> Answer:
    pins = merge_pins(answer.gpu, kept)
    ids = {pin.instance_id for pin in pins}
    found = [Obstacle(i, _list_holders(i, pins)) for i in answer.gpu.instances if i.id in ids]
    return replace(answer, kept=tuple(found)) if found else answer


def _explain_gpu(gpu: Gpu, name: MigProfileName, pinned: Sequence[Pinned]) -> Answer:
    if not gpu.mig.supported:
        return Answer(gpu, (), (f"{gpu.model} has no MIG",))
    board = make_board(gpu)
    profile = board.find(name)
    if profile is None:
        return Answer(gpu, (), (unknown_profile(gpu, name).sentence,))
    if refusal := refuse_mode(gpu):
        return Answer(gpu, (), (refusal.reason,))
    return _explain_room(gpu, board, profile, merge_pins(gpu, pinned, list_process_pins(gpu)))


def _explain_room(gpu: Gpu, board: Board, profile: int, pins: Sequence[Pinned]) -> Answer:
    layout = board.read_layout(gpu.instances)
    if places := board.list_places(layout, profile):
        if gpu.mig.current and any(
            p.id == board.profiles[profile].id and p.remaining == 0 for p in gpu.profiles
        ):
            rule = f"the driver reports that no further {board.profiles[profile].name} fits"
            return Answer(gpu, (), (rule,))
        return Answer(gpu, places, needs_mig_mode=not gpu.mig.current)
    held = {instance.id: _list_holders(instance, pins) for instance in gpu.instances}
    # the fewest held ones, then the fewest, then the smallest
    remove = min(
        board.list_removals(gpu.instances, profile),
        key=lambda g: (sum(bool(held[i.id]) for i in g), len(g), sum(i.slices for i in g)),
        default=(),
    )
    obstacles = tuple(Obstacle(instance, held[instance.id]) for instance in remove)
    return Answer(gpu, (), _list_rules(board, layout, profile), obstacles)


def _list_rules(board: Board, layout: int, profile: int) -> tuple[str, ...]:
    """Budgets that would be exceeded, then geometry: which places are taken by what."""
    counts = list(board.count(layout))
    counts[profile] += 1
    rules = board.list_excesses(tuple(counts))
    if rules:
        rules = ["together with what is there, " + ", and ".join(rules)]
    cells = board.list_cells(layout)
    taken = []
    for place in (cell for cell in board.cells if cell.profile == profile):
        by = [cell for cell in cells if cell.memory & place.memory]
        if not by:
            return tuple(rules)
        names = " and ".join(f"{board.profiles[c.profile].name} at {c.placement}" for c in by)
        taken.append(f"{place.placement} by {names}")
    return (*rules, f"its places are taken: {', '.join(taken)}")


def _list_holders(instance: GpuInstance, pins: Sequence[Pinned]) -> tuple[str, ...]:
    return tuple(unique(pin.holder for pin in pins if pin.instance_id == instance.id))


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
    """How one GPU would get capacity for the profile.

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
    ``explain_profile`` has it: such a place is free for no other, and what it is kept for moves nowhere.
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
        wanted = [*(_want(board, instance) for instance in stay), new]
        solution = Problem(gpu, board, wanted, held).solve()
        option = _describe(answer, board, solution, profile, held) if solution else None
        if option is not None:
            return option
    return Option(gpu, answer)


def _list_removals(idle: Sequence[GpuInstance]) -> list[tuple[GpuInstance, ...]]:
    """Sets of unused instances, the smallest loss first; the first is none."""
    groups = [group for n in range(len(idle) + 1) for group in combinations(idle, n)]
    return sorted(groups, key=lambda group: (len(group), sum(i.slices for i in group)))


def _want(board: Board, instance: GpuInstance) -> Wanted:
    """An instance as it is, anywhere."""
    cell = board.list_cells(board.find_instance(instance))[0]
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
    # no running VM loses anything: there is no disruption
    plan = LayoutPlan(steps, PlanCost.of(steps, len(solution.kept)))
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
