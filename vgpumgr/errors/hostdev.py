"""Host devices of VMs: whole GPUs, virtual functions, mediated devices."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG48x: giving a VM a device of the host, and taking it back


class DeviceTakenError(VgpumgrError):
    """The GPU or the function is another VM's already."""

    id = "VG480"
    exit_code = Exit.BUSY
    http_status = 409


class NoDeviceError(VgpumgrError):
    """No GPU of this machine can be given as was asked; for each of them the reason is said."""

    id = "VG481"
    exit_code = Exit.BUSY
    http_status = 409


class DisplayImpossibleError(VgpumgrError):
    """A display was asked for, and the VM or the device has none."""

    id = "VG482"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class ReleasePendingError(VgpumgrError):
    """The guest has not released the device in time; the detach completes by itself once it has."""

    id = "VG483"
    exit_code = Exit.PENDING
    http_status = 409


class VfPlaceError(VgpumgrError):
    """A new virtual function is not where its physical one said that it would be."""

    id = "VG484"


class PreviewImpossibleError(VgpumgrError):
    """The VM's definition cannot be shown as it would be: it has none, or a place is not known yet."""

    id = "VG485"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422
