"""A machine's ``/sys`` and ``/proc``: the bus of its PCI functions, and what the vendor's driver shows of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vgpumgr.sim.amdtree import AmdTree, GimTree
from vgpumgr.sim.control import ControlTree
from vgpumgr.sim.inteltree import IntelTree
from vgpumgr.sim.machine import set_gpu_field
from vgpumgr.sim.machine_model import Gpu, Machine
from vgpumgr.sim.mdevtree import MdevTree
from vgpumgr.sim.pcibus import Address, PciBus, State
from vgpumgr.sim.tree import MachineTree, Part
from vgpumgr.sim.usestree import UsesTree
from vgpumgr.sim.vendortree import VendorTree
from vgpumgr.sim.vfiotree import VfioTree
from vgpumgr.sim.vgpuhost import VgpuHost
from vgpumgr.sim.vgpus import VgpuState
from vgpumgr.sim.writefaults import Sleepers, WriteFaults

_CMDLINE = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu=pt"


def build_tree(
    machine: Machine, boot_id: str, directory: Path, faults: WriteFaults, sleepers: Sleepers
) -> MachineTree:
    """The files of a machine that has just booted and runs in this directory."""
    cpus = {gpu.place.numa_node: gpu.place.cpus for gpu in machine.gpus}
    bus = PciBus.of(machine.functions())
    state = VgpuState(directory)
    watch_driver(machine, bus, state)
    host = None
    if machine.data.vgpu is not None:
        host = VgpuHost(machine, bus, state)
    mdev = machine.data.vgpu == "mdev"
    parts: list[Part] = [
        ControlTree(bus, faults, host, lambda address: lose_gpu(machine, directory, address)),
        VfioTree(bus, host, mdev=mdev),
        sleepers,
        UsesTree(machine, bus),
        *(IntelTree(bus, pci) for pci in machine.data.pci if pci.quotas),
        GimTree(bus, machine.data.pci),
        *(AmdTree(pci) for pci in machine.data.pci if pci.partitions),
    ]
    if host is not None:
        parts.append(MdevTree(host) if mdev else VendorTree(host))
    proc = {**proc_files(machine), "sys/kernel/random/boot_id": boot_id}
    return MachineTree(bus, proc, cpus, parts, sys_files(machine))


def watch_driver(machine: Machine, bus: PciBus, state: VgpuState) -> None:
    """NVML and CUDA know the GPUs that NVIDIA's driver has; it leaves none that somebody computes on."""
    gpus = {Address.parse(gpu.place.address): gpu.index for gpu in machine.gpus}

    def users(function: State) -> Callable[[], bool]:
        gpu = gpus.get(function.function.address)
        if gpu is None or function.driver != "nvidia":
            return lambda: False
        return lambda: state.clients(gpu) > 0

    def tell(function: State) -> None:
        gpu = gpus.get(function.function.address)
        if gpu is not None:
            state.detach(gpu, function.driver != "nvidia")

    bus.users.append(users)
    bus.after_driver.append(tell)


def lose_gpu(machine: Machine, directory: Path, address: Address) -> None:
    """NVML and CUDA find the GPU lost, if it is one of theirs."""
    for gpu in machine.gpus:
        if Address.parse(gpu.place.address) == address:
            set_gpu_field(directory, gpu.index, "lost", 1)


def sys_files(machine: Machine) -> dict[str, str]:
    """Constant files below ``/sys``: parameters of kernel modules."""
    return {
        f"module/{module}/parameters/{name}": value
        for module, parameters in machine.data.modules.items()
        for name, value in parameters.items()
    }


def proc_files(machine: Machine) -> dict[str, str]:
    """Constant files below ``/proc``, in the form of NVIDIA's driver README, "The /proc Filesystem Interface"."""
    version = machine.data.driver_version
    files = {
        "sys/kernel/osrelease": machine.data.kernel,
        "cmdline": " ".join((_CMDLINE, *machine.data.cmdline)),
    }
    if not machine.gpus:
        return files
    files |= {
        "modules": "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (OE)\n"
        "nvidia 56717312 1 nvidia_uvm, Live 0x0000000000000000 (OE)",
        "driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)",
        "driver/nvidia/params": 'ModifyDeviceFiles: 1\nDeviceFileMode: 438\nRegistryDwords: ""',
    }
    for gpu in machine.gpus:
        files[f"driver/nvidia/gpus/{gpu.place.address}/information"] = information(gpu)
    return files


def information(gpu: Gpu) -> str:
    """``/proc/driver/nvidia/gpus/ADDRESS/information``."""
    rows = {
        "Model": gpu.board.name,
        "IRQ": str(100 + gpu.index),
        "GPU UUID": gpu.uuid,
        "Video BIOS": gpu.board.vbios,
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": gpu.place.address,
        "Device Minor": str(gpu.index),
        "GPU Excluded": "No",
    }
    return "\n".join(f"{key + ':':16} {value}" for key, value in rows.items())
