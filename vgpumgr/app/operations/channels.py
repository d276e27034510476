"""``virtio restart``: the worker of a VM's channels ends, and another one starts on the same slice."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts
from vgpumgr.app.documents.attachments import ChannelRestartDocument, RestartPlanDocument
from vgpumgr.app.documents.base import describe_plan
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.base import read_limits
from vgpumgr.backends.detach import find_attachments
from vgpumgr.backends.registry import find_backend
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.errors import (
    ChannelNotFoundError,
    ChannelRestartError,
    UsageError,
    VmNotFoundError,
)
from vgpumgr.host.process import has_ended
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.limits import Limits
from vgpumgr.model.text import format_vm
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import (
    RestartWorker,
    SetLimits,
    StartChannel,
    StopChannel,
    check_confinable,
)
from vgpumgr.virtio.channel import ChannelStatus

RESTART = "restart"
_RING_LOST = "the running guest has its ring again from its next start"
_RING_LOST_IF_RUNNING = "a running guest has its ring again from its next start"


def restart_channel(
    parts: Parts,
    *,
    vm: str,
    keeper: bool = False,
    limits: tuple[str, ...] = (),
    dry_run: bool = False,
) -> ChannelRestartDocument:
    """Gives each channel that ``vm`` means another worker. A keeper whose ring a QEMU has stays, unless
    ``keeper`` says otherwise: with it that QEMU loses the ring. ``limits`` are changed, others stay; they need
    another keeper. Raises what stands in the way before anything is changed.
    """
    read_limits(limits)
    asked = _Asked(vm, keeper, limits)
    if dry_run:
        return _describe(True, _plan_all(parts, asked), [])
    with open_change(parts, "restart a channel") as transaction:
        plans = _plan_all(parts, asked)
        notes = transaction.notes
        for record, plan in plans:
            context = parts.make_context(record)
            transaction.execute(plan, context)
            notes += context.notes
    return _describe(False, plans, notes)


@dataclass(frozen=True, slots=True)
class _Asked:
    selector: str
    keeper: bool
    limits: tuple[str, ...]


def _plan_all(parts: Parts, asked: _Asked) -> list[tuple[AttachmentRecord, Plan]]:
    """A plan for each channel, once nothing stands in the way of any."""
    selector, snapshot, vm = asked.selector, Snapshot(parts), None
    with contextlib.suppress(
        VmNotFoundError, *LIBVIRT_ERRORS
    ):  # a host without VMs may have no libvirt
        if not any(selector in (r.vm_uuid, r.vm_name) for r in snapshot.records):
            vm = parts.hypervisor.read_vm(selector)
    found = find_attachments(snapshot.records, selector, vm, verb="virtio restart")
    records = [record for record in found if record.channel is not None]
    if not records:
        raise ChannelNotFoundError(f'no channel of "{selector}"', hint="vgpumgr virtio list")
    check_confinable(records, parts.channels)
    return [(record, _plan(parts, record, snapshot, asked)) for record in records]


def _plan(parts: Parts, record: AttachmentRecord, snapshot: Snapshot, asked: _Asked) -> Plan:
    status = parts.channels.read_status(record.id)
    _check(parts, record, snapshot, status)
    notes: tuple[str, ...] = ()
    change, record = _plan_limits(parts, record, status, asked.limits)
    start = StartChannel.for_record(record)
    steps: tuple[Step, ...] = (*change, StopChannel(record.id, again=True), start)
    if status is not None and status.keeper_hangs:
        notes = (f"its keeper (pid {status.keeper_pid}) does not answer, and is killed",)
        notes += (_RING_LOST_IF_RUNNING,) if record.run is None and record.has_ring else ()
    elif status is not None and status.qemu_pid is not None:
        # the agent of a run, unlike QEMU, connects to the next keeper
        keeps_ring = record.run is not None
        if asked.keeper or (change and keeps_ring):
            notes = () if keeps_ring else (_RING_LOST,)
        elif change:
            raise ChannelRestartError(
                f"cannot change the limits of {record.vm_name} now",
                why="its keeper enforces them, and another one takes the ring from the running guest "
                "until its next start",
                held_by=[f"QEMU (pid {status.qemu_pid})"],
                hint=f"vgpumgr virtio restart {format_vm(asked.selector)} --keeper "
                + " ".join(f"--limit {word}" for word in asked.limits),
            )
        else:
            steps = (RestartWorker(record.id, status.worker_pid),)
            who = "the command's agent" if keeps_ring else "QEMU"
            notes = (f"its keeper stays: {who} (pid {status.qemu_pid}) has its ring",)
    result = {"attachment": record.id, "vm": record.vm_name}
    # until the old keeper has ended, limits that cannot be written down leave all as it was
    revocable = len(steps) - 1 if change else 0
    return Plan(RESTART, record.vm_name, steps, OnFailure.STOP, notes, result, revocable=revocable)


def _plan_limits(
    parts: Parts, record: AttachmentRecord, status: ChannelStatus | None, words: tuple[str, ...]
) -> tuple[tuple[Step, ...], AttachmentRecord]:
    """What writes them down, and the record with them; nothing where they are so already. Raises VmNotFoundError and
    LIBVIRT_ERRORS where the VM's metadata cannot have them.
    """
    assert record.channel is not None
    if record.share_part is not None and any(w.startswith("device-memory=") for w in words):
        raise UsageError(
            f"{record.vm_name} has a share, which says by itself how much memory it has",
            hint=f"vgpumgr virtio set {record.id} --memory {words[0].partition('=')[2]}, while it runs",
        )
    kept = {word.partition("=")[0]: word for word in (*record.channel.limits, *words)}
    limits = read_limits(tuple(kept.values()))
    changed = limits.changed
    if not words or (changed == record.channel.limits and _has_limits(status, limits)):
        return (), record
    uuid = parts.hypervisor.read_vm(record.vm_uuid).uuid if record.run is None else None
    step = SetLimits(record.id, changed, record.channel.limits, uuid)
    return (step,), record.with_channel(limits=changed)


def _has_limits(status: ChannelStatus | None, limits: Limits) -> bool:
    """Whether the keeper that runs enforces them: a restart that failed may have recorded them only."""
    if status is None:
        return True
    enforced = {use.key: use.limit for use in status.limits}
    return all(
        # a control group that cannot be made would not be there after a restart either
        enforced.get(key) == limit or (key.of_cgroup and enforced.get(key, 0) is None)
        for key, limit in limits.items()
    )


def _check(
    parts: Parts, record: AttachmentRecord, snapshot: Snapshot, status: ChannelStatus | None
) -> None:
    """Raises ChannelRestartError."""
    what = f"cannot restart the channel of {record.vm_name}"
    if record.state is not AttachmentState.ATTACHED:
        raise ChannelRestartError(
            what, why=f"attachment {record.id} is {record.state}", hint="vgpumgr recover"
        )
    if has_ended(record.run, parts.boot_id):
        raise ChannelRestartError(what, why="its command has ended", hint="vgpumgr recover")
    if not find_backend(record.backend).has_all(record, snapshot):
        raise ChannelRestartError(
            what,
            why=f"its slice, {record.profile} at {record.placement}, is gone",
            hint=f"vgpumgr detach {record.vm_word}",
        )
    stuck = [e for e in status.sessions.events if e.kind == "stuck"] if status else []
    if stuck:
        raise ChannelRestartError(
            what,
            why="a worker ends after its processes, and these were killed and do not end",
            held_by=[f"session {event.pid} of lane {event.lane}" for event in stuck],
            hint="other processes of the guest go on meanwhile; they end with a reboot at the latest",
        )


def _describe(
    dry_run: bool, plans: Sequence[tuple[AttachmentRecord, Plan]], notes: list[str]
) -> ChannelRestartDocument:
    first = plans[0][1]
    whole = Plan(
        RESTART,
        first.subject,
        tuple(step for _, plan in plans for step in plan.steps),
        OnFailure.STOP,
        tuple(dict.fromkeys(note for _, plan in plans for note in plan.notes)),
        {**first.result, "attachments": [record.id for record, _ in plans]},
    )
    plan = describe_plan(whole, RestartPlanDocument)
    return ChannelRestartDocument(dry_run=dry_run, plan=plan, notes=notes)
