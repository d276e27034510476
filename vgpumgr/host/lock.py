"""Locks between processes: flock on a file that names its holder.

The kernel drops the lock when the holder dies, so there is nothing to clean up after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vgpumgr.errors import LockHeldError, NotPermittedError, explain_unexpected
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.process import read_name

_POLL_S = 0.02


@contextmanager
def lock_file(path: Path, timeout_s: float = 10.0, clock: Clock | None = None) -> Iterator[None]:
    """Holds the exclusive lock of ``path``; waits for it at most ``timeout_s``.

    Raises LockHeldError that names the holder, and NotPermittedError where this user cannot lock, and
    HostResourceError where the disk is full or nothing more can be opened.
    """
    clock = clock or SystemClock()
    fd = _open(path)
    try:
        _acquire(fd, path, clock.monotonic_s() + timeout_s, clock)
        _name_holder(fd, f"{os.getpid()}\n")
        yield
        _name_holder(fd, "")
    finally:
        os.close(fd)


def _name_holder(fd: int, text: str) -> None:
    """For those who wait; the lock holds without it, also where the disk is full."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except PermissionError as error:
        raise NotPermittedError(
            "cannot change this machine as this user",
            cause=str(error),
            why="its lock is another user's",
            hint="the same command with sudo",
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPermittedError(
                "cannot lock this machine",
                cause=str(error),
                why="a link stands in the lock's place, and locks follow none",
                hint=f"look at {path}, then remove it",
            ) from error
        raise explain_unexpected(error, "vgpumgr") from error


def _acquire(fd: int, path: Path, deadline_s: float, clock: Clock) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                raise
            if clock.monotonic_s() >= deadline_s:
                raise _held(fd, path) from error
        clock.sleep(_POLL_S)


def _held(fd: int, path: Path) -> LockHeldError:
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    holder = f"process {text} ({read_name(int(text)) or 'gone'})" if text.isdigit() else "unknown"
    return LockHeldError(
        "another vgpumgr is changing this machine",
        cause=f"flock {path}: held",
        held_by=[holder],
        hint="wait for it, then repeat",
    )
