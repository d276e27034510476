"""Drift: one difference between recorded and actual state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, HostDeviceKind
from vgpumgr.model.gpu import Gpu


class DriftKind(StrEnum):
    """What can differ."""

    GPU_GONE = "gpu-gone"
    SLICE_GONE = "slice-gone"
    KEEPER_GONE = "keeper-gone"
    WORKER_DOWN = "worker-down"
    DEVICE_GONE = "device-gone"
    NOTE_GONE = "note-gone"
    VM_RENAMED = "vm-renamed"
    VM_GONE = "vm-gone"
    RECORD_GONE = "record-gone"
    STRAY_DEVICES = "stray-devices"
    STRAY_NOTE = "stray-note"
    STRAY_CHANNEL = "stray-channel"
    HALF_DONE = "half-done"
    FUNCTION_GONE = "function-gone"
    DRIVER_CHANGED = "driver-changed"
    VFS_CHANGED = "vfs-changed"
    NOT_RESTORED = "not-restored"
    PCI_STALLED = "pci-stalled"
    VGPU_GONE = "vgpu-gone"
    VGPU_HELD = "vgpu-held"
    #: the state file; its copy; both, so that something is lost
    STATE_DAMAGED = "state-damaged"
    STATE_COPY = "state-copy"
    STATE_LOST = "state-lost"


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; ``subject`` is the VM's name or what else it is about."""

    kind: DriftKind
    subject: str
    text: str
    attachment: str | None = None
    hint: str | None = None


def make_drift(
    record: AttachmentRecord, kind: DriftKind, text: str, hint: str | None = None
) -> Drift:
    """A difference of an attachment."""
    return Drift(kind, record.vm_name, text, record.id, hint)


def describe_half(record: AttachmentRecord, held_by: Sequence[str]) -> str:
    """What is known of an attachment that is neither there nor gone, and what completes it."""
    if not held_by:
        return f"was interrupted while {record.state}"
    devices = ", ".join(device.place for device in record.host_devices)
    detaching = record.state is AttachmentState.DETACHING
    what = "is being detached" if detaching else f"was interrupted while {record.state}"
    return (
        f"{what}: {devices} is still held by {', '.join(held_by)}; it is "
        f"{'completed' if detaching else 'undone'} as soon as that is over, by the daemon or the next "
        "command that changes something"
    )


def describe_remedy(record: AttachmentRecord) -> str:
    """For an attachment whose device is gone: what we made can be made again, hardware cannot."""
    if any(device.kind is HostDeviceKind.PCI for device in record.host_devices):
        return f"vgpumgr detach {record.vm_name}, unless the device comes back"
    return "vgpumgr restore"


def has_slice(record: AttachmentRecord, gpu: Gpu) -> bool:
    """Whether the record's GPU and compute instance are there as recorded."""
    if record.mig is None:
        return False
    for instance in gpu.instances:
        if instance.placement == record.placement:
            uuids = {compute.uuid for compute in instance.compute_instances}
            return instance.id == record.mig.gpu_instance_id and record.mig.uuid in uuids
    return False
