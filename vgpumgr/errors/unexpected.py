"""Exceptions that are none of ours, as errors for people: what the host lacks is no bug."""

from __future__ import annotations

import errno
import os

from vgpumgr.errors.base import VgpumgrError
from vgpumgr.errors.hardware import (
    HelperLateError,
    HostResourceError,
    InternalError,
    LibraryNotFoundError,
)

_NO_MEMORY = "not enough memory"
_LACKS = {
    errno.EMFILE: "more open files than this process may have",
    errno.ENFILE: "more open files than this host may have",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk's quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.ENOMEM: _NO_MEMORY,
    errno.EIO: "the disk fails",
    errno.EAGAIN: "no more processes or threads for this user, or none for the moment",
}
_HINTS = {
    _LACKS[errno.EMFILE]: "ulimit -n 1024; for the daemon LimitNOFILE= in its unit",
    _NO_MEMORY: "free -h; ulimit -v; for the daemon MemoryMax= and LimitAS= in its unit",
}
#: how loaders and libraries that keep no errno say it
_WORDS_OF_MEMORY = (
    "failed to map segment from shared object",
    "cannot map zero-fill pages",
    "cannot allocate memory",
    "out of memory",
)
_WITHOUT_EXCEPTION = ("without exception set", "without setting an exception")


def find_lack(error: BaseException) -> str | None:
    """What the host has no more of, None if the error says nothing of that."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    if isinstance(error, OSError):
        return _LACKS.get(error.errno or 0)
    text = str(error)
    if isinstance(error, ImportError):
        for code in (errno.EMFILE, errno.ENFILE, errno.EIO):
            if os.strerror(code) in text:
                return _LACKS[code]
        # with another reason behind it, as on a file system without "exec", it is not for want of memory
        if text.casefold().endswith(_WORDS_OF_MEMORY):
            return _NO_MEMORY
    # what the interpreter makes of a call that had no memory even for its exception
    if isinstance(error, SystemError) and text.endswith(_WITHOUT_EXCEPTION):
        return _NO_MEMORY
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return _LACKS[errno.EAGAIN]
    if type(error).__module__ in ("sqlite3", "libvirt") and "out of memory" in text.casefold():
        return _NO_MEMORY
    # an error that wraps one of these: a module's own code that failed while it was loaded
    return find_lack(error.__cause__) if error.__cause__ else None


def advise_installation() -> str:
    """What to do about parts of vgpumgr that are missing, by how it was installed."""
    again = "install the packages vgpumgr and vgpumgr-host again, both of one version"
    if __file__.startswith("/usr/lib/vgpumgr-host/"):
        return f"dpkg --audit; dpkg --verify vgpumgr vgpumgr-host; {again}"
    if __file__.startswith("/usr/lib64/vgpumgr-host/"):
        return f"rpm -V vgpumgr vgpumgr-host; {again}"
    return "./run setup; or install it again, as docs/install.md says"


def explain_unexpected(error: BaseException, what: str) -> VgpumgrError:
    """``what``: who met it, as in "the daemon"."""
    if isinstance(error, VgpumgrError):
        return error
    lack = find_lack(error)
    if lack is not None:
        return HostResourceError(
            f"{what} lacks what it needs of the host",
            cause=str(error)[:500] or None,
            why=lack,
            hint=_HINTS.get(lack),
        )
    if isinstance(error, ImportError):
        return LibraryNotFoundError(
            "the installation of vgpumgr is incomplete",
            cause=str(error)[:500],
            hint=advise_installation(),
        )
    from subprocess import TimeoutExpired  # a bug, or this, is rare: most commands need neither

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
