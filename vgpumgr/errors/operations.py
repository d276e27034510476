"""Domains, attachments, channels, plans and state, layouts, the daemon and its API."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.errors.base import Exit, VgpumgrError

# VG20x: domain documents and libvirt


class DocumentError(VgpumgrError, id="VG200"):
    """An XML document is malformed or says something that cannot be."""


class VmNotFoundError(VgpumgrError, id="VG201", exit_code=Exit.NOT_FOUND):
    """libvirt knows no domain of that name or UUID."""


class LibvirtDownError(VgpumgrError, id="VG202", http_status=503):
    """libvirt cannot be reached; its own words are in the cause."""


class LibvirtLateError(VgpumgrError, id="VG203", http_status=504):
    """libvirt has not answered a call by its deadline; the call may still take effect."""


class LibvirtPermissionError(VgpumgrError, id="VG204", exit_code=Exit.NOT_PERMITTED):
    """libvirt does not let this user do that."""


class LibvirtError(VgpumgrError, id="VG205"):
    """libvirt refused for a reason that has no class of its own; code and text are in the cause."""


class DomainChangedError(VgpumgrError, id="VG206", exit_code=Exit.BUSY):
    """Another program changed the domain's definition between reading and changing it."""


class NoFreeSlotError(VgpumgrError, id="VG207", exit_code=Exit.BUSY):
    """The domain has no PCI slot left for another device."""


class DeviceMissingError(VgpumgrError, id="VG208", exit_code=Exit.NOT_FOUND):
    """The domain has no such device (any more)."""


class DeviceBusyError(VgpumgrError, id="VG209", exit_code=Exit.BUSY):
    """The guest has not released a device by the deadline; it goes at the guest's next stop."""


# VG21x: attach and detach


class AlreadyAttachedError(VgpumgrError, id="VG210", exit_code=Exit.BUSY):
    """The VM has a slice already."""


class NotAttachedError(VgpumgrError, id="VG211", exit_code=Exit.NOT_FOUND):
    """The VM has nothing that could be detached."""


class BackendUnsupportedError(VgpumgrError, id="VG212", exit_code=Exit.NOT_SUPPORTED):
    """The profile cannot reach a VM by that backend."""


class NotPermittedError(VgpumgrError, id="VG213", exit_code=Exit.NOT_PERMITTED):
    """Changing VMs and GPUs needs root."""


class ConfirmationNeededError(VgpumgrError, id="VG214", exit_code=Exit.USAGE):
    """A destructive command without ``--yes`` and without a terminal to ask on."""


class LiveUnsupportedError(VgpumgrError, id="VG215", exit_code=Exit.NOT_SUPPORTED):
    """``--live`` was asked for, and the running guest cannot take the devices now."""


class SeveralAttachmentsError(VgpumgrError, id="VG216", exit_code=Exit.USAGE, http_status=409):
    """The VM has several attachments, or the name means several things; it is not said which."""


# VG22x: the channel


class ChannelNotFoundError(VgpumgrError, id="VG220", exit_code=Exit.NOT_FOUND):
    """No channel of that name, VM or attachment."""


class ChannelStartError(VgpumgrError, id="VG221"):
    """The keeper or its worker did not come up."""


class FileWriteError(VgpumgrError, id="VG222"):
    """A file that was asked for cannot be written."""


class CommandNotFoundError(VgpumgrError, id="VG223", exit_code=Exit.COMMAND_NOT_FOUND):
    """The command that is to be run does not exist."""


class CommandNotExecutableError(VgpumgrError, id="VG224", exit_code=Exit.NOT_EXECUTABLE):
    """The command that is to be run is no program, or this user may not execute it."""


class RunnerGoneError(VgpumgrError, id="VG225", exit_code=Exit.NOT_FOUND):
    """The process that asked for a run is not there (any more)."""


class SandboxError(VgpumgrError, id="VG226", exit_code=Exit.NOT_SUPPORTED):
    """This host cannot put the worker into its sandbox, and a worker without one was not allowed."""


class ChannelRestartError(VgpumgrError, id="VG227", exit_code=Exit.BUSY):
    """The channel cannot be started anew as things are; nothing was changed."""


class ShareInUseError(VgpumgrError, id="VG229", exit_code=Exit.BUSY):
    """More of a share's memory is used than it is to have."""


class RepairFailedError(VgpumgrError, id="VG228"):
    """A program that ``doctor --fix`` ran failed, or its file cannot be written; its files are as they were."""


# VG23x: plans, journal, store


class RolledBackError(VgpumgrError, id="VG230", exit_code=Exit.ROLLED_BACK):
    """A step failed; everything done before it was undone."""


class RollbackIncompleteError(VgpumgrError, id="VG231", exit_code=Exit.ROLLBACK_INCOMPLETE):
    """A step failed, and undoing those before it failed too; what is left is listed."""


class JournalError(VgpumgrError, id="VG232", http_status=503):
    """The journal cannot be written; nothing is changed without it."""


