"""vGPUs: mediated devices and vendor-VFIO functions."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG40x: vGPUs, their types and parents


class VgpuNotSupportedError(VgpumgrError):
    """This machine has no vGPU framework, or it is switched off."""

    id = "VG400"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class VgpuTypeNotFoundError(VgpumgrError):
    """No parent offers a vGPU type of that name or id."""

    id = "VG401"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class VgpuTypeAmbiguousError(VgpumgrError):
    """More than one vGPU type answers to what was given."""

    id = "VG402"
    exit_code = Exit.USAGE
    http_status = 400


class VgpuNotFoundError(VgpumgrError):
    """There is no vGPU of that UUID, prefix or function."""

    id = "VG403"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class VgpuAmbiguousError(VgpumgrError):
    """More than one vGPU answers to the prefix that was given."""

    id = "VG404"
    exit_code = Exit.USAGE
    http_status = 400


class VgpuNoRoomError(VgpumgrError):
    """The type exists, but there is no room for one more; what takes the room is named."""

    id = "VG405"
    exit_code = Exit.BUSY
    http_status = 409


class VgpuParentGoneError(VgpumgrError):
    """The parent is gone, or has no driver (any more) that makes vGPUs."""

    id = "VG406"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class VgpuTakenError(VgpumgrError):
    """The UUID or the virtual function is in use by another vGPU."""

    id = "VG407"
    exit_code = Exit.BUSY
    http_status = 409


class VgpuBusyError(VgpumgrError):
    """Somebody has the vGPU open; the holders are listed."""

    id = "VG408"
    exit_code = Exit.BUSY
    http_status = 409


class VgpuForeignError(VgpumgrError):
    """The vGPU is not ours: somebody else created or defined it."""

    id = "VG409"
    exit_code = Exit.BUSY
    http_status = 409


class VgpuAttributeError(VgpumgrError):
    """The driver refused an attribute of the vGPU, or does not have it."""

    id = "VG410"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class VgpuDefinitionError(VgpumgrError):
    """A definition of mdevctl cannot be read or written; file and cause are named."""

    id = "VG411"


class VgpuDefinedError(VgpumgrError):
    """It is defined already, or not defined where it must be."""

    id = "VG412"
    exit_code = Exit.BUSY
    http_status = 409


class VgpuReleasingError(VgpumgrError):
    """It was removed while somebody had it open; it goes once he lets go."""

    id = "VG413"
    exit_code = Exit.PENDING
    http_status = 409


class VgpuFunctionsOffError(VgpumgrError):
    """The GPU takes vGPUs on virtual functions, and these are not enabled yet."""

    id = "VG414"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422
