"""Bringing the slices of attachments back: their instances, and in the same operation their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.slice import MigInstanceRef
from vgpumgr.plan.journal import Event
from vgpumgr.plan.layout_plan import BIND, make_plan
from vgpumgr.plan.layout_world import LayoutWorld
from vgpumgr.plan.record import AttachmentRecord, AttachmentStore
from vgpumgr.plan.restore import list_records, rebind
from vgpumgr.plan.step import Plan


@dataclass
class RestoreWorld(LayoutWorld):
    """A layout's world that knows the attachments, too."""

    _: KW_ONLY
    store: AttachmentStore


@dataclass(frozen=True)
class BindSlices:
    """Writes into the attachments at one place which instances are theirs now. It belongs to the
    operation that makes these: one that is interrupted before is undone, and nobody's instances stay.
    """

    gpu: GpuUuid
    placement: Placement
    kind: ClassVar[str] = BIND

    @property
    def target(self) -> Mapping[str, object]:
        """The place."""
        place = {"start": self.placement.start, "size": self.placement.size}
        return {"kind": self.kind, "gpu": str(self.gpu), "placement": place}

    def describe(self) -> str:
        """For people."""
        return f"note whose the slices at {self.placement} on {self.gpu} are"

    def do(self, world: RestoreWorld) -> None:
        """Writes all that changed as one."""
        if changed := self._list_changed(world):
            world.store.save_attachments(changed)

    def undo(self, world: RestoreWorld) -> None:
        """Nothing: what was noted goes with the instances, and the next restore binds anew."""

    def observe(self, world: RestoreWorld) -> bool:
        """Whether all of them say what is there."""
        return not self._list_changed(world)

    def _list_changed(self, world: RestoreWorld) -> list[AttachmentRecord]:
        records = world.store.list_attachments()
        found = rebind({self.gpu: world.nvml.list_gpu_instances(self.gpu)}, records)
        return [
            bind(record, ref)
            for record in list_records(records)
            if (record.gpu, record.placement) == (self.gpu, self.placement)
            and (ref := found[record.id]) is not None
            and ref != record.mig
        ]


def bind(record: AttachmentRecord, ref: MigInstanceRef) -> AttachmentRecord:
    """The record with its slice as it is now."""
    return record.with_mig(ref=ref, gpu_instance_id=ref.gpu_instance_id)


def make_restore_plan(piece: LayoutPlan, records: Sequence[AttachmentRecord]) -> Plan[RestoreWorld]:
    """The plan for a piece of a restore; where attachments have their slices there, it ends with theirs."""
    plan = make_plan(piece)
    spec = piece.steps[0]
    place = spec.parent_placement or spec.placement
    mine = [r for r in list_records(records) if (r.gpu, r.placement) == (spec.gpu_uuid, place)]
    more = (BindSlices(GpuUuid(spec.gpu_uuid), place),) if mine and place is not None else ()
    return Plan(
        plan.operation, plan.subject, (*plan.steps, *more), notes=plan.notes, repair=plan.repair
    )


def is_complete(events: Sequence[Event]) -> bool:
    """Whether an interrupted operation has bound the slices that it made: only its end is missing."""
    return any(e.event == "done" and e.data.get("kind") == BIND for e in events)
