"""Doing a plan's steps on paper, with everything checked that a driver would check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.support.layout_oracle import Cell, Layout
from vgpumgr.mig.layout.board import make_board
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement

# Sizes of compute instances and where they can start, by slices of the GPU instance: the counts of
# NVIDIA's guide (3g: 3x1c, 1x2c, 1x3c; 4g: 4x1c, 2x2c, 1x4c; 7g: 7x1c, 3x2c, 2x3c, 1x4c, 1x7c).
STARTS: dict[int, dict[int, tuple[int, ...]]] = {
    1: {1: (0,)},
    2: {1: (0, 1), 2: (0,)},
    3: {1: (0, 1, 2), 2: (0,), 3: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)},
    7: {1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)},
}


@dataclass
class Instance:
    """A GPU instance on paper: its cell, slices, and compute instances by id."""

    cell: Cell
    slices: int
    compute: dict[int, Placement]


class Paper:
    """One GPU on paper."""

    def __init__(self, gpu: Gpu, layouts: Iterable[Layout]) -> None:
        self.layouts = layouts
        self.profiles = {str(p.name): p for p in gpu.profiles}
        self.on = gpu.mig.current
        self.instances: dict[object, Instance] = {
            i.id: Instance(
                (str(i.profile), i.placement.start),
                i.slices,
                {c.id: c.placement or Placement(0, c.slices) for c in i.compute_instances},
            )
            for i in gpu.instances
        }
        self.destroyed: set[object] = set()

    @property
    def layout(self) -> Layout:
        """The cells of what is there now."""
        return frozenset(instance.cell for instance in self.instances.values())

    def sizes(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Profile, start and the sizes of the compute instances of each GPU instance."""
        return sorted(
            (*i.cell, tuple(sorted((p.size for p in i.compute.values()), reverse=True)))
            for i in self.instances.values()
        )

    def run(self, steps: Sequence[MigStepSpec]) -> None:
        """All steps; fails at the first that a driver would refuse."""
        for step in steps:
            getattr(self, step.kind.name.lower())(step)

    def mode_enable(self, _step: MigStepSpec) -> None:
        assert not self.instances
        self.on = True

    def mode_disable(self, _step: MigStepSpec) -> None:
        assert not self.instances, "instances are destroyed one by one first"
        self.on = False

    def gi_create(self, step: MigStepSpec) -> None:
        assert self.on
        assert step.profile is not None
        assert step.placement is not None, "always at an explicit place"
        profile = self.profiles[step.profile]
        assert step.placement in profile.placements
        assert step.key not in self.instances
        cell = (step.profile, step.placement.start)
        self.instances[step.key] = Instance(cell, profile.slices, {})
        assert self.layout in self.layouts, "valid at every moment"

    def gi_destroy(self, step: MigStepSpec) -> None:
        gone = self.instances.pop(step.instance_id)
        assert not gone.compute, "its compute instances go first"
        assert step.placement is not None
        assert gone.cell == (step.profile, step.placement.start)
        self.destroyed.add(step.instance_id)

    def ci_create(self, step: MigStepSpec) -> None:
        owner = self._find(step)
        place = step.placement
        assert place is not None
        starts = STARTS[owner.slices][place.size]
        free = [
            start
            for start in starts
            if not any(Placement(start, place.size).overlaps(p) for p in owner.compute.values())
        ]
        assert place.start in starts
        assert place.start == free[0], "also where a driver would put it by itself"
        owner.compute[max(owner.compute, default=-1) + 1] = place

    def ci_destroy(self, step: MigStepSpec) -> None:
        assert step.compute_instance_id is not None
        del self._find(step).compute[step.compute_instance_id]
        self.destroyed.add((step.instance_id, step.compute_instance_id))

    def _find(self, step: MigStepSpec) -> Instance:
        found = self.instances[step.key if step.instance_id is None else step.instance_id]
        assert step.parent_placement is not None
        assert found.cell == (step.parent_profile, step.parent_placement.start)
        return found


def list_kinds(steps: Sequence[MigStepSpec]) -> list[StepKind]:
    """What the steps do, in order."""
    return [step.kind for step in steps]


def count_room(gpu: Gpu) -> dict[str, int]:
    """How many more of each profile fit, as the planner's board counts it."""
    board = make_board(gpu)
    counts = board.list_packable(board.read_layout(gpu.instances))
    return {str(p.name): n for p, n in zip(board.profiles, counts, strict=True)}
