"""PCI functions: IOMMU groups, drivers, virtual functions."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG44x: functions and their groups


class PciNotFoundError(VgpumgrError):
    """No PCI function is named so, or it has left the bus."""

    id = "VG440"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class PciAmbiguousError(VgpumgrError):
    """More than one PCI function answers to what was given."""

    id = "VG441"
    exit_code = Exit.USAGE
    http_status = 400


class NoIommuError(VgpumgrError):
    """The kernel uses no IOMMU, so no function can be given to a VM."""

    id = "VG442"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class GroupNotViableError(VgpumgrError):
    """Other functions of the IOMMU group belong to the host; they are named."""

    id = "VG443"
    exit_code = Exit.BUSY
    http_status = 409


class PciBusyError(VgpumgrError):
    """Somebody uses the function now; the holders are listed."""

    id = "VG444"
    exit_code = Exit.BUSY
    http_status = 409


class PciWriteError(VgpumgrError):
    """The kernel refused a write; errno, path and the value written are in the cause."""

    id = "VG445"


class DriverMissingError(VgpumgrError):
    """The driver is not loaded, and its module cannot be."""

    id = "VG446"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class DriverIgnoredError(VgpumgrError):
    """The kernel accepted the writes, but the function has another driver than was asked for."""

    id = "VG447"


class NotBoundError(VgpumgrError):
    """The function was not taken from the host, so there is nothing to give back."""

    id = "VG448"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class PciStalledError(VgpumgrError):
    """A removal waits for its user; what needs the whole PCI core would wait behind it."""

    id = "VG449"
    exit_code = Exit.BUSY
    http_status = 503


# VG46x: virtual functions


class VfUnsupportedError(VgpumgrError):
    """The function has no virtual functions, or its driver makes none by request."""

    id = "VG460"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class VfCountError(VgpumgrError):
    """More virtual functions than the device has, or fewer than one."""

    id = "VG461"
    exit_code = Exit.USAGE
    http_status = 400


class VfVendorToolError(VgpumgrError):
    """The vendor's own program must do this, and is missing or has failed."""

    id = "VG462"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class VfGrabbedError(VgpumgrError):
    """The host's driver took a new virtual function and does not let go."""

    id = "VG463"
    exit_code = Exit.BUSY
    http_status = 409


class VfIgnoredError(VgpumgrError):
    """The kernel accepted the write, but another number of virtual functions is there."""

    id = "VG464"


class VfQuotaError(VgpumgrError):
    """The driver has no such quota, or refuses its value."""

    id = "VG465"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422
