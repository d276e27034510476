"""Documents of VMs, attachments and channels; see ``documents.base`` for the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from vgpumgr.app.documents.base import (
    SCHEMA,
    Document,
    Field,
    PlacementDocument,
    PlanDocument,
    VgpuPlanDocument,
)
from vgpumgr.app.documents.shares import (
    ChannelShareDocument,
    ShareDocument,
    describe_channel_share,
    describe_share,
    list_share_warnings,
)
from vgpumgr.app.documents.workers import (
    HostLibraryDocument,
    LinkSessionDocument,
    SandboxDocument,
)
from vgpumgr.domain.devices import attachment_of, ring_alias
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, HostDevice
from vgpumgr.model.limits import parse_limits
from vgpumgr.model.text import format_time, format_vm
from vgpumgr.planning.drift import describe_half, describe_remedy
from vgpumgr.virtio.channel import ChannelStatus, LimitUse


class HostDeviceDocument(Document):
    """A device of the host that a VM is given."""

    kind: Literal["pci", "vf", "mdev"]
    address: str = Field(description="the PCI function; for a vGPU its parent")
    alias: str = Field(description="in the domain")
    previous_driver: str | None = Field(description="bound again by detach")
    uuid: str | None = Field(description="of a mediated device")
    type: str | None = Field(description="vGPU type")
    parent: str | None = Field(description="physical function of a virtual function")


class RunnerDocument(Document):
    """The command of the host that has a slice in the place of a VM."""

    pid: int = Field(description="of vgpumgr run")
    uid: int
    command: str = Field(description="its name, without arguments")


class AttachmentDocument(Document):
    """A slice that belongs to a VM, or to a run."""

    id: str
    vm: str
    vm_uuid: str
    profile: str
    backend: str
    number: int = Field(description="in its VM; guests see their devices in this order")
    transport: Literal["auto", "ring", "serial"] | None = Field(description="of a channel")
    state: Literal["attaching", "attached", "detaching"]
    usable: Literal["now", "next-start"] | None = Field(description="when the guest can use it")
    gpu: str | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    device: str | None = Field(
        description="what CUDA calls the slice: MIG-..., or the GPU of a share: GPU-..."
    )
    placement: PlacementDocument | None = Field(description="of its GPU instance")
    memory_bytes: int
    created_s: float
    host_devices: list[HostDeviceDocument]
    run: RunnerDocument | None = Field(
        default=None, description="of a run, whose name is in the place of the VM's"
    )
    share: ShareDocument | None = Field(default=None, description="null: it is no share")
    claim: str | None = Field(
        default=None, description="of a pool, whose lease reserves it; null: none does"
    )


class LaneDocument(Document):
    """A guest process that uses the channel, as the guest names it."""

    id: int
    pid: int
    name: str
    transport: Literal["ring", "serial"]
    calls: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int


class SessionEventDocument(Document):
    """A guest process's session on the host that needs an administrator's eye."""

    kind: Literal["slow", "stuck", "ended", "memory"] = Field(
        description="its call lasts; it was killed and does not end; it crashed or was killed; it was ended for more "
        "device memory than it counted"
    )
    lane: int = Field(description="number of the guest process's stream")
    pid: int | None = Field(description="of its process on the host; null: it has ended")
    since_s: int = Field(description="when that began, in seconds since 1970")
    guest_pid: int | None = Field(description="by the guest's word; null: not known")
    name: str = Field(description="of the guest's process, by its word")
    text: str = Field(description="which call, or how it ended")


class SessionsDocument(Document):
    """The sessions of a channel's worker since it started, but for those that ended as they should."""

    lost: int = Field(description="crashed, or killed by others than the worker")
    faults: int = Field(description="how many of them crashed")
    overdue: int = Field(description="ended by the watchdog")
    memory: int = Field(
        default=0,
        description="how many of those lost were ended for more device memory than they counted",
    )
    events: list[SessionEventDocument] = Field(description="of now, and the last ends")


class RefusedCallDocument(Document):
    """A call that the guest's libraries do not support; ``others``: names for which there was no place."""

    name: str = Field(description="as the CUDA API has it")
    count: int


