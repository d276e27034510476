"""Domains, attaching and detaching, the channel, plans and state."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG20x: domain documents and libvirt


class DocumentError(VgpumgrError):
    """An XML document is malformed or says something that cannot be."""

    id = "VG200"


class VmNotFoundError(VgpumgrError):
    """libvirt knows no domain of that name or UUID."""

    id = "VG201"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class LibvirtDownError(VgpumgrError):
    """libvirt cannot be reached; its own words are in the cause."""

    id = "VG202"
    http_status = 503


class LibvirtLateError(VgpumgrError):
    """libvirt has not answered a call by its deadline; the call may still take effect."""

    id = "VG203"
    http_status = 504


class LibvirtPermissionError(VgpumgrError):
    """libvirt does not let this user do that."""

    id = "VG204"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class LibvirtError(VgpumgrError):
    """libvirt refused for a reason that has no class of its own; code and text are in the cause."""

    id = "VG205"


class DomainChangedError(VgpumgrError):
    """Somebody else changed the domain's definition between reading and changing it."""

    id = "VG206"
    exit_code = Exit.BUSY
    http_status = 409


class NoFreeSlotError(VgpumgrError):
    """The domain has no PCI slot left for another device."""

    id = "VG207"
    exit_code = Exit.BUSY
    http_status = 409


class DeviceMissingError(VgpumgrError):
    """The domain has no such device (any more)."""

    id = "VG208"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class DeviceBusyError(VgpumgrError):
    """The guest has not released a device by the deadline; it goes at the guest's next stop."""

    id = "VG209"
    exit_code = Exit.BUSY
    http_status = 409


# VG21x: attach and detach


class AlreadyAttachedError(VgpumgrError):
    """The VM has a slice already."""

    id = "VG210"
    exit_code = Exit.BUSY
    http_status = 409


class NotAttachedError(VgpumgrError):
    """The VM has nothing that could be detached."""

    id = "VG211"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class BackendUnsupportedError(VgpumgrError):
    """The profile cannot reach a VM by that backend."""

    id = "VG212"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class NotPermittedError(VgpumgrError):
    """Changing VMs and GPUs needs root."""

    id = "VG213"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class ConfirmationNeededError(VgpumgrError):
    """A destructive command without ``--yes`` and without a terminal to ask on."""

    id = "VG214"
    exit_code = Exit.USAGE
    http_status = 400


class LiveUnsupportedError(VgpumgrError):
    """``--live`` was asked for, and the running guest cannot take the devices now."""

    id = "VG215"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class SeveralAttachmentsError(VgpumgrError):
    """The VM has several attachments, or the name means several things; it is not said which."""

    id = "VG216"
    exit_code = Exit.USAGE
    http_status = 409


# VG22x: the channel


class ChannelNotFoundError(VgpumgrError):
    """No channel of that name, VM or attachment."""

    id = "VG220"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class ChannelStartError(VgpumgrError):
    """The keeper or its worker did not come up."""

    id = "VG221"


class FileWriteError(VgpumgrError):
    """A file that was asked for cannot be written."""

    id = "VG222"


# VG23x: plans, journal, store


class RolledBackError(VgpumgrError):
    """A step failed; everything done before it was undone."""

    id = "VG230"
    exit_code = Exit.ROLLED_BACK


class RollbackIncompleteError(VgpumgrError):
    """A step failed, and undoing those before it failed too; what is left is listed."""

    id = "VG231"
    exit_code = Exit.ROLLBACK_INCOMPLETE


class JournalError(VgpumgrError):
    """The journal cannot be written; nothing is changed without it."""

    id = "VG232"
    http_status = 503


class JournalFailedError(JournalError):
    """An fdatasync of the journal failed earlier; nothing is changed until it is recovered."""

    id = "VG380"
    http_status = 503


class OutcomePendingError(VgpumgrError):
    """A helper process that changes the machine has not come back; what it did shows when it has."""

    id = "VG381"
    exit_code = Exit.PENDING
    http_status = 409


class StoreError(VgpumgrError):
    """The state file cannot be read or written."""

    id = "VG233"
    http_status = 503


class StoreTooNewError(StoreError):
    """The state file was written by a newer vgpumgr."""

    id = "VG234"
    exit_code = Exit.NOT_SUPPORTED
