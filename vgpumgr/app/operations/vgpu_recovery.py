"""Recovery of operations on vGPUs that a crash, or a removal that could not end yet, interrupted.

What was to be removed is removed; anything else is undone.

``VgpuFamily.repair`` writes to the store what a boot and mdevctl have changed meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.app.context import Parts
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.journal import Contents
from vgpumgr.engine.recovery import Family, Recovered, Report, Unfinished
from vgpumgr.errors import NvmlMissingError, VgpumgrError
from vgpumgr.mdev.records import follow_definitions
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.vgpu import make_inactive
from vgpumgr.planning.layouts import claim_begun
from vgpumgr.planning.vgpus import FORWARD, OPERATIONS
from vgpumgr.steps.layouts import is_through

#: of reports
SUBJECT = "vGPU"


def read_gpus(parts: Parts) -> tuple[Gpu, ...]:
    """NVML's GPUs; none on a host without NVML, which can have vGPUs all the same."""
    try:
        return parts.read_inventory().gpus
    except NvmlMissingError:
        return ()


class VgpuFamily(Family):
    """How interrupted operations on vGPUs are finished or undone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def repair(self, contents: Contents) -> list[Report]:
        """A boot takes every vGPU away, and mdevctl may have changed a definition; records that cannot be read are
        reported, and hinder nothing else.
        """
        # an operation that was interrupted between record and definition is recovered first
        begun = [events[0].data.get("operation") for events in contents.unfinished.values()]
        follow = not any(operation in OPERATIONS for operation in begun)
        try:
            texts = _repair_records(self._parts, follow=follow)
            return [Report(SUBJECT, text, is_note=True) for text in texts]
        except VgpumgrError as error:
            return [Report(SUBJECT, str(error), done=False)]

    def describe(self, found: Unfinished) -> tuple[str, str]:
        """Which operation on which vGPU."""
        return SUBJECT, f"the interrupted operation to {found.operation} {found.subject}"

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """Whichever helper it is: it does not say for which vGPU it works."""
        return not is_through(found, self._parts.store)

    def recover(self, found: Unfinished) -> Recovered:
        """What was to be removed is removed; anything else is undone."""
        name = self.describe(found)[1]
        if is_through(found, self._parts.store):
            return Recovered.describe(SUBJECT, f"{name} was complete", outcome="done")
        context = self._parts.make_context(gpus=read_gpus(self._parts))
        forward = found.operation in FORWARD
        # instances end with their boot: what stands in their places now is not of this operation
        rebooted = found.boot != self._parts.boot_id
        (_finish if forward else _undo)(context, found, rebooted)
        word = "finished" if forward else "undone"
        return Recovered.describe(SUBJECT, f"{name} was {word}", context.notes)


def _finish(context: OperationContext, found: Unfinished, rebooted: bool) -> None:
    done = {int(e.data["step"]) for e in found.events if e.event == "done"}
    for number, step in enumerate(found.steps):
        kept = rebooted and step.ends_with_boot
        if number not in done and not kept and not step.observe(context):
            step.do(context)


def _undo(context: OperationContext, found: Unfinished, rebooted: bool) -> None:
    steps = [step for step in found.begun if not (rebooted and step.ends_with_boot)]
    claim_begun(context.mig, steps)
    for step in reversed(steps):
        step.undo(context)  # also what may be half done: undoing is restartable


def _repair_records(parts: Parts, *, follow: bool) -> list[str]:
    """A boot takes every vGPU away: what is defined is only that now, the rest is simply gone. ``follow``: mdevctl's
    definitions say what is defined.

    What belongs to an attachment is the attachment's: its restore brings it back.
    """
    notes = []
    records = parts.vgpu_store.list_vgpus()
    for record, now in (
        follow_definitions(records, parts.vgpus) if follow else zip(records, records, strict=True)
    ):
        uuid = record.spec.uuid
        old = record.boot != parts.boot_id and record.takes_room and record.attachment is None
        if old and parts.vgpus.find_device(record.spec) is not None:
            continue  # mdevctl has been here first, or the boot id is not what it seems
        if now is None:
            parts.vgpu_store.delete_vgpu(uuid)
            notes.append(f"vGPU {uuid} is forgotten: its definition was removed by another program")
        elif old and now.defined:
            parts.vgpu_store.save_vgpu(make_inactive(now, lost=True))
        elif old:
            parts.vgpu_store.delete_vgpu(uuid)
            notes.append(f"vGPU {uuid} ended with the boot it was made in")
        elif now != record:
            # what is written has the present boot: that the vGPU is missing since an earlier one stays known
            lost = now.lost or (record.boot != parts.boot_id and not now.takes_room)
            parts.vgpu_store.save_vgpu(replace(now, lost=lost))
    return notes
