"""GPUs of any vendor, from ``/sys`` alone: display controllers and processing accelerators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_names import name_pci_device
from vgpumgr.host.pci_tree import PciEntry, list_bar_sizes, list_pci_entries
from vgpumgr.model.gpu import PciGpu
from vgpumgr.model.pci import IommuGroup, PciAddress

#: PCI class codes: base class 03 are display controllers, 12 processing accelerators
_DISPLAY, _ACCELERATOR = 0x03, 0x12


def is_gpu_class(class_code: int) -> bool:
    """Whether functions of that class (three bytes) are GPUs."""
    return class_code >> 16 in (_DISPLAY, _ACCELERATOR)


def list_pci_gpus(machine: Machine, known: Collection[PciAddress] = ()) -> tuple[PciGpu, ...]:
    """All GPUs but those that are ``known`` already, by address; their virtual functions are none."""
    entries = list_pci_entries(machine)
    found = [
        entry
        for entry in entries
        if is_gpu_class(entry.class_code) and entry.address not in known and not entry.physical
    ]
    groups = _list_groups(entries) if found else {}
    return tuple(_describe(machine, entry, groups) for entry in found)


def _list_groups(entries: Sequence[PciEntry]) -> Mapping[int, IommuGroup]:
    numbers = {entry.group for entry in entries if entry.group is not None}
    return {
        number: IommuGroup(number, tuple(e.address for e in entries if e.group == number))
        for number in numbers
    }


def _describe(machine: Machine, entry: PciEntry, groups: Mapping[int, IommuGroup]) -> PciGpu:
    has_vfs = entry.vf_total > 0
    return PciGpu(
        address=entry.address,
        vendor_id=entry.vendor_id,
        device_id=entry.device_id,
        class_code=entry.class_code,
        model=name_pci_device(entry.vendor_id, entry.device_id),
        driver=entry.driver,
        numa_node=entry.numa_node,
        iommu_group=None if entry.group is None else groups[entry.group],
        bar_bytes=list_bar_sizes(machine, entry.address) or (),
        vfs_total=entry.vf_total if has_vfs else None,
        vfs_enabled=len(entry.vfs) if has_vfs else None,
        is_boot_display=entry.boot_display,
    )
