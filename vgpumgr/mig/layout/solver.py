"""One GPU: of all layouts that hold what is wanted, the one that costs least.

Cost, in this order: held slices destroyed, GPU instances destroyed, created, compute instances
destroyed and created; then the capacity left, most first. What is destroyed and created follows from
what is kept, so the search is for the layout that keeps most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from vgpumgr.mig.layout.board import Board, Cell, Counts, iterate_bits
from vgpumgr.mig.layout.compute import ComputeChange, Sizes, plan_compute
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, Placement


@dataclass(frozen=True, slots=True)
class Wanted:
    """One instance that is wanted: profile as the board's index, sizes of its compute instances."""

    profile: int
    sizes: Sizes
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds what on the GPU: ``fixed`` keep it, ``movable`` may lose it."""

    fixed: tuple[Pinned, ...] = ()
    movable: tuple[Pinned, ...] = ()

    def of(self, instance: GpuInstance) -> tuple[list[Pinned], list[Pinned]]:
        """Those on one instance."""
        return (
            [pin for pin in self.fixed if pin.instance_id == instance.id],
            [pin for pin in self.movable if pin.instance_id == instance.id],
        )


@dataclass(frozen=True, slots=True)
class Solution:
    """What stays (with the change inside), what goes, what comes, and whom it costs a slice."""

    kept: tuple[tuple[GpuInstance, ComputeChange], ...]
    destroyed: tuple[GpuInstance, ...]
    created: tuple[tuple[Cell, Sizes], ...]
    touched: tuple[Pinned, ...]
    layout: int


_Change = tuple[int, Wanted, ComputeChange]
"""A kept cell, what it becomes, and how."""


@dataclass(frozen=True, slots=True)
class _Matching:
    """Which wanted instances the kept cells become, for one set of kept cells."""

    changes: tuple[_Change, ...]
    touched: int
    kept_compute: int


class Problem:
    """One GPU's instances, what is wanted of it and who holds what."""

    def __init__(self, gpu: Gpu, board: Board, wanted: Sequence[Wanted], held: Held) -> None:
        self.board = board
        self.wanted = tuple(wanted)
        self._held = held
        self._present = {board.find_instance(i): i for i in gpu.instances}
        self._now = sum(self._present)
        pinned = {pin.instance_id for pin in held.fixed}
        self._fixed = sum(bit for bit, i in self._present.items() if i.id in pinned)
        self._loss = {
            bit.bit_length() - 1: len(pins)
            for bit, instance in self._present.items()
            if (pins := held.of(instance)[1])
        }
        self._matchings: dict[int, _Matching | None] = {}
        self._changes: dict[tuple[int, Sizes], ComputeChange | None] = {}

    @property
    def counts(self) -> Counts:
        """How many of each profile are wanted."""
        return count_wanted(self.board, self.wanted)

    def solve(self) -> Solution | None:
        """The cheapest solution; None where no layout holds what is wanted beside what is fixed."""
        best: tuple[int, ...] | None = None
        ties: list[int] = []
        for bound, layouts in sorted(self._sort_candidates().items()):
            if best is not None and bound > best[:2]:
                break
            for layout in layouts:
                cost = self._rate(layout, bound)
                if cost is None or (best is not None and cost > best):
                    continue
                if cost != best:
                    best, ties = cost, []
                ties.append(layout)
        if best is None:
            return None
        return self._describe(min(ties, key=lambda x: (-self.board.measure_room(x), x)))

    def _sort_candidates(self) -> dict[tuple[int, int], list[int]]:
        """Candidates by what they cost at least."""
        found: dict[tuple[int, int], list[int]] = {}
        for layout in self._list_candidates():
            found.setdefault(self._bound(layout), []).append(layout)
        return found

    def _list_candidates(self) -> list[int]:
        asked = 0
        for one in self.wanted:
            if one.placement is not None:
                asked |= self.board.bit(one.profile, one.placement) or 0
        needed = asked | self._fixed
        found = [x for x in self.board.list_layouts(self.counts) if x & needed == needed]
        # what the hardware shows is possible, whatever our rules say of it
        if self.board.count(self._now) == self.counts and self._now & needed == needed:
            found = [x for x in found if x != self._now] + [self._now]
        return found

    def _bound(self, layout: int) -> tuple[int, int]:
        """What the layout costs at least: held slices lost with their instances, and what stays."""
        kept = layout & self._now
        if not self._loss:
            return (0, -kept.bit_count())
        lost = sum(self._loss.get(index, 0) for index in iterate_bits(self._now & ~kept))
        return (lost, -kept.bit_count())

    def _rate(self, layout: int, bound: tuple[int, int]) -> tuple[int, ...] | None:
        kept = layout & self._now
        if kept not in self._matchings:
            self._matchings[kept] = self._match(kept)
        matching = self._matchings[kept]
        if matching is None:
            return None
        lost, stays = bound
        return (lost + matching.touched, stays, -matching.kept_compute)

    def _match(self, kept: int) -> _Matching | None:
        """Gives each kept cell a wanted instance, so that the fewest compute instances change."""
        changes: list[_Change] = []
        by_profile: dict[int, list[int]] = {}
        for index in iterate_bits(kept):
            by_profile.setdefault(self.board.cells[index].profile, []).append(index)
        for profile, cells in by_profile.items():
            found = self._assign(cells, [one for one in self.wanted if one.profile == profile])
            if found is None:
                return None
            changes += found
        return _Matching(
            tuple(changes),
            sum(len(change.touched) for _, _, change in changes),
            sum(change.kept for _, _, change in changes),
        )

    def _assign(self, cells: Sequence[int], wanted: Sequence[Wanted]) -> list[_Change] | None:
        """Tries every different way; kinds of wanted instances are few."""
        if not cells:
            return []
        best: tuple[tuple[int, int], list[_Change]] | None = None
        index = cells[0]
        for one in self._list_suitable(index, wanted):
            change = self._change(index, one.sizes)
            if change is None:
                continue
            rest = self._assign(cells[1:], _without(wanted, one))
            if rest is None:
                continue
            found = [(index, one, change), *rest]
            rank = (
                sum(len(c.touched) for _, _, c in found),
                -sum(c.kept for _, _, c in found),
            )
            if best is None or rank < best[0]:
                best = (rank, found)
        return best[1] if best else None

    def _list_suitable(self, index: int, wanted: Sequence[Wanted]) -> list[Wanted]:
        """What is asked for at this very place, else what may be anywhere; each kind once."""
        placement = self.board.cells[index].placement
        here = [one for one in wanted if one.placement == placement]
        return here or list(dict.fromkeys(one for one in wanted if one.placement is None))

    def _change(self, index: int, sizes: Sizes) -> ComputeChange | None:
        key = (index, sizes)
        if key not in self._changes:
            instance = self._present[1 << index]
            self._changes[key] = plan_compute(instance, sizes, *self._held.of(instance))
        return self._changes[key]

    def _describe(self, layout: int) -> Solution:
        kept = layout & self._now
        matching = self._matchings[kept]
        if matching is None:
            raise ValueError("a layout that cannot be reached")
        changes = {index: change for index, _, change in matching.changes}
        gone = [self._present[1 << index] for index in iterate_bits(self._now & ~kept)]
        lost = [pin for instance in gone for pin in self._held.of(instance)[1]]
        lost += [pin for change in changes.values() for pin in change.touched]
        left = list(self.wanted)
        for _, one, _ in matching.changes:
            left.remove(one)
        return Solution(
            kept=tuple((self._present[1 << index], changes[index]) for index in iterate_bits(kept)),
            destroyed=tuple(gone),
            created=tuple(self._fill(layout & ~kept, left)),
            touched=tuple(lost),
            layout=layout,
        )

    def _fill(self, cells: int, left: list[Wanted]) -> list[tuple[Cell, Sizes]]:
        """Gives the new cells what is left to be wanted."""
        filled = []
        for index in iterate_bits(cells):
            cell = self.board.cells[index]
            fitting = [one for one in left if one.profile == cell.profile]
            one = self._list_suitable(index, fitting)[0]
            left = _without(left, one)
            filled.append((cell, one.sizes))
        return filled


def _without(wanted: Sequence[Wanted], one: Wanted) -> list[Wanted]:
    left = list(wanted)
    left.remove(one)
    return left


def count_wanted(board: Board, wanted: Sequence[Wanted]) -> Counts:
    """How many of each of the board's profiles."""
    counts = Counter(one.profile for one in wanted)
    return tuple(counts[index] for index in range(len(board.profiles)))


def split_held(pins: Sequence[Pinned], allowed: AbstractSet[tuple[str, int]]) -> Held:
    """Holders that keep their slices, and those that may lose them: never vGPUs and shares."""
    movable = [pin for pin in pins if pin.key in allowed and not pin.stays]
    return Held(
        fixed=tuple(pin for pin in pins if pin not in movable),
        movable=tuple(movable),
    )
