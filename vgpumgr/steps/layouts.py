"""Steps of a change of layout besides those on MIG: it is remembered for the next boot, and attachments whose slices
it destroys get others.

A record that still names a slice that is gone would, once the driver gives its id again, name another's. So the records
change in the same operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import OneWayStep, Step
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, MigInstanceRef
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import (
    DesiredLayout,
    LayoutStore,
    Placement,
    make_desired,
)

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext
    from vgpumgr.engine.recovery import Unfinished


@dataclass(frozen=True)
class RememberLayouts(Step):
    """Writes down what some GPUs look like by then. It is the last step: an operation that has done it is
    complete, and one that has not is undone.

    ``changed``: of what was remembered only what is at these places changes, so that other differences stay
    differences; empty: all of it does. A GPU of which no instance was remembered is remembered as it is.
    """

    gpus: tuple[GpuUuid, ...]
    #: what was remembered of them before
    earlier: tuple[DesiredLayout, ...] = ()
    changed: tuple[tuple[GpuUuid, Placement], ...] = ()
    kind: ClassVar[str] = "layout.remember"

    def describe(self) -> str:
        """For people."""
        return "remember the layout for the next boot"

    def do(self, context: OperationContext) -> None:
        """Writes all as one. Raises StoreError."""
        now_s = context.clock.wall_s()
        # an attachment's slice has a record of its own: where it is by now
        records = context.attachment_store.list_attachments()
        spared = [(r.gpu, r.placement) for r in records if not r.is_taken]
        found = [
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
        context.layout_store.save_layouts([self._keep_others(layout) for layout in found])

    def _keep_others(self, now: DesiredLayout) -> DesiredLayout:
        before = next((layout for layout in self.earlier if layout.gpu == now.gpu), None)
        places = [place for gpu, place in self.changed if gpu == now.gpu]
        if before is None or not before.instances or not places:
            return now
        kept = [i for i in before.instances if not any(i.placement.overlaps(p) for p in places)]
        new = [i for i in now.instances if i.placement in places]
        return replace(now, instances=tuple(sorted((*kept, *new), key=lambda i: i.placement)))

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


def is_through(found: Unfinished, layouts: LayoutStore) -> bool:
    """Whether an interrupted operation has remembered its layout, and nothing is being undone: only its
    end is missing.
    """
    undone = any(event.event == "undo" for event in found.events)
    steps = [step for step in found.begun if isinstance(step, RememberLayouts)]
    return not undone and any(step.is_remembered(layouts) for step in steps)


@dataclass(frozen=True)
class _OfAttachments(Step):
    attachments: tuple[str, ...]

    def list_records(self, context: OperationContext) -> list[AttachmentRecord]:
        """Those of them that there are."""
        return [r for r in context.attachment_store.list_attachments() if r.id in self.attachments]

    def rebind(self, context: OperationContext, *, taken: bool | None = None) -> None:
        """Writes which slice each has now; one for which there is none is to be detached. ``taken``: whether
        these are the layout's; None: as before.
        """
        gpus = context.nvml.read_inventory().gpus
        for record in self.list_records(context):
            found = find_slice(gpus, record, context.attachment_store.list_attachments())
            if found is None:
                changed = replace(record, state=AttachmentState.DETACHING)
            else:
                changed = replace(
                    record.with_mig(
                        placement=found.placement,
                        ref=found,
                        gpu_instance_id=found.gpu_instance_id,
                        taken=record.is_taken if taken is None else taken,
                    ),
                    state=AttachmentState.ATTACHED,
                )
            if changed != record:
                context.attachment_store.save_attachment(changed)


@dataclass(frozen=True)
class ReleaseSlices(_OfAttachments):
    """The first step: ends the workers, which hold the slices."""

    kind: ClassVar[str] = "attachment.release-slices"

    def describe(self) -> str:
        """For people."""
        return f"end the workers of {', '.join(self.attachments)}"

    def do(self, context: OperationContext) -> None:
        """Stops their channels."""
        for attachment in self.attachments:
            context.channels.stop(attachment)

    def undo(self, context: OperationContext) -> None:
        """After everything else was undone: the slices are back, with other ids. Their keepers are started by the
        command that applies the layout, or by ``recover``.
        """
        self.rebind(context)

    def observe(self, context: OperationContext) -> bool:
        """Whether one of them has no keeper."""
        return any(context.channels.read_status(id_) is None for id_ in self.attachments)


@dataclass(frozen=True)
class TakeSlices(_OfAttachments, OneWayStep):
    """The last step but the remembering: gives each a slice of its profile that is there now, and that stays the
    layout's.
    """

    kind: ClassVar[str] = "attachment.take-slices"

    def describe(self) -> str:
        """For people."""
        return f"find slices for {', '.join(self.attachments)}"

    def do(self, context: OperationContext) -> None:
        """Writes what is found."""
        self.rebind(context, taken=True)

    def observe(self, context: OperationContext) -> bool:
        """Whether each has a slice that is there, or is to be detached."""
        gpus = context.nvml.read_inventory().gpus
        return all(
            record.state is AttachmentState.DETACHING
            or (record.mig is not None and _is_there(gpus, record))
            for record in self.list_records(context)
        )


def find_slice(
    gpus: Sequence[Gpu], record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> MigInstanceRef | None:
    """A slice of the record's profile on its GPU that nobody has; best at its old place."""
    name = record.mig_profile
    taken = {r.mig.uuid for r in records if r.mig and r.id != record.id}
    found = [
        MigInstanceRef(instance.id, compute.id, instance.placement, compute.uuid)
        for gpu in gpus
        if gpu.uuid == record.gpu
        for instance in gpu.instances
        if instance.profile == name.gpu_instance
        and not any(process.gpu_instance_id == instance.id for process in gpu.processes)
        for compute in instance.compute_instances
        if compute.uuid is not None
        and compute.uuid not in taken
        and compute.slices == (name.compute_slices or instance.slices)
    ]
    return min(found, key=lambda ref: ref.placement != record.placement, default=None)


def _is_there(gpus: Sequence[Gpu], record: AttachmentRecord) -> bool:
    return any(
        instance.placement == record.placement
        and record.mig is not None
        and any(compute.uuid == record.mig.uuid for compute in instance.compute_instances)
        for gpu in gpus
        if gpu.uuid == record.gpu
        for instance in gpu.instances
    )
