"""Models to documents: plans, attachments, VMs and channels."""

from __future__ import annotations

from typing import Literal, cast

from vgpumgr.daemon.attachment_documents import (
    AttachmentDocument,
    ChannelDocument,
    LaneDocument,
    PlanDocument,
    StepDocument,
    VmDocument,
)
from vgpumgr.daemon.documents import PlacementDocument
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.step import Plan
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import ChannelStatus, Lane


def describe_plan(plan: Plan[World]) -> PlanDocument:
    """The document of a plan."""
    steps = [
        StepDocument(kind=step.kind, target=dict(step.target), description=step.describe())
        for step in plan.steps
    ]
    return PlanDocument(
        operation=cast(Literal["attach", "detach"], plan.operation),
        subject=plan.subject,
        on_failure=plan.on_failure.value,
        notes=list(plan.notes),
        result=dict(plan.result),
        steps=steps,
    )


def describe_attachment(record: AttachmentRecord) -> AttachmentDocument:
    """The document of an attachment."""
    mig = record.mig
    return AttachmentDocument(
        id=record.id,
        vm=record.vm_name,
        vm_uuid=record.vm_uuid,
        profile=record.profile,
        backend=record.backend.value,
        transport=record.transport.value,
        state=record.state.value,
        gpu=record.gpu,
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        compute_instance_id=mig.compute_instance_id if mig else None,
        device=str(mig.uuid) if mig else None,
        placement=PlacementDocument(start=record.placement.start, size=record.placement.size),
        memory_bytes=record.memory_bytes,
        created_s=record.created_s,
    )


def describe_channel(record: AttachmentRecord, status: ChannelStatus | None) -> ChannelDocument:
    """The document of an attachment's channel, whether its keeper runs or not."""
    lanes = [_describe_lane(lane) for lane in status.lanes] if status else []
    return ChannelDocument(
        id=record.id,
        vm=record.vm_name,
        device=str(record.mig.uuid) if record.mig else None,
        running=status is not None,
        keeper_pid=status.keeper_pid if status else None,
        worker_pid=status.worker_pid if status else None,
        worker_ready=status is not None and status.worker_ready,
        worker_restarts=status.worker_restarts if status else 0,
        hello=status is not None and status.hello,
        transport=_transport(status),
        ring_bytes=status.memory_bytes if status else 0,
        problem=status.problem if status else "its keeper does not run",
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
    vm: Vm, record: AttachmentRecord | None, status: ChannelStatus | None
) -> VmDocument:
    """The document of a VM with its attachment."""
    return VmDocument(
        name=vm.name,
        uuid=vm.uuid,
        state=vm.state.value,
        persistent=vm.config is not None,
        attachment=describe_attachment(record) if record else None,
        usable=tell_usable(vm, record, status),
        devices_live=_aliases(vm.live),
        devices_config=_aliases(vm.config),
        channel=describe_channel(record, status) if record else None,
        problems=_list_problems(vm, record, status),
    )


def describe_undefined_vm(record: AttachmentRecord, status: ChannelStatus | None) -> VmDocument:
    """The document of a VM that libvirt no longer knows but that has an attachment."""
    return VmDocument(
        name=record.vm_name,
        uuid=record.vm_uuid,
        state="undefined",
        persistent=False,
        attachment=describe_attachment(record),
        usable=None,
        devices_live=[],
        devices_config=[],
        channel=describe_channel(record, status),
        problems=[f"the VM is no longer defined; free its slice: vgpumgr detach {record.vm_name}"],
    )


def tell_usable(
    vm: Vm, record: AttachmentRecord | None, status: ChannelStatus | None
) -> Literal["now", "next-start"] | None:
    """When the guest can use its slice: live counts only after its agent's hello."""
    if record is None or record.state is not AttachmentState.ATTACHED:
        return None
    if vm.is_active and status is not None and status.hello and _aliases(vm.live):
        return "now"
    return "next-start" if _aliases(vm.config) or _aliases(vm.live) else None


def _aliases(domain: Domain | None) -> list[str]:
    return sorted(domain.own_aliases()) if domain else []


def _list_problems(
    vm: Vm, record: AttachmentRecord | None, status: ChannelStatus | None
) -> list[str]:
    if record is None:
        found = {*_aliases(vm.live), *_aliases(vm.config)}
        return (
            [f"has devices of no recorded attachment: {', '.join(sorted(found))}"] if found else []
        )
    problems = []
    if record.state is not AttachmentState.ATTACHED:
        problems.append(f"was interrupted while {record.state}; vgpumgr detach {vm.name}")
    if status is None:
        problems.append("its keeper does not run: the guest has no GPU, and the VM does not start")
    elif not status.worker_ready:
        problems.append(f"its worker is not ready: {status.problem or 'starting'}")
    if vm.config is not None and not _aliases(vm.config) and not _aliases(vm.live):
        problems.append("its devices were removed from the domain")
    return problems