class LimitDocument(Document):
    """A limit of a VM, over all its processes, and what is used of it."""

    key: str = Field(description="as --limit names it")
    unit: Literal["bytes", "count", "percent"] = Field(
        description="of limit and used; percent is of one processor"
    )
    limit: int | None = Field(description="null: none is enforced")
    used: int | None = Field(description="now; null: not counted, as of what is a second")
    refused: int = Field(description="how often more was refused")
    waited_s: float = Field(description="how long calls were held up")
    driver_used: int | None = Field(
        default=None,
        description="of device-memory: what the driver says that all processes have, less 1 GiB of each",
    )
    unchecked: str | None = Field(
        default=None,
        description="of device-memory: why the daemon does not compare the limit with that",
    )


class ChannelDocument(Document):
    """An attachment's channel: keeper, worker, and who speaks on it."""

    id: str
    vm: str
    profile: str
    device: str | None
    running: bool = Field(description="its keeper runs")
    keeper_pid: int | None
    worker_pid: int | None
    worker_ready: bool
    worker_restarts: int
    hello: bool = Field(description="the guest's agent has spoken")
    transport: Literal["ring", "serial"] | None = Field(description="what the guest uses")
    ring_bytes: int
    problem: str | None
    hidden: bool = Field(
        default=False, description="this user may not look; the rest is not known, not absent"
    )
    lanes: list[LaneDocument]
    calls: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int = Field(description="device memory that the guest's processes hold")
    keeper_hangs: bool = Field(
        default=False, description="its keeper runs and does not answer: virtio restart ends it"
    )
    protocol_errors: int = Field(
        default=0, description="sessions ended because the guest broke the protocol"
    )
    sessions: SessionsDocument | None = Field(
        default=None, description="null: nothing is known of them"
    )
    refused: list[RefusedCallDocument] = Field(
        default_factory=list, description="calls that are not supported, the most frequent first"
    )
    limits: list[LimitDocument] = Field(
        default_factory=list,
        description="as enforced; without a keeper, as the next one will have them",
    )
    run: RunnerDocument | None = Field(
        default=None, description="of a run, whose name is in the place of the VM's"
    )
    share: ChannelShareDocument | None = Field(default=None, description="null: it is no share")
    gpu_host: str | None = Field(default=None, description="whose GPU it is; null: this host's")


class VmDocument(Document):
    """A VM and what it has."""

    name: str
    uuid: str
    state: Literal["running", "paused", "shut off", "undefined"]
    persistent: bool
    attachment: AttachmentDocument | None = Field(description="the first of its attachments")
    attachments: list[AttachmentDocument] = Field(description="all, by number")
    usable: Literal["now", "next-start"] | None = Field(
        description="when the guest can use the first"
    )
    devices_live: list[str] = Field(description="aliases of our devices in the running machine")
    devices_config: list[str] = Field(description="aliases of our devices in the definition")
    channel: ChannelDocument | None = Field(description="the first of its channels")
    channels: list[ChannelDocument]
    problems: list[str]


class AttachDocument(Document):
    """``vgpumgr attach -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: PlanDocument
    attachment: AttachmentDocument | None = Field(
        description="null for a dry run; the first of several"
    )
    attachments: list[AttachmentDocument] = Field(description="all that were made")
    usable: Literal["now", "next-start"] | None
    notes: list[str] = Field(description="what happened besides the plan")


class RunDocument(Document):
    """``vgpumgr run --dry-run -o json``, and what ``vgpumgr run`` starts its command with."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: VgpuPlanDocument
    attachment: AttachmentDocument | None = Field(description="null for a dry run")
    agent: list[str] = Field(description="the words that start the guest's agent of the command")
    environment: dict[str, str] = Field(description="the command finds shims and agent by it")
    notes: list[str] = Field(description="what happened besides the plan")


class BindDocument(Document):
    """What ``vgpumgr run --claim`` waits by."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claim: str = Field(description="name of the claim")
    state: str = Field(description="granted, waiting or ending; idle: nothing wants it")
    answered: bool = Field(
        description="whether a controller of the pool has answered; false: ask again"
    )
    binding: str = Field(description="late: it has a lease while a process wants it; or reserve")
    place: int | None = Field(description="in the queue; null: it does not wait")
    why: str | None = Field(description="why it waits; null: it does not")


class DetachDocument(Document):
    """``vgpumgr detach -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: PlanDocument
    notes: list[str]


