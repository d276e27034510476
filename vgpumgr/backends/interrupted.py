"""What the journal says of operations that a crash interrupted, and what follows from it: pure.

An attach is undone, unless only its last step (marking it attached) was missing; a detach that has
begun is finished. Steps whose intent was never journalled have not happened: what stands in their
place is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpumgr.backends.detach import plan_detach
from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.engine.journal import Contents, Event
from vgpumgr.engine.recovery import list_attachment_ids
from vgpumgr.engine.step import OnFailure, Plan, Step, find_step_class
from vgpumgr.errors import JournalError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance
from vgpumgr.model.vgpu import VgpuInstance
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.record import MarkAttachment

#: a guest is waited for only shortly: what it keeps is an empty shell
ROLLBACK_TIMEOUT_S = 5.0


class Way(StrEnum):
    """What becomes of an interrupted operation."""

    #: nothing had happened, or all of it
    CLOSE = "close"
    #: only the last step is missing
    FORWARD = "forward"
    #: what was done is undone
    BACK = "back"
    #: a detach goes on
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An operation that began and has no end. ``intents`` are the kinds of steps that may have
    happened; None where the journal is lost.
    """

    op: str
    operation: str
    subject: str
    attachment: str | None
    intents: frozenset[str] | None = None
    undone: bool = False
    late: bool = False
    #: its record as it was planned, should the state file be lost
    record: AttachmentRecord | None = None
    vm_uuid: str | None = None
    #: in which it began; empty where the journal is lost
    boot: str = ""
    #: that is an earlier one: its slices of MIG ended with it
    slices_gone: bool = False
    #: functions that may have been taken, and the drivers that had them
    taken: tuple[tuple[str, str | None], ...] = ()

    @property
    def may_run_helper(self) -> bool:
        """Whether a step may have happened that a helper process does."""
        return self.intents is None or any(map(_runs_helper, self.intents))

    def may_have(self, kind: str) -> bool:
        """Whether a step of that kind may have happened."""
        return self.intents is None or kind in self.intents


def _runs_helper(kind: str) -> bool:
    try:
        return find_step_class(kind).by_helper
    except JournalError:
        return True  # of another version


def list_interrupted(contents: Contents) -> list[Interrupted]:
    """The unfinished operations of a journal, oldest first: a later one may rest on what an earlier one
    made (MIG mode, a GPU instance for several), so they are undone in reverse.
    """
    found = [
        interrupted
        for op, events in contents.unfinished.items()
        for interrupted in _read_all(op, events, contents.torn)
    ]
    forgotten = {
        i.attachment for i in found if i.operation == "recover" and i.may_have("attachment.forget")
    }
    # a recovery that removed the record was through with it
    return [replace(i, undone=True, record=None) if i.attachment in forgotten else i for i in found]


def _read_all(op: str, events: Sequence[Event], torn: bool) -> list[Interrupted]:
    """One for each attachment that the operation is about, in their order."""
    ids = list_attachment_ids(events[0].data)
    return [_read(op, events, torn, id_, len(ids) > 1) for id_ in ids]


def _read(
    op: str, events: Sequence[Event], torn: bool, attachment: str | None, of_several: bool
) -> Interrupted:
    plan = events[0].data
    steps = plan.get("steps", ())
    begun = [int(e.data["step"]) for e in events if e.event == "intent"]
    last = max(begun, default=-1) + (1 if torn else 0)
    undos = [e.data.get("kind") for e in events if e.event == "undo"]
    # the marks come last of all: once there is one, all attachments are whole
    own = [
        step
        for step in steps[: last + 1]
        if not of_several or step["kind"] == "attachment.mark" or step.get("of") == attachment
    ]
    intents = frozenset(str(step["kind"]) for step in own)
    forgotten = "attachment.record" in undos or "attachment.forget" in intents
    return Interrupted(
        op=op,
        operation=str(plan.get("operation")),
        subject=str(plan.get("subject")),
        attachment=attachment,
        intents=intents,
        undone=bool(undos),
        late=events[-1].event == "late",
        record=None if forgotten else _read_record(events, attachment),
        boot=events[0].boot,
        taken=tuple(
            (str(s["address"]), s.get("previous")) for s in own if s["kind"] == "passthrough.bind"
        ),
    )


def _read_record(events: Sequence[Event], attachment: str | None) -> AttachmentRecord | None:
    """The record as it last was in the journal."""
    found = (
        e.data["record"] if "record" in e.data else e.data["records"].get(attachment)
        for e in reversed(events)
        if "record" in e.data or "records" in e.data
    )
    last = next(found, None)
    try:
        return None if last is None else decode(AttachmentRecord, last)
    except ValueError:
        return None


def may_be_running(found: Interrupted) -> bool:
    """Whether a helper process that still runs may be doing one of its steps."""
    return found.late or found.may_run_helper


