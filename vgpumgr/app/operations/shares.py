"""``virtio set``: another share of its GPU or instance for an attachment, while its programs run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts
from vgpumgr.app.documents.base import describe_plan
from vgpumgr.app.documents.shares import ShareChangeDocument, SharePlanDocument
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.detach import find_attachments
from vgpumgr.engine.recovery import (
    Family,
    Recovered,
    Report,
    Unfinished,
    list_attachment_ids,
)
from vgpumgr.engine.step import Plan, Step
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    BackendUnsupportedError,
    ChannelNotFoundError,
    ChannelRestartError,
    ClaimInUseError,
    SeveralAttachmentsError,
    ShareInUseError,
    UsageError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.host.lock import DAEMON_LOCK, find_holder
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, SharePart
from vgpumgr.model.choices import Priority
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.shares import Share, make_share
from vgpumgr.model.text import format_vm
from vgpumgr.planning.shares import check_change, find_due_shrink
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import SetShare
from vgpumgr.virtio.channel import ChannelStatus
from vgpumgr.virtio.channel_status import describe_use, refuse_memory

SET = "set share"
#: so soon a channel's status says what its sessions have freed: a worker reports ten times a second
REPORT_S = 0.3
_HOW = "vgpumgr virtio set VM --memory 6GiB --compute 40"


@dataclass(frozen=True, slots=True)
class _Asked:
    selector: str
    memory: int | None
    compute: float | None
    at_exit: bool = False
    priority: Priority | None = None


def set_share(
    parts: Parts,
    *,
    vm: str,
    memory_bytes: int | None = None,
    compute: float | None = None,
    at_exit: bool = False,
    priority: str | None = None,
    dry_run: bool = False,
) -> ShareChangeDocument:
    """Changes memory, percentage of time and priority of the share that ``vm`` means; programs in it go on.
    ``at_exit``: memory below what they use waits until they use less. Raises what stands in the way before anything is
    changed, or what ended it after everything was undone.
    """
    if memory_bytes is None and compute is None and priority is None:
        raise UsageError(
            "nothing to change: neither --memory nor --compute nor --priority is given", hint=_HOW
        )
    if priority is not None and priority not in tuple(Priority):
        raise UsageError(f"no priority {priority!r}", why=f"there are: {', '.join(Priority)}")
    if at_exit and memory_bytes is None:
        raise UsageError(
            "--at-exit is for --memory",
            why="only memory can be in use: another percentage of time is there at once",
            hint=f"vgpumgr virtio set {format_vm(vm)} --memory SIZE --at-exit",
        )
    wanted = None if priority is None else Priority(priority)
    asked = _Asked(vm, memory_bytes, compute, at_exit, wanted)
    if dry_run:
        return _describe(True, _plan(parts, asked)[1], [])
    with open_change(parts, "change a share") as transaction:
        # what is asked for now stands in the place of what waits
        spared = (vm,) if memory_bytes is not None else ()
        shrunk = shrink_due(parts, transaction, spared)
        plan, notes = _execute(parts, transaction, asked)
    return _describe(False, plan, [*transaction.notes, *shrunk, *notes])


def _execute(parts: Parts, transaction: Transaction, asked: _Asked) -> tuple[Plan, list[str]]:
    record, plan = _plan(parts, asked)
    context = parts.make_context(record)
    try:
        if plan.steps:
            transaction.execute(plan, context)
    except ShareInUseError:
        if not asked.at_exit:
            raise
        # they have taken more since it was planned
        record, plan = _plan(parts, asked, is_used=True)
        context = parts.make_context(record)
        transaction.execute(plan, context)
    return plan, list(context.notes)


def shrink_due(
    parts: Parts, transaction: Transaction, spared: Sequence[str] = (), *, has_libvirt: bool = True
) -> list[str]:
    """Shrinks the shares whose programs have ended by now, so that others find their memory, but for those of
    ``spared``; without libvirt those of VMs wait. Answers what was done.
    """
    notes = []
    for record in parts.store.list_attachments():
        part = record.share_part
        if part is None or part.memory_at_exit is None:
            continue
        if {record.id, record.vm_name, record.vm_uuid} & {*spared}:
            continue
        if record.run is None and not has_libvirt:
            continue
        with contextlib.suppress(VgpumgrError):  # recover says why
            status = parts.channels.read_status(record.id)
            if status is None or find_due_shrink(record, status) is None:
                continue
            step = SetShare.shrink(record)
            name = record.with_share(step.share).profile
            result = {"attachment": record.id, "vm": record.vm_name, "profile": name}
            transaction.execute(
                Plan(SET, record.vm_name, (step,), result=result), parts.make_context(record)
            )
            notes.append(f"shrank the share of {record.vm_name} to {step.share}, which had waited")
    return notes


def _plan(parts: Parts, asked: _Asked, *, is_used: bool = False) -> tuple[AttachmentRecord, Plan]:
    """``is_used``: the worker has said that more memory is used than is asked for."""
    snapshot = Snapshot(parts)
    record = _find(parts, snapshot, asked.selector)
    _check_no_claim(record, asked)
    assert record.share_part is not None
    before = record.share_part.share
    try:
        wanted = make_share(
            before.memory if asked.memory is None else asked.memory,
            before.compute if asked.compute is None else asked.compute,
        )
    except ValueError as error:
        raise UsageError("cannot change the share", cause=str(error), hint=_HOW) from error
    snapshot.require_gpus()
    check_change(record, wanted, snapshot)
    status = _read_use(parts, record.id, wanted.memory, waits=not is_used)
    part = record.share_part
    now, at_exit = _split(part, wanted, asked, status, is_used=is_used)
    priority = asked.priority or part.priority
    steps: tuple[Step, ...] = ()
    is_new = (now, at_exit, priority) != (before, part.memory_at_exit, part.priority)
    if is_new or not _has(status, now, priority):
        steps = (SetShare.change(record, now, at_exit, priority),)
    notes = [] if steps else [f"it is {now} already"]
    if now.memory != before.memory:
        notes.append("programs that run keep the size of the device that they asked for before")
    if at_exit is not None:
        notes += _describe_wait(parts, at_exit, status)
    result = {
        "attachment": record.id,
        "vm": record.vm_name,
        "profile": record.with_share(now).profile,
        "memory_at_exit": at_exit,
        "priority": str(priority),
    }
    return record, Plan(SET, record.vm_name, steps, notes=tuple(notes), result=result)


def _check_no_claim(record: AttachmentRecord, asked: _Asked) -> None:
    """Raises ClaimInUseError where the size is what a claim's lease reserves; its priority is not in the lease."""
    if record.claim is not None and (asked.memory, asked.compute) != (None, None):
        raise ClaimInUseError(
            f"the share of {record.holder} is what claim {record.claim.name} reserves",
            why="another size would not be that of its lease",
            held_by=(f"claim {record.claim.name}",),
            hint=f"vgpumgr detach {record.vm_word} --attachment {record.id}, vgpumgr claim resize "
            f"{record.claim.name} --profile PROFILE, and attach again",
        )


