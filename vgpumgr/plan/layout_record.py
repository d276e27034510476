"""The layout that a GPU is to have after the next boot: what ``mig layout apply`` left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, Placement
from vgpumgr.plan.record import AttachmentRecord


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

    def save_layouts(self, layouts: Sequence[DesiredLayout]) -> None:
        """Writes some, each in the place of that of the same GPU; all of them or none."""


def make_desired(
    gpu: GpuUuid,
    mig_enabled: bool,
    instances: Sequence[GpuInstance],
    records: Sequence[AttachmentRecord],
    now_s: float,
) -> DesiredLayout:
    """The layout to remember of a GPU as it is now."""
    own = {r.placement for r in records if r.gpu == gpu}
    found = []
    for instance in instances:
        if instance.placement in own:
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
