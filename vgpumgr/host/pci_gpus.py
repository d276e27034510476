"""GPUs of any vendor, from ``/sys`` alone: display controllers and processing accelerators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_names import name_pci_device
from vgpumgr.host.pci_tree import list_bar_sizes, list_functions
from vgpumgr.model.functions import Function
from vgpumgr.model.gpu import PciGpu
from vgpumgr.model.pci import IommuGroup, PciAddress


def list_pci_gpus(machine: Machine, known: Collection[PciAddress] = ()) -> tuple[PciGpu, ...]:
    """All GPUs but those that are ``known`` already, by address; their virtual functions are none."""
    functions = list_functions(machine)
    found = [
        function
        for function in functions
        if function.is_gpu and function.address not in known and not function.physical
    ]
    groups = _list_groups(functions) if found else {}
    return tuple(_describe(machine, function, groups) for function in found)


def _list_groups(functions: Sequence[Function]) -> Mapping[int, IommuGroup]:
    numbers = {function.group for function in functions if function.group is not None}
    return {
        number: IommuGroup(number, tuple(e.address for e in functions if e.group == number))
        for number in numbers
    }


def _describe(machine: Machine, function: Function, groups: Mapping[int, IommuGroup]) -> PciGpu:
    has_vfs = function.vf_total > 0
    return PciGpu(
        address=function.address,
        vendor_id=function.vendor_id,
        device_id=function.device_id,
        class_code=function.class_code,
        model=name_pci_device(function.vendor_id, function.device_id),
        driver=function.driver,
        numa_node=function.numa_node,
        iommu_group=None if function.group is None else groups[function.group],
        bar_bytes=list_bar_sizes(machine, function.address) or (),
        vfs_total=function.vf_total if has_vfs else None,
        vfs_enabled=len(function.vfs) if has_vfs else None,
        is_boot_display=function.boot_display,
    )