def _read_use(parts: Parts, channel_id: str, memory: int, *, waits: bool) -> ChannelStatus | None:
    """The channel's status. ``waits``: where it says that more than ``memory`` is used, until a later report says
    otherwise: sessions may just have freed it.
    """
    status = parts.channels.read_status(channel_id)
    end_s = parts.clock.monotonic_s() + REPORT_S
    while waits and status is not None and (status.memory_used or 0) > memory:
        if parts.clock.monotonic_s() > end_s:
            break
        parts.clock.sleep(REPORT_S / 10)
        status = parts.channels.read_status(channel_id)
    return status


def _split(
    part: SharePart, wanted: Share, asked: _Asked, status: ChannelStatus | None, *, is_used: bool
) -> tuple[Share, int | None]:
    """What it is to have now, and the memory that waits for its programs' end. Raises ShareInUseError where more is
    used than is to be left, and nothing is to wait; the worker decides once more.
    """
    used = status.memory_used if status else None
    if not is_used and (used or 0) <= wanted.memory:
        return wanted, part.memory_at_exit if asked.memory is None else None
    if not asked.at_exit:
        raise refuse_memory(wanted.memory, used)
    return Share(part.share.memory, wanted.compute), wanted.memory


def _describe_wait(parts: Parts, at_exit: int, status: ChannelStatus | None) -> list[str]:
    """Until when it waits, and who ends that."""
    used = describe_use(at_exit, status.memory_used if status else None)
    try:
        has_daemon = find_holder(parts.run_dir / DAEMON_LOCK) is not None
    except VgpumgrError:
        has_daemon = False
    who = "the daemon shrinks it at its next reconcile (every minute, by default)"
    if not has_daemon:
        who = "no daemon runs here: vgpumgr recover, or the next vgpumgr virtio set, shrinks it"
    return [f"its programs use {used}; once they do not: {who}"]