class VmListDocument(Document):
    """``vgpumgr vm list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vms: list[VmDocument]


class VmShowDocument(Document):
    """``vgpumgr vm show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vm: VmDocument


class VmXmlDocument(Document):
    """``vgpumgr vm xml -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vm: str
    xml: str = Field(description="the whole definition, as libvirt takes it")
    notes: list[str] = Field(description="how it came about, and advice")


class ChannelListDocument(Document):
    """``vgpumgr virtio list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    channels: list[ChannelDocument]


class ChannelShowDocument(Document):
    """``vgpumgr virtio show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    channel: ChannelDocument
    channels: list[ChannelDocument] = Field(description="all that the selector means")
    sandboxes: list[SandboxDocument] = Field(
        default_factory=list, description="of the channels' workers, in the same order"
    )
    libraries: list[HostLibraryDocument] = Field(
        default_factory=list,
        description="for the guests' cuBLAS, cuDNN, cuFFT, cuSOLVER, cuSPARSE and cuRAND; none without a worker",
    )
    links: list[LinkSessionDocument] = Field(
        default_factory=list, description="of programs to the host of their GPU"
    )


class RestartPlanDocument(VgpuPlanDocument):
    """What a restart of channels does, in order."""

    operation: Literal["restart"]
    subject: str = Field(description="the VM")


class ChannelRestartDocument(Document):
    """``vgpumgr virtio restart -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: RestartPlanDocument
    notes: list[str] = Field(description="what happened besides the plan")


class GuestPackageDocument(Document):
    """``vgpumgr virtio guest-package -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    path: str
    files: list[str]


Usable = Literal["now", "next-start"] | None
#: what helps whoever may not look at a channel
HIDDEN = "sudo vgpumgr vm list, or ask the daemon as a member of vgpumgr or vgpumgr-ro"
#: an attachment and its channel as it is now
Seen = tuple[AttachmentRecord, ChannelStatus | None]


def describe_attachment(record: AttachmentRecord, usable: Usable = None) -> AttachmentDocument:
    """The document of an attachment."""
    mig = record.mig
    return AttachmentDocument.of(
        record,
        vm=record.vm_name,
        transport=record.channel.transport.value if record.channel else None,
        usable=usable,
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        compute_instance_id=mig.compute_instance_id if mig else None,
        device=record.cuda_device,
        share=describe_share(record),
        host_devices=[_describe_host_device(device) for device in record.host_devices],
        run=_describe_runner(record),
        claim=record.claim.name if record.claim else None,
    )


def _describe_runner(record: AttachmentRecord) -> RunnerDocument | None:
    return None if record.run is None else RunnerDocument.of(record.run)


def _describe_host_device(device: HostDevice) -> HostDeviceDocument:
    return HostDeviceDocument.of(
        device,
        address=device.place,
        uuid=device.vgpu.uuid if device.vgpu else None,
        type=device.vgpu.type_name if device.vgpu else None,
    )


def make_unknown_status(
    record: AttachmentRecord, problem: str, *, hidden: bool = False
) -> ChannelStatus:
    """The status of a channel that does not answer, and why."""
    return ChannelStatus(
        id=record.id,
        keeper_pid=0,
        worker_pid=None,
        worker_ready=False,
        hello_ring=False,
        hello_serial=False,
        memory_bytes=0,
        problem=problem,
        hidden=hidden,
    )


def describe_channel(record: AttachmentRecord, status: ChannelStatus | None) -> ChannelDocument:
    """The document of an attachment's channel, whether its keeper runs or not."""
    known = status or make_unknown_status(record, "its keeper does not run")
    lanes = [
        LaneDocument.of(lane, transport="ring" if lane.ring else "serial") for lane in known.lanes
    ]
    used: Literal["ring", "serial"] = "ring" if known.hello_ring else "serial"
    return ChannelDocument.of(
        known,
        vm=record.vm_name,
        profile=record.profile,
        device=record.cuda_device,
        share=describe_channel_share(record, known),
        gpu_host=record.link_host,
        running=status is not None,
        keeper_pid=known.keeper_pid or None,
        transport=used if known.hello else None,
        ring_bytes=known.memory_bytes,
        lanes=lanes,
        limits=[
            LimitDocument.of(one, key=one.key.name, unit=one.key.unit)
            for one in (_list_kept(record) if status is None else known.limits)
        ],
        memory_bytes=sum(lane.memory_bytes for lane in lanes),
        sessions=None if status is None or known.hidden else SessionsDocument.of(known.sessions),
        refused=[
            RefusedCallDocument(name=name, count=count)
            for name, count in sorted(known.refused.items(), key=lambda item: (-item[1], item[0]))
        ],
        run=_describe_runner(record),
    )


