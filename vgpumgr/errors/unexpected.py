"""Exceptions that are none of ours, as errors for people: what the host lacks is no bug."""

from __future__ import annotations

import errno

from vgpumgr.errors.base import VgpumgrError
from vgpumgr.errors.hardware import HelperLateError, HostResourceError, InternalError

_LACKS = {
    errno.EMFILE: "more open files than this process may have; the daemon's limit is LimitNOFILE=",
    errno.ENFILE: "more open files than this host may have",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk's quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.ENOMEM: "not enough memory",
    errno.EIO: "the disk fails",
    errno.EAGAIN: "no more processes or threads for this user, or none for the moment",
}


def explain_unexpected(error: BaseException, what: str) -> VgpumgrError:
    """``what``: who met it, as in "the daemon"."""
    if isinstance(error, VgpumgrError):
        return error
    if isinstance(error, OSError) and error.errno in _LACKS:
        return HostResourceError(
            f"{what} lacks what it needs of the host",
            cause=str(error)[:500],
            why=_LACKS[error.errno],
        )
    from subprocess import TimeoutExpired  # a bug, or this, is rare: most commands need neither

    if isinstance(error, MemoryError):
        return HostResourceError(
            f"{what} lacks what it needs of the host", why=_LACKS[errno.ENOMEM]
        )
    if isinstance(error, TimeoutError | TimeoutExpired):
        return HelperLateError(
            f"{what} waits for something that is late",
            cause=f"{type(error).__name__}: {error}"[:500],
            why="a busy host, or a driver that does not answer",
            hint="vgpumgr status",
        )
    return InternalError(
        f"{what} has a bug",
        cause=f"{type(error).__name__}: {error}"[:500],
        hint="the same with --debug shows where; please report it",
    )
