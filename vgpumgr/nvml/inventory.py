"""GPUs of a machine: what NVML says, completed by what ``/sys`` says, and those that only it knows."""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.errors import NvmlMissingError
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_gpus import list_pci_gpus
from vgpumgr.host.sysfs import read_pci_function
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.nvml.protocol import Nvml


def read_machine_inventory(nvml: Nvml, machine: Machine) -> Inventory:
    """NVML's inventory with NUMA node, IOMMU group and driver of each GPU filled in, and the GPUs
    without NVML. Raises NvmlMissingError only where there is no GPU at all.
    """
    try:
        inventory = nvml.read_inventory()
    except NvmlMissingError:
        others = list_pci_gpus(machine)
        if not others:
            raise
        return Inventory("", "", None, (), others=others)
    gpus = tuple(_complete(gpu, machine) for gpu in inventory.gpus)
    others = list_pci_gpus(machine, {gpu.pci for gpu in gpus})
    if inventory.lost:
        # NVML counts these, but does not say where they are
        others = tuple(gpu for gpu in others if gpu.driver != "nvidia")
    return replace(inventory, gpus=gpus, others=others)


def _complete(gpu: Gpu, machine: Machine) -> Gpu:
    function = read_pci_function(machine, gpu.pci)
    if function is None:
        return gpu
    return replace(
        gpu,
        numa_node=function.numa_node,
        iommu_group=function.iommu_group,
        driver=function.driver,
        vfs_enabled=function.vfs_enabled,
    )
