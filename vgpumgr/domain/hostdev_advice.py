"""Advice about a VM that gets a host device: what its definition lacks for the device to work well.

Nothing here is required by libvirt and nothing is changed by us: firmware, memory and placement of
a VM are its owner's. Sources: QEMU's ``q35-pcihost.pci-hole64-size`` (32 GiB by default), OVMF's
dynamic MMIO window (an eighth of the guest's address space, a quarter in newer ones), libvirt's
``qemuDomainGetMemLockLimitBytes`` (guest memory and 1 GiB, or ``<hard_limit>`` as it stands; with an
IOMMU in the guest the memory once for each device, because each then has an address space of its own).
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from vgpumgr.domain.domain import Domain
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import format_size, parse_set

_GIB = 1 << 30
#: BARs of this size and above do not fit below 4 GiB beside anything else
_LARGE_BAR_BYTES = 1 * _GIB
#: QEMU's default window on q35
_DEFAULT_HOLE_BYTES = 32 * _GIB
#: an eighth of 40 address bits, what a guest has unless its CPU model says more
_DEFAULT_WINDOW_BYTES = 128 * _GIB
_LOCK_EXTRA_BYTES = _GIB
_UNITS = {
    "b": 1, "bytes": 1,
    "KB": 10**3, "k": 1 << 10, "KiB": 1 << 10,
    "MB": 10**6, "M": 1 << 20, "MiB": 1 << 20,
    "GB": 10**9, "G": 1 << 30, "GiB": 1 << 30,
    "TB": 10**12, "T": 1 << 40, "TiB": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What advice needs to know of a device. ``bar_bytes`` are the sizes of its memory BARs."""

    address: PciAddress | None = None
    bar_bytes: tuple[int, ...] = ()
    numa_node: int | None = None
    #: whether the host has more than one NUMA node
    numa_matters: bool = False
    #: pins the guest's memory: all VFIO PCI devices do, mediated ones usually do not
    pins_memory: bool = True


def advise(domain: Domain, device: DeviceFacts) -> tuple[str, ...]:
    """Lines for people, each with the XML that would help; none where all is well."""
    root = domain.to_element()
    return (
        *_advise_mmio(domain, root, device),
        *_advise_numa(root, device),
        *_advise_memory(domain, root, device),
    )


def _advise_mmio(domain: Domain, root: etree._Element, device: DeviceFacts) -> Iterator[str]:
    largest = max(device.bar_bytes, default=0)
    if largest < _LARGE_BAR_BYTES:
        return
    what = f"a BAR of {format_size(largest)} needs 64-bit addresses"
    if not domain.is_q35:
        yield f"{what}: give the VM a q35 machine with UEFI firmware (<os firmware='efi'>)"
        return
    if not has_uefi(root):
        yield f"{what}: UEFI firmware places it (<os firmware='efi'>), SeaBIOS may not"
    needed = _window_for(device.bar_bytes)
    hole = _read_hole(domain)
    if needed > (hole or _DEFAULT_HOLE_BYTES):
        has = f"has {format_size(hole)}" if hole else "has QEMU's 32 GiB"
        yield (
            f"{what}, and the VM's window {has}: on its pcie-root controller"
            f" <pcihole64 unit='GiB'>{needed // _GIB}</pcihole64>"
        )
    if needed > _DEFAULT_WINDOW_BYTES and not _has_host_address_bits(root):
        yield (
            f"{what}, and firmware takes an eighth of the CPU's address space for that:"
            " <cpu mode='host-passthrough'><maxphysaddr mode='passthrough'/></cpu>"
        )


def _window_for(bar_bytes: tuple[int, ...]) -> int:
    """A power of two that holds all BARs, each aligned to its own size."""
    needed = _GIB
    while needed < sum(bar_bytes):
        needed *= 2
    return needed


def _read_hole(domain: Domain) -> int | None:
    for controller in domain.controllers:
        if controller.type == "pci" and controller.hole64 is not None:
            return controller.hole64 * _UNITS.get(controller.hole64_unit or "KiB", 1 << 10)
    return None


def has_uefi(root: etree._Element) -> bool:
    """Whether the definition asks for UEFI firmware, by name or by its file."""
    return bool(root.xpath("boolean(os[@firmware='efi'] | os/loader[@type='pflash'])"))


def _has_host_address_bits(root: etree._Element) -> bool:
    return bool(root.xpath("boolean(cpu/maxphysaddr[@mode='passthrough' or @bits > 40])"))


def _advise_numa(root: etree._Element, device: DeviceFacts) -> Iterator[str]:
    node = device.numa_node
    if node is None or not device.numa_matters:
        return
    name = f"{device.address or 'the device'} is on NUMA node {node}"
    nodeset = root.xpath("string(numatune/memory/@nodeset)")
    if not nodeset:
        yield (
            f"{name}, and the VM's memory may be anywhere:"
            f" <numatune><memory mode='preferred' nodeset='{node}'/></numatune>"
        )
    elif node not in parse_set(str(nodeset)):
        yield f"{name}, and the VM's memory is on {nodeset}: its <numatune> costs bandwidth"


def _advise_memory(domain: Domain, root: etree._Element, device: DeviceFacts) -> Iterator[str]:
    """libvirt raises the limit of locked memory itself, for a running VM too, unless the definition
    has a hard limit.
    """
    limit = _read_size(root, "memtune/hard_limit")
    if not device.pins_memory or limit is None:
        return
    memory = _read_size(root, "maxMemory") or _read_size(root, "memory") or 0
    times = 1
    if root.find("devices/iommu") is not None:
        times += len(domain.pci_hostdevs) + len(domain.mdev_hostdevs)
    needed = memory * times + _LOCK_EXTRA_BYTES
    if limit < needed:
        again = f" {times} times, because the VM has an IOMMU" if times > 1 else ""
        yield (
            f"the device pins all of the VM's memory{again}, and <hard_limit>"
            f" ({format_size(limit)}) is what may be locked:"
            f" <memtune><hard_limit unit='KiB'>{-(-needed // (1 << 10))}</hard_limit></memtune>,"
            " or no <hard_limit>"
        )


def _read_size(root: etree._Element, path: str) -> int | None:
    node = root.find(path)
    if node is None or not (node.text or "").strip().isdigit():
        return None
    return int((node.text or "").strip()) * _UNITS.get(node.get("unit", "KiB"), 1 << 10)
