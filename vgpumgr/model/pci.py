"""PCI addresses and what the kernel says about a PCI function."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Address of one PCI function; ordered the way the kernel enumerates."""

    domain: int
    bus: int
    device: int
    function: int = 0

    def __post_init__(self) -> None:
        limits = (0xFFFFFFFF, 0xFF, 0x1F, 7)
        numbers = (self.domain, self.bus, self.device, self.function)
        if any(not 0 <= n <= limit for n, limit in zip(numbers, limits, strict=True)):
            raise ValueError(f"no such PCI address: {numbers}")

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Reads ``0000:3b:00.0``, the short ``3b:00.0`` and NVML's ``00000000:3B:00.0``.

        Raises ValueError for anything else.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a PCI address: {text!r}")
        parts = (match["domain"] or "0", match["bus"], match["device"], match["function"])
        return cls(*(int(part, 16) for part in parts))

    @classmethod
    def read(cls, text: str) -> PciAddress | None:
        """As ``parse``; None for what is no address."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @property
    def short(self) -> str:
        """Bus, device and function without the domain."""
        return f"{self.bus:02x}:{self.device:02x}.{self.function}"

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.short}"


@dataclass(frozen=True, slots=True)
class IommuGroup:
    """The set of PCI functions that the IOMMU cannot tell apart; they go to one VM together."""

    number: int
    members: tuple[PciAddress, ...]


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function as ``/sys`` shows it; None where the kernel has no value."""

    address: PciAddress
    vendor_id: int
    device_id: int
    class_code: int
    numa_node: int | None
    driver: str | None
    iommu_group: IommuGroup | None
    #: virtual functions that it has now
    vfs_enabled: int = 0