def _find(parts: Parts, snapshot: Snapshot, selector: str) -> AttachmentRecord:
    """The one share that is meant."""
    vm = None
    with contextlib.suppress(VmNotFoundError, *LIBVIRT_ERRORS):
        if not any(selector in (r.vm_uuid, r.vm_name) for r in snapshot.records):
            vm = parts.hypervisor.read_vm(selector)
    found = find_attachments(snapshot.records, selector, vm, verb="virtio set")
    records = [record for record in found if record.share_part is not None]
    if not found:
        raise ChannelNotFoundError(f'no channel of "{selector}"', hint="vgpumgr virtio list")
    if not records:
        one = found[0]
        raise BackendUnsupportedError(
            f"{one.holder} has no share",
            why=f"it has {one.profile}, whose memory and time are fixed when it is made",
            hint=f"vgpumgr virtio restart {one.vm_word} --limit device-memory=SIZE, for a limit in it",
        )
    if len(records) > 1:
        raise SeveralAttachmentsError(
            f'"{selector}" has {len(records)} shares that could be meant',
            held_by=[f"attachment {r.id} ({r.profile})" for r in records],
            hint=f"vgpumgr virtio set {records[-1].id} --compute 40",
        )
    if records[0].state is not AttachmentState.ATTACHED:
        raise ChannelRestartError(
            f"cannot change the share of {records[0].vm_name}",
            why=f"attachment {records[0].id} is {records[0].state}",
            hint="vgpumgr recover",
        )
    return records[0]


def _has(status: ChannelStatus | None, wanted: Share, priority: Priority) -> bool:
    """Whether the channel keeps to it now; without a keeper the next one will."""
    if status is None:
        return True
    limits = {use.key.name: use.limit for use in status.limits}
    compute = status.share.compute if status.share else wanted.compute
    if status.share and status.share.priority != priority:
        return False
    return limits.get("device-memory", wanted.memory) == wanted.memory and compute == wanted.compute


def _describe(dry_run: bool, plan: Plan, notes: list[str]) -> ShareChangeDocument:
    document = describe_plan(plan, SharePlanDocument)
    return ShareChangeDocument(dry_run=dry_run, plan=document, notes=notes)


class ShareFamily(Family):
    """How an interrupted change of a share is undone; where the guest has taken what it was to have more, completed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def describe(self, found: Unfinished) -> tuple[str, str]:
        """Which operation on which VM."""
        return found.subject, "the interrupted change of its share"

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """No helper does it."""
        return False

    def recover(self, found: Unfinished) -> Recovered:
        """What is recorded, and what the channel keeps to, is the same afterwards."""
        subject, what = self.describe(found)
        ids = list_attachment_ids(found.events[0].data)
        records = {record.id: record for record in self._parts.store.list_attachments()}
        record = records.get(str(ids[0])) if ids else None
        word = "undone"
        for step in reversed(found.begun) if record is not None else ():
            context = self._parts.make_context(record)
            try:
                step.undo(context)
            except ShareInUseError:
                step.do(context)
                word = "completed"
        report = Report(subject, f"{what} was {word}")
        return Recovered([report], more={"exists": list(records)})
