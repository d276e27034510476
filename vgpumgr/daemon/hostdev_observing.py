"""Looking at the host's devices before an attach is planned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpumgr.daemon.documents import GpuListDocument, GpuShowDocument
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.vgpu_settle import read_gpus
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import (
    GpuAmbiguousError,
    GpuNotFoundError,
    PciNotFoundError,
    VgpumgrError,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import Function
from vgpumgr.plan.attach import AttachRequest
from vgpumgr.plan.backend import check_request
from vgpumgr.plan.hostdev_choice import find_selected
from vgpumgr.plan.hostdev_host import HostObserved
from vgpumgr.plan.record import AttachmentRecord, AttachmentState, HostDevice
from vgpumgr.plan.vgpu_promises import list_promises
from vgpumgr.plan.vgpu_record import VgpuInstance, VgpuRecord
from vgpumgr.plan.vgpu_steps import list_holders


def observe_host(
    parts: Parts, request: AttachRequest, records: Sequence[AttachmentRecord]
) -> HostObserved:
    """As much of the host as planning the request asks for; of forwarding, NVML's GPUs alone."""
    wanted = check_request(request)
    if wanted.is_forward:
        return HostObserved(gpus=parts.read_inventory().gpus)
    if wanted.is_vgpu:
        return _observe_for_vgpu(parts, request, records)
    gpus = read_gpus(parts)
    functions = parts.pci.list_functions()
    seen = HostObserved(functions=functions, gpus=gpus, bindings=parts.pci.list_bindings())
    matters = _list_interesting(seen, request.gpu)
    vms = parts.hypervisor.list_vms()
    variants = parts.pci.list_variants([f.address for f in matters])
    return HostObserved(
        functions=functions,
        users=parts.pci.list_users(matters),
        taken=list_taken(vms, records),
        tenants=list_tenants(vms, records),
        bars={f.address: _read_bars(parts, f) for f in matters},
        conventional={f.address for f in matters if _is_conventional(parts, f)},
        bindings=seen.bindings,
        vf_settings=parts.pci.list_vf_settings(),
        gpus=gpus,
        variants=variants,
        takes_variants=_takes_variants(parts, variants, matters),
        iommufd=_offers_iommufd(parts),
        numa_matters=_has_nodes(functions),
        slices=list_slices(records),
    )


def _observe_for_vgpu(
    parts: Parts, request: AttachRequest, records: Sequence[AttachmentRecord]
) -> HostObserved:
    """The driver says what is free: neither the VMs nor who uses functions matters. Where all parents
    are without hardware, a type of theirs needs no look at the PCI bus and at NVML either.
    """
    vgpus = parts.vgpus.read_host()
    on_bus = any(PciAddress.read(parent.name) for parent in vgpus.parents)
    is_known = any(request.profile in (t.id, t.name) for b in vgpus.boards for t in b.types)
    matters = on_bus or not is_known or request.gpu is not None
    functions = parts.pci.list_functions() if matters else ()
    known = parts.vgpu_store.list_vgpus()
    definitions = parts.vgpus.list_definitions() if on_bus else ()
    return HostObserved(
        functions=functions,
        gpus=read_gpus(parts) if matters else (),
        iommufd=matters and _offers_iommufd(parts),
        numa_matters=_has_nodes(functions),
        vgpus=vgpus,
        claims=[record.spec for record in known if record.takes_room],
        promises=list_promises(known, definitions, vgpus) if on_bus else (),
        vf_settings=parts.pci.list_vf_settings() if on_bus else (),
        slices=list_slices(records),
    )


def _offers_iommufd(parts: Parts) -> bool:
    return parts.has_iommufd() and parts.hypervisor.offers_iommufd()


def _takes_variants(
    parts: Parts, variants: Mapping[PciAddress, str], functions: Sequence[Function]
) -> bool:
    """Asked only where it matters: also of virtual functions that are not there yet."""
    makes = any(f.vf_total and not f.vfs for f in functions)
    return not (variants or makes) or parts.hypervisor.takes_variant_drivers()


