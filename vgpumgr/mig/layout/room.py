"""What room a GPU has, and why a profile cannot be had now: which rule, whose slice, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from vgpumgr.mig.layout.board import Board, iterate_bits, make_board
from vgpumgr.mig.layout.change import unique
from vgpumgr.mig.layout.pins import list_process_pins, merge_pins
from vgpumgr.mig.layout.refusal import unknown_profile
from vgpumgr.mig.layout.solver import bit_of
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An instance that is in the way, with who holds it; nobody where ``holders`` is empty."""

    instance: GpuInstance
    holders: tuple[str, ...]

    def __str__(self) -> str:
        who = " and ".join(self.holders) or "nobody uses it"
        return f"{self.instance.profile} at {self.instance.placement} ({who})"


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one GPU can have one more instance of a profile now, and if not, why not.

    ``places`` are where it fits; ``rules`` which rules forbid it; ``remove`` the fewest instances
    whose removal would make room, unused ones first. ``kept`` are instances that are not there, but
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


def read_layout(gpu: Gpu, board: Board) -> int:
    """The GPU's instances as cells of its board."""
    return sum(bit_of(gpu, board, instance) for instance in gpu.instances)


def _explain_gpu(gpu: Gpu, name: MigProfileName, pinned: Sequence[Pinned]) -> Answer:
    if not gpu.mig.supported:
        return Answer(gpu, (), (f"{gpu.model} has no MIG",))
    board = make_board(gpu)
    profile = board.find(name)
    if profile is None:
        return Answer(gpu, (), (unknown_profile(gpu, name).sentence,))
    if gpu.mig.current != gpu.mig.pending:
        word = "on" if gpu.mig.pending else "off"
        return Answer(gpu, (), (f"a reset of the GPU is to turn MIG mode {word}",))
    if not gpu.mig.current and gpu.processes:
        users = ", ".join(unique(str(p) for p in gpu.processes))
        return Answer(gpu, (), (f"MIG mode is off and does not change while {users} uses the GPU",))
    return _explain_room(gpu, board, profile, merge_pins(gpu, pinned, list_process_pins(gpu)))


def _explain_room(gpu: Gpu, board: Board, profile: int, pins: Sequence[Pinned]) -> Answer:
    layout = read_layout(gpu, board)
    if places := list_places(board, layout, profile):
        if gpu.mig.current and any(
            p.id == board.profiles[profile].id and p.remaining == 0 for p in gpu.profiles
        ):
            rule = f"the driver reports that no further {board.profiles[profile].name} fits"
            return Answer(gpu, (), (rule,))
        return Answer(gpu, places, needs_mig_mode=not gpu.mig.current)
    obstacles = [Obstacle(i, _list_holders(i, pins)) for i in gpu.instances]
    remove = _find_removal(gpu, board, profile, obstacles)
    return Answer(gpu, (), _list_rules(board, layout, profile), remove)


def list_places(board: Board, layout: int, profile: int) -> tuple[Placement, ...]:
    """Every place where one more of the profile fits beside a layout."""
    if not board.list_packable(layout)[profile]:
        return ()
    taken = 0
    for index in iterate_bits(layout):
        taken |= board.cells[index].memory
    return tuple(c.placement for c in board.cells if c.profile == profile and not c.memory & taken)


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


def _find_removal(
    gpu: Gpu, board: Board, profile: int, obstacles: Sequence[Obstacle]
) -> tuple[Obstacle, ...]:
    """The instances without which there is room: the fewest held ones, then the fewest, then the
    smallest.
    """
    layout = read_layout(gpu, board)
    found = []
    for count in range(1, len(obstacles) + 1):
        for group in combinations(obstacles, count):
            gone = sum(bit_of(gpu, board, o.instance) for o in group)
            if board.list_packable(layout & ~gone)[profile]:
                found.append(group)
    if not found:
        return ()
    return min(
        found,
        key=lambda group: (
            sum(bool(o.holders) for o in group),
            len(group),
            sum(o.instance.slices for o in group),
        ),
    )
