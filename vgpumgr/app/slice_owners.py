"""Whose a GPU instance is: a VM's with an attachment, or a vGPU's that lives in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vgpumgr.app.parts import Parts
from vgpumgr.model.slice import SliceOwner
from vgpumgr.model.vgpu import VgpuDevice, VgpuHost
from vgpumgr.model.vgpu_record import VgpuRecord


class AllOwners:
    """Attachments' slices, and GPU instances with vGPUs in them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def list_owners(self) -> Sequence[SliceOwner]:
        """See ``OwnerProvider``."""
        records = self._parts.store.list_attachments()
        owners = [owner for record in records if (owner := record.owner) is not None]
        return [*owners, *list_vgpu_owners(self._parts)]


def list_vgpu_owners(parts: Parts) -> list[SliceOwner]:
    """GPU instances that vGPUs are in; asks the host only where some of ours are MIG-backed."""
    records = [r for r in parts.vgpu_store.list_vgpus() if r.takes_room]
    if not any(r.instance or r.gpu_instance_id is not None for r in records):
        return []
    host = parts.vgpus.read_host()
    return [*_list_seen(host, records), *_list_made(parts, records)]


def _list_seen(host: VgpuHost, records: Sequence[VgpuRecord]) -> Iterator[SliceOwner]:
    """Those that say themselves where they are."""
    boards = {parent.name: host.find_board(parent.board) for parent in host.parents}
    for device in host.devices:
        board = boards.get(device.parent)
        if device.gpu_instance_id is not None and board is not None and board.gpu is not None:
            record = _find(records, device)
            name = device.vm_name or f"vGPU {device.type_name} {device.key}"
            owner = (record.attachment or record.spec.uuid) if record else device.key
            is_vm = bool(device.vm_name)
            yield SliceOwner(board.gpu, device.gpu_instance_id, None, name, owner, is_vm)


def _list_made(parts: Parts, records: Sequence[VgpuRecord]) -> Iterator[SliceOwner]:
    """Mediated devices do not say it, but we know what was made for them."""
    for record in records:
        made = record.find_home(parts.boot_id)
        if made is None or record.gpu_instance_id is not None:
            continue
        for instance in parts.nvml.list_gpu_instances(made.gpu):
            if instance.placement == made.placement:
                name = f"vGPU {record.spec.type_name} {record.spec.uuid}"
                owner = record.attachment or record.spec.uuid
                yield SliceOwner(made.gpu, instance.id, None, name, owner, is_vm=False)


def _find(records: Sequence[VgpuRecord], device: VgpuDevice) -> VgpuRecord | None:
    return next((r for r in records if r.spec.parent == device.parent), None)
