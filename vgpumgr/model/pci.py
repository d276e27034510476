"""PCI functions: addresses, IOMMU groups, users, and what is remembered of those that were taken from the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Literal

from vgpumgr.model.frozen import dataclass

NVIDIA = 0x10DE
AMD = 0x1002
INTEL = 0x8086
#: the driver that gives a function to a VM, and the one that only keeps others away
VFIO = "vfio-pci"
STUB = "pci-stub"

#: a quota of a virtual function by its name, and a number or a word
Quota = tuple[str, int | str]
#: how the number of virtual functions is set, in documents
VfMethod = Literal["sriov_numvfs", "sriov-manage", "libamdsmi"]

_BRIDGES = (0x0604, 0x0609)
_DISPLAY = 0x03
_ACCELERATOR = 0x12
_AUDIO = 0x04
_SERIAL_BUS = 0x0C
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
class Function:
    """One PCI function, read without any lock of the kernel. None: the kernel has no value."""

    address: PciAddress
    vendor_id: int
    device_id: int
    class_code: int
    driver: str | None = None
    #: number of its IOMMU group; None without an IOMMU
    group: int | None = None
    numa_node: int | None = None
    #: whether firmware chose it for the screen it boots with
    boot_display: bool = False
    #: of a virtual function: the physical one
    physical: PciAddress | None = None
    #: how many virtual functions it can have, and those that it has now
    vf_total: int = 0
    vfs: tuple[PciAddress, ...] = ()
    #: routing ids from the physical function to the first virtual one, and between these
    vf_offset: int = 0
    vf_stride: int = 0
    #: whether its driver offers it to user space through VFIO
    has_vfio: bool = False

    def locate_vf(self, index: int) -> PciAddress | None:
        """Where its virtual function of that number (from 0) is, or will be once it is made; None
        where the kernel does not say.
        """
        if self.vfs:
            return self.vfs[index] if index < len(self.vfs) else None
        if not self.vf_offset or index >= self.vf_total:
            return None
        own = self.address.bus << 8 | self.address.device << 3 | self.address.function
        rid = own + self.vf_offset + index * self.vf_stride
        return PciAddress(self.address.domain, rid >> 8 & 0xFF, rid >> 3 & 0x1F, rid & 7)

    @property
    def is_bridge(self) -> bool:
        """A PCI bridge or root port: it stays with the host, and never blocks a group."""
        return self.class_code >> 8 in _BRIDGES

    @property
    def is_gpu(self) -> bool:
        """A display controller or a processing accelerator."""
        return self.class_code >> 16 in (_DISPLAY, _ACCELERATOR)

    @property
    def kind(self) -> str:
        """What it is, in a word, by its class."""
        if self.is_gpu:
            return "vf" if self.physical else "gpu"
        if self.is_bridge:
            return "bridge"
        words = {
            0x01: "storage",
            0x02: "network",
            _AUDIO: "audio",
            0x05: "memory",
            0x06: "bridge",
            _SERIAL_BUS: {0x03: "usb", 0x80: "ucsi"}.get(self.class_code >> 8 & 0xFF, "serial"),
        }
        return words.get(self.class_code >> 16, "other")

    @property
    def is_free(self) -> bool:
        """Whether it lets its group go to a VM: a bridge, without driver, or with one that does
        not touch it.
        """
        return self.is_bridge or self.driver is None or self.is_away

    @property
    def is_away(self) -> bool:
        """Whether its driver only keeps it for VMs."""
        return self.has_vfio or self.is_ready or self.driver == STUB

    @property
    def is_ready(self) -> bool:
        """Whether its driver is there to give it to VMs: vfio-pci, or one that knows its device better."""
        return _gives_to_vms(self.driver)

    def is_beside(self, other: Function) -> bool:
        """Whether both are functions of one device. A virtual function is a device of its own."""
        mine, its = self.address, other.address
        same = (mine.domain, mine.bus, mine.device) == (its.domain, its.bus, its.device)
        return same and self.physical is None and other.physical is None

    def __str__(self) -> str:
        return f"{self.address} ({self.kind}, {self.driver or 'no driver'})"


@dataclass(frozen=True, slots=True)
class Condition:
    """What matters of a function before a VM gets it. None: the kernel does not say."""

    #: how it can be reset between two VMs, in the order in which the kernel tries; none: not at all
    reset_methods: tuple[str, ...] | None = None
    power_state: str | None = None


class UserKind(StrEnum):
    """How a function is used."""

    PROCESS = "process"
    DISK = "disk"
    #: a disk that is not mounted
    IDLE_DISK = "idle-disk"
    NETWORK = "network"
    DISPLAY = "display"
    USB = "usb"
    MDEV = "mdev"
    VFS = "vfs"


@dataclass(frozen=True, slots=True)
class User:
    """A user of a function, in words."""

    kind: UserKind
    text: str
    pid: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Binding:
    """A function that was taken from the host: what to give back, and how to know it again."""

    address: PciAddress
    driver: str
    #: the driver of before, and what driver_override said
    previous: str | None
    override: str | None
    vendor_id: int
    device_id: int
    boot_id: str
    #: whether it is taken again at every boot
    persist: bool = False
    #: GPUs without their driver are unknown to NVML: the UUID that it had there
    gpu_uuid: str | None = None
    model: str | None = None
    #: its index there: those of the other GPUs have changed since
    gpu_index: int | None = None


@dataclass(frozen=True, slots=True)
class VfSetting:
    """A physical function whose number of virtual functions we have set."""

    physical: PciAddress
    count: int
    vendor_id: int
    device_id: int
    boot_id: str
    #: whether they are made again at every boot
    persist: bool = False
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class VfSupport:
    """The capacity of a physical function for virtual ones, as the SR-IOV driver of its vendor observes it."""

    #: how many there can be
    total: int
    #: why what changes their number cannot be used here; None: it can
    missing: str | None = None
    #: what each has of the GPU's memory, where the vendor's library says
    shares_mib: Mapping[PciAddress, int] = field(default_factory=dict)


def _gives_to_vms(driver: str | None) -> bool:
    name = (driver or "").replace("-", "_")
    return name.startswith("vfio") or name.endswith("_vfio_pci")


def is_host_driver(driver: str | None) -> bool:
    """Whether it uses its function for the host, and may make virtual ones."""
    return driver is not None and driver != STUB and not _gives_to_vms(driver)


def find_function(functions: Sequence[Function], address: PciAddress) -> Function | None:
    """The function at an address."""
    return next((f for f in functions if f.address == address), None)


@dataclass(frozen=True, slots=True)
class Release:
    """The command that frees a function from one holder: an attachment of a VM, which has ``of`` in all,
    or a vGPU.
    """

    command: str
    vm: str | None = None
    of: int = 1
