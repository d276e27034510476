"""Remembering a layout for the next boot: the last step of the operation that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.journal import Event
from vgpumgr.engine.step import Step, decode_step
from vgpumgr.model.desired_layout import DesiredLayout, LayoutStore, make_desired
from vgpumgr.model.identity import GpuUuid

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


@dataclass(frozen=True)
class RememberLayouts(Step):
    """Writes down what some GPUs look like by then. It is the last step: an operation that has done it is
    complete, and one that has not is undone.
    """

    gpus: tuple[GpuUuid, ...]
    #: what was remembered of them before
    earlier: tuple[DesiredLayout, ...] = ()
    kind: ClassVar[str] = "layout.remember"

    def describe(self) -> str:
        """For people."""
        return "remember the layout for the next boot"

    def do(self, context: OperationContext) -> None:
        """Writes all as one. Raises StoreError."""
        now_s = context.clock.wall_s()
        # an attachment's slice has a record of its own: where it is by now
        spared = [(r.gpu, r.placement) for r in context.attachment_store.list_attachments()]
        context.layout_store.save_layouts(
            [
                make_desired(
                    gpu.uuid,
                    gpu.mig.current,
                    gpu.instances,
                    [place for owner, place in spared if owner == gpu.uuid and place is not None],
                    now_s,
                )
                for gpu in context.nvml.read_inventory().gpus
                if gpu.uuid in self.gpus
            ]
        )

    def undo(self, context: OperationContext) -> None:
        """Writes what was remembered before. Raises StoreError."""
        if self.observe(context):
            known = {layout.gpu for layout in self.earlier}
            context.layout_store.save_layouts(self.earlier, set(self.gpus) - known)

    def observe(self, context: OperationContext) -> bool:
        """Whether anything else is remembered than before."""
        return self.is_remembered(context.layout_store)

    def is_remembered(self, layouts: LayoutStore) -> bool:
        """As ``observe``; another save of the same is told by its time."""
        now = layouts.read_layouts()
        found = [now[gpu] for gpu in sorted(self.gpus) if gpu in now]
        return found != sorted(self.earlier, key=lambda layout: layout.gpu)


def find_begun(events: Sequence[Event]) -> RememberLayouts | None:
    """That step of an interrupted operation, if it may have happened."""
    rows = events[0].data.get("steps", ())
    begun = sorted({int(e.data["step"]) for e in events if e.event == "intent"})
    steps = (decode_step(rows[n]) for n in begun if rows[n]["kind"] == RememberLayouts.kind)
    return next((step for step in steps if isinstance(step, RememberLayouts)), None)


def is_through(events: Sequence[Event], layouts: LayoutStore) -> bool:
    """Whether an interrupted operation has remembered its layout, and nothing is being undone: only its
    end is missing.
    """
    step = find_begun(events)
    undone = any(e.event == "undo" for e in events)
    return step is not None and not undone and step.is_remembered(layouts)
