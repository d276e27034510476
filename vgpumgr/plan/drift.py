"""What differs between what is recorded and what is: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from vgpumgr.domain.devices import attachment_of, control_alias, ring_alias
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.note import describe_record, rebuild_records
from vgpumgr.plan.record import AttachmentRecord, AttachmentState, HostDeviceKind
from vgpumgr.virtio.channel import ChannelStatus


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


#: what ``recover`` makes good without being asked for more
REPAIRED = frozenset(
    {
        DriftKind.KEEPER_GONE,
        DriftKind.WORKER_DOWN,
        DriftKind.NOTE_GONE,
        DriftKind.VM_RENAMED,
        DriftKind.RECORD_GONE,
        DriftKind.STRAY_CHANNEL,
        DriftKind.HALF_DONE,
    }
)


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; ``subject`` is the VM's name or what else it is about."""

    kind: DriftKind
    subject: str
    text: str
    attachment: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Observed:
    """All that drift is found from. ``settled``: what the journal last said of attachments."""

    records: Sequence[AttachmentRecord]
    vms: Sequence[Vm]
    gpus: Sequence[Gpu]
    statuses: Mapping[str, ChannelStatus | None]
    channels: Sequence[str] = ()
    settled: Mapping[str, bool] = field(default_factory=dict)
    #: attachments that an unfinished operation accounts for
    busy: frozenset[str] = frozenset()
    #: attachments whose device is not on the host, and what is missing
    absent: Mapping[str, str] = field(default_factory=dict)
    #: who still has the devices of attachments that are half there
    held: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def find_vm(self, uuid: str) -> Vm | None:
        """The VM of that UUID."""
        return next((vm for vm in self.vms if vm.uuid == uuid), None)

    def find_gpu(self, record: AttachmentRecord) -> Gpu | None:
        """The GPU of the record."""
        return next((gpu for gpu in self.gpus if gpu.uuid == record.gpu), None)


def find_drift(observed: Observed) -> tuple[Drift, ...]:
    """Every difference, attachments first, then what belongs to none."""
    found: list[Drift] = []
    for record in observed.records:
        if record.id in observed.busy:
            continue
        if record.state is not AttachmentState.ATTACHED:
            text = tell_half(record, observed.held.get(record.id, ()))
            found.append(_of(record, DriftKind.HALF_DONE, text, "vgpumgr recover"))
        else:
            found += _find_of_record(observed, record)
    return (*found, *_find_strays(observed))


def _of(record: AttachmentRecord, kind: DriftKind, text: str, hint: str | None = None) -> Drift:
    return Drift(kind, record.vm_name, text, record.id, hint)


def tell_half(record: AttachmentRecord, held_by: Sequence[str]) -> str:
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


def _find_of_record(observed: Observed, record: AttachmentRecord) -> Iterator[Drift]:
    vm = observed.find_vm(record.vm_uuid)
    if vm is None:
        hint = f"vgpumgr detach {record.id}, or vgpumgr recover --release"
        yield _of(record, DriftKind.VM_GONE, "the VM is no longer defined", hint)
        return
    yield from _find_on_host(observed, record)
    yield from _find_in_domain(record, vm)


def _find_on_host(observed: Observed, record: AttachmentRecord) -> Iterator[Drift]:
    gpu, status = observed.find_gpu(record), observed.statuses.get(record.id)
    if record.host_devices:
        # no vendor library sees a GPU that a VM has; its devices tell
        if what := observed.absent.get(record.id):
            yield _of(record, DriftKind.SLICE_GONE, what, tell_remedy(record))
    elif gpu is None:
        yield _of(record, DriftKind.GPU_GONE, f"its GPU {record.gpu} is gone")
    elif record.mig_part is not None and not has_slice(record, gpu):
        text = f"its slice {record.profile} at {record.placement} on {gpu} is gone"
        yield _of(record, DriftKind.SLICE_GONE, text, "vgpumgr restore")
    elif record.channel is not None and status is None:
        yield _of(record, DriftKind.KEEPER_GONE, "its keeper does not run", "vgpumgr recover")
    elif record.channel is not None and status is not None and status.worker_failed:
        text = f"its worker does not start: {status.problem or 'it ends again and again'}"
        yield _of(record, DriftKind.WORKER_DOWN, text, "vgpumgr recover")


def tell_remedy(record: AttachmentRecord) -> str:
    """For an attachment whose device is gone: what we made can be made again, hardware cannot."""
    if any(device.kind is HostDeviceKind.PCI for device in record.host_devices):
        return f"vgpumgr detach {record.vm_name}, unless the device comes back"
    return "vgpumgr restore"


