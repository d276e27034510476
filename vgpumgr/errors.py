"""Every error an operator can meet: what happened, why, who is in the way, what to try.

A class per thing an operator can act on, with a stable id, an exit code and a hint. Text follows
the five-line form ``error / cause / why / held by / try``; with ``-o json`` the same parts are
fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DIFFERENT = 3
    NOT_PERMITTED = 4
    NOT_FOUND = 5
    BUSY = 6
    NOT_SUPPORTED = 7
    PENDING = 8
    ROLLED_BACK = 9
    ROLLBACK_INCOMPLETE = 10
    INTERRUPTED = 130


class VgpumgrError(Exception):
    """Base of all errors shown to a user; subclasses set the class variables."""

    id: ClassVar[str] = "VG000"
    exit_code: ClassVar[Exit] = Exit.ERROR
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        error: str,
        *,
        cause: str | None = None,
        why: str | None = None,
        held_by: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.cause = cause
        self.why = why
        self.held_by = tuple(held_by)
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The error's parts, for ``-o json`` and the API."""
        return {
            "id": self.id,
            "error": self.error,
            "cause": self.cause,
            "why": self.why,
            "held_by": list(self.held_by),
            "try": self.hint,
            "exit_code": int(self.exit_code),
        }


# VG10x: choosing a GPU, a profile, a place for it


class UsageError(VgpumgrError):
    """What was typed cannot be meant: an unknown word, a value of the wrong form."""

    id = "VG100"
    exit_code = Exit.USAGE
    http_status = 400


class GpuNotFoundError(VgpumgrError):
    """No GPU has the index, UUID, prefix or address that was given."""

    id = "VG101"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class GpuAmbiguousError(VgpumgrError):
    """More than one GPU answers to the prefix that was given."""

    id = "VG102"
    exit_code = Exit.USAGE
    http_status = 400


class ProfileNotFoundError(VgpumgrError):
    """No GPU of this machine offers a profile of that name."""

    id = "VG103"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class NoRoomError(VgpumgrError):
    """GPUs offer the profile, but none has room for one more."""

    id = "VG104"
    exit_code = Exit.BUSY
    http_status = 409


class MigNotSupportedError(VgpumgrError):
    """The GPU has no MIG."""

    id = "VG105"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class MigModePendingError(VgpumgrError):
    """The change of MIG mode waits for a reset of the GPU."""

    id = "VG106"
    exit_code = Exit.PENDING
    http_status = 409


class MigInstanceNotFoundError(VgpumgrError):
    """No GPU instance or compute instance has that id or UUID."""

    id = "VG107"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class ReadBackError(VgpumgrError):
    """A call reported success, but reading back shows something else."""

    id = "VG108"


# VG11x: what NVML answers; code and text of NVML stay in the cause


class NvmlError(VgpumgrError):
    """NVML refused for a reason that has no class of its own."""

    id = "VG110"


class NvmlMissingError(NvmlError):
    """There is no NVML library, or no loaded driver behind it."""

    id = "VG111"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 503


class NvmlNotSupportedError(NvmlError):
    """The GPU or driver does not support the operation."""

    id = "VG112"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class NvmlPermissionError(NvmlError):
    """The operation needs rights that this process lacks."""

    id = "VG113"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class NvmlInUseError(NvmlError):
    """Somebody uses the GPU or instance; the holders are listed."""

    id = "VG114"
    exit_code = Exit.BUSY
    http_status = 409


class NvmlInsufficientResourcesError(NvmlError):
    """The driver finds no room for the instance, or something is already there."""

    id = "VG115"
    exit_code = Exit.BUSY
    http_status = 409


class NvmlNotFoundError(NvmlError):
    """The driver knows no such GPU or instance (any more)."""

    id = "VG116"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class GpuLostError(NvmlError):
    """The GPU has fallen off the bus or is otherwise out of reach until a reset."""

    id = "VG117"
    http_status = 503


# VG12x: helper processes


