"""What is remembered of an attachment: enough to undo it, however far it got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.slice import Attachment, Backend, MigInstanceRef, Slice, SliceKind, SliceOwner


class AttachmentState(StrEnum):
    """How far an attachment is. What *is* on the host is observed; this says what was meant."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


class Transport(StrEnum):
    """How the guest reaches its worker; AUTO gives it both devices."""

    AUTO = "auto"
    RING = "ring"
    SERIAL = "serial"

    @property
    def has_ring(self) -> bool:
        """Whether the domain gets shared memory."""
        return self is not Transport.SERIAL

    @property
    def has_serial(self) -> bool:
        """Whether the domain gets a virtio-serial channel."""
        return self is not Transport.RING


@dataclass(frozen=True, slots=True)
class AddedController:
    """A controller that libvirt added to the definition for our devices; it goes with them."""

    type: str
    index: int
    model: str | None


@dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """One attachment. It is written before anything else is changed, so that a crash at any later
    moment leaves something to detach.

    ``placement`` names the GPU instance before it exists; ``mig`` is known once it does.
    """

    id: str
    vm_name: str
    vm_uuid: str
    gpu: GpuUuid
    profile: str
    gpu_profile_id: int
    placement: Placement
    memory_bytes: int
    backend: Backend
    transport: Transport
    created_s: float
    state: AttachmentState = AttachmentState.ATTACHING
    mig: MigInstanceRef | None = None
    mig_mode_enabled: bool = False
    controllers: tuple[AddedController, ...] = ()
    #: those that were there before, while our devices are being given to the definition
    controllers_before: tuple[AddedController, ...] | None = None
    #: of the GPU instance, from its creation on; ``mig`` follows with the compute instance
    gpu_instance_id: int | None = None

    @property
    def attachment(self) -> Attachment | None:
        """The attachment as the rest of the program knows it; None before its slice exists."""
        if self.mig is None:
            return None
        slice_ = Slice(SliceKind.MIG, self.gpu, self.profile, self.memory_bytes, self.mig)
        return Attachment(self.id, self.vm_name, self.vm_uuid, slice_, self.backend, self.created_s)

    @property
    def owner(self) -> SliceOwner | None:
        """The entry for whoever asks whose a MIG instance is."""
        if self.mig is None:
            return None
        return SliceOwner(
            self.gpu,
            self.mig.gpu_instance_id,
            self.mig.compute_instance_id,
            self.vm_name,
            self.id,
        )


class AttachmentStore(Protocol):
    """Remembers attachments. May raise StoreError."""

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """All, oldest first."""

    def save_attachment(self, record: AttachmentRecord) -> None:
        """Writes one, in the place of the one with the same id."""

    def delete_attachment(self, attachment_id: str) -> None:
        """Forgets one; absent is no error."""

    def find_damage(self) -> str | None:
        """What is wrong with what is stored, None if nothing is."""

    def put_away(self) -> Sequence[AttachmentRecord]:
        """Moves what is stored aside, where it is kept; answers the records that still check."""