def find_drift_on_host(observed: Observed) -> tuple[Drift, ...]:
    """What can be told of whole attachments without their VMs: slices, keepers, workers."""
    return tuple(
        drift
        for record in observed.records
        if record.id not in observed.busy and record.state is AttachmentState.ATTACHED
        for drift in _find_on_host(observed, record)
    )


def _find_in_domain(record: AttachmentRecord, vm: Vm) -> Iterator[Drift]:
    if vm.name != record.vm_name:
        text = f"the VM is called {vm.name} now"
        yield _of(record, DriftKind.VM_RENAMED, text, "vgpumgr recover")
    missing = list_missing_devices(record, vm)
    if missing:
        text = f"its definition has lost {' and '.join(missing)}"
        hint = f"vgpumgr detach {record.vm_name}, or vgpumgr recover --readd"
        yield _of(record, DriftKind.DEVICE_GONE, text, hint)
    if vm.find_note(record.id) != describe_record(record):
        text = "the note in its metadata is missing or old"
        yield _of(record, DriftKind.NOTE_GONE, text, "vgpumgr recover")


def list_missing_devices(record: AttachmentRecord, vm: Vm) -> list[str]:
    """Aliases that neither the definition nor the running machine has; all or none of a live-only
    attachment are in the running machine.
    """
    wanted = [ring_alias(record.id)] if record.has_ring else []
    wanted += [control_alias(record.id)] if record.has_serial else []
    wanted += [device.alias for device in record.host_devices]
    live = set(vm.live.own_aliases()) if vm.live else set()
    config = set(vm.config.own_aliases()) if vm.config else set()
    if config & set(wanted):
        return [alias for alias in wanted if alias not in config]
    return [] if live & set(wanted) else wanted


def has_slice(record: AttachmentRecord, gpu: Gpu) -> bool:
    """Whether the record's GPU and compute instance are there as recorded."""
    if record.mig is None:
        return False
    for instance in gpu.instances:
        if instance.placement == record.placement:
            uuids = {compute.uuid for compute in instance.compute_instances}
            return instance.id == record.mig.gpu_instance_id and record.mig.uuid in uuids
    return False


def is_whole(observed: Observed, record: AttachmentRecord) -> bool:
    """Whether everything of an attachment is there, so that only its mark can be missing."""
    vm, gpu = observed.find_vm(record.vm_uuid), observed.find_gpu(record)
    if vm is None or vm.find_note(record.id) is None or list_missing_devices(record, vm):
        return False
    return record.mig_part is None or (gpu is not None and has_slice(record, gpu))


def list_rebuildable(observed: Observed) -> list[AttachmentRecord]:
    """Attachments that a VM's note describes and nobody remembers. One that the journal says was
    detached is not rebuilt, nor one whose id two VMs claim.
    """
    known = {record.id for record in observed.records}
    numbers = {(record.vm_uuid, record.number) for record in observed.records}
    found = [record for vm in observed.vms for record in rebuild_records(vm)]
    ids = [record.id for record in found]
    return [
        record
        for record in found
        if record.id not in known
        and (record.vm_uuid, record.number) not in numbers
        and record.id not in observed.busy
        and ids.count(record.id) == 1
        and observed.settled.get(record.id) is not False
    ]


def _find_strays(observed: Observed) -> Iterator[Drift]:
    known = {record.id for record in observed.records} | observed.busy
    for record in list_rebuildable(observed):
        text = f"attachment {record.id} is noted in its metadata but not recorded"
        yield _of(record, DriftKind.RECORD_GONE, text, "vgpumgr recover")
        known.add(record.id)
    for vm in observed.vms:
        yield from _find_strays_of_vm(vm, known)
    for channel in observed.channels:
        if channel not in known:
            text = "a channel that belongs to no attachment"
            yield Drift(DriftKind.STRAY_CHANNEL, channel, text, hint="vgpumgr recover")


def _find_strays_of_vm(vm: Vm, known: set[str]) -> Iterator[Drift]:
    own = {alias for d in (vm.live, vm.config) if d for alias in d.own_aliases()}
    stray = sorted(alias for alias in own if attachment_of(alias) not in known)
    if stray:
        text = f"has devices of no recorded attachment: {', '.join(stray)}"
        hint = f"vgpumgr detach {vm.name}"
        yield Drift(DriftKind.STRAY_DEVICES, vm.name, text, hint=hint)
        return
    for note in vm.notes:
        if note.id not in known:
            text = f"its metadata notes attachment {note.id}, which is not recorded"
            yield Drift(DriftKind.STRAY_NOTE, vm.name, text, hint=f"vgpumgr detach {vm.name}")