def describe_warnings(record: AttachmentRecord, status: ChannelStatus, vm: Vm | None) -> list[str]:
    """What an administrator should know of a channel that works."""
    who, found, sessions = record.vm_name, [], status.sessions
    if status.keeper_hangs:
        return [f"{who}: {status.problem}"]
    if status.guest_differs:
        found.append(f"{who}: {status.guest_differs}")
    for event in sessions.events:
        name = f"{event.name} (guest pid {event.guest_pid})" if event.name else f"lane {event.lane}"
        if event.kind == "slow":
            text = f"{event.text} lasts since {format_time(event.since_s)}"
            found.append(f"{who}: {name}: {text} (session {event.pid})")
        elif event.kind == "stuck":
            text = f"session {event.pid} was killed at {format_time(event.since_s)}"
            where = f", /proc/{event.pid}/stack says where" if event.pid else ""
            found.append(f"{who}: {name}: {text} and does not end: stuck in the driver{where}")
    last = [event for event in sessions.events if event.kind == "ended"][-1:]
    if sessions.lost:
        said = "".join(f", the last {e.text} at {format_time(e.since_s)}" for e in last)
        count = f"{sessions.lost} lost, {sessions.faults} of them by a fault"
        found.append(f"{who}: sessions since the worker started: {count}{said}")
    if sessions.overdue:
        found.append(f"{who}: the watchdog has ended {sessions.overdue} sessions")
    if sessions.memory:
        text = f"{sessions.memory} sessions were ended for more device memory than they counted"
        found.append(f"{who}: {text}: were they taken over?")
    found += [
        f"{who}: nothing outside of its sessions holds the limit {one.key.name}: {one.unchecked}"
        for one in status.limits
        if one.unchecked
    ]
    found += list_share_warnings(record, status)
    return [*found, *_list_qemu_warnings(record, status, vm)]


def _list_qemu_warnings(
    record: AttachmentRecord, status: ChannelStatus, vm: Vm | None
) -> Iterator[str]:
    if vm is None or not record.has_ring or not status.keeper_pid:
        return
    if vm.live is None and status.qemu_pid is not None:
        yield f"{vm}: it is shut off, and its QEMU (pid {status.qemu_pid}) still has the ring"
    has_ring = vm.live is not None and ring_alias(record.id) in vm.live.own_aliases()
    if has_ring and status.qemu_pid is None:
        yield f"{vm}: its QEMU has lost the ring; it has it again from its next start"


def _list_kept(record: AttachmentRecord) -> list[LimitUse]:
    """What the next keeper will enforce: none runs. Of limits that cannot be read, which no keeper starts with, there
    is nothing to show.
    """
    try:
        kept = parse_limits(record.channel.limits if record.channel else ())
    except ValueError:
        return []
    return [LimitUse(key, limit, None) for key, limit in kept.items()]


def describe_vm(
    vm: Vm,
    seen: Sequence[Seen],
    held: Mapping[str, Sequence[str]] | None = None,
    absent: Mapping[str, str] | None = None,
) -> VmDocument:
    """The document of a VM with its attachments, in their order; ``held`` says who keeps those that
    are half there, ``absent`` what is missing of those whose device is gone.
    """
    usable = [find_usable(vm, record, status) for record, status in seen]
    return VmDocument(
        name=vm.name,
        uuid=vm.uuid,
        state=vm.state.value,
        persistent=vm.config is not None,
        **_describe_seen(seen, usable),
        devices_live=_aliases(vm.live),
        devices_config=_aliases(vm.config),
        problems=[*_list_problems(vm, seen, held or {}), *_list_absent(seen, absent or {})],
    )


