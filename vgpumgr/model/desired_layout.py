"""The layout that a GPU is to have after the next boot: what ``mig layout apply`` left behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, Placement


@dataclass(frozen=True, slots=True)
class DesiredInstance:
    """A GPU instance at its place; ``compute`` are the places of its compute instances in it."""

    profile: str
    placement: Placement
    compute: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class DesiredLayout:
    """What one GPU is to look like, without the slices of attachments: those have records."""

    gpu: GpuUuid
    mig_enabled: bool
    instances: tuple[DesiredInstance, ...]
    saved_s: float


class LayoutStore(Protocol):
    """Remembers layouts. May raise StoreError."""

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """All, by the GPU's UUID."""

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Writes some, each in the place of that of the same GPU, and forgets those of other GPUs; all of
        it or nothing.
        """


class NoLayouts:
    """Remembers nothing: for operations that no boot repeats."""

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """None."""
        return {}

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Cannot."""
        raise TypeError(f"nobody remembers {len(layouts)} layouts, or forgets {len(forgotten)}")


def make_desired(
    gpu: GpuUuid,
    mig_enabled: bool,
    instances: Sequence[GpuInstance],
    spared: Collection[Placement],
    now_s: float,
) -> DesiredLayout:
    """The layout to remember of a GPU as it is now, without what is at places that are spared."""
    found = []
    for instance in instances:
        if instance.placement in spared:
            continue
        places = tuple(
            _place(instance, number) for number in range(len(instance.compute_instances))
        )
        found.append(DesiredInstance(str(instance.profile), instance.placement, places))
    return DesiredLayout(gpu, mig_enabled, tuple(found), now_s)


def _place(instance: GpuInstance, number: int) -> Placement:
    compute = instance.compute_instances[number]
    if compute.placement is not None:
        return compute.placement
    before = sum(c.slices for c in instance.compute_instances[:number])
    return Placement(before, compute.slices)
