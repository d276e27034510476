"""All PCI functions of a machine in one pass over ``/sys``, without any lock of the kernel.

Per function: one directory listing, then only what it names. Not read, because the kernel takes the
device's lock for it: ``sriov_numvfs`` (the ``virtfnN`` links say as much) and ``driver_override``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from vgpumgr.errors import SysfsError, SysfsPermissionError
from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import AMD, INTEL, NVIDIA, Function, PciAddress

_DEVICES = "/sys/bus/pci/devices"
_DRIVERS = "/sys/bus/pci/drivers"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO)
_PAGE = 4096
#: of the configuration space (PCI Local Bus 3.0, 6.1 and 6.7): status with the bit that there are
#: capabilities, where their list begins; PCI Express has one of its own, and 4 KiB of space
_CONVENTIONAL_BYTES = 256
_STATUS, _HAS_CAPABILITIES, _FIRST_CAPABILITY, _EXPRESS = 0x06, 0x10, 0x34, 0x10


def list_functions(machine: Machine) -> list[Function]:
    """Every function in address order; those that leave meanwhile are left out."""
    found = []
    with _open_directory(machine.path(_DEVICES)) as devices:
        if devices is None:
            return []
        for name in os.listdir(devices):  # noqa: PTH208  # of a descriptor
            try:
                address = PciAddress.parse(name)
            except ValueError:
                continue
            function = _read_function(devices, address, name)
            if function is not None:
                found.append(function)
    return sorted(found, key=lambda function: function.address)


def read_function(machine: Machine, address: PciAddress) -> Function | None:
    """One function, None if there is none at the address."""
    with _open_directory(machine.path(_DEVICES)) as devices:
        return None if devices is None else _read_function(devices, address, str(address))


def has_mdev_parents(machine: Machine) -> bool:
    """Whether a driver offers mediated devices."""
    try:
        return any(machine.path("/sys/class/mdev_bus").iterdir())
    except OSError:
        return False


def list_bar_sizes(machine: Machine, address: PciAddress) -> tuple[int, ...] | None:
    """Sizes in bytes of the function's memory regions, the largest first; None if it is gone.

    ``resource`` has a line for each: start, end and flags (0x200: memory).
    """
    path = machine.path(f"{_DEVICES}/{address}/resource")
    try:
        lines = path.read_text(encoding="ascii").splitlines()[:6]
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise wrap(error, str(path)) from error
    rows = [[int(word, 16) for word in line.split()] for line in lines]
    sizes = [end - start + 1 for start, end, flags in rows if end > start and flags & 0x200]
    return tuple(sorted(sizes, reverse=True))


def read_is_express(machine: Machine, address: PciAddress) -> bool | None:
    """Whether the function is PCI Express; None where it is unknown: it is gone, or without root
    the kernel shows the first 64 bytes only.
    """
    path = machine.path(f"{_DEVICES}/{address}/config")
    try:
        if path.stat().st_size > _CONVENTIONAL_BYTES:
            return True
        return _find_express(path.read_bytes())
    except OSError:
        return None


def _find_express(space: bytes) -> bool | None:
    if len(space) <= _FIRST_CAPABILITY:
        return None
    if not space[_STATUS] & _HAS_CAPABILITIES:
        return False
    at, seen = space[_FIRST_CAPABILITY] & ~3, set[int]()
    while at and at not in seen:
        if at + 1 >= len(space) or space[at] == 0xFF:
            return None  # hidden, or the device does not answer
        if space[at] == _EXPRESS:
            return True
        seen.add(at)
        at = space[at + 1] & ~3
    return False


def has_driver(machine: Machine, driver: str) -> bool:
    """Whether a PCI driver of that name is registered."""
    return machine.path(f"{_DRIVERS}/{driver}").is_dir()


def wrap(error: OSError, path: str) -> SysfsError:
    """Keeps errno and path; a refused read is another error than a missing file."""
    name = errno.errorcode.get(error.errno or 0, "?")
    kind = SysfsPermissionError if error.errno in (errno.EACCES, errno.EPERM) else SysfsError
    return kind(f"cannot read {path}", cause=f"read {path}: {error.strerror} ({name})")


@contextmanager
def _open_directory(path: str | Path, parent: int | None = None) -> Iterator[int | None]:
    """A descriptor to open names from, so that the kernel walks the way there once; None where there
    is no such directory.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno not in _GONE:
            raise wrap(error, str(path)) from error
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_function(devices: int, address: PciAddress, name: str) -> Function | None:
    with _open_directory(name, devices) as directory:
        try:
            return None if directory is None else _Reader(directory, name).read(address)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise wrap(error, name) from error


