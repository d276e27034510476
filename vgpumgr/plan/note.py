"""An attachment's record as the note in its domain's metadata, and back."""

from __future__ import annotations

from vgpumgr.domain.hypervisor import Vm
from vgpumgr.domain.metadata import AttachmentNote
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.slice import Backend, MigInstanceRef
from vgpumgr.plan.record import AddedController, AttachmentRecord, AttachmentState, Transport


def describe_record(record: AttachmentRecord) -> AttachmentNote:
    """The note of a record whose slice exists or not."""
    mig = record.mig
    controllers = " ".join(f"{c.type}:{c.index}:{c.model or ''}" for c in record.controllers)
    return AttachmentNote(
        id=record.id,
        profile=record.profile,
        backend=str(record.backend),
        device=str(mig.uuid) if mig else None,
        vm=record.vm_uuid,
        gpu=str(record.gpu),
        gpu_profile_id=record.gpu_profile_id,
        start=record.placement.start,
        size=record.placement.size,
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        compute_instance_id=mig.compute_instance_id if mig else None,
        memory_bytes=record.memory_bytes,
        transport=str(record.transport),
        created_s=repr(record.created_s),
        mig_mode=record.mig_mode_enabled,
        controllers=controllers or None,
        qemu_owner="{}:{}".format(*record.qemu_owner) if record.qemu_owner else None,
    )


def rebuild_record(vm: Vm) -> AttachmentRecord | None:
    """The record that the VM's note describes; None without a note, for a note of another VM (a
    clone carries one), and for one that does not say enough.
    """
    note = vm.note
    if note is None or note.vm != vm.uuid:
        return None
    try:
        return _rebuild(vm, note)
    except (TypeError, ValueError):
        return None


def _rebuild(vm: Vm, note: AttachmentNote) -> AttachmentRecord:
    start, size = _given(note.start), _given(note.size)
    placement = Placement(start, size)
    mig = None
    if note.device is not None:
        mig = MigInstanceRef(
            _given(note.gpu_instance_id),
            _given(note.compute_instance_id),
            placement,
            MigUuid(note.device),
        )
    return AttachmentRecord(
        id=note.id,
        vm_name=vm.name,
        vm_uuid=vm.uuid,
        gpu=GpuUuid(note.gpu or ""),
        profile=note.profile or "",
        gpu_profile_id=_given(note.gpu_profile_id),
        placement=placement,
        memory_bytes=_given(note.memory_bytes),
        backend=Backend(note.backend or ""),
        transport=Transport(note.transport or ""),
        created_s=float(note.created_s or ""),
        state=AttachmentState.ATTACHED,
        mig=mig,
        mig_mode_enabled=bool(note.mig_mode),
        controllers=tuple(map(_read_controller, (note.controllers or "").split())),
        gpu_instance_id=mig.gpu_instance_id if mig else None,
        qemu_owner=_read_owner(note.qemu_owner),
    )


def _read_owner(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    uid, gid = text.split(":")
    return int(uid), int(gid)


def _given(value: int | None) -> int:
    if value is None:
        raise ValueError("not in the note")
    return value


def _read_controller(text: str) -> AddedController:
    kind, index, model = text.split(":")
    return AddedController(kind, int(index), model or None)
