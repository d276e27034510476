"""Locks between processes: flock on a file that names its holder, and a queue before it.

flock alone decides who holds the lock: the kernel drops it when the holder dies. The queue decides who tries: each
process or thread that wants the lock has a ticket, a FIFO in ``PATH.queue`` that it keeps open, named by the time of
its arrival. The next one waits for the ticket before its own to be closed, which the kernel does, too, where a process
is killed. The next process that lists the queue removes a ticket that no process has open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

from vgpumgr.errors import LockHeldError, NotPermittedError, explain_unexpected
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.files import make_directory, open_private
from vgpumgr.host.process import (
    ProcessId,
    is_alive,
    read_identity,
    read_name,
    read_state,
    read_words,
)
from vgpumgr.model.frozen import dataclass

#: below the run directory: the daemon holds it as long as it runs
DAEMON_LOCK = "daemon.lock"
#: so long a lock is waited for while nothing moves: the holder stays, and no waiter ahead leaves
TIMEOUT_S = 60.0
#: from then on a waiter reports for whom it waits, and again where that changes
_REPORT_S = 1.0
#: a lock that is free for so long is taken by a waiter though others are ahead: they are stopped
_OVERTAKE_S = 2.0
#: between looks where nothing can be waited for: a holder that is about to write its name, or has no ticket
_POLL_S = 0.02
_COMMAND_CHARACTERS = 60
_TICKET_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW

Report = Callable[[str], None]
_report: ContextVar[Report | None] = ContextVar("vgpumgr_lock_report", default=None)


@contextmanager
def reporting_waits(report: Report) -> Iterator[None]:
    """Calls ``report`` with the holder's name where this context waits for a lock longer than a second."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


@contextmanager
def lock_file(
    path: Path, timeout_s: float = TIMEOUT_S, clock: Clock | None = None, what: str = ""
) -> Iterator[None]:
    """Holds the exclusive lock of ``path``: first come, first served. ``what``: the operation, for those who wait.

    Waits as long as the queue moves, and ``timeout_s`` while it does not. Raises LockHeldError that names the
    holder, NotPermittedError where this user cannot lock, UntrustedPathError, and HostResourceError where the disk is
    full or nothing more can be opened.
    """
    lock = _Lock(path)
    ticket = None
    try:
        ticket = _Ticket.draw(path) if timeout_s > 0 else None
        _Wait(lock, ticket, timeout_s, clock or SystemClock()).acquire()
        lock.write_holder(what, ticket)
        try:
            yield
        finally:
            lock.clear_holder()
    finally:
        # in this order: who waits for the ticket finds the lock free
        lock.close()
        if ticket is not None:
            ticket.give_back()


