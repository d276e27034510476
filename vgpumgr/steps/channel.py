"""Steps on the channel: keeper, worker, the guest's hello."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import PRIVATE, NothingDoneError, OneWayStep, Step
from vgpumgr.errors import (
    ChannelStartError,
    LiveUnsupportedError,
    SandboxError,
    ShareInUseError,
    VgpumgrError,
)
from vgpumgr.model.choices import AGENT_HINT, AWAITED, Backend, Priority
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.limits import parse_limits
from vgpumgr.model.shares import Share, describe_time
from vgpumgr.model.text import format_exact, format_size
from vgpumgr.state.domain_metadata import describe_record, save_note
from vgpumgr.virtio.channel import RING_BYTES, Channels, ChannelSpec, ChannelStatus, LinkTarget

if TYPE_CHECKING:
    from vgpumgr.domain.domain import AttachmentNote
    from vgpumgr.engine.context import OperationContext
    from vgpumgr.model.attachment import AttachmentRecord

#: a worker loads the CUDA driver and makes a context before it is ready
WORKER_TIMEOUT_S = 60.0
#: a keeper looks for another one every second
ARBITER_TIMEOUT_S = 10.0
#: how the keeper says that the sandbox is the reason
_SANDBOX = "sandbox: "


@dataclass(frozen=True)
class StartChannel(Step):
    """Starts keeper and worker on the attachment's slice and waits until its CUDA is up."""

    id: str
    vm_name: str = field(metadata=PRIVATE)
    ring: bool
    serial: bool
    memory_bytes: int
    #: those that are not the default, as ``--limit`` takes them; the record has them all
    limits: tuple[str, ...] = ()
    #: of a share: percent of the GPU's time, and what that means (a ``ComputePolicy``)
    compute: float | None = None
    compute_policy: str | None = None
    priority: str = "normal"
    #: whose GPU runs the calls; None: this host's
    host: str | None = None
    kind: ClassVar[str] = "channel.start"

    @classmethod
    def for_record(cls, record: AttachmentRecord, memory_bytes: int = RING_BYTES) -> StartChannel:
        """The step for the channel of an attachment."""
        limits = record.channel.limits if record.channel else ()
        part = record.share_part
        return cls(
            record.id,
            record.vm_name,
            record.has_ring,
            record.has_serial,
            memory_bytes,
            limits,
            part.share.compute if part else None,
            str(part.policy) if part else None,
            str(part.priority) if part else Priority.NORMAL,
            record.link_host,
        )

    def describe(self) -> str:
        """For people."""
        what = "start the worker"
        if self.host is not None:
            what = f"start the relay to {f'host {self.host}' if self.host else 'the host of the lease'}"
        ways = [f"ring of {format_size(self.memory_bytes)}"] if self.ring else []
        ways += ["virtio-serial"] if self.serial else []
        ways += [f"at most {', '.join(self.limits)}"] if self.limits else []
        ways += [describe_time(self.compute, str(self.compute_policy))] if self.compute else []
        ways += [f"{self.priority} priority"] if self.priority != Priority.NORMAL else []
        return f"{what} ({', '.join(ways)})"

    def do(self, context: OperationContext) -> None:
        """Starts both."""
        assert context.record.channel is not None
        run = context.record.run
        owner = (run.uid, run.gid) if run else context.hypervisor.read_qemu_owner()
        if owner != context.record.channel.qemu_owner:
            context.save_channel(qemu_owner=owner)
        spec = make_spec(context.record, self.memory_bytes)
        allowed = context.record.channel.allow_unconfined
        obstacle = context.channels.find_obstacle() if allowed else None
        if obstacle is None:
            why, status = self._start(context, spec)
            obstacle = find_obstacle(status) if why and allowed else None
        if obstacle is not None:
            context.channels.stop(self.id, keeps_sockets=True)
            context.notes.append(
                f"no sandbox: {obstacle}; the worker runs without one, as --allow-unconfined says"
            )
            why, status = self._start(context, replace(spec, confined=False))
        if why is None:
            return
        check_sandbox(self.vm_name, status)
        raise ChannelStartError(
            f"the worker of {self.vm_name} did not become ready",
            cause=status.problem if status else "its keeper is gone",
            why=why,
        )

    def _start(
        self, context: OperationContext, spec: ChannelSpec
    ) -> tuple[str | None, ChannelStatus | None]:
        """Why it did not become ready, None if it did, and what its keeper says."""
        context.channels.start(spec)
        if not context.wait(lambda: self._is_decided(context), WORKER_TIMEOUT_S):
            return f"waited {WORKER_TIMEOUT_S:g} s", context.channels.read_status(self.id)
        status = context.channels.read_status(self.id)
        ready = status is not None and status.worker_ready
        return None if ready else "it ended again and again", status

    def undo(self, context: OperationContext) -> None:
        """Ends both."""
        context.channels.stop(self.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether a keeper runs."""
        return context.channels.read_status(self.id) is not None

    def _is_decided(self, context: OperationContext) -> bool:
        """Whether the worker is ready or will never be."""
        status = context.channels.read_status(self.id)
        return status is None or status.worker_ready or status.worker_failed


def make_spec(record: AttachmentRecord, memory_bytes: int = RING_BYTES) -> ChannelSpec:
    """The channel of an attachment whose slice exists. Raises ChannelStartError where its limits cannot be read: it
    does not start without them.
    """
    device, mig, part = record.cuda_device, record.mig, record.share_part
    if record.backend is Backend.LINK:
        return _make_link_spec(record, memory_bytes)
    assert device is not None
    assert record.channel is not None
    try:
        limits = parse_limits(record.channel.limits)
    except ValueError as error:
        raise ChannelStartError(
            f"the recorded limits of {record.vm_name} cannot be read: {error}",
            why="another version has recorded them, or the record is damaged",
            hint=f"vgpumgr detach {record.id}, then vgpumgr attach with limits of this version",
        ) from error
    return ChannelSpec(
        id=record.id,
        vm_name=record.vm_name,
        cuda_device=device,
        ring=record.has_ring,
        serial=record.has_serial,
        memory_bytes=memory_bytes,
        number=record.number,
        socket_owner=record.channel.qemu_owner,
        gpu=str(record.gpu) if record.gpu else None,
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        compute_instance_id=mig.compute_instance_id if mig else None,
        limits=limits,
        compute=part.share.compute if part else None,
        compute_policy=part.policy if part else None,
        priority=part.priority if part else Priority.NORMAL,
    )


def _make_link_spec(record: AttachmentRecord, memory_bytes: int) -> ChannelSpec:
    """The same where another host runs the calls."""
    claim, channel = record.claim, record.channel
    assert claim is not None
    assert channel is not None
    return ChannelSpec(
        id=record.id,
        vm_name=record.vm_name,
        cuda_device="",
        ring=record.has_ring,
        serial=record.has_serial,
        memory_bytes=memory_bytes,
        number=record.number,
        socket_owner=channel.qemu_owner,
        link=LinkTarget(claim.via, claim.host, claim.name, claim.late),
    )


def find_obstacle(status: ChannelStatus | None) -> str | None:
    """Why the keeper could not build a sandbox, if that is why there is no worker."""
    _, found, cause = ((status and status.problem) or "").partition(_SANDBOX)
    return cause if found else None


def check_sandbox(vm_name: str, status: ChannelStatus | None) -> None:
    """Raises SandboxError if that is why a worker does not start."""
    if cause := find_obstacle(status):
        raise _refuse_sandbox(vm_name, cause)


def check_confinable(records: Iterable[AttachmentRecord], channels: Channels) -> None:
    """Raises SandboxError where a new channel needs a sandbox that this host can evidently not build,
    LibraryNotFoundError where the programs are missing or of another version.
    """
    for record in records:
        if record.channel is not None:
            channels.check_installed()
        if record.channel is not None and not record.channel.allow_unconfined:
            if cause := channels.find_obstacle():
                raise _refuse_sandbox(record.vm_name, cause)
            return


def _refuse_sandbox(vm_name: str, cause: str) -> SandboxError:
    return SandboxError(
        f"the worker of {vm_name} cannot be confined",
        cause=cause,
        why="it runs what the guest sends, and starts in a sandbox or not at all",
        hint="vgpumgr doctor; or --allow-unconfined, if the guest is trusted with this host (SECURITY.md)",
    )


@dataclass(frozen=True)
class SetLimits(Step):
    """Writes down other limits, in the VM's metadata, too: the next keeper of the channel enforces them."""

    id: str
    limits: tuple[str, ...]
    before: tuple[str, ...] = field(metadata=PRIVATE)
    #: None: of a run, which has no VM
    vm_uuid: str | None = field(default=None, metadata=PRIVATE)
    kind: ClassVar[str] = "channel.limits"

    def describe(self) -> str:
        """For people."""
        return f"limit the VM's programs to {', '.join(self.limits) or 'what is usual'}"

    def do(self, context: OperationContext) -> None:
        """Writes them, first into the metadata: that is repaired by the record if this is not completed."""
        self._write_note(context, self.limits)
        context.save_channel(limits=self.limits)

    def undo(self, context: OperationContext) -> None:
        """Writes the earlier ones. Metadata that libvirt does not take now follows the record with the next recover."""
        context.save_channel(limits=self.before)
        with contextlib.suppress(VgpumgrError):
            self._write_note(context, self.before)

    def _write_note(self, context: OperationContext, limits: tuple[str, ...]) -> None:
        if self.vm_uuid is not None:
            vm = context.hypervisor.read_vm(self.vm_uuid)
            save_note(context.hypervisor, vm, self._make_note(context, limits))

    @staticmethod
    def _make_note(context: OperationContext, limits: tuple[str, ...]) -> AttachmentNote:
        return describe_record(context.record.with_channel(limits=limits))

    def observe(self, context: OperationContext) -> bool:
        """Whether the record or the metadata has them."""
        found = context.find_attachment(self.id)
        part = found.channel if found is not None else None
        return (part is not None and part.limits == self.limits) or self._is_noted(context)

    def _is_noted(self, context: OperationContext) -> bool:
        if self.vm_uuid is None:
            return False
        note = context.hypervisor.read_vm(self.vm_uuid).find_note(self.id)
        return note is not None and note == self._make_note(context, self.limits)


@dataclass(frozen=True)
class SetShare(Step):
    """Gives an attachment another share, now and for every later worker: channel, record, metadata."""

    id: str
    memory: int
    compute: float
    before_memory: int = field(metadata=PRIVATE)
    before_compute: float = field(metadata=PRIVATE)
    #: None: of a run, which has no VM
    vm_uuid: str | None = field(default=None, metadata=PRIVATE)
    #: memory that it is to have once its programs use no more than that; None: nothing waits
    at_exit: int | None = None
    before_at_exit: int | None = field(default=None, metadata=PRIVATE)
    priority: Priority = Priority.NORMAL
    before_priority: Priority = field(default=Priority.NORMAL, metadata=PRIVATE)
    kind: ClassVar[str] = "channel.share"

    @classmethod
    def change(
        cls,
        record: AttachmentRecord,
        share: Share,
        at_exit: int | None = None,
        priority: Priority | None = None,
    ) -> SetShare:
        """The step for another share of an attachment, now and at its programs' end."""
        part = record.share_part
        assert part is not None
        return cls(
            record.id,
            share.memory,
            share.compute,
            part.share.memory,
            part.share.compute,
            None if record.run is not None else record.vm_uuid,
            at_exit,
            part.memory_at_exit,
            priority or part.priority,
            part.priority,
        )

    @classmethod
    def shrink(cls, record: AttachmentRecord) -> SetShare:
        """The step that gives an attachment the memory that waits for its programs' end."""
        part = record.share_part
        assert part is not None
        assert part.memory_at_exit is not None
        return cls.change(record, Share(part.memory_at_exit, part.share.compute))

    @property
    def share(self) -> Share:
        """What it has afterwards."""
        return Share(self.memory, self.compute)

    @property
    def before(self) -> Share:
        """What it had."""
        return Share(self.before_memory, self.before_compute)

    @property
    def _is_remembered_only(self) -> bool:
        """Whether nothing changes but what waits."""
        is_same = (self.share, self.priority) == (self.before, self.before_priority)
        return is_same and self.at_exit != self.before_at_exit

    def describe(self) -> str:
        """For people."""
        words = [f"change {self.before} to {self.share}"] if not self._is_remembered_only else []
        if self.priority != self.before_priority:
            changed = f"{self.before_priority} to {self.priority}"
            words = [
                *(words if self.share != self.before else ()),
                f"change its priority from {changed}",
            ]
        if self.at_exit is not None:
            words.append(f"shrink it to {format_exact(self.at_exit)} at its programs' end")
        elif self.before_at_exit not in (None, self.memory):
            words.append(f"do not shrink it to {format_exact(self.before_at_exit or 0)} any more")
        return "; ".join(words)

    def do(self, context: OperationContext) -> None:
        """Where memory grows, the record first, which the daemon compares with what the driver says; else the channel,
        whose worker refuses less memory than is used. Raises ShareInUseError, and nothing has changed then.
        """
        if self.memory > self.before_memory:
            self._record(context, self.share, self.at_exit, self.priority)
            context.channels.set_share(self.id, self.memory, self.compute, self.priority)
            return
        try:
            if not self._is_remembered_only:
                context.channels.set_share(self.id, self.memory, self.compute, self.priority)
        except ShareInUseError as error:
            raise NothingDoneError(error) from error
        self._record(context, self.share, self.at_exit, self.priority)

    def undo(self, context: OperationContext) -> None:
        """Gives it what it had. Metadata that libvirt does not take now follows the record with the next recover."""
        if not self._is_remembered_only:
            before = self.before
            context.channels.set_share(self.id, before.memory, before.compute, self.before_priority)
        with contextlib.suppress(VgpumgrError):
            self._record(context, self.before, self.before_at_exit, self.before_priority)

    def _record(
        self, context: OperationContext, share: Share, at_exit: int | None, priority: Priority
    ) -> None:
        record = context.record.with_share(share, at_exit, priority)
        context.save_share(record)
        if self.vm_uuid is not None:
            vm = context.hypervisor.read_vm(self.vm_uuid)
            save_note(context.hypervisor, vm, describe_record(record))

    def observe(self, context: OperationContext) -> bool:
        """Whether channel or record has it: one that was begun is then undone."""
        found = context.find_attachment(self.id)
        part = found.share_part if found is not None else None
        wanted = (self.share, self.at_exit, self.priority)
        if part is not None and (part.share, part.memory_at_exit, part.priority) == wanted:
            return True
        status = context.channels.read_status(self.id)
        limits = {use.key.name: use.limit for use in status.limits} if status else {}
        is_set = limits.get("device-memory") == self.memory != self.before_memory
        used = status.share if status else None
        if used is None:
            return is_set
        is_set = is_set or used.compute == self.compute != self.before_compute
        return is_set or used.priority == self.priority != self.before_priority


@dataclass(frozen=True)
class StartArbiter(OneWayStep):
    """Has the arbiter run that gives a share its time; the channel's keeper finds it by itself."""

    id: str
    kind: ClassVar[str] = "channel.arbiter"

    def describe(self) -> str:
        """For people."""
        return "start the arbiter of the share"

    def do(self, context: OperationContext) -> None:
        """Starts it, and waits until the keeper has joined it."""
        context.channels.start_arbiter(make_spec(context.record))
        if not context.wait(lambda: self.observe(context), ARBITER_TIMEOUT_S):
            raise ChannelStartError(
                f"the keeper of {context.record.vm_name} does not join the arbiter of its share",
                why=f"waited {ARBITER_TIMEOUT_S:g} s",
            )

    def observe(self, context: OperationContext) -> bool:
        """Whether an arbiter keeps the share."""
        status = context.channels.read_status(self.id)
        return status is not None and status.share is not None and status.share.kept


@dataclass(frozen=True)
class RestartWorker(OneWayStep):
    """Gives a channel another worker: in the place of ``worker_pid``, or where the keeper has given up."""

    id: str
    worker_pid: int | None = field(default=None, metadata=PRIVATE)
    kind: ClassVar[str] = "channel.restart"

    def describe(self) -> str:
        """For people."""
        return "start another worker"

    def do(self, context: OperationContext) -> None:
        """Starts it and waits until its CUDA is up."""
        context.channels.restart_worker(self.id)
        context.wait(
            lambda: self.observe(context) or _has_given_up(context, self.id), WORKER_TIMEOUT_S
        )
        status = context.channels.read_status(self.id)
        if status is None or not self.observe(context):
            check_sandbox(context.record.vm_name, status)
            cause = status.problem if status else "its keeper is gone"
            raise ChannelStartError(
                "the worker does not start", cause=cause or "the old one does not end"
            )

    def observe(self, context: OperationContext) -> bool:
        """Whether it is ready, and another one."""
        status = context.channels.read_status(self.id)
        if status is None or not status.worker_ready:
            return False
        return self.worker_pid is None or status.worker_pid != self.worker_pid


def _has_given_up(context: OperationContext, channel_id: str) -> bool:
    status = context.channels.read_status(channel_id)
    return status is None or status.worker_failed


@dataclass(frozen=True)
class StopChannel(OneWayStep):
    """Ends worker and keeper; ``again``: others follow them."""

    id: str
    again: bool = field(default=False, metadata=PRIVATE)
    kind: ClassVar[str] = "channel.stop"

    def describe(self) -> str:
        """For people."""
        return "stop the worker"

    def do(self, context: OperationContext) -> None:
        """Ends both; a keeper that is dead already is no error."""
        context.channels.stop(self.id, keeps_sockets=self.again)

    def observe(self, context: OperationContext) -> bool:
        """Whether no keeper runs."""
        return context.channels.read_status(self.id) is None


@dataclass(frozen=True)
class AwaitHello(OneWayStep):
    """Waits for the hello of the guest's agent: before it, nothing in the guest can use the
    devices.
    """

    id: str
    timeout_s: float
    required: bool = field(metadata=PRIVATE)
    kind: ClassVar[str] = "channel.hello"

    def describe(self) -> str:
        """For people."""
        return f"wait for the guest's agent (at most {self.timeout_s:g} s)"

    def do(self, context: OperationContext) -> None:
        """Waits; without a hello the attachment counts from the next start, or fails where that is
        not enough.
        """
        if context.wait(lambda: self.observe(context), self.timeout_s):
            return
        why = (
            f"no hello from the guest in {self.timeout_s:g} s: vgpumgr-guestd does not run in it, "
            "or its kernel could not place the device"
        )
        if self.required:
            raise LiveUnsupportedError(
                "the running guest does not use its new devices", why=why, hint=AGENT_HINT
            )
        context.notes.append(f"usable {AWAITED}: {why}; to try: {AGENT_HINT}")

    def observe(self, context: OperationContext) -> bool:
        """Whether the guest has said hello."""
        status = context.channels.read_status(self.id)
        return status is not None and status.hello


@dataclass(frozen=True)
class ResizeChannel(Step):
    """Lets the ring have its full size at the VM's next start, after a live start with a small one."""

    id: str
    memory_bytes: int
    live_bytes: int = field(metadata=PRIVATE)
    kind: ClassVar[str] = "channel.resize"

    def describe(self) -> str:
        """For people."""
        return f"make the ring {format_size(self.memory_bytes)} from the next start on"

    def do(self, context: OperationContext) -> None:
        """Tells the keeper; the memory in use stays as it is."""
        context.channels.set_memory(self.id, self.memory_bytes)

    def undo(self, context: OperationContext) -> None:
        """Puts the small size back."""
        if context.channels.read_status(self.id) is not None:
            context.channels.set_memory(self.id, self.live_bytes)

    def observe(self, context: OperationContext) -> bool:
        """The size at the next start cannot be seen; that the channel runs is enough to undo."""
        return context.channels.read_status(self.id) is not None
