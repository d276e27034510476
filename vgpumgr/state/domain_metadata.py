"""An attachment's record as a note in its domain's metadata, and back."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

from vgpumgr.domain.domain import AttachmentNote
from vgpumgr.domain.hypervisor import Hypervisor, Vm
from vgpumgr.model.attachment import (
    AddedController,
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    ClaimPart,
    HostDevice,
    MigInstanceRef,
    MigPart,
    SharePart,
)
from vgpumgr.model.choices import Backend, ComputePolicy, Priority, Transport
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.limits import parse_limits
from vgpumgr.model.mig import Placement
from vgpumgr.model.shares import format_percent, make_share


def describe_record(record: AttachmentRecord) -> AttachmentNote:
    """The note of a record whose slice exists or not."""
    part, ref = record.mig_part, record.mig
    compute = part.compute if part else None
    owner = record.channel.qemu_owner if record.channel else None
    controllers = " ".join(f"{c.type}:{c.index}:{c.model or ''}" for c in record.controllers)
    return AttachmentNote(
        id=record.id,
        profile=record.profile,
        backend=str(record.backend),
        device=str(ref.uuid) if ref else None,
        vm=record.vm_uuid,
        gpu=str(record.gpu) if record.gpu else None,
        gpu_profile_id=part.gpu_profile_id if part else None,
        start=part.placement.start if part else None,
        size=part.placement.size if part else None,
        gpu_instance_id=ref.gpu_instance_id if ref else None,
        compute_instance_id=ref.compute_instance_id if ref else None,
        memory_bytes=record.memory_bytes,
        transport=str(record.channel.transport) if record.channel else None,
        created_s=repr(record.created_s),
        mig_mode=record.mig_mode_enabled if part else None,
        compute_start=compute.start if compute else None,
        compute_size=compute.size if compute else None,
        taken=True if record.is_taken else None,
        number=record.number or None,
        controllers=controllers or None,
        qemu_owner="{}:{}".format(*owner) if owner else None,
        host_devices=json.dumps(encode(record.host_devices)) if record.host_devices else None,
        limits=" ".join(record.channel.limits) or None if record.channel else None,
        unconfined=True if record.channel and record.channel.allow_unconfined else None,
        compute=format_percent(record.share_part.share.compute).removesuffix("%")
        if record.share_part
        else None,
        compute_policy=str(record.share_part.policy) if record.share_part else None,
        memory_at_exit=record.share_part.memory_at_exit if record.share_part else None,
        priority=_describe_priority(record.share_part),
        claim=_describe_claim(record.claim),
    )


def rebuild_records(vm: Vm) -> tuple[AttachmentRecord, ...]:
    """The records that the VM's notes describe; without those of another VM (a clone carries
    them), and those that do not say enough.
    """
    found = (_try_rebuild(vm, note) for note in vm.notes if note.vm == vm.uuid)
    return tuple(record for record in found if isinstance(record, AttachmentRecord))


def list_unreadable(vm: Vm) -> dict[str, str]:
    """Why notes that are the VM's own cannot be read, by attachment."""
    found = ((note.id, _try_rebuild(vm, note)) for note in vm.notes if note.vm == vm.uuid)
    return {id_: why for id_, why in found if isinstance(why, str)}


def list_claims(vm: Vm) -> list[tuple[str, ClaimPart]]:
    """The attachments of the VM's notes that have a claim, by their ids; without those of another VM, and those whose
    claim cannot be read.
    """
    found = []
    for note in vm.notes:
        with contextlib.suppress(ValueError):
            claim = _rebuild_claim(note.claim)
            if claim is not None and note.vm == vm.uuid:
                found.append((note.id, claim))
    return found


def _try_rebuild(vm: Vm, note: AttachmentNote) -> AttachmentRecord | str:
    """The record, or why there is none."""
    try:
        return _rebuild(vm, note)
    except (TypeError, ValueError) as error:
        return str(error)


def save_note(hypervisor: Hypervisor, vm: Vm, note: AttachmentNote) -> Vm:
    """Writes one note of the VM, in the place of the one with the same id; others stay. Answers the
    VM with its notes as they are now.
    """
    others = [other for other in vm.notes if other.id != note.id]
    notes = sorted([*others, note], key=lambda n: (n.number or 0, n.id))
    hypervisor.set_notes(vm.uuid, notes, vm.note_scope)
    return replace(vm, notes=tuple(notes))


