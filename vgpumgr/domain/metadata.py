"""Our notes in a domain's ``<metadata>``: which attachments the domain has, readable without our
store. libvirt keeps one element of a namespace: a single note stands there itself, several in a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

NAMESPACE = "https://vgpumgr.example/ns/attachment/1"
PREFIX = "vgpumgr"


@dataclass(frozen=True, kw_only=True)
class AttachmentNote(Element):
    """``<attachment id= profile= .../>`` (libvirt keeps the namespace beside it).

    Enough to record the attachment anew when the state file is lost. ``vm`` is the domain's own
    UUID: a clone of the domain carries the note of another one, and is no owner.
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
    #: the attachment's number in its VM
    number: Annotated[int | None, At("@number", NUMBER)] = None
    #: what libvirt added for our devices: ``TYPE:INDEX:MODEL``, separated by spaces
    controllers: Annotated[str | None, At("@controllers")] = None
    #: whom QEMU ran as, ``UID:GID``: the channel's sockets are made for this user before libvirt is up
    qemu_owner: Annotated[str | None, At("@qemuowner")] = None
    #: devices of the host that the domain is given, as JSON
    host_devices: Annotated[str | None, At("@hostdevices")] = None


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
