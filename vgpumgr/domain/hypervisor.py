"""What the program needs of libvirt, as our own interface, and the values it speaks in."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from vgpumgr.domain.domain import AttachmentNote, Domain
from vgpumgr.model.frozen import dataclass


class Scope(StrEnum):
    """What a change is made to: the running machine, or the definition that the next start uses."""

    LIVE = "live"
    CONFIG = "config"


class VmState(StrEnum):
    """A VM's state in virsh's words, as far as they differ for us."""

    RUNNING = "running"
    PAUSED = "paused"
    SHUT_OFF = "shut off"


@dataclass(frozen=True)
class Vm:
    """One VM as libvirt shows it now.

    ``live`` is the running machine's definition (None when shut off), ``config`` the one that the
    next start uses (None for a transient domain). ``digest`` changes when ``config`` does, or for a
    transient domain ``live``.
    """

    name: str
    uuid: str
    state: VmState
    live: Domain | None
    config: Domain | None
    digest: str
    notes: tuple[AttachmentNote, ...] = ()
    #: shut off because it runs on another host now, says the libvirt that it left
    migrated: bool = False

    @property
    def is_active(self) -> bool:
        """Whether the machine runs or is paused."""
        return self.state is not VmState.SHUT_OFF

    def find_note(self, attachment: str) -> AttachmentNote | None:
        """Our note of that attachment in the domain's metadata."""
        return next((note for note in self.notes if note.id == attachment), None)

    @property
    def note_scope(self) -> Scope:
        """Where notes are written."""
        return Scope.CONFIG if self.config is not None else Scope.LIVE

    def definition(self, scope: Scope) -> Domain | None:
        """The definition of that scope, None where there is none."""
        return self.live if scope is Scope.LIVE else self.config

    def __str__(self) -> str:
        return f'vm "{self.name}"'


class Hypervisor(Protocol):
    """One machine's libvirt. Every method may raise LibvirtDownError, LibvirtLateError and
    LibvirtError.
    """

    def list_vms(self) -> tuple[Vm, ...]:
        """All VMs, by name."""

    def read_vm(self, selector: str) -> Vm:
        """The VM of that name or UUID. Raises VmNotFoundError, with near names."""

    def read_again(self, vm: Vm, scope: Scope) -> Vm:
        """The VM with that definition as it is now; the other one stays as ``vm`` shows it. Raises
        VmNotFoundError.
        """

    def attach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        """Adds one device. Raises NoFreeSlotError."""

    def detach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        """Removes one device; in a running guest that is a request only. Raises DeviceMissingError."""

    def set_notes(self, uuid: str, notes: Sequence[AttachmentNote], scope: Scope) -> None:
        """Writes our notes into the domain's metadata in the place of those that are there; none
        takes them away (absent is no error).
        """

    def read_qemu_owner(self) -> tuple[int, int] | None:
        """uid and gid that QEMU runs as; None where libvirt does not change them."""

    def offers_iommufd(self) -> bool:
        """Whether PCI devices can be given by /dev/iommu, as libvirt's domain capabilities say; False
        where they say nothing.
        """

    def takes_variant_drivers(self) -> bool:
        """Whether an unmanaged PCI device may have another driver of VFIO's than vfio-pci."""

    def read_versions(self) -> tuple[str, str]:
        """The versions of libvirt and of its hypervisor: ``9.0.0`` and ``7.2.11``."""
