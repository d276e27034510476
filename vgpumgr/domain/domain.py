"""A domain as far as vgpumgr needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

from lxml import etree

from vgpumgr.domain.declare import At, Element, Inside
from vgpumgr.domain.devices import (
    ALIAS_PREFIX,
    Channel,
    Controller,
    GuestPciAddress,
    Shmem,
)
from vgpumgr.domain.hostdev import MdevHostdev, PciHostdev
from vgpumgr.model.text import parse_set


@dataclass(frozen=True, kw_only=True)
class Domain(Element):
    """A domain definition; everything else in the document is kept as it is."""

    tag: ClassVar[str] = "domain"
    name: Annotated[str, At("name/text()")]
    uuid: Annotated[str | None, At("uuid/text()")] = None
    type: Annotated[str | None, At("@type")] = None
    arch: Annotated[str | None, At("os/type/@arch")] = None
    machine: Annotated[str | None, At("os/type/@machine")] = None
    controllers: Annotated[tuple[Controller, ...], Inside("devices/controller", many=True)] = ()
    shmems: Annotated[tuple[Shmem, ...], Inside("devices/shmem", many=True)] = ()
    channels: Annotated[tuple[Channel, ...], Inside("devices/channel", many=True)] = ()
    pci_hostdevs: Annotated[
        tuple[PciHostdev, ...], Inside("devices/hostdev", many=True, having=(("type", "pci"),))
    ] = ()
    mdev_hostdevs: Annotated[
        tuple[MdevHostdev, ...], Inside("devices/hostdev", many=True, having=(("type", "mdev"),))
    ] = ()

    @property
    def is_q35(self) -> bool:
        """Whether the machine's root bus is PCI Express."""
        return any(c.type == "pci" and c.model == "pcie-root" for c in self.controllers) or (
            self.machine is not None and "q35" in self.machine
        )

    @property
    def has_serial_controller(self) -> bool:
        """Whether a virtio-serial controller is there; libvirt cannot hot-plug one."""
        return any(c.type == "virtio-serial" for c in self.controllers)

    def own_aliases(self) -> tuple[str, ...]:
        """Aliases of the devices that vgpumgr gave to the domain."""
        devices: tuple[Shmem | Channel | PciHostdev | MdevHostdev, ...] = (
            *self.shmems,
            *self.channels,
            *self.pci_hostdevs,
            *self.mdev_hostdevs,
        )
        return tuple(d.alias for d in devices if d.alias and d.alias.startswith(ALIAS_PREFIX))

    def pci_addresses(self) -> tuple[GuestPciAddress, ...]:
        """Addresses of all PCI devices, whatever they are."""
        return self._pci_addresses

    @cached_property
    def _pci_addresses(self) -> tuple[GuestPciAddress, ...]:
        found = self.to_element().findall("devices/*/address[@type='pci']")
        return tuple(GuestPciAddress.from_element(e) for e in found)


def find_nodes(
    domain: Domain | None, read_cpu_nodes: Callable[[], Mapping[int, int]]
) -> frozenset[int]:
    """The nodes that its memory is bound to (``numatune``), or else those of the CPUs that its
    virtual CPUs or its emulator are pinned to; empty: it is bound to none in particular.
    """
    if domain is None:
        return frozenset()
    element = domain.to_element()
    nodes = frozenset(_parse_all(element, ("numatune/memory", "numatune/memnode"), "nodeset"))
    if nodes:
        return nodes
    for paths in (("cputune/vcpupin", "vcpu"), ("cputune/emulatorpin",)):
        cpus = set(_parse_all(element, paths, "cpuset"))
        if cpus:
            known = read_cpu_nodes()
            bound = frozenset(known[cpu] for cpu in cpus if cpu in known)
            # pinned to CPUs of every node is bound to none
            return frozenset() if bound == frozenset(known.values()) else bound
    return frozenset()


def _parse_all(element: etree._Element, paths: tuple[str, ...], attribute: str) -> Iterator[int]:
    for path in paths:
        for found in element.findall(path):
            yield from parse_set(found.get(attribute) or "")