class JournalFailedError(JournalError, id="VG380"):
    """An fdatasync of the journal failed earlier; nothing is changed until it is recovered."""


class OutcomePendingError(VgpumgrError, id="VG381", exit_code=Exit.PENDING):
    """A helper process that changes the machine has not come back; what it did shows when it has."""


class StoreError(VgpumgrError, id="VG233", http_status=503):
    """The state file cannot be read or written."""


class StoreTooNewError(StoreError, id="VG234", exit_code=Exit.NOT_SUPPORTED, http_status=503):
    """The state file was written by a newer vgpumgr."""


# VG30x: layouts of MIG instances


class LayoutImpossibleError(VgpumgrError, id="VG300", exit_code=Exit.NOT_SUPPORTED):
    """The board cannot have these instances at once, whatever is removed."""


class LayoutBusyError(VgpumgrError, id="VG301", exit_code=Exit.BUSY):
    """The layout is possible only by destroying slices that are in use; they are listed."""


class LayoutChangedError(VgpumgrError, id="VG320", exit_code=Exit.BUSY):
    """Another program changed the instances of a GPU at the same time; its instances stay."""


class LayoutContradictionError(VgpumgrError, id="VG302", exit_code=Exit.USAGE):
    """What is asked of a GPU contradicts itself."""


# VG33x: layout files and saved plans


class LayoutFileError(VgpumgrError, id="VG330", exit_code=Exit.USAGE):
    """A layout file, checkpoint or saved plan is malformed; file, line and key are named."""


class LayoutFileMissingError(VgpumgrError, id="VG331", exit_code=Exit.NOT_FOUND):
    """There is no such file, or it cannot be read as one."""


class LayoutFilePermissionError(VgpumgrError, id="VG332", exit_code=Exit.NOT_PERMITTED):
    """This user may not read the file."""


class LayoutNotFoundError(VgpumgrError, id="VG333", exit_code=Exit.NOT_FOUND):
    """The file has no layout of that name."""


class PlanOutdatedError(VgpumgrError, id="VG334", exit_code=Exit.BUSY):
    """The GPUs are no longer as they were when the plan was made."""


class SliceNotFoundError(VgpumgrError, id="VG335", exit_code=Exit.NOT_FOUND):
    """No slice or GPU instance has that name."""


# VG35x: the daemon and its API


class DaemonNotRunningError(VgpumgrError, id="VG350", http_status=503):
    """No daemon answers on its socket, and only a daemon can do this."""


class DaemonRunningError(VgpumgrError, id="VG351", exit_code=Exit.BUSY):
    """Another daemon serves this machine."""


class PreconditionError(VgpumgrError, id="VG352", exit_code=Exit.BUSY, http_status=412):
    """What the request was made for has changed since (If-Match)."""


class AccessDeniedError(VgpumgrError, id="VG353", exit_code=Exit.NOT_PERMITTED):
    """This user may not do this: neither root nor in a group that may."""


class RouteNotFoundError(VgpumgrError, id="VG354", exit_code=Exit.NOT_FOUND):
    """The API has no such path."""


class OperationNotFoundError(VgpumgrError, id="VG355", exit_code=Exit.NOT_FOUND):
    """No operation has this id, or it is long forgotten."""


class OperationCancelledError(
    VgpumgrError, id="VG356", exit_code=Exit.INTERRUPTED, http_status=409
):
    """The operation was cancelled; what it had done was undone."""


class NotCancellableError(VgpumgrError, id="VG357", exit_code=Exit.BUSY):
    """The operation has ended, or cannot be undone half-way and must run to its end."""


class RequestTooLargeError(VgpumgrError, id="VG358", exit_code=Exit.USAGE, http_status=413):
    """The request is larger than any sensible one."""


class DaemonBusyError(VgpumgrError, id="VG359", exit_code=Exit.BUSY, http_status=503):
    """The daemon is stopping, or has too much to do already."""


class DaemonAnswerError(VgpumgrError, id="VG360", http_status=502):
    """The daemon's answer cannot be read: cut off, or not of this API."""


class RemoteHostError(VgpumgrError, id="VG361", http_status=502):
    """Another host cannot be reached, or does not prove that it is the one that is meant."""


class InterruptedOperationError(VgpumgrError, id="VG362"):
    """The daemon ended while the operation ran."""


class AuditError(VgpumgrError, id="VG363", http_status=503):
    """The audit log cannot be written; nothing is changed without it."""


class MethodNotAllowedError(RouteNotFoundError, id="VG364", exit_code=Exit.USAGE, http_status=405):
    """The API has this path, but not with this method."""

    #: the methods that the path has
    allowed: Sequence[str] = ()


class SettingsError(VgpumgrError, id="VG365", exit_code=Exit.USAGE, http_status=500):
    """The daemon's settings cannot be read: no TOML, an unknown key, or a value that cannot be."""


