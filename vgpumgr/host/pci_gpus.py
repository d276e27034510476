"""GPUs of any vendor, from ``/sys`` alone: display controllers and processing accelerators.

As everywhere in ``host``, only attributes that take no device lock are read.
"""

from __future__ import annotations

from collections.abc import Collection

from vgpumgr.errors import SysfsError
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_names import name_pci_device
from vgpumgr.host.sysfs import list_pci_functions
from vgpumgr.model.gpu import PciGpu
from vgpumgr.model.pci import PciAddress, PciFunction

#: PCI class codes: base class 03 are display controllers, 12 processing accelerators
_DISPLAY, _ACCELERATOR = 0x03, 0x12
_MEMORY_BARS = range(6)
#: linux/ioport.h
_IORESOURCE_MEM = 0x200


def is_gpu_class(class_code: int) -> bool:
    """Whether functions of that class (three bytes) are GPUs."""
    return class_code >> 16 in (_DISPLAY, _ACCELERATOR)


def draws_screen(class_code: int) -> bool:
    """Whether the function is a VGA-compatible display: its ROM draws the first screen. A 3D
    controller (0302) or an accelerator only computes.
    """
    return class_code >> 8 == 0x0300


def list_pci_gpus(machine: Machine, known: Collection[PciAddress] = ()) -> tuple[PciGpu, ...]:
    """All GPUs but those that are ``known`` already, by address; their virtual functions are none."""
    return tuple(
        describe_pci_gpu(machine, function)
        for function in list_pci_functions(machine)
        if is_gpu_class(function.class_code)
        and function.address not in known
        and not _is_virtual(machine, function.address)
    )


def describe_pci_gpu(machine: Machine, function: PciFunction) -> PciGpu:
    """All that ``/sys`` says of a function as a GPU."""
    address = function.address
    return PciGpu(
        address=address,
        vendor_id=function.vendor_id,
        device_id=function.device_id,
        class_code=function.class_code,
        model=name_pci_device(function.vendor_id, function.device_id),
        driver=function.driver,
        numa_node=function.numa_node,
        iommu_group=function.iommu_group,
        bar_bytes=read_bars(machine, address),
        vfs_total=_read_count(machine, address, "sriov_totalvfs"),
        vfs_enabled=_count_virtual(machine, address),
        is_boot_display=_read_count(machine, address, "boot_vga") == 1,
    )


def read_bars(machine: Machine, address: PciAddress) -> tuple[int, ...]:
    """Sizes in bytes of the function's memory BARs. Raises SysfsError."""
    text = _read_text(machine, address, "resource") or ""
    sizes = []
    for line in text.splitlines()[: len(_MEMORY_BARS)]:
        words = line.split()
        if len(words) != 3:
            continue
        start, end, flags = (int(word, 16) for word in words)
        if flags & _IORESOURCE_MEM and end > start:
            sizes.append(end - start + 1)
    return tuple(sizes)


def _count_virtual(machine: Machine, address: PciAddress) -> int | None:
    """Counted by their links: reading ``sriov_numvfs`` may block (it takes the device's lock)."""
    if _read_count(machine, address, "sriov_totalvfs") is None:
        return None
    directory = machine.path(f"/sys/bus/pci/devices/{address}")
    return sum(1 for entry in directory.iterdir() if entry.name.startswith("virtfn"))


def _is_virtual(machine: Machine, address: PciAddress) -> bool:
    return machine.path(f"/sys/bus/pci/devices/{address}/physfn").is_symlink()


def _read_count(machine: Machine, address: PciAddress, name: str) -> int | None:
    text = (_read_text(machine, address, name) or "").strip()
    return int(text) if text.isdigit() else None


def _read_text(machine: Machine, address: PciAddress, name: str) -> str | None:
    path = machine.path(f"/sys/bus/pci/devices/{address}/{name}")
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SysfsError(f"cannot read {path}", cause=f"read {path}: {error.strerror}") from error
