"""Files: those that this program makes, where it chooses modes, refuses links and checks owners; and the kernel's.

A mode says the most that is allowed; a stricter umask makes it stricter, a looser one changes nothing. A path is
trusted if it belongs to root or to this user, and no other user may write there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from vgpumgr.errors import UntrustedPathError

PRIVATE = 0o600
READABLE = 0o644
DIRECTORY = 0o755
_OTHERS_WRITE = 0o022


def make_directory(path: Path, mode: int = DIRECTORY) -> None:
    """Makes a directory and its parents where they are missing. Raises UntrustedPathError, OSError."""
    try:
        path.mkdir(mode & ~_OTHERS_WRITE)
    except FileNotFoundError:
        make_directory(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode & ~_OTHERS_WRITE)
    except FileExistsError:
        pass
    except OSError:
        # a file system that is read-only, or another's: what exists already is enough
        if not path.is_dir():
            raise
    check_trusted(path)


def check_trusted(path: Path, *, shared: bool = False) -> None:
    """Checks the owner and the mode of an existing file or directory, and the owner of a link to it.

    ``shared``: a directory that everybody may write with the sticky bit, as ``/tmp``, is trusted as well.
    Raises UntrustedPathError, FileNotFoundError.
    """
    status = path.lstat()
    _check_owner(path, status)
    if stat.S_ISLNK(status.st_mode):
        status = path.stat()
        _check_owner(path, status)
    if status.st_mode & _OTHERS_WRITE and not (shared and status.st_mode & stat.S_ISVTX):
        raise _untrusted(
            path,
            f"its mode is {stat.S_IMODE(status.st_mode):04o}: other users may write there",
            f"chmod go-w {path}",
        )


def open_private(path: Path, flags: int, mode: int = PRIVATE) -> int:
    """A descriptor of a regular file of ours, made with ``O_CREAT`` in ``flags``; a file more open than ``mode``
    is closed to others. Raises UntrustedPathError, OSError.
    """
    # O_NONBLOCK: a FIFO in its place must not hold us
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _untrusted(
                path, "it is a symbolic link, and none is followed here", f"ls -l {path}"
            ) from error
        if error.errno == errno.ENXIO:
            raise _untrusted(path, "it is no regular file", f"ls -l {path}") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _untrusted(path, "it is no regular file", f"ls -l {path}")
        _check_owner(path, status)
        if stat.S_IMODE(status.st_mode) & ~mode and status.st_uid == os.geteuid():
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_file(path: Path, mode: int = READABLE) -> None:
    """Makes an empty file where there is none, and checks one that exists; for a library that opens it by name.

    An existing file is not opened: SQLite's locks on it would be lost. Raises UntrustedPathError, OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise _untrusted(path, "it is no regular file", f"ls -l {path}")
    check_trusted(path)


def read_private(path: Path) -> bytes:
    """The content of a regular file of ours. Raises UntrustedPathError, OSError."""
    with os.fdopen(open_private(path, os.O_RDONLY, 0o777), "rb") as file:
        return file.read()


def truncate_file(path: Path, size_bytes: int) -> None:
    """Cuts a regular file of ours. Raises UntrustedPathError, OSError."""
    descriptor = open_private(path, os.O_WRONLY, 0o777)
    try:
        os.ftruncate(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def replace_file(
    path: Path,
    content: str | bytes,
    mode: int = READABLE,
    *,
    sync: bool = False,
    before: Callable[[], object] | None = None,
) -> None:
    """The new content or the old one, never half of either; with ``sync`` on disk when the call returns. ``before``
    is called when all of the new one is written, under another name. Raises OSError.
    """
    temporary = write_beside(path, content, mode, sync=sync)
    try:
        if before is not None:
            before()
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def write_beside(
    path: Path, content: str | bytes, mode: int = READABLE, *, sync: bool = True
) -> Path:
    """A new hidden file beside ``path``, for the caller to rename. Nothing is left of one that fails.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if sync:
                os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_directory(path: Path) -> None:
    """Waits until the names in a directory are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _untrusted(
            path,
            f"it belongs to another user: user {status.st_uid}, and this is user {os.geteuid()}",
            f"ls -ld {path}; remove it, or give it to its user with chown",
        )


def _untrusted(path: Path, why: str, hint: str) -> UntrustedPathError:
    return UntrustedPathError(f"{path} is not to be trusted", cause=str(path), why=why, hint=hint)


def read_text(path: Path) -> str | None:
    """The text of a file of ``/sys`` or ``/proc`` without blanks around it; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def list_names(directory: Path) -> list[str]:
    """The names in a directory, sorted; none where it cannot be listed."""
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return []