class TooManyRequestsError(VgpumgrError, id="VG366", exit_code=Exit.BUSY, http_status=429):
    """This user has as many connections, requests or event streams as one user may have."""


class RequestTimeoutError(VgpumgrError, id="VG367", http_status=408):
    """The request did not arrive in time."""


# VG37x: the pool


class AuthenticationError(VgpumgrError, id="VG368", exit_code=Exit.NOT_PERMITTED, http_status=401):
    """A caller over the network has proven no token, or one that is revoked or has expired."""


class TokenExistsError(VgpumgrError, id="VG340", exit_code=Exit.BUSY):
    """There is a token of this name."""


class TokenNotFoundError(VgpumgrError, id="VG341", exit_code=Exit.NOT_FOUND):
    """There is no token of this name."""


class TokenFileError(VgpumgrError, id="VG342", http_status=503):
    """The file of tokens cannot be read or written."""


class PoolFileError(VgpumgrError, id="VG370", exit_code=Exit.USAGE):
    """A file of hosts or of tasks is malformed; file, line and column are named."""


class PoolFileMissingError(VgpumgrError, id="VG371", exit_code=Exit.NOT_FOUND):
    """There is no such file of hosts or tasks, or it cannot be read as one."""


class PoolTaskNotFoundError(VgpumgrError, id="VG372", exit_code=Exit.NOT_FOUND):
    """The file of tasks has no task of this name."""


class PoolStoreError(VgpumgrError, id="VG373", http_status=503):
    """The pool's store does not answer, or refuses; what runs on its leases goes on, and nothing new is granted."""


class PoolOutcomeError(PoolStoreError, id="VG374"):
    """The pool's store has not answered to a change, which may have been made."""


class PoolLeaseError(PoolStoreError, id="VG375", exit_code=Exit.BUSY):
    """A lease of the pool's store was not kept alive, and has ended."""


class PoolHistoryError(PoolStoreError, id="VG376"):
    """The pool's store no longer has events that old; its entries have to be read again."""


class PoolMemberError(VgpumgrError, id="VG377", exit_code=Exit.BUSY):
    """This host is not in the pool, or another machine is there under its name."""


class PoolNotFoundError(VgpumgrError, id="VG378", exit_code=Exit.NOT_FOUND):
    """This host knows no pool, or the store that it knows has none."""


class PoolExistsError(VgpumgrError, id="VG379", exit_code=Exit.BUSY):
    """There is a pool already, in this store or on this host."""


class PoolVersionError(VgpumgrError, id="VG382", exit_code=Exit.NOT_SUPPORTED):
    """The pool's records are of another version of vgpumgr."""


class ClaimNotFoundError(VgpumgrError, id="VG383", exit_code=Exit.NOT_FOUND):
    """The pool has no claim of this name."""


class ClaimExistsError(VgpumgrError, id="VG384", exit_code=Exit.BUSY):
    """The pool has a claim of this name, or it was changed at the same time."""


class ClassNotFoundError(VgpumgrError, id="VG385", exit_code=Exit.NOT_FOUND):
    """The pool has no class of this name."""


class ClaimInUseError(VgpumgrError, id="VG387", exit_code=Exit.BUSY):
    """A VM or a command has its slice by the claim; it is named."""


class ClaimNotGrantedError(VgpumgrError, id="VG388", exit_code=Exit.BUSY):
    """The claim has no lease on this host that gives what it asks for, or not the one that was planned with."""


class ClaimUnusableError(VgpumgrError, id="VG389", exit_code=Exit.NOT_SUPPORTED):
    """No attachment can be made by a claim of this kind."""


class GpuLeasedError(VgpumgrError, id="VG392", exit_code=Exit.BUSY):
    """The pool has leased the GPU; the claims are named."""


class ClaimImpossibleError(VgpumgrError, id="VG386", exit_code=Exit.NOT_SUPPORTED):
    """No GPU of the pool can ever hold the claim; the limit is named."""


class TenantNotFoundError(VgpumgrError, id="VG393", exit_code=Exit.NOT_FOUND):
    """The pool has no tenant of this name."""


class TenantExistsError(VgpumgrError, id="VG394", exit_code=Exit.BUSY):
    """The pool has a tenant of this name, the tenant has claims, or it was changed at the same time."""


class ClassExistsError(VgpumgrError, id="VG395", exit_code=Exit.BUSY):
    """The pool has a class of this name, or the class has claims, or every pool has it."""


class ReservationNotFoundError(VgpumgrError, id="VG496", exit_code=Exit.NOT_FOUND):
    """The pool has no reservation of this name."""


class ReservationExistsError(VgpumgrError, id="VG497", exit_code=Exit.BUSY):
    """The pool has a reservation of this name, or claims and other reservations stand in its way; they are named."""


class ReservationImpossibleError(VgpumgrError, id="VG498", exit_code=Exit.NOT_SUPPORTED):
    """The pool does not have so many GPUs that are large enough."""