def remove_note(hypervisor: Hypervisor, vm: Vm, attachment: str | None) -> Vm:
    """Removes one note of the VM, or all; absent is no error. Answers the VM with those it still has."""
    left = [note for note in vm.notes if attachment is not None and note.id != attachment]
    if len(left) != len(vm.notes):
        hypervisor.set_notes(vm.uuid, left, vm.note_scope)
    return replace(vm, notes=tuple(left))


def _rebuild(vm: Vm, note: AttachmentNote) -> AttachmentRecord:
    return AttachmentRecord(
        id=note.id,
        vm_name=vm.name,
        vm_uuid=vm.uuid,
        gpu=GpuUuid(note.gpu) if note.gpu else None,
        profile=note.profile or "",
        memory_bytes=_given(note.memory_bytes),
        backend=Backend(note.backend or ""),
        created_s=float(note.created_s or ""),
        number=note.number or 0,
        state=AttachmentState.ATTACHED,
        controllers=tuple(map(_read_controller, (note.controllers or "").split())),
        mig_part=_rebuild_mig(note),
        channel=_rebuild_channel(note),
        host_devices=decode(tuple[HostDevice, ...], json.loads(note.host_devices or "[]")),
        share_part=_rebuild_share(note),
        claim=_rebuild_claim(note.claim),
    )


def _rebuild_mig(note: AttachmentNote) -> MigPart | None:
    if note.gpu_profile_id is None and (note.host_devices or note.compute) is not None:
        return None
    if note.backend == Backend.LINK:
        return None  # its slice is another host's
    place, ref, compute = Placement(_given(note.start), _given(note.size)), None, None
    if note.compute_size is not None:
        compute = Placement(_given(note.compute_start), note.compute_size)
    if note.device is not None:
        ref = MigInstanceRef(
            _given(note.gpu_instance_id),
            _given(note.compute_instance_id),
            place,
            MigUuid(note.device),
        )
    return MigPart(
        gpu_profile_id=_given(note.gpu_profile_id),
        placement=place,
        compute=compute,
        ref=ref,
        gpu_instance_id=ref.gpu_instance_id if ref else None,
        mode_enabled=bool(note.mig_mode),
        taken=bool(note.taken),
    )


def _rebuild_share(note: AttachmentNote) -> SharePart | None:
    if note.compute is None:
        return None
    share = make_share(_given(note.memory_bytes), float(note.compute))
    policy, priority = ComputePolicy(note.compute_policy or ""), Priority(note.priority or "normal")
    return SharePart(share, policy, note.memory_at_exit, priority)


def _describe_priority(part: SharePart | None) -> str | None:
    return None if part is None or part.priority is Priority.NORMAL else str(part.priority)


def _describe_claim(claim: ClaimPart | None) -> str | None:
    if claim is None:
        return None
    if claim.late:  # its lease comes and goes
        return f"{claim.name}  0 0 {claim.via} late"
    number = f" {claim.number}" if claim.number or claim.via else ""
    via = f" {claim.via}" if claim.via else ""
    return f"{claim.name} {claim.host} {claim.token}{number}{via}"


def _rebuild_claim(text: str | None) -> ClaimPart | None:
    if text is None:
        return None
    name, host, token, *more = text.split(" ")
    if len(more) > 3 or more[2:] not in ([], ["late"]):
        raise ValueError(f"no claim: {text!r}")
    number, via, *late = (*more, *("0", "")[len(more) :])
    return ClaimPart(name, host, int(token), int(number), via, late=bool(late))


def _rebuild_channel(note: AttachmentNote) -> ChannelPart | None:
    if note.transport is None and note.host_devices is not None:
        return None
    limits = parse_limits((note.limits or "").split()).changed
    transport, owner = Transport(note.transport or ""), _read_owner(note.qemu_owner)
    return ChannelPart(transport, owner, limits, allow_unconfined=bool(note.unconfined))


def _read_owner(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    uid, gid = text.split(":")
    return int(uid), int(gid)


def _given(value: int | None) -> int:
    if value is None:
        raise ValueError("not in the metadata")
    return value


def _read_controller(text: str) -> AddedController:
    kind, index, model = text.split(":")
    return AddedController(kind, int(index), model or None)
