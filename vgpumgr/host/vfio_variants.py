"""Drivers that know more of a device than ``vfio-pci`` and offer it to VMs in its place.

A module of one has aliases ``vfio_pci:...`` for its devices, in the form of their ``modalias``
(Linux: Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst and ``file2alias``);
the one with the fewest wildcards fits best.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import PciAddress

_PREFIX = "vfio_pci:"
_GENERIC = "vfio_pci"


def list_variants(machine: Machine, addresses: Iterable[PciAddress]) -> dict[PciAddress, str]:
    """The driver for each function that has one of its own; the others are left out."""
    aliases = _read_aliases(machine)
    found = {a: _choose(aliases, _read_modalias(machine, a)) for a in addresses if aliases}
    return {address: _find_driver(machine, module) for address, module in found.items() if module}


def _read_aliases(machine: Machine) -> list[tuple[str, str]]:
    """Pattern and module, of all modules that are installed for this kernel."""
    release = _read(machine, "/proc/sys/kernel/osrelease")
    lines = _read(machine, f"/lib/modules/{release}/modules.alias").splitlines()
    rows = (line.split() for line in lines if line.startswith(f"alias {_PREFIX}"))
    return [(row[1], row[2]) for row in rows if len(row) == 3 and row[2] != _GENERIC]


def _read_modalias(machine: Machine, address: PciAddress) -> str:
    return _read(machine, f"/sys/bus/pci/devices/{address}/modalias")


def _choose(aliases: list[tuple[str, str]], modalias: str) -> str | None:
    wanted = _PREFIX + modalias.removeprefix("pci:")
    fitting = [
        (pattern.count("*"), name) for pattern, name in aliases if fnmatchcase(wanted, pattern)
    ]
    return min(fitting)[1] if modalias and fitting else None


def _find_driver(machine: Machine, module: str) -> str:
    """A driver is called as its module unless the loaded module says otherwise."""
    try:
        names = [p.name for p in machine.path(f"/sys/module/{module}/drivers").iterdir()]
    except OSError:
        return module
    drivers = [name.removeprefix("pci:") for name in names if name.startswith("pci:")]
    return drivers[0] if drivers else module


def _read(machine: Machine, path: str) -> str:
    try:
        return machine.path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
