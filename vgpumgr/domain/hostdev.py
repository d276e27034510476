"""Host devices of a domain: PCI functions and mediated devices that VFIO gives to the guest.

Places and spellings are those of https://libvirt.org/formatdomain.html, "Host device assignment".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from vgpumgr.domain.declare import ON_OFF, YES_NO, At, Element, Inside, hexadecimal
from vgpumgr.domain.devices import ALIAS_PREFIX, GuestPciAddress
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.request import Display


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
