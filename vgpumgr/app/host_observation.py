"""Observes the host's devices: who holds them, whose a GPU instance is, and which devices of attachments are gone."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from vgpumgr.app.context import Parts, list_unfinished_here
from vgpumgr.app.documents.gpus import (
    GpuListDocument,
    GpuShowDocument,
    PciGpuDocument,
    SliceDeviceDocument,
    VfCapacityDocument,
    describe_vf,
    describe_vgpu,
)
from vgpumgr.errors import PciNotFoundError, VgpumgrError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, SliceOwner
from vgpumgr.model.gpu import Gpu, Inventory, PciGpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import VgpuHost, VgpuInstance
from vgpumgr.planning.vgpu_instance import find_vgpu_owners
from vgpumgr.steps.vgpu import list_holders


def list_slices(
    records: Sequence[AttachmentRecord],
) -> list[tuple[GpuUuid | None, Placement | None]]:
    """GPU instances that VMs have by forwarding: by GPU and place."""
    return [(r.gpu, r.placement) for r in records if r.mig_part is not None]


def list_instances(parts: Parts) -> list[VgpuInstance]:
    """GPU instances that were made for vGPUs, of attachments or not; and those that an operation without an end has
    made or taken away.
    """
    made = [r.instance for r in parts.vgpu_store.list_vgpus() if r.instance is not None]
    return made + _list_unfinished(parts)


def list_unsettled(parts: Parts) -> list[tuple[GpuUuid, Placement]]:
    """GPU instances that an operation without an end has made or taken away: by GPU and place."""
    return [(instance.gpu, instance.placement) for instance in _list_unfinished(parts)]


def _list_unfinished(parts: Parts) -> list[VgpuInstance]:
    return [
        VgpuInstance(GpuUuid(claim.name), claim.profile, Placement(claim.first, claim.size))
        for found in list_unfinished_here(parts)
        for claim in found.claims
        if claim.profile is not None and claim.first is not None
    ]


def name_instances(parts: Parts) -> dict[VgpuInstance, str]:
    """Those instances, and the vGPUs that each was made for, in words."""
    found: dict[VgpuInstance, list[str]] = {}
    for record in parts.vgpu_store.list_vgpus():
        if record.instance is not None:
            name = f"vGPU {record.spec.type_name} {record.spec.uuid}"
            found.setdefault(record.instance, []).append(name)
    return {instance: " and ".join(names) for instance, names in found.items()}


def list_absent(parts: Parts, records: Sequence[AttachmentRecord]) -> dict[str, str]:
    """Attachments whose device is not on the host (any more), and what is missing, in words."""
    devices = [(r.id, d) for r in records for d in r.host_devices]
    if not devices:
        return {}
    functions = {f.address for f in parts.pci.list_functions()}
    seen: set[str] = set()
    if any(device.vgpu for _, device in devices):
        seen = {vgpu.key for vgpu in parts.vgpus.read_host().devices}
    absent = {}
    for attachment, device in devices:
        if device.address is not None and device.address not in functions:
            absent[attachment] = f"its device {device.address} has left the bus"
        elif device.vgpu is not None and str(device.address or device.vgpu.uuid) not in seen:
            what = f"its vGPU {device.vgpu.type_name} on {device.place}"
            absent[attachment] = _describe_gone(parts, what, device.vgpu.uuid)
    return absent


def _describe_gone(parts: Parts, what: str, uuid: str | None) -> str:
    """A VM goes on with a vGPU that was removed under it, until it lets go."""
    known = next((r for r in parts.vgpu_store.list_vgpus() if r.spec.uuid == uuid), None)
    if known is None or known.boot != parts.boot_id:
        return f"{what} is gone"
    held_by = ", ".join(list_holders(parts.vgpus, known))
    told = (
        f" by another program while {held_by} has it open; it cannot be made again before that ends"
    )
    return f"{what} was removed{told}" if held_by else f"{what} is gone"


def list_held(parts: Parts, records: Sequence[AttachmentRecord]) -> dict[str, list[str]]:
    """Who still has devices of attachments that are half there; those that nobody has are left out."""
    found: dict[str, list[str]] = {}
    for record in records:
        if record.state is AttachmentState.ATTACHED or not record.host_devices:
            continue
        if holders := list(dict.fromkeys(_list_holders(parts, record))):
            found[record.id] = holders
    return found


def _list_holders(parts: Parts, record: AttachmentRecord) -> Iterator[str]:
    vgpus = {vgpu.spec.uuid: vgpu for vgpu in parts.vgpu_store.list_vgpus()}
    for device in record.host_devices:
        if device.vgpu is not None:
            known = vgpus.get(device.vgpu.uuid)
            yield from list_holders(parts.vgpus, known) if known else ()
        elif device.address is not None:
            with contextlib.suppress(PciNotFoundError):
                function = parts.pci.read_function(device.address)
                users = parts.pci.list_users([function]) if function.is_away else {}
                yield from (str(user) for found in users.values() for user in found)


Devices = Mapping[str, Sequence[SliceDeviceDocument]]


def index_devices(
    parts: Parts, inventory: Inventory, records: Sequence[AttachmentRecord]
) -> Devices:
    """The vGPUs and virtual functions of each GPU, by its address. A virtual function that takes a vGPU type is
    no slice of its own. Without an answer about vGPUs there are none.
    """
    host = VgpuHost()
    if inventory.has_vgpu_parents:
        with contextlib.suppress(VgpumgrError):
            host = parts.vgpus.read_host()
    owners = {
        name: record
        for record in records
        for device in record.host_devices
        for name in (device.vgpu.uuid if device.vgpu else None, str(device.address))
        if name is not None
    }
    found: dict[str, list[SliceDeviceDocument]] = defaultdict(list)
    for board in host.boards:
        for device in host.list_on(board.name):
            type_ = board.find_type(device.type_id)
            owner = owners.get(device.uuid or "") or owners.get(device.parent)
            found[board.name].append(describe_vgpu(device, type_, owner))
    typed = {parent.name for parent in host.parents}
    for pci, vfs in (
        *((gpu.pci, gpu.vfs) for gpu in inventory.gpus),
        *((gpu.address, gpu.vfs) for gpu in inventory.others),
    ):
        for vf in vfs:
            if str(vf.address) not in typed:
                found[str(pci)].append(describe_vf(vf, owners.get(str(vf.address))))
    return found


def name_holders(
    document: GpuListDocument, records: Sequence[AttachmentRecord], devices: Devices
) -> GpuListDocument:
    """With the vGPUs and virtual functions, and the VMs that have a GPU as a whole or one of these."""
    find = _index_vms(records, devices)
    return document.replace(
        gpus=[
            gpu.replace(vms=find(gpu.uuid, gpu.pci), devices=list(devices.get(gpu.pci, ())))
            for gpu in document.gpus
        ],
        others=[
            gpu.replace(vms=find(gpu.pci), devices=list(devices.get(gpu.pci, ())))
            for gpu in document.others
        ],
    )


def name_models(parts: Parts, document: GpuListDocument) -> GpuListDocument:
    """With the names that NVML had for GPUs before they were taken from it."""
    if not document.others:
        return document
    known = _read_models(parts)
    others = [gpu.replace(model=known.get(gpu.pci, gpu.model)) for gpu in document.others]
    return document.replace(others=others)


def _read_models(parts: Parts) -> dict[str, str]:
    try:
        bindings = parts.pci.list_bindings()
    except VgpumgrError:
        return {}
    found = {str(b.address): b.model for b in bindings if b.boot_id == parts.pci.boot_id}
    return {address: model for address, model in found.items() if model}


def name_holders_of(
    parts: Parts, inventory: Inventory, document: GpuShowDocument
) -> GpuShowDocument:
    """With its vGPUs and virtual functions, the VMs that have the GPU or a part of it as a device, and with
    whoever has a device file of it open; what cannot be observed now is left out.
    """
    records = parts.store.list_attachments()
    devices = index_devices(parts, inventory, records)
    find = _index_vms(records, devices)
    gpu, other = document.gpu, document.other
    if gpu is not None:
        own = list(devices.get(gpu.pci, ()))
        document = document.replace(gpu=gpu.replace(vms=find(gpu.uuid, gpu.pci), devices=own))
    if other is not None:
        own = list(devices.get(other.pci, ()))
        model = _read_models(parts).get(other.pci, other.model)
        document = document.replace(
            other=other.replace(vms=find(other.pci), model=model, devices=own)
        )
    address = gpu.pci if gpu is not None else other.pci if other is not None else None
    if address is None:
        return document
    with contextlib.suppress(VgpumgrError):
        return document.replace(held_by=_list_openers(parts, PciAddress.parse(address)))
    return document


def measure_vfs(
    parts: Parts, gpu: PciGpu, seen: PciGpuDocument | None
) -> VfCapacityDocument | None:
    """How many virtual functions VMs can have of a GPU now, and why none: as ``attach --profile vf`` chooses, which
    makes some where there are none, and takes a free one where there are. None without SR-IOV.
    """
    from vgpumgr.passthrough.sriov import find_driver
    from vgpumgr.planning.vfs import check_vf_driver

    if not gpu.vfs_total or seen is None:
        return None
    enabled = len(gpu.vfs)
    used = sum(device.vm is not None for device in seen.devices)
    had = [(d, r.vm_name) for r in parts.store.list_attachments() for d in r.host_devices]
    whole = next((vm for device, vm in had if device.address == gpu.address), None)
    possible, free, why = gpu.vfs_total, enabled - used, None
    try:
        physical = parts.pci.read_function(gpu.address)
        check_vf_driver(physical)
        why = find_driver(physical).needs_type
        possible = parts.pci.observe_vfs(physical).total
    except VgpumgrError as error:
        why = error.why or error.error
        possible = enabled
    if not enabled and why is None:
        free = possible - sum(device.parent == gpu.address for device, _ in had)
    if seen.drained is not None:
        free, why = 0, seen.drained.text
    elif whole is not None:
        free, why = 0, f"VM {whole} has the whole GPU"
    elif enabled and not free:
        why = "VMs have all that are enabled; their number changes only while none is in use"
    return VfCapacityDocument(
        possible=possible,
        enabled=enabled,
        used=used,
        free=free,
        why_not=None if free else why,
    )


def list_gpu_users(parts: Parts, inventory: Inventory, gpu: Gpu | PciGpu) -> list[str]:
    """Who uses a GPU or a part of it now, in words: attachments, other slices, VMs, processes. What does not answer is
    left out.
    """
    records = parts.store.list_attachments()
    address, uuid = (gpu.pci, gpu.uuid) if isinstance(gpu, Gpu) else (gpu.address, None)
    devices = index_devices(parts, inventory, records)
    mine = [r for r in records if r.gpu == uuid and (r.mig_part or r.share_part)]
    found = [f"{r.holder} ({r.profile})" for r in mine]
    found += [
        f'vm "{device.vm}" ({device.profile})' if device.vm else f"{device.profile} {device.name}"
        for device in devices.get(str(address), ())
        if device.vm or device.kind == "vgpu"
    ]
    if isinstance(gpu, Gpu):
        names = [r.vm_name for r in records]
        owners = parts.list_owners([gpu])
        found += [o.holder for o in owners if o.gpu == uuid and o.vm_name not in names]
        found += [str(process) for process in gpu.processes if not process.is_holder]
    known = "; ".join(found)
    whole = _index_vms(records, devices)(str(uuid), str(address))
    found += [f'vm "{vm}"' for vm in whole if f'vm "{vm}"' not in known]
    named = [*known.split("; "), *(device.name for device in devices.get(str(address), ()))]
    with contextlib.suppress(VgpumgrError):
        # a process or vGPU that is named already says no more by what it has open
        openers = _list_openers(parts, address)
        found += [one for one in openers if not any(name in one for name in named if name)]
    return list(dict.fromkeys(found))


def _list_openers(parts: Parts, address: PciAddress) -> list[str]:
    function = parts.pci.read_function(address)
    functions = [function]
    for vf in function.vfs:
        with contextlib.suppress(PciNotFoundError):
            functions.append(parts.pci.read_function(vf))
    users = parts.pci.list_users(functions)
    texts = [str(user) for found in users.values() for user in found]
    return list(dict.fromkeys(texts))


def _index_vms(records: Sequence[AttachmentRecord], devices: Devices) -> Callable[..., list[str]]:
    """Names of VMs by any of the names that a GPU has."""
    holders: dict[str, list[str]] = {
        address: [device.vm for device in own if device.vm] for address, own in devices.items()
    }
    for record in records:
        places = {str(record.gpu)}
        places |= {str(p) for d in record.host_devices for p in (d.address, d.parent)}
        # a vGPU's parent is a function, or the GPU itself
        places |= {d.vgpu.parent for d in record.host_devices if d.vgpu is not None}
        for place in places if record.host_devices else ():
            holders.setdefault(place, []).append(record.vm_name)

    def find(*names: str) -> list[str]:
        return list(dict.fromkeys(vm for name in names for vm in holders.get(name, ())))

    return find


def list_vgpu_owners(parts: Parts, gpus: Sequence[Gpu]) -> list[SliceOwner]:
    """Whose vGPUs are in the GPU instances of these GPUs; see ``find_vgpu_owners``."""
    return find_vgpu_owners(
        gpus,
        parts.vgpus.read_host(),
        parts.vgpu_store.list_vgpus(),
        parts.store.list_attachments(),
        parts.boot_id,
    )
