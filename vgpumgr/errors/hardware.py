"""GPUs, NVML, helper processes, the host, machines, the program itself."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

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


class GpuStuckError(VgpumgrError):
    """A helper process has not come back from a call on this GPU; nothing more is begun there."""

    id = "VG123"
    exit_code = Exit.BUSY
    http_status = 409


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


class UntrustedPathError(VgpumgrError):
    """A file or directory of the program belongs to another user, is a link, or others may write there."""

    id = "VG134"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


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


class HostResourceError(VgpumgrError):
    """The host has no more of something: room on a disk, open files, memory. Nothing is known of more."""

    id = "VG192"
    http_status = 503