def find_holder(path: Path) -> str | None:
    """Who holds the lock of ``path``, in words; None if it is free. Others who ask meanwhile do not count."""
    try:
        fd = open_private(path, os.O_RDONLY, 0o777)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain(error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(_parse_holder(fd))
    finally:
        os.close(fd)
    return None


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who wrote its name into a lock's file."""

    process: ProcessId
    what: str = ""
    ticket: str = ""

    def __str__(self) -> str:
        if not self.process.pid:
            return "unknown"
        name = f"process {self.process.pid}"
        if not is_alive(self.process):
            return f"{name} (gone)"
        state = ", stopped" if read_state(self.process.pid) in ("T", "t") else ""
        command = _describe_command(self.process.pid)
        return (
            f"{name}{state}: {self.what} ({command})" if self.what else f"{name}{state} ({command})"
        )


def _describe_command(pid: int) -> str:
    """From the program's own name on: what stands before it says how it was started."""
    words = [word for word in read_words(pid) if word]
    for at, word in enumerate(words):
        if Path(word).name == "vgpumgr":
            words = words[at:]
            break
    if not words:
        return read_name(pid) or "gone"
    command = " ".join([Path(words[0]).name, *words[1:]])
    return command.partition("\n")[0][:_COMMAND_CHARACTERS]


def _parse_holder(fd: int) -> _Holder:
    try:
        entry = json.loads(os.pread(fd, 4096, 0))
        process = ProcessId(int(entry["pid"]), int(entry["start_ticks"]))
        return _Holder(process, str(entry["what"]), Path(str(entry["ticket"])).name)
    except (OSError, ValueError, KeyError, TypeError):
        return _Holder(ProcessId(0, 0))


class _Descriptor:
    """An open file of this process alone: a child that is forked neither keeps it open nor closes it again."""

    _all: ClassVar[set[_Descriptor]] = set()

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._pid = os.getpid()
        self._all.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether it is open, and by this process."""
        return self in self._all and self._pid == os.getpid()

    def close(self) -> None:
        """Closes it; a second time does nothing."""
        if self.is_ours:
            self._all.remove(self)
            os.close(self.fd)

    @classmethod
    def leave_to_parent(cls) -> None:
        """In a child, directly after the fork."""
        while cls._all:
            with contextlib.suppress(OSError):
                os.close(cls._all.pop().fd)


os.register_at_fork(after_in_child=_Descriptor.leave_to_parent)


class _Lock:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)

    def try_lock(self) -> bool:
        """Takes the lock if it is free."""
        while True:
            try:
                fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if self._has_its_name():
                return True
            # it was removed meanwhile, and others lock the one that is called so now
            self._file.close()
            self._file = _open(self.path)

    def read_holder(self) -> _Holder:
        """Who wrote its name into the file last, and has not cleared it."""
        return _parse_holder(self._file.fd)

    def write_holder(self, what: str, ticket: _Ticket | None) -> None:
        """For those who wait; the lock holds without it, also where the disk is full."""
        own = read_identity(os.getpid()) or ProcessId(os.getpid(), 0)
        entry = {
            "pid": own.pid, "start_ticks": own.start_ticks, "what": what,
            "ticket": ticket.path.name if ticket else "",
        }  # fmt: skip
        with contextlib.suppress(OSError):
            os.ftruncate(self._file.fd, 0)
            os.pwrite(self._file.fd, json.dumps(entry).encode(), 0)

    def clear_holder(self) -> None:
        """The lock is about to be free."""
        if self._file.is_ours:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fd, 0)

    def close(self) -> None:
        """Frees the lock if it is held."""
        self._file.close()

    def _has_its_name(self) -> bool:
        try:
            named, opened = self.path.lstat(), os.fstat(self._file.fd)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


class _Ticket:
    """A place in the queue, as long as this process lives and has not given it back."""

    def __init__(self, path: Path, file: _Descriptor) -> None:
        self.path = path
        self._file = file

    @classmethod
    def draw(cls, lock: Path) -> _Ticket | None:
        """The last place; None where none can be made: then the lock is polled."""
        arrival_s = SystemClock().monotonic_s()
        name = f"{arrival_s:020.9f}-{os.getpid()}-{threading.get_ident()}"
        queue = _find_queue(lock)
        new = queue / f".{name}"
        try:
            make_directory(queue, 0o700)
            os.mkfifo(new, 0o600)
            file = _Descriptor(os.open(new, os.O_RDWR | _TICKET_FLAGS))
        except OSError:
            _unlink(new)
            return None
        try:
            # seen by others only from here on: one that they see is open
            new.rename(queue / name)
        except OSError:
            file.close()
            _unlink(new)
            return None
        return cls(queue / name, file)

    def give_back(self) -> None:
        """Lets the next one go."""
        if self._file.is_ours:
            _unlink(self.path)
            self._file.close()

    def list_ahead(self) -> list[Path]:
        """Those that came before and live, oldest first; removes those that do not."""
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(self.path.parent.iterdir()):
                if path.name.startswith("."):
                    _remove_unfinished(path)
                elif path.name < self.path.name and _is_open(path):
                    found.append(path)
        return found


class _Wait:
    """The way of a process or thread to the lock."""

    def __init__(self, lock: _Lock, ticket: _Ticket | None, timeout_s: float, clock: Clock) -> None:
        self._lock = lock
        self._ticket = ticket
        self._timeout_s = timeout_s
        self._clock = clock
        self._began_s = self._moved_s = self._held_s = clock.monotonic_s()
        self._seen: tuple[str, int] | None = None
        self._reported: str | None = None

    def acquire(self) -> None:
        """Returns with the lock. Raises LockHeldError."""
        while True:
            ahead = self._ticket.list_ahead() if self._ticket else []
            if (not ahead or self._is_left_free()) and self._lock.try_lock():
                return
            holder = self._lock.read_holder()
            self._note_move(holder, len(ahead))
            now_s = self._clock.monotonic_s()
            if now_s - self._moved_s >= self._timeout_s:
                raise self._late(holder, len(ahead))
            if now_s - self._began_s >= _REPORT_S:
                self._report(holder, len(ahead))
            self._sleep(ahead, holder)

    def _is_left_free(self) -> bool:
        """Whether the lock has been free for a while: those ahead are stopped."""
        now_s = self._clock.monotonic_s()
        if is_alive(self._lock.read_holder().process):
            self._held_s = now_s
        return now_s - self._held_s > _OVERTAKE_S

    def _note_move(self, holder: _Holder, ahead: int) -> None:
        seen = (f"{holder.process}{holder.ticket}", ahead)
        if self._seen is not None and (seen[0] != self._seen[0] or ahead < self._seen[1]):
            self._moved_s = self._clock.monotonic_s()
        self._seen = seen

    def _sleep(self, ahead: Sequence[Path], holder: _Holder) -> None:
        """Until the one before is done, at most until there is something to report or to give up."""
        now_s = self._clock.monotonic_s()
        left_s = max(0.0, self._moved_s + self._timeout_s - now_s)
        until_report_s = self._began_s + _REPORT_S - now_s
        duration_s = min(left_s, until_report_s if until_report_s > 0 else _REPORT_S)
        before = ahead[-1] if ahead else _find_queue(self._lock.path) / holder.ticket
        fd = _open_ticket(before) if self._ticket and (ahead or holder.ticket) else None
        if fd is None:
            self._clock.sleep(min(_POLL_S, left_s))
            return
        try:
            self._clock.wait(fd, duration_s)
        finally:
            os.close(fd)

    def _report(self, holder: _Holder, ahead: int) -> None:
        report = _report.get()
        text = f"waiting for {holder}"
        if report is not None and holder.process.pid and text != self._reported:
            self._reported = text
            others = self._count_others(holder, ahead)
            report(f"{text}; {others}" if others else text)

    def _late(self, holder: _Holder, ahead: int) -> LockHeldError:
        return LockHeldError(
            "another vgpumgr is changing this machine",
            cause=f"flock {self._lock.path}: held",
            why=self._count_others(holder, ahead) or None,
            held_by=[str(holder)],
            hint="wait for it, then repeat",
        )

    def _count_others(self, holder: _Holder, ahead: int) -> str:
        """Those ahead, without the holder."""
        others = ahead - 1 if holder.ticket else ahead
        if others <= 0:
            return ""
        return f"{others} other process{'es wait' if others > 1 else ' waits'} before this one"


def _find_queue(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.queue")


def _open_ticket(path: Path) -> int | None:
    """For waiting until it is closed; None if it is closed already."""
    try:
        fd = os.open(path, os.O_RDONLY | _TICKET_FLAGS)
    except OSError:
        return None
    try:
        os.read(fd, 1)  # nothing, at once, where no process has it open
    except BlockingIOError:
        return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _is_open(path: Path) -> bool:
    fd = _open_ticket(path)
    if fd is None:
        _unlink(path)
        return False
    os.close(fd)
    return True


def _remove_unfinished(path: Path) -> None:
    """A ticket whose process was killed before it was seen."""
    pid = path.name.partition("-")[2].partition("-")[0]
    if pid.isdigit() and read_identity(int(pid)) is None:
        _unlink(path)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _open(path: Path) -> _Descriptor:
    try:
        make_directory(path.parent)
        return _Descriptor(open_private(path, os.O_RDWR | os.O_CREAT))
    except OSError as error:
        raise _explain(error) from error


def _explain(error: OSError) -> Exception:
    if error.errno not in (errno.EACCES, errno.EPERM):
        return explain_unexpected(error, "vgpumgr")
    return NotPermittedError(
        "cannot change this machine as this user",
        cause=str(error),
        why="its lock is another user's",
        hint="the same command with sudo",
    )
