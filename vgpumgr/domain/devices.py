"""The device elements that vgpumgr gives to domains or must understand in them.

Places and spellings are those of libvirt's domain format (https://libvirt.org/formatdomain.html)
and of its RelaxNG schema ``domaincommon.rng``; tests validate every rendered element against the
schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from vgpumgr.domain.declare import NUMBER, ON_OFF, YES_NO, At, Element, Inside, hexadecimal
from vgpumgr.model.choices import Display
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress

#: libvirt keeps aliases that begin so as the user chose them; the rest of the name is ours.
ALIAS_PREFIX = "ua-vgpumgr-"
#: name of a port in the guest, before the number of its attachment in the VM
CHANNEL_NAME = "org.vgpumgr."


@dataclass(frozen=True, kw_only=True)
class GuestPciAddress(Element):
    """Where a device stands in the guest."""

    tag: ClassVar[str] = "address"
    fixed: ClassVar[tuple[tuple[str, str], ...]] = (("type", "pci"),)
    domain: Annotated[int, At("@domain", hexadecimal(4))] = 0
    bus: Annotated[int, At("@bus", hexadecimal(2))] = 0
    slot: Annotated[int, At("@slot", hexadecimal(2))] = 0
    function: Annotated[int, At("@function", hexadecimal(1))] = 0
    #: of function 0: whether the slot has more functions
    multifunction: Annotated[bool | None, At("@multifunction", ON_OFF)] = None


@dataclass(frozen=True, kw_only=True)
class Shmem(Element):
    """Shared memory (``ivshmem-doorbell``: memory and doorbells come from our server's socket)."""

    tag: ClassVar[str] = "shmem"
    name: Annotated[str, At("@name")]
    model: Annotated[str | None, At("model/@type")] = None
    size: Annotated[int | None, At("size/text()", NUMBER)] = None
    size_unit: Annotated[str | None, At("size/@unit")] = None
    server_path: Annotated[str | None, At("server/@path")] = None
    msi: Annotated[bool, At("msi")] = False
    msi_vectors: Annotated[int | None, At("msi/@vectors", NUMBER)] = None
    msi_ioeventfd: Annotated[bool | None, At("msi/@ioeventfd", ON_OFF)] = None
    alias: Annotated[str | None, At("alias/@name")] = None
    address: Annotated[GuestPciAddress | None, Inside("address", having=(("type", "pci"),))] = None


@dataclass(frozen=True, kw_only=True)
class Channel(Element):
    """A virtio-serial port whose host end is a Unix socket (or something else that we only keep)."""

    tag: ClassVar[str] = "channel"
    type: Annotated[str, At("@type")] = "unix"
    source_mode: Annotated[str | None, At("source/@mode")] = None
    source_path: Annotated[str | None, At("source/@path")] = None
    target_type: Annotated[str | None, At("target/@type")] = None
    target_name: Annotated[str | None, At("target/@name")] = None
    #: of a running domain: whether a guest process has the port open
    target_state: Annotated[str | None, At("target/@state")] = None
    alias: Annotated[str | None, At("alias/@name")] = None


@dataclass(frozen=True, kw_only=True)
class Controller(Element):
    """A controller: what devices plug into."""

    tag: ClassVar[str] = "controller"
    type: Annotated[str, At("@type")]
    index: Annotated[int | None, At("@index", NUMBER)] = None
    model: Annotated[str | None, At("@model")] = None
    ports: Annotated[int | None, At("@ports", NUMBER)] = None
    hotplug: Annotated[bool | None, At("target/@hotplug", ON_OFF)] = None
    #: of a root bus: the window for 64-bit BARs that QEMU reports to the firmware
    hole64: Annotated[int | None, At("pcihole64/text()", NUMBER)] = None
    hole64_unit: Annotated[str | None, At("pcihole64/@unit")] = None
    alias: Annotated[str | None, At("alias/@name")] = None
    address: Annotated[GuestPciAddress | None, Inside("address", having=(("type", "pci"),))] = None


def attachment_of(alias: str) -> str:
    """The id of the attachment that a device with an alias of ours belongs to."""
    return alias.removeprefix(ALIAS_PREFIX).split("-")[0]


def ring_alias(attachment: str) -> str:
    """Alias of an attachment's shared memory."""
    return f"{ALIAS_PREFIX}{attachment}-ring"


def control_alias(attachment: str) -> str:
    """Alias of an attachment's virtio-serial channel."""
    return f"{ALIAS_PREFIX}{attachment}-ctl"


def ring_device(attachment: str, server_path: str) -> Shmem:
    """The shared memory of an attachment's ring; libvirt connects QEMU to the keeper's socket."""
    return Shmem(
        name=f"vgpumgr-{attachment}",
        model="ivshmem-doorbell",
        server_path=server_path,
        msi=True,
        alias=ring_alias(attachment),
    )


def control_device(attachment: str, socket_path: str, number: int = 0) -> Channel:
    """The virtio-serial channel of an attachment; QEMU listens, the worker's side connects. QEMU
    wants another name for each port, and the guest finds it by that.
    """
    return Channel(
        source_mode="bind",
        source_path=socket_path,
        target_type="virtio",
        target_name=f"{CHANNEL_NAME}{number}",
        alias=control_alias(attachment),
    )


@dataclass(frozen=True, kw_only=True)
class HostPciAddress(Element):
    """Where a host device stands on the host."""

    tag: ClassVar[str] = "address"
    domain: Annotated[int, At("@domain", hexadecimal(4))] = 0
    bus: Annotated[int, At("@bus", hexadecimal(2))] = 0
    slot: Annotated[int, At("@slot", hexadecimal(2))] = 0
    function: Annotated[int, At("@function", hexadecimal(1))] = 0

    @classmethod
    def of(cls, address: PciAddress) -> Self:
        """The element for an address."""
        return cls(
            domain=address.domain,
            bus=address.bus,
            slot=address.device,
            function=address.function,
        )

    @property
    def pci(self) -> PciAddress:
        """The address as the rest of the program knows it."""
        return PciAddress(self.domain, self.bus, self.slot, self.function)


@dataclass(frozen=True, kw_only=True)
class PciHostdev(Element):
    """A PCI function of the host, given to the guest (passthrough, virtual functions)."""

    tag: ClassVar[str] = "hostdev"
    fixed: ClassVar[tuple[tuple[str, str], ...]] = (("mode", "subsystem"), ("type", "pci"))
    #: whether libvirt binds it to vfio-pci at start and back at stop
    managed: Annotated[bool | None, At("@managed", YES_NO)] = None
    driver: Annotated[str | None, At("driver/@name")] = None
    #: libvirt 12.1 and later: by /dev/iommu instead of a VFIO group
    iommufd: Annotated[bool | None, At("driver/@iommufd", YES_NO)] = None
    source: Annotated[HostPciAddress | None, Inside("source/address")] = None
    rom_bar: Annotated[bool | None, At("rom/@bar", ON_OFF)] = None
    alias: Annotated[str | None, At("alias/@name")] = None
    address: Annotated[GuestPciAddress | None, Inside("address", having=(("type", "pci"),))] = None


@dataclass(frozen=True, kw_only=True)
class MdevHostdev(Element):
    """A mediated device, given to the guest."""

    tag: ClassVar[str] = "hostdev"
    fixed: ClassVar[tuple[tuple[str, str], ...]] = (("mode", "subsystem"), ("type", "mdev"))
    model: Annotated[str, At("@model")] = "vfio-pci"
    display: Annotated[bool | None, At("@display", ON_OFF)] = None
    ramfb: Annotated[bool | None, At("@ramfb", ON_OFF)] = None
    uuid: Annotated[str | None, At("source/address/@uuid")] = None
    alias: Annotated[str | None, At("alias/@name")] = None
    address: Annotated[GuestPciAddress | None, Inside("address", having=(("type", "pci"),))] = None


Hostdev = PciHostdev | MdevHostdev
Attachable = Shmem | Channel | Hostdev


def pci_alias(attachment: str, number: int) -> str:
    """Alias of an attachment's PCI function; 0 is the GPU, its companions follow."""
    return f"{ALIAS_PREFIX}{attachment}-pci{number}"


def mdev_alias(attachment: str) -> str:
    """Alias of an attachment's mediated device."""
    return f"{ALIAS_PREFIX}{attachment}-mdev"


@dataclass(frozen=True, slots=True)
class GivenFunction:
    """A function of the host that a guest is to have. ``rom``: its expansion ROM is shown to the
    guest's firmware, which a GPU needs only to draw the first screen.
    """

    address: PciAddress
    rom: bool = False


def pci_hostdevs(
    attachment: str,
    functions: Sequence[GivenFunction],
    slot: GuestPciAddress | None = None,
    *,
    iommufd: bool = False,
) -> tuple[PciHostdev, ...]:
    """The devices of an attachment: with a ``slot`` all in that one, as the functions of one card;
    without one libvirt finds a slot for each.

    ``managed`` is always off: vgpumgr has bound the functions before (docs/adr/0009).
    """
    return tuple(
        PciHostdev(
            managed=False,
            iommufd=True if iommufd else None,
            source=HostPciAddress.of(function.address),
            rom_bar=None if function.rom else False,
            alias=pci_alias(attachment, number),
            address=slot and _function_of(slot, number, len(functions)),
        )
        for number, function in enumerate(functions)
    )


def _function_of(slot: GuestPciAddress, number: int, count: int) -> GuestPciAddress:
    more = True if number == 0 and count > 1 else None
    return slot.changed(function=number, multifunction=more)


def mdev_hostdev(attachment: str, uuid: str, display: Display = Display.OFF) -> MdevHostdev:
    """The device of an attachment. libvirt has no ``managed`` for these: they exist or not."""
    return MdevHostdev(
        display=display is not Display.OFF,
        ramfb=True if display is Display.BOOT else None,
        uuid=uuid,
        alias=mdev_alias(attachment),
    )