def choose_way(found: Interrupted, record: AttachmentRecord | None) -> Way:
    """What becomes of it."""
    if found.operation == "attach":
        if record is None:
            return Way.CLOSE
        done = record.state is AttachmentState.ATTACHED or found.may_have("attachment.mark")
        # where the journal is lost, looking decides; see ``choose_half``
        return Way.FORWARD if done and not found.undone and found.intents is not None else Way.BACK
    if found.operation == "run":
        if record is None:
            return Way.CLOSE
        return Way.FINISH if found.intents is None else Way.BACK
    if found.operation == "detach":
        begun = record is not None and record.state is AttachmentState.DETACHING
        further = found.intents is not None and len(found.intents) > 1
        return Way.FINISH if record is not None and (begun or further) else Way.CLOSE
    return Way.CLOSE


def plan_forward(record: AttachmentRecord) -> Plan:
    """Marks an attachment whose every other step is done."""
    step = MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING)
    return _plan(record, (step,), ("only its last step was missing",))


def plan_finish(
    record: AttachmentRecord, vm: Vm | None, snapshot: Snapshot, found: Interrupted
) -> Plan:
    """Goes on with a detach of a slice of MIG."""
    plan = plan_detach(record, vm, snapshot)
    if found.slices_gone:
        steps = tuple(step for step in plan.steps if not step.ends_with_boot)
        plan = replace(plan, steps=steps)
    return plan


def plan_back(
    record: AttachmentRecord, vm: Vm | None, snapshot: Snapshot, found: Interrupted
) -> Plan:
    """Undoes what an interrupted attach did, and nothing that it did not do."""
    record = _give_back_taken(record, found)
    plan = plan_detach(record, vm, snapshot, ROLLBACK_TIMEOUT_S)
    gpu = snapshot.find_gpu_of(record)
    stranger = gpu is not None and find_stranger(gpu, record, found) is not None
    if record.mig is not None or record.gpu_instance_id is not None:
        # whatever the journal has lost of it: who knows the instance's id has made it
        more = {"mig.mode.enable", "mig.gi.create"}
        found = replace(found, intents=(found.intents or frozenset()) | more)
    planned = found.record
    if found.intents is not None and planned and _has_joined(planned, snapshot.homes):
        found = replace(found, intents=found.intents | {"mig.gi.create"})
    if record.mig_mode_enabled and planned is not None and not planned.mig_mode_enabled:
        # handed over meanwhile by the attachment that had turned the mode on
        found = replace(found, intents=(found.intents or frozenset()) | {"mig.mode.enable"})
    is_part = record.mig_part is not None and record.mig_part.compute is not None
    steps = [
        step
        for step in plan.steps
        if _is_its_own(step, found, stranger)
        # it may have made its part of an instance that is not its own; the step finds that by its place
        or (is_part and step.kind == "mig.ci.destroy" and found.may_have("mig.ci.create"))
    ]
    notes = [f"the instance at {record.placement} is not its own and stays"] if stranger else []
    notes += find_backend(record.backend).revoke(record, vm, snapshot, ROLLBACK_TIMEOUT_S).kept
    return _plan(record, tuple(steps), tuple(notes))


def _give_back_taken(record: AttachmentRecord, found: Interrupted) -> AttachmentRecord:
    """The record with every function that the attach took as one to give back, also those that a detach would
    leave to the persistent binding that was due.
    """
    taken = dict(found.taken)
    devices = tuple(
        replace(device, created=True, previous_driver=taken[str(device.address)])
        if not device.created and str(device.address) in taken
        else device
        for device in record.host_devices
    )
    return replace(record, host_devices=devices)


def _has_joined(planned: AttachmentRecord, homes: Mapping[str, VgpuInstance | None]) -> bool:
    """Whether its vGPU was put into a GPU instance that had been made for another one of ours."""
    return any(
        device.vgpu is not None and device.instance is None and homes.get(device.vgpu.uuid)
        for device in planned.host_devices
    )


def _plan(record: AttachmentRecord, steps: tuple[Step, ...], notes: tuple[str, ...]) -> Plan:
    result = {"attachment": record.id, "vm": record.vm_name}
    return Plan("recover", record.vm_name, steps, OnFailure.STOP, notes, result)


def find_stranger(gpu: Gpu, record: AttachmentRecord, found: Interrupted) -> GpuInstance | None:
    """The instance at the record's place, if it cannot be the record's own."""
    for instance in gpu.instances:
        if instance.placement != record.placement:
            continue
        if found.slices_gone:
            return instance
        known = record.gpu_instance_id
        if known is not None:
            return None if instance.id == known else instance
        # created, perhaps, but its id not yet recorded: then nothing can be in it
        used = any(p.gpu_instance_id == instance.id for p in gpu.processes)
        intents = found.intents or frozenset()
        own = "mig.gi.create" in intents
        bare = not used and ("mig.ci.create" in intents or not instance.compute_instances)
        fits = record.mig_part is not None and instance.profile_id == record.mig_part.gpu_profile_id
        return None if own and bare and fits else instance
    return None


def _is_its_own(step: Step, found: Interrupted, stranger: bool) -> bool:
    if isinstance(step, MarkAttachment):
        return False  # it stays "attaching" until it is gone, should this be interrupted, too
    if step.ends_with_boot:
        return not stranger and found.may_have("mig.gi.create")
    return not step.takes_back or any(map(found.may_have, step.takes_back))
