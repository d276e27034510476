"""Where a compute instance goes in a GPU instance that may have others."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.mig.layout.compute import list_places, list_present
from vgpumgr.model.mig import GpuInstance, Placement


def present_places(instance: GpuInstance) -> tuple[Placement, ...]:
    """The places that are taken; where the driver states none, as if packed upwards."""
    return tuple(place for _, place in list_present(instance))


def find_compute_place(slices: int, size: int, taken: Sequence[Placement]) -> Placement | None:
    """The lowest free place for one of that size, where a driver that is not told would put it, too."""
    for place in list_places(slices, size):
        if not any(place.overlaps(other) for other in taken):
            return place
    return None
