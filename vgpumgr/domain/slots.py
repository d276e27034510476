"""PCI slots of a domain: whether a device still fits, and why not.

Host devices are PCI Express endpoints on q35: libvirt puts each on a root port of its own. A
definition gets the ports it needs; a running machine takes a device only where a port is free.

libvirt places conventional devices (ivshmem is one) on ``pci-root`` and ``pci-bridge`` buses, slots
1 to 31 (slot 0 of a bus cannot take a device there), and on ``pcie-to-pci-bridge`` under PCI
Express. To a definition it adds the bridges it needs; a running domain gets none, so what is there
must do (tried with libvirt 9.0: "No more available PCI slots").
"""

from __future__ import annotations

from vgpumgr.domain.devices import Controller, GuestPciAddress
from vgpumgr.domain.domain import Domain
from vgpumgr.model.frozen import dataclass

_CONVENTIONAL = ("pci-root", "pci-bridge", "pcie-to-pci-bridge")
_ROOT_PORT = "pcie-root-port"
_SLOTS_PER_BUS = range(1, 32)
#: pcie-root: slot 0 is the host bridge, 0x1f the ICH9
_ROOT_SLOTS = range(1, 0x1F)


@dataclass(frozen=True, slots=True)
class SlotCheck:
    """Whether one more conventional PCI device fits; if not, why and what would help."""

    fits: bool
    why: str | None = None
    hint: str | None = None


def conventional_buses(domain: Domain) -> tuple[Controller, ...]:
    """Buses that take conventional PCI devices and, at run time, hot-plugged ones."""
    return tuple(
        c
        for c in domain.controllers
        if c.type == "pci" and c.model in _CONVENTIONAL and c.hotplug is not False
    )


def _used_slots(domain: Domain) -> dict[int, set[int]]:
    used: dict[int, set[int]] = {}
    for address in domain.pci_addresses():
        if address.domain == 0:
            used.setdefault(address.bus, set()).add(address.slot)
    return used


def free_conventional_slots(domain: Domain) -> int:
    """Slots left on the buses that are there."""
    used = _used_slots(domain)
    return sum(
        len(set(_SLOTS_PER_BUS) - used.get(bus.index or 0, set()))
        for bus in conventional_buses(domain)
    )


def _free_root_ports(domain: Domain) -> int:
    used = _used_slots(domain)
    ports = [c for c in domain.controllers if c.type == "pci" and c.model == _ROOT_PORT]
    return sum(1 for port in ports if not used.get(port.index or 0))


def check_live(domain: Domain, count: int = 1) -> SlotCheck:
    """Whether the running domain takes so many more conventional devices now (``domain`` is the live
    definition).
    """
    if free_conventional_slots(domain) >= count:
        return SlotCheck(True)
    if domain.is_q35 and not conventional_buses(domain):
        return SlotCheck(
            False,
            "the running q35 machine has no PCIe-to-PCI bridge for a shared-memory device, and libvirt plugs none",
            "restart the VM: its next start has one",
        )
    return SlotCheck(False, "every PCI slot of the running machine is taken", "remove a device")


def check_config(domain: Domain, count: int = 1) -> SlotCheck:
    """Whether the definition takes so many more conventional devices, with the bridges that libvirt
    may add.
    """
    if free_conventional_slots(domain) >= count:
        return SlotCheck(True)
    if not domain.is_q35:
        # every pci-bridge takes a slot itself: once all are full, none can be added
        return SlotCheck(
            False,
            "all slots of its i440fx PCI bus are taken",
            "remove a device from the VM, or give it a q35 machine",
        )
    used = _used_slots(domain)
    if _free_root_ports(domain) or set(_ROOT_SLOTS) - used.get(0, set()):
        return SlotCheck(True)
    return SlotCheck(
        False,
        "its PCI Express root bus is full and no root port is free",
        "remove a device from the VM",
    )


_DOWNSTREAM = "pcie-switch-downstream-port"
#: of i440fx's root bus: the chip set, and what libvirt keeps for a display
_PIIX3_SLOTS = {1, 2}


def _express_ports(domain: Domain) -> list[Controller]:
    return [
        c
        for c in domain.controllers
        if c.type == "pci" and c.model in (_ROOT_PORT, _DOWNSTREAM) and c.hotplug is not False
    ]


def free_express_ports(domain: Domain) -> tuple[int, ...]:
    """Buses of the ports that take a hot-plugged PCI Express device and have none."""
    used = _used_slots(domain)
    buses = (port.index or 0 for port in _express_ports(domain))
    return tuple(sorted(bus for bus in buses if not used.get(bus)))


def check_hostdevs_live(domain: Domain, count: int, conventional: int = 0) -> SlotCheck:
    """Whether the running domain takes that many host devices now, each in a slot of its own:
    libvirt plugs function 0 of a slot only. ``conventional`` more are no PCI Express devices, and
    libvirt puts none of these on a root port.
    """
    if not domain.is_q35:
        free, needed = free_conventional_slots(domain), count + conventional
        if free >= needed:
            return SlotCheck(True)
        why = f"the running machine has {free} free PCI slots, {needed} are needed"
        return SlotCheck(False, why, "remove a device")
    if conventional and free_conventional_slots(domain) < conventional:
        return SlotCheck(
            False,
            "the device is a conventional PCI device, no PCI Express one: the running q35 machine has no "
            "free slot on a PCIe-to-PCI bridge, and libvirt plugs no bridge",
            "without --live: at its next start the VM has a bridge",
        )
    free = len(free_express_ports(domain))
    if free >= count:
        return SlotCheck(True)
    return SlotCheck(
        False,
        f"the running q35 machine has {free} free pcie-root-ports that take a plugged device,"
        f" {count} are needed, and libvirt plugs none",
        "restart the VM: its next start has them",
    )


def check_hostdevs_config(domain: Domain, count: int, conventional: int = 0) -> SlotCheck:
    """Whether the definition takes that many host devices, with the root ports that libvirt adds, and
    so many more conventional ones, with the bridges.
    """
    if not domain.is_q35:
        return check_config(domain)
    if conventional and not (bridge := check_config(domain, conventional)).fits:
        return bridge
    used = _used_slots(domain)
    # libvirt puts eight root ports into a slot of the root bus
    free = len(free_express_ports(domain)) + 8 * len(set(_ROOT_SLOTS) - used.get(0, set()))
    if free >= count:
        return SlotCheck(True)
    why = "its PCI Express root bus is full and no root port is free"
    return SlotCheck(False, why, "remove a device from the VM")


def choose_shared_slot(domain: Domain) -> GuestPciAddress | None:
    """A slot of the definition for the functions of one card; None where none is free. On q35 it
    is a free root port or the next one, which libvirt adds when a device asks for it.
    """
    if not domain.is_q35:
        used = _used_slots(domain)
        for bus in conventional_buses(domain):
            own = _PIIX3_SLOTS if bus.model == "pci-root" else set()
            slots = sorted(set(_SLOTS_PER_BUS) - own - used.get(bus.index or 0, set()))
            if slots:
                return GuestPciAddress(bus=bus.index or 0, slot=slots[0])
        return None
    if not check_hostdevs_config(domain, 1).fits:
        return None
    free = free_express_ports(domain)
    # also those that a device asks for and that libvirt has not added yet
    taken = [*_used_slots(domain), *(c.index or 0 for c in domain.controllers if c.type == "pci")]
    return GuestPciAddress(bus=free[0] if free else max(taken, default=0) + 1)