def _has_nodes(functions: Sequence[Function]) -> bool:
    return len({f.numa_node for f in functions if f.numa_node is not None}) > 1


def list_slices(
    records: Sequence[AttachmentRecord],
) -> list[tuple[GpuUuid | None, Placement | None]]:
    """GPU instances that VMs have by forwarding: by GPU and place."""
    return [(r.gpu, r.placement) for r in records if r.mig_part is not None]


def _list_interesting(host: HostObserved, selector: str | None) -> list[Function]:
    """GPUs with their companions and virtual functions; or those of the function that is named."""
    chosen = [f for f in host.functions if f.is_gpu]
    if selector is not None:
        try:
            named = find_selected(host, selector)
        except (GpuNotFoundError, GpuAmbiguousError):
            return []  # planning says so
        chosen = [named, *(f for f in host.functions if f.physical == named.address)]
    found = {f.address: f for one in chosen for f in (one, *host.list_companions(one))}
    return list(found.values())


def _read_bars(parts: Parts, function: Function) -> tuple[int, ...]:
    try:
        return parts.pci.list_bars(function.address)
    except PciNotFoundError:
        return ()


def _is_conventional(parts: Parts, function: Function) -> bool:
    """Virtual functions never are: SR-IOV is of PCI Express."""
    return function.physical is None and parts.pci.is_conventional(function.address)


def list_taken(vms: Sequence[Vm], records: Sequence[AttachmentRecord]) -> dict[PciAddress, str]:
    """Whose a function is: by a record of ours, or because a VM's definition names it."""
    taken: dict[PciAddress, str] = {}
    for vm in vms:
        for domain in (vm.config, vm.live):
            for device in domain.pci_hostdevs if domain else ():
                if device.source is not None:
                    taken[device.source.pci] = str(vm)
    for record in records:
        for given in record.host_devices:
            if given.address is not None:
                taken[given.address] = f'vm "{record.vm_name}" (attachment {record.id})'
    return taken


def list_tenants(vms: Sequence[Vm], records: Sequence[AttachmentRecord]) -> dict[PciAddress, str]:
    """UUIDs of the VMs that have functions, by a record of ours or in their definition."""
    found = {
        device.source.pci: vm.uuid
        for vm in vms
        for domain in (vm.config, vm.live)
        for device in (domain.pci_hostdevs if domain else ())
        if device.source is not None
    }
    return found | {d.address: r.vm_uuid for r in records for d in r.host_devices if d.address}


def list_instances(parts: Parts) -> list[VgpuInstance]:
    """GPU instances that were made for vGPUs, of attachments or not."""
    return [r.instance for r in parts.vgpu_store.list_vgpus() if r.instance is not None]


def name_instances(parts: Parts) -> dict[VgpuInstance, str]:
    """Those instances, and the vGPUs that each was made for, in words."""
    found: dict[VgpuInstance, list[str]] = {}
    for record in parts.vgpu_store.list_vgpus():
        if record.instance is not None:
            name = f"vGPU {record.spec.type_name} {record.spec.uuid}"
            found.setdefault(record.instance, []).append(name)
    return {instance: " and ".join(names) for instance, names in found.items()}


def map_homes(parts: Parts, records: Sequence[AttachmentRecord]) -> dict[str, VgpuInstance | None]:
    """The GPU instances that were made for vGPUs, by the UUID of each that lives in one; None for one
    that has none, or whose own ended with an earlier boot: what stands there now may be anybody's.
    """
    homes = {
        device.vgpu.uuid: device.instance if record.instances_boot == parts.boot_id else None
        for record in records
        for device in record.host_devices
        if device.vgpu is not None
    }
    known = [r for r in parts.vgpu_store.list_vgpus() if r.takes_room]
    return homes | {r.spec.uuid: r.find_home(parts.boot_id) for r in known}


