"""GPUs of a machine: what NVML says, completed by what ``/sys`` says."""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.host.machine import Machine
from vgpumgr.host.sysfs import read_pci_function
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.nvml.protocol import Nvml


def read_machine_inventory(nvml: Nvml, machine: Machine) -> Inventory:
    """NVML's inventory with NUMA node, IOMMU group and driver of each GPU filled in."""
    inventory = nvml.read_inventory()
    return replace(inventory, gpus=tuple(_complete(gpu, machine) for gpu in inventory.gpus))


def _complete(gpu: Gpu, machine: Machine) -> Gpu:
    function = read_pci_function(machine, gpu.pci)
    if function is None:
        return gpu
    return replace(
        gpu,
        numa_node=function.numa_node,
        iommu_group=function.iommu_group,
        driver=function.driver,
    )
