"""Names of PCI devices by their numbers: GPUs that this program is made for, else the host's pci.ids."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086

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