def read_gpus_for(parts: Parts, records: Sequence[AttachmentRecord]) -> Sequence[Gpu]:
    """NVML's GPUs. A host without NVML is one without such GPUs, unless an attachment has a slice of
    one: then NVML is missing, and nothing is decided without it. Raises NvmlMissingError.
    """
    if any(record.mig_part is not None for record in records):
        return parts.read_inventory().gpus
    return read_gpus(parts)


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
            absent[attachment] = _tell_gone(parts, what, device.vgpu.uuid)
    return absent


def _tell_gone(parts: Parts, what: str, uuid: str | None) -> str:
    """A VM goes on with a vGPU that was removed under it, until it lets go."""
    known = next((r for r in parts.vgpu_store.list_vgpus() if r.spec.uuid == uuid), None)
    if known is None or known.boot != parts.boot_id:
        return f"{what} is gone"
    held_by = ", ".join(list_holders(parts.vgpus, known))
    told = (
        f" by somebody else while {held_by} has it open; it cannot be made again before that ends"
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


def follow_vgpus(parts: Parts) -> None:
    """Writes into the attachments how their vGPUs are made by now: a boot may have changed the type's
    number, and the place of the GPU instance.
    """
    known = {record.spec.uuid: record for record in parts.vgpu_store.list_vgpus()}
    for record in parts.store.list_attachments():
        now = [known.get(d.vgpu.uuid) if d.vgpu else None for d in record.host_devices]
        is_back = any(n is not None and n.takes_room and n.boot == parts.boot_id for n in now)
        followed = replace(
            record,
            host_devices=tuple(
                _follow(d, n, is_back) for d, n in zip(record.host_devices, now, strict=True)
            ),
            instances_boot=parts.boot_id if is_back else record.instances_boot,
        )
        if followed != record:
            parts.store.save_attachment(followed)


def _follow(device: HostDevice, now: VgpuRecord | None, is_back: bool) -> HostDevice:
    """Until it is back its old place is kept for it."""
    if now is None:
        return device
    return replace(device, vgpu=now.spec, instance=now.instance if is_back else device.instance)


def name_holders(document: GpuListDocument, records: Sequence[AttachmentRecord]) -> GpuListDocument:
    """With the VMs that have a GPU as a whole, a virtual function or a vGPU of it."""
    find = _index_vms(records)
    return document.replace(
        gpus=[gpu.replace(vms=find(gpu.uuid, gpu.pci)) for gpu in document.gpus],
        others=[gpu.replace(vms=find(gpu.pci)) for gpu in document.others],
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


def name_holders_of(parts: Parts, document: GpuShowDocument) -> GpuShowDocument:
    """With the VMs that have the GPU or a part of it as a device, and with whoever has a device file
    of it open; what cannot be looked at now is left out.
    """
    find = _index_vms(parts.store.list_attachments())
    gpu, other = document.gpu, document.other
    if gpu is not None:
        document = document.replace(gpu=gpu.replace(vms=find(gpu.uuid, gpu.pci)))
    if other is not None:
        model = _read_models(parts).get(other.pci, other.model)
        document = document.replace(other=other.replace(vms=find(other.pci), model=model))
    address = gpu.pci if gpu is not None else other.pci if other is not None else None
    if address is None:
        return document
    with contextlib.suppress(VgpumgrError):
        return document.replace(held_by=_list_openers(parts, PciAddress.parse(address)))
    return document


def _list_openers(parts: Parts, address: PciAddress) -> list[str]:
    function = parts.pci.read_function(address)
    functions = [function]
    for vf in function.vfs:
        with contextlib.suppress(PciNotFoundError):
            functions.append(parts.pci.read_function(vf))
    users = parts.pci.list_users(functions)
    texts = [str(user) for found in users.values() for user in found]
    return list(dict.fromkeys(texts))


def _index_vms(records: Sequence[AttachmentRecord]) -> Callable[..., list[str]]:
    """Names of VMs by any of the names that a GPU has."""
    holders: dict[str, list[str]] = {}
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