class HelperLateError(VgpumgrError):
    """A call has not come back by its deadline; its process is left alone and may still finish."""

    id = "VG120"
    http_status = 504


class HelperDiedError(VgpumgrError):
    """A helper process ended before it answered."""

    id = "VG121"


class TooManyStuckError(VgpumgrError):
    """So many helpers are stuck that no new one is started."""

    id = "VG122"
    exit_code = Exit.BUSY
    http_status = 503


# VG13x: the host


class SysfsError(VgpumgrError):
    """A file under /sys or /proc could not be read or written; errno and path are in the cause."""

    id = "VG130"


class SysfsPermissionError(SysfsError):
    """As above, for want of rights."""

    id = "VG131"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class LockHeldError(VgpumgrError):
    """Another process holds the lock; it is named."""

    id = "VG132"
    exit_code = Exit.BUSY
    http_status = 409


class LibraryNotFoundError(VgpumgrError):
    """The native part is not installed."""

    id = "VG133"
    exit_code = Exit.NOT_SUPPORTED


# VG14x: machines


class MachineNotFoundError(VgpumgrError):
    """No simulated machine of that name runs."""

    id = "VG140"
    exit_code = Exit.NOT_FOUND
    http_status = 404


# VG19x: the program itself


class InternalError(VgpumgrError):
    """A bug of ours: never what was typed, never the host."""

    id = "VG190"


class NotAvailableError(VgpumgrError):
    """A command whose part of the program is not there in this build."""

    id = "VG191"
    exit_code = Exit.NOT_SUPPORTED


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
    """An fdatasync of the journal failed earlier; nothing is changed until that is settled."""

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


# VG35x: the daemon and its API


class DaemonNotRunningError(VgpumgrError):
    """No daemon answers on its socket, and only a daemon can do this."""

    id = "VG350"
    http_status = 503


class DaemonRunningError(VgpumgrError):
    """Another daemon serves this machine."""

    id = "VG351"
    exit_code = Exit.BUSY
    http_status = 409


class PreconditionError(VgpumgrError):
    """What the request was made for has changed since (If-Match)."""

    id = "VG352"
    exit_code = Exit.BUSY
    http_status = 412


class AccessDeniedError(VgpumgrError):
    """This user may not do this: neither root nor in a group that may."""

    id = "VG353"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class RouteNotFoundError(VgpumgrError):
    """The API has no such path."""

    id = "VG354"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class OperationNotFoundError(VgpumgrError):
    """No operation has this id, or it is long forgotten."""

    id = "VG355"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class OperationCancelledError(VgpumgrError):
    """The operation was cancelled; what it had done was undone."""

    id = "VG356"
    exit_code = Exit.INTERRUPTED
    http_status = 409


class NotCancellableError(VgpumgrError):
    """The operation has ended, or cannot be undone half-way and must run to its end."""

    id = "VG357"
    exit_code = Exit.BUSY
    http_status = 409


class RequestTooLargeError(VgpumgrError):
    """The request is larger than any sensible one."""

    id = "VG358"
    exit_code = Exit.USAGE
    http_status = 413


class DaemonBusyError(VgpumgrError):
    """The daemon is stopping, or has too much to do already."""

    id = "VG359"
    exit_code = Exit.BUSY
    http_status = 503


class DaemonAnswerError(VgpumgrError):
    """The daemon's answer cannot be read: cut off, or not of this API."""

    id = "VG360"
    http_status = 502


class RemoteHostError(VgpumgrError):
    """Another host cannot be reached, or does not prove that it is the one that is meant."""

    id = "VG361"
    http_status = 502


class InterruptedOperationError(VgpumgrError):
    """The daemon ended while the operation ran."""

    id = "VG362"
    http_status = 500


class AuditError(VgpumgrError):
    """The audit log cannot be written; nothing is changed without it."""

    id = "VG363"
    http_status = 503


class MethodNotAllowedError(RouteNotFoundError):
    """The API has this path, but not with this method."""

    id = "VG364"
    exit_code = Exit.USAGE
    http_status = 405
