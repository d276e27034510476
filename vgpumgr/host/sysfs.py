"""PCI functions as ``/sys`` shows them.

Only attributes that take no device lock are read here (vendor, device, class, numa_node, the driver
and iommu_group links): these answer even while an unbind of the same device hangs. Whatever takes a
lock goes through a helper.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from vgpumgr.errors import SysfsError, SysfsPermissionError
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import IommuGroup, PciAddress, PciFunction
from vgpumgr.model.text import parse_set

_PCI_DEVICES = "/sys/bus/pci/devices"


def list_pci_functions(machine: Machine, vendor_id: int | None = None) -> list[PciFunction]:
    """All PCI functions in address order, or those of one vendor (0x10de: NVIDIA)."""
    directory = machine.path(_PCI_DEVICES)
    if not directory.is_dir():
        return []
    found = []
    for entry in directory.iterdir():
        try:
            function = read_pci_function(machine, PciAddress.parse(entry.name))
        except ValueError:
            continue
        if function is not None and vendor_id in (None, function.vendor_id):
            found.append(function)
    return sorted(found, key=lambda function: function.address)


def read_pci_function(machine: Machine, address: PciAddress) -> PciFunction | None:
    """One PCI function, None if the machine has none at the address. Raises SysfsError."""
    directory = machine.path(f"{_PCI_DEVICES}/{address}")
    vendor = _read(directory / "vendor")
    if vendor is None:
        return None
    numa = _read_int(directory / "numa_node", 10)
    return PciFunction(
        address=address,
        vendor_id=_number(directory / "vendor", vendor, 16),
        device_id=_read_int(directory / "device", 16) or 0,
        class_code=_read_int(directory / "class", 16) or 0,
        # the kernel writes -1 where the firmware does not say
        numa_node=numa if numa is not None and numa >= 0 else None,
        driver=_link_name(directory / "driver"),
        iommu_group=_read_group(directory),
        vfs_enabled=_read_int(directory / "sriov_numvfs", 10) or 0,
    )


def _read_group(directory: Path) -> IommuGroup | None:
    name = _link_name(directory / "iommu_group")
    if name is None or not name.isdigit():
        return None
    try:
        members = [m.name for m in (directory / "iommu_group" / "devices").iterdir()]
    except OSError as error:
        raise _wrap(error, directory / "iommu_group" / "devices") from error
    return IommuGroup(int(name), tuple(sorted(PciAddress.parse(m) for m in members)))


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
            return None
        raise _wrap(error, path) from error


def _read(path: Path) -> str | None:
    """The attribute's text without the newline, None if there is no such attribute."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
            return None
        raise _wrap(error, path) from error


def _read_int(path: Path, base: int) -> int | None:
    text = _read(path)
    return None if text is None else _number(path, text, base)


def _number(path: Path, text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError as error:
        raise SysfsError(f"{path} holds no number", cause=f"it says {text!r}") from error


def _wrap(error: OSError, path: Path) -> SysfsError:
    """Keeps errno and path; what is not permitted is told apart from what is not there."""
    name = errno.errorcode.get(error.errno or 0, "?")
    kind = SysfsPermissionError if error.errno in (errno.EACCES, errno.EPERM) else SysfsError
    return kind(f"cannot read {path}", cause=f"read {path}: {error.strerror} ({name})")


_NODES = "/sys/devices/system/node"


def read_cpu_nodes(machine: Machine) -> dict[int, int]:
    """The node of each CPU; empty where the kernel shows no nodes."""
    directory = machine.path(_NODES)
    if not directory.is_dir():
        return {}
    nodes: dict[int, int] = {}
    for entry in directory.iterdir():
        match = re.fullmatch(r"node(\d+)", entry.name)
        if match is not None:
            text = (entry / "cpulist").read_text().strip()
            nodes.update(dict.fromkeys(parse_set(text), int(match[1])))
    return nodes