class _Reader:
    """Reads one function's directory."""

    def __init__(self, directory: int, name: str) -> None:
        self._directory = directory
        self._name = name
        self._names = frozenset(os.listdir(directory))

    def read(self, address: PciAddress) -> Function:
        """All of it; raises OSError where it leaves the bus meanwhile."""
        numa = self._number("numa_node", 10)
        group = self._link("iommu_group")
        physical = self._link("physfn")
        return Function(
            address=address,
            vendor_id=self._number("vendor", 16) or 0,
            device_id=self._number("device", 16) or 0,
            class_code=self._number("class", 16) or 0,
            driver=self._link("driver"),
            group=int(group) if group is not None and group.isdigit() else None,
            # the kernel writes -1 where the firmware does not say
            numa_node=numa if numa is not None and numa >= 0 else None,
            boot_display=self._number("boot_vga", 10) == 1,
            physical=PciAddress.parse(physical) if physical else None,
            vf_total=self._number("sriov_totalvfs", 10) or 0,
            vfs=self._list_vfs(),
            vf_offset=self._number("sriov_offset", 10) or 0,
            vf_stride=self._number("sriov_stride", 10) or 0,
            has_vfio="vfio-dev" in self._names,
        )

    def _list_vfs(self) -> tuple[PciAddress, ...]:
        links = [name for name in self._names if name.startswith("virtfn")]
        targets = [self._link(n) for n in sorted(links, key=lambda n: int(n[len("virtfn") :]))]
        return tuple(PciAddress.parse(target) for target in targets if target)

    def _link(self, name: str) -> str | None:
        if name not in self._names:
            return None
        try:
            return os.readlink(name, dir_fd=self._directory).rpartition("/")[2]
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def _number(self, name: str, base: int) -> int | None:
        if name not in self._names:
            return None
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        try:
            text = os.read(descriptor, _PAGE).decode(errors="replace").strip()
        except OSError as error:
            if error.errno in _GONE:
                raise
            raise wrap(error, f"{_DEVICES}/{self._name}/{name}") from error
        finally:
            os.close(descriptor)
        try:
            return int(text, base)
        except ValueError as error:
            path = f"{self._name}/{name}"
            raise SysfsError(f"{path} holds no number", cause=f"it says {text!r}") from error


def list_attributes(machine: Machine, address: PciAddress, below: str) -> list[str]:
    """Names in a directory below the function's own, none where it is not there."""
    try:
        return sorted(e.name for e in machine.path(f"{_DEVICES}/{address}/{below}").iterdir())
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise wrap(error, below) from error


def read_condition(machine: Machine, address: PciAddress) -> tuple[str | None, str | None]:
    """``reset_method`` (Linux 5.15) and ``power_state`` (5.11) as they stand; None where they are not.

    A function that cannot be reset has no ``reset`` either, with any kernel.
    """
    below = machine.path(f"{_DEVICES}/{address}")
    methods = read_text(below / "reset_method")
    if methods is None and below.is_dir() and not (below / "reset").exists():
        methods = ""
    return methods, read_text(below / "power_state")


def read_attribute_mode(machine: Machine, address: PciAddress, path: str) -> int:
    """Permission bits of a file below the function's own directory; none where it is not there."""
    try:
        return machine.path(f"{_DEVICES}/{address}/{path}").stat().st_mode & 0o777
    except OSError as error:
        if error.errno in _GONE:
            return 0
        raise wrap(error, path) from error


def has_iommufd(machine: Machine) -> bool:
    """Whether the kernel gives devices to user space by ``/dev/iommu`` as well as by VFIO groups."""
    return machine.path("/dev/iommu").exists()


VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
#: from the vendors' own lists: Intel's GPU table, AMD's ROCm hardware specifications
_MODELS = {
    (AMD, 0x7408): "AMD Instinct MI250X",
    (AMD, 0x740C): "AMD Instinct MI250X",
    (AMD, 0x740F): "AMD Instinct MI210",
    (AMD, 0x74A0): "AMD Instinct MI300A",
    (AMD, 0x74A1): "AMD Instinct MI300X",
    (AMD, 0x74A5): "AMD Instinct MI325X",
    (AMD, 0x75A0): "AMD Instinct MI350X",
    (AMD, 0x75A3): "AMD Instinct MI355X",
    (AMD, 0x7461): "AMD Radeon Pro V710",
    (INTEL, 0x0BD5): "Intel Data Center GPU Max 1550",
    (INTEL, 0x0BDA): "Intel Data Center GPU Max 1100",
    (INTEL, 0x56C0): "Intel Data Center GPU Flex 170",
    (INTEL, 0x56C1): "Intel Data Center GPU Flex 140",
    (INTEL, 0xE211): "Intel Arc Pro B60",
    (INTEL, 0xE212): "Intel Arc Pro B50",
}
_FILES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


def name_pci_device(vendor_id: int, device_id: int) -> str:
    """Its usual name; its numbers where no table has one."""
    known = _MODELS.get((vendor_id, device_id))
    if known is not None:
        return known
    vendor, device = _look_up(vendor_id, device_id)
    vendor = VENDORS.get(vendor_id) or vendor or f"{vendor_id:04x}"
    return f"{vendor} {device or f'{device_id:04x}'}"


def _look_up(vendor_id: int, device_id: int) -> tuple[str | None, str | None]:
    for path in _FILES:
        try:
            return _read_names(path, path.stat().st_mtime_ns, vendor_id, device_id)
        except OSError:
            continue
    return None, None


@lru_cache(maxsize=256)
def _read_names(
    path: Path, _changed_ns: int, vendor_id: int, device_id: int
) -> tuple[str | None, str | None]:
    """The file has 40,000 lines: read once for each device, until it changes."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return _find(lines, vendor_id, device_id)


def _find(lines: Iterable[str], vendor_id: int, device_id: int) -> tuple[str | None, str | None]:
    """Vendors stand at the margin, their devices behind one tab, subsystems behind two."""
    vendor: str | None = None
    of_vendor, of_device = f"{vendor_id:04x}  ", f"\t{device_id:04x}  "
    for line in lines:
        if line.startswith(of_vendor):
            vendor = line[6:].strip()
        elif vendor is not None and line.startswith(of_device):
            return vendor, line[7:].strip()
        elif vendor is not None and line[:1] not in "\t#\n":
            break
    return vendor, None


_PREFIX = "vfio_pci:"
_GENERIC = "vfio_pci"


def list_variants(machine: Machine, addresses: Iterable[PciAddress]) -> dict[PciAddress, str]:
    """The driver for each function that has one of its own, which knows more of the device than ``vfio-pci`` and offers
    it to VMs in its place; the others are left out.

    A module of one has aliases ``vfio_pci:...`` for its devices, in the form of their ``modalias``
    (Linux: Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst and ``file2alias``);
    the one with the fewest wildcards fits best.
    """
    aliases = _read_aliases(machine)
    found = {a: _choose(aliases, _read_modalias(machine, a)) for a in addresses if aliases}
    return {address: _find_driver(machine, module) for address, module in found.items() if module}


def _read_aliases(machine: Machine) -> list[tuple[str, str]]:
    """Pattern and module, of all modules that are installed for this kernel."""
    release = read_text(machine.path("/proc/sys/kernel/osrelease"))
    lines = (read_text(machine.path(f"/lib/modules/{release}/modules.alias")) or "").splitlines()
    rows = (line.split() for line in lines if line.startswith(f"alias {_PREFIX}"))
    return [(row[1], row[2]) for row in rows if len(row) == 3 and row[2] != _GENERIC]


def _read_modalias(machine: Machine, address: PciAddress) -> str:
    return read_text(machine.path(f"{_DEVICES}/{address}/modalias")) or ""


def _choose(aliases: list[tuple[str, str]], modalias: str) -> str | None:
    wanted = _PREFIX + modalias.removeprefix("pci:")
    fitting = [
        (pattern.count("*"), name) for pattern, name in aliases if fnmatchcase(wanted, pattern)
    ]
    return min(fitting)[1] if modalias and fitting else None


def _find_driver(machine: Machine, module: str) -> str:
    """A driver is called as its module unless the loaded module says otherwise."""
    names = list_names(machine.path(f"/sys/module/{module}/drivers"))
    drivers = [name.removeprefix("pci:") for name in names if name.startswith("pci:")]
    return drivers[0] if drivers else module
