"""Drift: one difference between recorded and actual state; and those of functions that were taken from the host and of
vGPUs that belong to no attachment (``backends/drift.py`` has the attachments').
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, HostDeviceKind
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import Binding, Function, VfSetting, find_function
from vgpumgr.model.vgpu import VgpuRecord, VgpuState

if TYPE_CHECKING:
    from vgpumgr.planning.snapshot import Snapshot


RESTORE = "vgpumgr restore"


class DriftKind(StrEnum):
    """What can differ."""

    GPU_GONE = "gpu-gone"
    SLICE_GONE = "slice-gone"
    KEEPER_GONE = "keeper-gone"
    WORKER_DOWN = "worker-down"
    ARBITER_GONE = "arbiter-gone"
    SHRINK_DUE = "shrink-due"
    DEVICE_GONE = "device-gone"
    NOTE_GONE = "note-gone"
    VM_RENAMED = "vm-renamed"
    VM_GONE = "vm-gone"
    RECORD_GONE = "record-gone"
    METADATA_UNREADABLE = "metadata-unreadable"
    STRAY_DEVICES = "stray-devices"
    STRAY_NOTE = "stray-note"
    STRAY_CHANNEL = "stray-channel"
    HALF_DONE = "half-done"
    RUN_ENDED = "run-ended"
    CLAIM_LOST = "claim-lost"
    LINK_DOWN = "link-down"
    FUNCTION_GONE = "function-gone"
    DRIVER_CHANGED = "driver-changed"
    VFS_CHANGED = "vfs-changed"
    NOT_RESTORED = "not-restored"
    PCI_STALLED = "pci-stalled"
    VGPU_GONE = "vgpu-gone"
    VGPU_HELD = "vgpu-held"
    LAYOUT_CHANGED = "layout-changed"
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
        return f"vgpumgr detach {record.vm_word}, unless the device comes back"
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


def _find_in_the_way(record: AttachmentRecord, gpu: Gpu) -> list[str]:
    """The GPU instances, in words, without which the slice of an attachment could be made again."""
    if record.mig_part is None:
        return []
    return [
        f"{instance.profile} at {instance.placement} (GPU instance {instance.id})"
        for instance in gpu.instances
        if instance.placement.overlaps(record.mig_part.placement)
        and (instance.placement, instance.profile_id)
        != (record.mig_part.placement, record.mig_part.gpu_profile_id)
    ]


def _describe_ways(record: AttachmentRecord, in_the_way: Sequence[str]) -> str:
    """What brings the slice of an attachment back, or gives it up."""
    if not in_the_way:
        return RESTORE
    elsewhere = f"vgpumgr attach {record.vm_word} --profile {shlex.quote(record.profile)}"
    return (
        f"vgpumgr detach {record.vm_word} --attachment {record.id}, then {elsewhere} for a slice elsewhere; "
        f"or destroy what is in its place (nvidia-smi mig -dci, -dgi), then {RESTORE}"
    )


def find_lost(record: AttachmentRecord, gpu: Gpu) -> Drift:
    """That the slice of an attachment is gone, with what stands in its place."""
    text = f"its slice {record.profile} at {record.placement} on {gpu} is gone"
    if others := _find_in_the_way(record, gpu):
        text += f"; in its place is {', '.join(others)}"
    return make_drift(record, DriftKind.SLICE_GONE, text, _describe_ways(record, others))


def find_share_lost(record: AttachmentRecord, gpu: Gpu) -> Drift:
    """That a GPU with a share was put into MIG mode by another program."""
    text = f"its GPU, {gpu}, is in MIG mode, which has no shares"
    hint = f"vgpumgr mig disable {gpu.index}, then {RESTORE}; or vgpumgr detach {record.id}"
    return make_drift(record, DriftKind.SLICE_GONE, text, hint)


def describe_lost(record: AttachmentRecord, gpu: Gpu | None) -> str:
    """Why a slice cannot be brought back, and what can be done."""
    if gpu is None:
        return f"its GPU {record.gpu} is gone; vgpumgr detach {record.vm_word} gives the slice up"
    others = _find_in_the_way(record, gpu)
    why = f"in its place is {', '.join(others)}" if others else "nothing of its size stands there"
    return f"{record.placement} on {gpu}: {why}; try: {_describe_ways(record, others)}"


def find_pci_drift(observed: Snapshot, busy: Collection[str] = ()) -> tuple[Drift, ...]:
    """Every difference; ``busy`` are addresses that an unfinished operation accounts for."""
    found: list[Drift] = []
    if observed.stalls:
        text = f"virtual functions are neither made nor removed now: {'; '.join(observed.stalls)}"
        found.append(Drift(DriftKind.PCI_STALLED, "PCI", text))
    for binding in observed.bindings:
        if str(binding.address) not in busy:
            found += _find_of_binding(observed, binding)
    for setting in observed.vf_settings:
        if str(setting.physical) not in busy:
            found += _find_of_setting(observed, setting)
    return tuple(found)


def _find_of_binding(observed: Snapshot, binding: Binding) -> Iterator[Drift]:
    subject = str(binding.address)
    if binding.boot_id != observed.boot_id:
        if binding.persist:
            text = f"was not given to {binding.driver} again after the boot"
            yield Drift(DriftKind.NOT_RESTORED, subject, text, hint="vgpumgr restore")
        return
    now = find_function(observed.functions, binding.address)
    if now is None or not is_same(now, binding):
        text = f"was given to {binding.driver}, and has left the bus"
        hint = f"vgpumgr passthrough unbind {subject}"
        yield Drift(DriftKind.FUNCTION_GONE, subject, text, hint=hint)
    elif now.driver is None and (held := observed.users.get(binding.address)):
        text = f"is being taken from {binding.driver}, which waits for {'; '.join(map(str, held))}"
        yield Drift(DriftKind.DRIVER_CHANGED, subject, text)
    elif now.driver != binding.driver:
        text = f"was given to {binding.driver}, and has {now.driver or 'no driver'} now"
        hint = f"vgpumgr passthrough bind {subject}, or unbind"
        yield Drift(DriftKind.DRIVER_CHANGED, subject, text, hint=hint)


def _find_of_setting(observed: Snapshot, setting: VfSetting) -> Iterator[Drift]:
    subject = str(setting.physical)
    if setting.boot_id != observed.boot_id:
        if setting.persist:
            text = f"its {setting.count} virtual functions were not made again after the boot"
            yield Drift(DriftKind.NOT_RESTORED, subject, text, hint="vgpumgr restore")
        return
    now = find_function(observed.functions, setting.physical)
    count = len(now.vfs) if now else 0
    if count != setting.count:
        text = f"was to have {setting.count} virtual functions, and has {count}"
        hint = f"vgpumgr vf enable {subject} --count {setting.count}"
        yield Drift(DriftKind.VFS_CHANGED, subject, text, hint=hint)


def is_same(function: Function, known: Binding | VfSetting) -> bool:
    """Whether it is still that kind of device: addresses move when boards are moved."""
    return (function.vendor_id, function.device_id) == (known.vendor_id, known.device_id)


def find_vgpu_drift(
    records: Sequence[VgpuRecord],
    boot_id: str,
    present: Collection[str],
    holders: Mapping[str, Sequence[str]],
    busy: Collection[str] = (),
    first: Mapping[str, str] | None = None,
) -> Iterator[Drift]:
    """Every difference. ``present``: UUIDs of records whose vGPU is there; ``holders``: who has one
    open that is not, by UUID; ``busy``: those that an unfinished operation accounts for; ``first``:
    the command without which nothing can bring one back, by UUID.
    """
    for record in records:
        uuid = record.spec.uuid
        if record.attachment is not None or uuid in busy or uuid in present:
            continue
        if record.is_missing(boot_id):
            yield from _find_since_boot(record, (first or {}).get(uuid))
        elif record.state is VgpuState.ACTIVE:
            yield _tell_gone(record, holders.get(uuid, ()))


def _find_since_boot(record: VgpuRecord, first: str | None) -> Iterator[Drift]:
    """Only what is to start by itself is missing; anything else ended with the boot it was made in."""
    if record.defined and record.auto:
        text = f"vGPU {record.spec.type_name} on {record.spec.parent} was not created again after the boot"
        if first is not None:
            text += f", which took the function: once it is there again, {RESTORE} brings it back"
        yield Drift(DriftKind.NOT_RESTORED, record.spec.uuid, text, hint=first or RESTORE)


def _tell_gone(record: VgpuRecord, held_by: Sequence[str]) -> Drift:
    uuid, what = record.spec.uuid, f"vGPU {record.spec.type_name} on {record.spec.parent}"
    if held_by:
        text = (
            f"{what} was removed by another program while {', '.join(held_by)} has it open: "
            "its capacity is taken until its holder closes it"
        )
        hint = f"end who holds it, then: vgpumgr mdev start {uuid}, or mdev delete {uuid}"
        return Drift(DriftKind.VGPU_HELD, uuid, text, hint=hint)
    text = f"{what} was removed by another program"
    hint = f"vgpumgr mdev start {uuid}, or mdev delete {uuid}"
    return Drift(DriftKind.VGPU_GONE, uuid, text, hint=hint)
