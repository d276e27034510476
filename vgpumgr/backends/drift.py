"""Detects drift between the attachments that are recorded and actual state: pure."""

from __future__ import annotations

from collections.abc import Iterator

from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.devices import attachment_of
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.text import format_vm
from vgpumgr.planning.drift import Drift, DriftKind, describe_half, make_drift
from vgpumgr.planning.leased import find_claim_drift
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.domain_metadata import describe_record, list_unreadable, rebuild_records


def find_drift(snapshot: Snapshot) -> tuple[Drift, ...]:
    """Every difference, attachments first, then what belongs to none."""
    found: list[Drift] = []
    for record in snapshot.records:
        if record.id in snapshot.busy:
            continue
        if record.state is not AttachmentState.ATTACHED:
            text = describe_half(record, snapshot.held.get(record.id, ()))
            found.append(make_drift(record, DriftKind.HALF_DONE, text, "vgpumgr recover"))
        else:
            found += _find_of_record(snapshot, record)
    return (*found, *_find_strays(snapshot))


def _find_of_record(snapshot: Snapshot, record: AttachmentRecord) -> Iterator[Drift]:
    if record.run is not None:
        yield from _find_of_run(snapshot, record)
        return
    vm = snapshot.find_vm(record.vm_uuid)
    if vm is None:
        hint = f"vgpumgr detach {record.id}, or vgpumgr recover --release"
        yield make_drift(record, DriftKind.VM_GONE, "the VM is no longer defined", hint)
        return
    yield from find_backend(record.backend).drift(record, snapshot)
    yield from _find_of_claim(record, snapshot)
    yield from _find_in_domain(record, vm)


def _find_of_claim(record: AttachmentRecord, snapshot: Snapshot) -> Iterator[Drift]:
    if record.claim is not None:
        yield from find_claim_drift(record, snapshot.pool)


def _find_of_run(snapshot: Snapshot, record: AttachmentRecord) -> Iterator[Drift]:
    if record.id in snapshot.ended:
        text = "its command has ended, and its slice is not freed"
        yield make_drift(record, DriftKind.RUN_ENDED, text, "vgpumgr recover")
    else:
        yield from find_backend(record.backend).drift(record, snapshot)
        yield from _find_of_claim(record, snapshot)


def find_drift_on_host(snapshot: Snapshot) -> tuple[Drift, ...]:
    """What can be told of whole attachments without their VMs: slices, keepers, workers."""
    return tuple(
        drift
        for record in snapshot.records
        if record.id not in snapshot.busy and record.state is AttachmentState.ATTACHED
        for drift in (
            find_backend(record.backend).drift(record, snapshot)
            if record.run is None
            else _find_of_run(snapshot, record)
        )
    )


def _find_in_domain(record: AttachmentRecord, vm: Vm) -> Iterator[Drift]:
    if vm.name != record.vm_name:
        text = f"the VM is called {vm.name} now"
        yield make_drift(record, DriftKind.VM_RENAMED, text, "vgpumgr recover")
    missing = list_missing_devices(record, vm)
    if missing:
        text = f"its definition has lost {' and '.join(missing)}"
        hint = f"vgpumgr detach {record.vm_word}, or vgpumgr recover --readd"
        yield make_drift(record, DriftKind.DEVICE_GONE, text, hint)
    if vm.find_note(record.id) != describe_record(record):
        text = "its domain metadata are missing or old"
        yield make_drift(record, DriftKind.NOTE_GONE, text, "vgpumgr recover")


def list_missing_devices(record: AttachmentRecord, vm: Vm) -> list[str]:
    """Aliases that neither the definition nor the running machine has; all or none of a live-only
    attachment are in the running machine.
    """
    wanted = find_backend(record.backend).list_aliases(record)
    live = set(vm.live.own_aliases()) if vm.live else set()
    config = set(vm.config.own_aliases()) if vm.config else set()
    if config & set(wanted):
        return [alias for alias in wanted if alias not in config]
    return [] if live & set(wanted) else wanted


def is_whole(snapshot: Snapshot, record: AttachmentRecord) -> bool:
    """Whether everything of an attachment is there, so that only its mark can be missing."""
    vm = snapshot.find_vm(record.vm_uuid)
    if vm is None or vm.find_note(record.id) is None or list_missing_devices(record, vm):
        return False
    return find_backend(record.backend).has_all(record, snapshot)


def list_rebuildable(snapshot: Snapshot) -> list[AttachmentRecord]:
    """Attachments that a VM's note describes and nobody remembers. One that the journal says was
    detached is not rebuilt, nor one whose id two VMs claim.
    """
    known = {record.id for record in snapshot.records}
    numbers = {(record.vm_uuid, record.number) for record in snapshot.records}
    found = [record for vm in snapshot.vms for record in rebuild_records(vm)]
    ids = [record.id for record in found]
    return [
        record
        for record in found
        if record.id not in known
        and (record.vm_uuid, record.number) not in numbers
        and record.id not in snapshot.busy
        and ids.count(record.id) == 1
        and snapshot.known.get(record.id) is not False
    ]


def _find_strays(snapshot: Snapshot) -> Iterator[Drift]:
    known = {record.id for record in snapshot.records} | snapshot.busy
    for record in list_rebuildable(snapshot):
        text = f"attachment {record.id} is in its domain metadata but not recorded"
        yield make_drift(record, DriftKind.RECORD_GONE, text, "vgpumgr recover")
        known.add(record.id)
    for drift in _find_unreadable(snapshot, known):
        yield drift
        known.add(drift.attachment or "")
    for vm in snapshot.vms:
        yield from _find_strays_of_vm(vm, known)
    for channel in snapshot.channels:
        if channel not in known:
            text = "a channel that belongs to no attachment"
            yield Drift(DriftKind.STRAY_CHANNEL, channel, text, hint="vgpumgr recover")


def _find_unreadable(snapshot: Snapshot, known: set[str]) -> Iterator[Drift]:
    """Attachments of a domain's metadata that are not recorded and that cannot be rebuilt from them: another
    version has written them, or they are damaged. What they have on the host is left to the VM.
    """
    for vm in snapshot.vms:
        for id_, why in list_unreadable(vm).items():
            if id_ in known or snapshot.known.get(id_) is False:
                continue
            text = f"attachment {id_} is not recorded, its domain metadata cannot be read: {why}"
            text += "; its channel stays as it is" if id_ in snapshot.channels else ""
            word = format_vm(vm.name, vm.uuid)
            hint = f"virsh edit {word}, then vgpumgr recover; or vgpumgr detach {word}"
            yield Drift(DriftKind.METADATA_UNREADABLE, vm.name, text, id_, hint)


def _find_strays_of_vm(vm: Vm, known: set[str]) -> Iterator[Drift]:
    own = {alias for d in (vm.live, vm.config) if d for alias in d.own_aliases()}
    stray = sorted(alias for alias in own if attachment_of(alias) not in known)
    if stray:
        text = f"has devices of no recorded attachment: {', '.join(stray)}"
        hint = f"vgpumgr detach {format_vm(vm.name, vm.uuid)}"
        yield Drift(DriftKind.STRAY_DEVICES, vm.name, text, hint=hint)
        return
    for note in vm.notes:
        if note.id not in known:
            text = f"its metadata notes attachment {note.id}, which is not recorded"
            yield Drift(
                DriftKind.STRAY_NOTE,
                vm.name,
                text,
                hint=f"vgpumgr detach {format_vm(vm.name, vm.uuid)}",
            )
