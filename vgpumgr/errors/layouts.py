"""Layouts of MIG instances, and the files that say them."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG30x: layouts of MIG instances


class LayoutImpossibleError(VgpumgrError):
    """The board cannot have these instances at once, whatever is removed."""

    id = "VG300"
    exit_code = Exit.NOT_SUPPORTED
    http_status = 422


class LayoutBusyError(VgpumgrError):
    """The layout is possible only by destroying slices that somebody uses; they are listed."""

    id = "VG301"
    exit_code = Exit.BUSY
    http_status = 409


class LayoutChangedError(VgpumgrError):
    """Somebody else changed the instances of a GPU at the same time; nothing of theirs is touched."""

    id = "VG320"
    exit_code = Exit.BUSY
    http_status = 409


class LayoutContradictionError(VgpumgrError):
    """What is asked of a GPU contradicts itself."""

    id = "VG302"
    exit_code = Exit.USAGE
    http_status = 400


# VG33x: layout files and saved plans


class LayoutFileError(VgpumgrError):
    """A layout file, checkpoint or saved plan is malformed; file, line and key are named."""

    id = "VG330"
    exit_code = Exit.USAGE
    http_status = 400


class LayoutFileMissingError(VgpumgrError):
    """There is no such file, or it cannot be read as one."""

    id = "VG331"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class LayoutFilePermissionError(VgpumgrError):
    """This user may not read the file."""

    id = "VG332"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class LayoutNotFoundError(VgpumgrError):
    """The file has no layout of that name."""

    id = "VG333"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class PlanOutdatedError(VgpumgrError):
    """The GPUs are no longer as they were when the plan was made."""

    id = "VG334"
    exit_code = Exit.BUSY
    http_status = 409


class SliceNotFoundError(VgpumgrError):
    """No slice has the name that ``--allow-disruptive`` was given."""

    id = "VG335"
    exit_code = Exit.NOT_FOUND
    http_status = 404
