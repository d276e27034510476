"""A domain as far as vgpumgr needs it, and our notes in its ``<metadata>``: which attachments it has, readable without
our store. libvirt keeps one element of a namespace: a single note stands there itself, several in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar

from lxml import etree

from vgpumgr.domain.declare import (
    NUMBER,
    ON_OFF,
    At,
    Element,
    Inside,
    parse_document,
    render_element,
)
from vgpumgr.domain.devices import (
    ALIAS_PREFIX,
    Attachable,
    Channel,
    Controller,
    GuestPciAddress,
    MdevHostdev,
    PciHostdev,
    Shmem,
)
from vgpumgr.model.frozen import dataclass
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

    @property
    def devices(self) -> tuple[Attachable, ...]:
        """The devices of the kinds that vgpumgr gives to domains."""
        return (*self.shmems, *self.channels, *self.pci_hostdevs, *self.mdev_hostdevs)

    def own_aliases(self) -> tuple[str, ...]:
        """Aliases of the devices that vgpumgr gave to the domain."""
        aliases = (device.alias or "" for device in self.devices)
        return tuple(alias for alias in aliases if alias.startswith(ALIAS_PREFIX))

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


NAMESPACE = "https://vgpumgr.example/ns/attachment/1"
PREFIX = "vgpumgr"


@dataclass(frozen=True, kw_only=True)
class AttachmentNote(Element):
    """``<attachment id= profile= .../>`` (libvirt keeps the namespace beside it).

    Enough to record the attachment anew when the state file is lost. ``vm`` is the domain's own
    UUID: a clone of the domain carries another one's metadata, and is no owner.
    """

    tag: ClassVar[str] = "attachment"
    id: Annotated[str, At("@id")]
    profile: Annotated[str | None, At("@profile")] = None
    backend: Annotated[str | None, At("@backend")] = None
    #: what CUDA calls the slice
    device: Annotated[str | None, At("@device")] = None
    vm: Annotated[str | None, At("@vm")] = None
    gpu: Annotated[str | None, At("@gpu")] = None
    gpu_profile_id: Annotated[int | None, At("@gpuprofile", NUMBER)] = None
    start: Annotated[int | None, At("@start", NUMBER)] = None
    size: Annotated[int | None, At("@size", NUMBER)] = None
    gpu_instance_id: Annotated[int | None, At("@gpuinstance", NUMBER)] = None
    compute_instance_id: Annotated[int | None, At("@computeinstance", NUMBER)] = None
    memory_bytes: Annotated[int | None, At("@memory", NUMBER)] = None
    transport: Annotated[str | None, At("@transport")] = None
    created_s: Annotated[str | None, At("@created")] = None
    #: whether attach turned MIG mode on, so that detach turns it off
    mig_mode: Annotated[bool | None, At("@migmode", ON_OFF)] = None
    #: of the compute instance in its GPU instance
    compute_start: Annotated[int | None, At("@computestart", NUMBER)] = None
    compute_size: Annotated[int | None, At("@computesize", NUMBER)] = None
    #: whether attach took an instance that was there, so that detach leaves it
    taken: Annotated[bool | None, At("@taken", ON_OFF)] = None
    #: the attachment's number in its VM
    number: Annotated[int | None, At("@number", NUMBER)] = None
    #: what libvirt added for our devices: ``TYPE:INDEX:MODEL``, separated by spaces
    controllers: Annotated[str | None, At("@controllers")] = None
    #: whom QEMU ran as, ``UID:GID``: the channel's sockets are made for this user before libvirt is up
    qemu_owner: Annotated[str | None, At("@qemuowner")] = None
    #: devices of the host that the domain is given, as JSON
    host_devices: Annotated[str | None, At("@hostdevices")] = None
    #: of the channel, those that are not the default: ``KEY=VALUE``, separated by spaces
    limits: Annotated[str | None, At("@limits")] = None
    #: whether the channel's worker may start without a sandbox
    unconfined: Annotated[bool | None, At("@unconfined", ON_OFF)] = None
    #: of a share: percent of the GPU's time, and what that means
    compute: Annotated[str | None, At("@compute")] = None
    compute_policy: Annotated[str | None, At("@computepolicy")] = None
    #: of a share: the memory that it is to have once its programs use no more than that
    memory_at_exit: Annotated[int | None, At("@memoryatexit", NUMBER)] = None
    #: of a share, if it is not normal
    priority: Annotated[str | None, At("@priority")] = None
    #: the claim of a pool that reserves it: ``NAME HOST TOKEN``
    claim: Annotated[str | None, At("@claim")] = None


@dataclass(frozen=True, kw_only=True)
class AttachmentNotes(Element):
    """``<attachments>``: the notes of a domain with several."""

    tag: ClassVar[str] = "attachments"
    notes: Annotated[tuple[AttachmentNote, ...], Inside("attachment", many=True)] = ()


def read_notes(text: str) -> tuple[AttachmentNote, ...]:
    """The notes in the element of our namespace. Raises DocumentError."""
    element = parse_document(text)
    if element.tag == AttachmentNotes.tag:
        return AttachmentNotes.from_element(element).notes
    return (AttachmentNote.from_element(element),)


def find_notes(definition: str) -> tuple[AttachmentNote, ...]:
    """The notes in a domain's whole definition; none where it has none of ours. Raises DocumentError."""
    for element in parse_document(definition).iterfind(f"metadata/{{{NAMESPACE}}}*"):
        bare = parse_document(render_element(element))
        for ours in bare.iter(f"{{{NAMESPACE}}}*"):
            ours.tag = etree.QName(ours).localname
        etree.cleanup_namespaces(bare)
        return read_notes(render_element(bare))
    return ()


def write_notes(notes: Sequence[AttachmentNote]) -> str | None:
    """The element of our namespace; None for no notes."""
    if not notes:
        return None
    return notes[0].to_xml() if len(notes) == 1 else AttachmentNotes(notes=tuple(notes)).to_xml()
