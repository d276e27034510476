"""Remembering a layout for the next boot: the last step of the operation that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from vgpumgr.model.codec import decode, encode
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.plan.journal import Event
from vgpumgr.plan.layout_record import DesiredLayout, LayoutStore, make_desired
from vgpumgr.plan.layout_world import LayoutWorld
from vgpumgr.plan.record import AttachmentRecord


@dataclass(frozen=True)
class Spared:
    """A place on a GPU whose slices are an attachment's, which has a record of its own."""

    gpu: GpuUuid
    placement: Placement


@dataclass(frozen=True)
class RememberLayouts:
    """Writes down what some GPUs look like by then. It is the last step: an operation that has done it is
    complete, and one that has not is undone.
    """

    gpus: tuple[GpuUuid, ...]
    #: what was remembered of them before
    earlier: tuple[DesiredLayout, ...] = ()
    spared: tuple[Spared, ...] = ()
    kind: ClassVar[str] = "layout.remember"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return cast(Mapping[str, object], encode(self))

    def describe(self) -> str:
        """For people."""
        return "remember the layout for the next boot"

    def do(self, world: LayoutWorld) -> None:
        """Writes all as one. Raises StoreError."""
        now_s = world.clock.wall_s()
        world.layouts.save_layouts(
            [
                make_desired(
                    gpu.uuid, gpu.mig.current, gpu.instances, self._list_spared(gpu), now_s
                )
                for gpu in world.nvml.read_inventory().gpus
                if gpu.uuid in self.gpus
            ]
        )

    def undo(self, world: LayoutWorld) -> None:
        """Writes what was remembered before. Raises StoreError."""
        if self.observe(world):
            known = {layout.gpu for layout in self.earlier}
            world.layouts.save_layouts(self.earlier, set(self.gpus) - known)

    def observe(self, world: LayoutWorld) -> bool:
        """Whether anything else is remembered than before."""
        return self.is_remembered(world.layouts)

    def is_remembered(self, layouts: LayoutStore) -> bool:
        """As ``observe``; another save of the same is told by its time."""
        now = layouts.read_layouts()
        found = [now[gpu] for gpu in sorted(self.gpus) if gpu in now]
        return found != sorted(self.earlier, key=lambda layout: layout.gpu)

    def _list_spared(self, gpu: Gpu) -> list[Placement]:
        return [spared.placement for spared in self.spared if spared.gpu == gpu.uuid]


def list_spared(records: Sequence[AttachmentRecord]) -> tuple[Spared, ...]:
    """Where attachments have their slices."""
    return tuple(Spared(r.gpu, r.placement) for r in records if r.gpu and r.placement)


def read_remembering(target: Mapping[str, Any]) -> RememberLayouts:
    """The step as its ``target`` in the journal says it."""
    return decode(RememberLayouts, target)


def find_begun(events: Sequence[Event]) -> RememberLayouts | None:
    """That step of an interrupted operation, if it may have happened."""
    rows = events[0].data.get("steps", ())
    begun = sorted({int(e.data["step"]) for e in events if e.event == "intent"})
    targets = (rows[n]["target"] for n in begun if rows[n]["kind"] == RememberLayouts.kind)
    return next(map(read_remembering, targets), None)


def is_through(events: Sequence[Event], layouts: LayoutStore) -> bool:
    """Whether an interrupted operation has remembered its layout, and nothing is being undone: only its
    end is missing.
    """
    step = find_begun(events)
    undone = any(e.event == "undo" for e in events)
    return step is not None and not undone and step.is_remembered(layouts)
