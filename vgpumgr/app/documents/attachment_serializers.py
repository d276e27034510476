"""Models to documents: plans, attachments, VMs and channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

from vgpumgr.app.documents.attachments import (
    AttachmentDocument,
    ChannelDocument,
    HostDeviceDocument,
    LaneDocument,
    PlanDocument,
    StepDocument,
    VmDocument,
)
from vgpumgr.app.documents.base import PlacementDocument
from vgpumgr.domain.devices import attachment_of
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.engine.step import Plan
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, HostDevice
from vgpumgr.planning.drift import describe_half, describe_remedy
from vgpumgr.virtio.channel import ChannelStatus, Lane

Usable = Literal["now", "next-start"] | None
#: what helps whoever may not look at a channel
HIDDEN = "sudo vgpumgr vm list, or ask the daemon as a member of vgpumgr or vgpumgr-ro"
#: an attachment and its channel as it is now
Seen = tuple[AttachmentRecord, ChannelStatus | None]


def describe_plan(plan: Plan) -> PlanDocument:
    """The document of a plan."""
    steps = [StepDocument(**step.as_dict()) for step in plan.steps]
    return PlanDocument(
        operation=cast(Literal["attach", "detach"], plan.operation),
        subject=plan.subject,
        on_failure=plan.on_failure.value,
        notes=list(plan.notes),
        result=dict(plan.result),
        steps=steps,
    )


def describe_attachment(record: AttachmentRecord, usable: Usable = None) -> AttachmentDocument:
    """The document of an attachment."""
    mig, place = record.mig, record.placement
    return AttachmentDocument(
        id=record.id,
        vm=record.vm_name,
        vm_uuid=record.vm_uuid,
        profile=record.profile,
        backend=record.backend.value,
        number=record.number,
        transport=record.channel.transport.value if record.channel else None,
        state=record.state.value,
        usable=usable,
        gpu=record.gpu,
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        compute_instance_id=mig.compute_instance_id if mig else None,
        device=str(mig.uuid) if mig else None,
        placement=PlacementDocument(start=place.start, size=place.size) if place else None,
        memory_bytes=record.memory_bytes,
        created_s=record.created_s,
        host_devices=[_describe_host_device(device) for device in record.host_devices],
    )


def _describe_host_device(device: HostDevice) -> HostDeviceDocument:
    return HostDeviceDocument(
        kind=device.kind.value,
        address=device.place,
        alias=device.alias,
        previous_driver=device.previous_driver,
        uuid=device.vgpu.uuid if device.vgpu else None,
        type=device.vgpu.type_name if device.vgpu else None,
        parent=str(device.parent) if device.parent else None,
    )


def describe_channel(record: AttachmentRecord, status: ChannelStatus | None) -> ChannelDocument:
    """The document of an attachment's channel, whether its keeper runs or not."""
    lanes = [_describe_lane(lane) for lane in status.lanes] if status else []
    return ChannelDocument(
        id=record.id,
        vm=record.vm_name,
        profile=record.profile,
        device=str(record.mig.uuid) if record.mig else None,
        running=status is not None,
        keeper_pid=status.keeper_pid or None if status else None,
        worker_pid=status.worker_pid if status else None,
        worker_ready=status is not None and status.worker_ready,
        worker_restarts=status.worker_restarts if status else 0,
        hello=status is not None and status.hello,
        transport=_transport(status),
        ring_bytes=status.memory_bytes if status else 0,
        problem=status.problem if status else "its keeper does not run",
        hidden=status is not None and status.hidden,
        lanes=lanes,
        calls=status.calls if status else 0,
        bytes_in=status.bytes_in if status else 0,
        bytes_out=status.bytes_out if status else 0,
        memory_bytes=sum(lane.memory_bytes for lane in lanes),
    )


def _transport(status: ChannelStatus | None) -> Literal["ring", "serial"] | None:
    if status is None or not status.hello:
        return None
    return "ring" if status.hello_ring else "serial"


def _describe_lane(lane: Lane) -> LaneDocument:
    return LaneDocument(
        id=lane.id,
        pid=lane.pid,
        name=lane.name,
        transport="ring" if lane.ring else "serial",
        calls=lane.calls,
        bytes_in=lane.bytes_in,
        bytes_out=lane.bytes_out,
        memory_bytes=lane.memory_bytes,
    )


def describe_vm(
    vm: Vm,
    seen: Sequence[Seen],
    held: Mapping[str, Sequence[str]] | None = None,
    absent: Mapping[str, str] | None = None,
) -> VmDocument:
    """The document of a VM with its attachments, in their order; ``held`` says who keeps those that
    are half there, ``absent`` what is missing of those whose device is gone.
    """
    usable = [tell_usable(vm, record, status) for record, status in seen]
    attachments = [describe_attachment(seen[i][0], usable[i]) for i in range(len(seen))]
    channels = _describe_channels(seen)
    return VmDocument(
        name=vm.name,
        uuid=vm.uuid,
        state=vm.state.value,
        persistent=vm.config is not None,
        attachment=attachments[0] if attachments else None,
        attachments=attachments,
        usable=usable[0] if usable else None,
        devices_live=_aliases(vm.live),
        devices_config=_aliases(vm.config),
        channel=channels[0] if channels else None,
        channels=channels,
        problems=[*_list_problems(vm, seen, held or {}), *_list_absent(seen, absent or {})],
    )


def describe_undefined_vm(seen: Sequence[Seen]) -> VmDocument:
    """The document of a VM that libvirt no longer knows but that has attachments."""
    first, channels = seen[0][0], _describe_channels(seen)
    attachments = [describe_attachment(record) for record, _ in seen]
    every = " --all" if len(seen) > 1 else ""
    hint = f"vgpumgr detach {first.vm_name}{every}"
    return VmDocument(
        name=first.vm_name,
        uuid=first.vm_uuid,
        state="undefined",
        persistent=False,
        attachment=attachments[0],
        attachments=attachments,
        usable=None,
        devices_live=[],
        devices_config=[],
        channel=channels[0] if channels else None,
        channels=channels,
        problems=[f"the VM is no longer defined; free its slice: {hint}"],
    )


def _describe_channels(seen: Sequence[Seen]) -> list[ChannelDocument]:
    return [describe_channel(r, status) for r, status in seen if r.channel is not None]


def tell_usable(vm: Vm, record: AttachmentRecord, status: ChannelStatus | None) -> Usable:
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
        yield f"{describe_half(record, held_by)}; vgpumgr detach {vm.name}"
    if record.channel is None:
        pass
    elif status is None:
        yield "its keeper does not run: the guest has no GPU, and the VM does not start"
    elif status.hidden:
        yield f"whether its worker is ready is not known to this user: {HIDDEN}"
    elif not status.worker_ready:
        yield f"its worker is not ready: {status.problem or 'starting'}"
    gone = not _aliases(vm.config, record.id) and not _aliases(vm.live, record.id)
    # of one that is half there nobody knows that: QEMU may have them, and libvirt not know
    if vm.config is not None and gone and not half:
        yield "its devices were removed from the domain"