def describe_undefined_vm(seen: Sequence[Seen]) -> VmDocument:
    """The document of a VM that libvirt no longer knows but that has attachments."""
    first = seen[0][0]
    every = " --all" if len(seen) > 1 else ""
    hint = f"vgpumgr detach {first.vm_word}{every}"
    return VmDocument(
        name=first.vm_name,
        uuid=first.vm_uuid,
        state="undefined",
        persistent=False,
        **_describe_seen(seen, [None for _ in seen]),
        devices_live=[],
        devices_config=[],
        problems=[f"the VM is no longer defined; free its slice: {hint}"],
    )


def _describe_seen(seen: Sequence[Seen], usable: Sequence[Usable]) -> dict[str, Any]:
    """What a VM has: attachments and channels, and the first of each."""
    attachments = [
        describe_attachment(record, when) for (record, _), when in zip(seen, usable, strict=True)
    ]
    channels = [describe_channel(r, status) for r, status in seen if r.channel is not None]
    return {
        "attachment": attachments[0] if attachments else None,
        "attachments": attachments,
        "usable": usable[0] if usable else None,
        "channel": channels[0] if channels else None,
        "channels": channels,
    }


def find_usable(vm: Vm, record: AttachmentRecord, status: ChannelStatus | None) -> Usable:
    """When the guest can use its slice: live counts only after its agent's hello."""
    if record.state is not AttachmentState.ATTACHED:
        return None
    live, config = _aliases(vm.live, record.id), _aliases(vm.config, record.id)
    answers = record.channel is None or (status is not None and status.hello)
    if vm.is_active and live and status is not None and status.hidden:
        return None  # nobody who may not look can tell
    if vm.is_active and answers and live:
        return "now"
    return "next-start" if config or live else None


def _aliases(domain: Domain | None, attachment: str | None = None) -> list[str]:
    own = domain.own_aliases() if domain else ()
    return sorted(alias for alias in own if attachment in (None, attachment_of(alias)))


def _list_absent(seen: Sequence[Seen], absent: Mapping[str, str]) -> list[str]:
    return [f"{absent[r.id]}; {describe_remedy(r)}" for r, _ in seen if r.id in absent]


def _list_problems(vm: Vm, seen: Sequence[Seen], held: Mapping[str, Sequence[str]]) -> list[str]:
    known = {record.id for record, _ in seen}
    found = {*_aliases(vm.live), *_aliases(vm.config)}
    strays = sorted(alias for alias in found if attachment_of(alias) not in known)
    problems = [f"has devices of no recorded attachment: {', '.join(strays)}"] if strays else []
    for record, status in seen:
        name = f"{record.profile} ({record.id}): " if len(seen) > 1 else ""
        problems += [
            name + text for text in _list_problems_of(vm, record, status, held.get(record.id, ()))
        ]
    return problems


def _list_problems_of(
    vm: Vm, record: AttachmentRecord, status: ChannelStatus | None, held_by: Sequence[str]
) -> Iterator[str]:
    half = record.state is not AttachmentState.ATTACHED
    if half:
        yield f"{describe_half(record, held_by)}; vgpumgr detach {format_vm(vm.name, vm.uuid)}"
    if record.channel is None:
        pass
    elif status is None:
        yield "its keeper does not run: the guest has no GPU, and the VM does not start"
    elif status.hidden:
        yield f"whether its worker is ready is not known to this user: {HIDDEN}"
    elif not status.worker_ready:
        yield f"its worker is not ready: {status.problem or 'starting'}"
    elif status.guest_differs:
        yield status.guest_differs
    gone = not _aliases(vm.config, record.id) and not _aliases(vm.live, record.id)
    # of one that is half there nobody knows that: QEMU may have them, and libvirt not know
    if vm.config is not None and gone and not half:
        yield "its devices were removed from the domain"
