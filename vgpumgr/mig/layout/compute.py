"""Compute instances inside one GPU instance: what fits, and which of those there are can stay.

Which sizes a GPU instance offers, and how many of each, is in NVIDIA's MIG user guide ("Compute
Instances"): 3g has 3x1c, 1x2c, 1x3c; 4g has 4x1c, 2x2c, 1x4c; 7g has 7x1c, 3x2c, 2x3c, 1x4c, 1x7c.
That is a grid: 1c starts anywhere, 2c at even slices, 3c and 4c at multiples of four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.mig import ComputeInstance, GpuInstance, Placement

_GRID = {1: 1, 2: 2, 3: 4, 4: 4}
_OFFERED = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}

Sizes = tuple[int, ...]


def list_sizes(slices: int) -> Sizes:
    """Sizes of compute instances that a GPU instance of so many slices offers.

    Of a size that the guide does not describe, single slices and the whole are certain.
    """
    return _OFFERED.get(slices, tuple(sorted({1, slices})))


def list_places(slices: int, size: int) -> tuple[Placement, ...]:
    """Where a compute instance can be, in the slices of its GPU instance."""
    if size not in list_sizes(slices):
        return ()
    step = _GRID.get(size, slices)
    return tuple(Placement(start, size) for start in range(0, slices - size + 1, step))


@lru_cache(maxsize=4096)
def pack(slices: int, wanted: Sizes, taken: tuple[Placement, ...]) -> tuple[Placement, ...] | None:
    """Places for ``wanted`` beside ``taken``, in an order in which even a driver that always takes
    the lowest free place arrives at them. None where they do not fit.
    """
    if not wanted:
        return ()
    for size in sorted(set(wanted), reverse=True):
        free = [p for p in list_places(slices, size) if not any(p.overlaps(t) for t in taken)]
        if not free:
            return None
        left = list(wanted)
        left.remove(size)
        rest = pack(slices, tuple(left), tuple(sorted((*taken, free[0]))))
        if rest is not None:
            return (free[0], *rest)
    return None


@dataclass(frozen=True, slots=True)
class ComputeChange:
    """How the compute instances of one GPU instance become what is wanted."""

    kept: int
    destroy: tuple[ComputeInstance, ...] = ()
    create: tuple[Placement, ...] = ()
    touched: tuple[Pinned, ...] = ()
    """Held slices that this destroys."""


def plan_compute(
    instance: GpuInstance, wanted: Sizes, fixed: Sequence[Pinned], movable: Sequence[Pinned]
) -> ComputeChange | None:
    """The change that touches the fewest held, then destroys the fewest compute instances.

    ``fixed`` holders keep what they have; ``movable`` ones may lose it. None where it cannot be.
    """
    present = list_present(instance)
    if Counter(c.slices for c, _ in present) == Counter(wanted):
        return ComputeChange(kept=len(present))
    if any(pin.compute_instance_id is None for pin in fixed):
        return None
    fixed_ids = {pin.compute_instance_id for pin in fixed}
    best: tuple[tuple[int, int], ComputeChange] | None = None
    for count in range(min(len(present), len(wanted)), -1, -1):
        for kept in combinations(present, count):
            change = _try_kept(instance, wanted, present, kept, movable)
            if change is None or any(c.id in fixed_ids for c in change.destroy):
                continue
            rank = (len(change.touched), -count)
            if best is None or rank < best[0]:
                best = (rank, change)
    return best[1] if best else None


_Present = tuple[ComputeInstance, Placement]


def _try_kept(
    instance: GpuInstance,
    wanted: Sizes,
    present: Sequence[_Present],
    kept: Sequence[_Present],
    movable: Sequence[Pinned],
) -> ComputeChange | None:
    left = Counter(wanted)
    left.subtract(c.slices for c, _ in kept)
    if min(left.values(), default=0) < 0:
        return None
    sizes = tuple(sorted(left.elements(), reverse=True))
    create = pack(instance.slices, sizes, tuple(sorted(place for _, place in kept)))
    if create is None:
        return None
    staying = {c.id for c, _ in kept}
    destroy = tuple(c for c, _ in present if c.id not in staying)
    gone = {c.id for c in destroy}
    touched = tuple(
        pin for pin in movable if pin.compute_instance_id is None or pin.compute_instance_id in gone
    )
    return ComputeChange(len(kept), destroy, create, touched)


def list_present(instance: GpuInstance) -> list[_Present]:
    """Compute instances with their places; where the driver states none, as if packed upwards."""
    found: list[_Present] = []
    for compute in instance.compute_instances:
        place = compute.placement
        if place is None:
            taken = [p for _, p in found]
            free = [
                p
                for p in list_places(instance.slices, compute.slices)
                if not any(p.overlaps(t) for t in taken)
            ]
            place = free[0] if free else Placement(0, compute.slices)
        found.append((compute, place))
    return found
