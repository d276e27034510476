"""The intent journal: what is about to be done, on disk before it is done, and that it was done.

A line for each event: the CRC-32 of the rest, then JSON ``{"seq", "boot", "op", "event", "data"}``.
Space is allocated ahead, so that a full disk is noticed before a step and not after it; what is
behind the last line is zeros. Every line is written and then fdatasync'ed. A torn last line is
normal after a crash and is cut off; anything else that does not check, a gap in the numbers or more
than one such line included, is a corrupt journal, which is moved aside and kept, never believed. After a failed
fdatasync nobody knows what is on disk: nothing more is journalled until ``put_away``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from vgpumgr.errors import JournalError, JournalFailedError, NotPermittedError
from vgpumgr.host.files import (
    make_directory,
    open_private,
    read_private,
    sync_directory,
    truncate_file,
)
from vgpumgr.model.frozen import dataclass

#: some dozen operations: each reader reads the whole file
_ROTATE_BYTES = 128 << 10
#: how a line begins of which a crash left a part: a page of the file that was not written yet is zeros
_CUT_OFF = re.compile(rb"[0-9a-f]{8} |[0-9a-f]{0,8}(?:\0|\Z)")
#: the file that this process has seen safe on disk under its name: device and inode; a new one is empty
_safe_names: dict[Path, tuple[int, int]] = {}
#: the journal that was read last, up to the end of its last whole line, and what it says
_known: list[tuple[bytes, Contents]] = []
#: space is allocated in such pieces
_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal."""

    seq: int
    boot: str
    op: str
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a journal's file says. ``problem``: why it cannot be believed; then there are no events."""

    events: tuple[Event, ...] = ()
    #: where the next line goes
    end: int = 0
    #: whether something stands behind the last whole line
    torn: bool = False
    problem: str | None = None
    unfinished: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)


def _encode(event: Event) -> bytes:
    body = {"seq": event.seq, "boot": event.boot, "op": event.op, "event": event.event}
    text = json.dumps({**body, "data": dict(event.data)}, separators=(",", ":"), sort_keys=True)
    crc = zlib.crc32(text.encode())
    return f"{crc:08x} {text}\n".encode()


def _decode(line: bytes) -> Event:
    """The event of a line; raises ValueError for a line that is not whole."""
    crc, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or len(crc) != 8 or int(crc, 16) != zlib.crc32(text):
        raise ValueError("torn or corrupt line")
    body = json.loads(text.decode())
    return Event(body["seq"], body["boot"], body["op"], body["event"], body["data"])


def parse_journal(data: bytes) -> Contents:
    """What the bytes of a journal say; never raises. A journal is read several times in each operation, and grows by
    a line at a time: only what is new is parsed.
    """
    known = _find_known(data)
    events = list(known.events)
    end = known.end
    torn = False
    for line in data[end:].splitlines(keepends=True):
        if line[:1] == b"\0" and not torn and line == bytes(len(line)):
            break  # what is allocated and not written yet
        try:
            event = _decode(line.lstrip(b"\0") if torn else line)
        except (ValueError, KeyError, TypeError):
            if not line.strip(b"\0"):
                continue
            if torn or not _CUT_OFF.match(line):
                where = f"what follows line {len(events)}" if events else "line 1"
                return Contents(problem=f"{where} is no line that was cut off", end=len(data))
            torn = True
            continue
        if torn or (events and event.seq != events[-1].seq + 1):
            where = f"line {len(events) + 1}"
            return Contents(problem=f"{where} does not check, and later ones do", end=len(data))
        events.append(event)
        end += len(line)
    unfinished = _list_unfinished(events[len(known.events) :], known.unfinished)
    contents = Contents(tuple(events), end, torn, None, unfinished)
    _known[:] = [(data[:end], contents)]
    return contents


def _find_known(data: bytes) -> Contents:
    """What this process has read of a journal that has grown since, or of none."""
    for text, contents in tuple(_known):
        if data.startswith(text):
            return contents
    return Contents()


def _list_unfinished(
    events: Iterable[Event], before: Mapping[str, tuple[Event, ...]]
) -> dict[str, tuple[Event, ...]]:
    operations = dict(before)
    for event in events:
        if event.event == "end":
            operations.pop(event.op, None)
        else:
            operations[event.op] = (*operations.get(event.op, ()), event)
    return operations


class Journal:
    """An append-only file in the state directory; the caller holds the machine's lock."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self._next_seq = 1
        self._end = 0
        self._allocated = 0
        self._descriptor: int | None = None

    @property
    def _marker(self) -> Path:
        return self.path.with_suffix(".failed")

    @property
    def has_failed(self) -> bool:
        """Whether an fdatasync failed, now or in an earlier process."""
        return self._marker.exists()

    def append(self, op: str, event: str, data: Mapping[str, Any]) -> None:
        """Writes one event and waits until it is on disk.

        Raises:
            JournalError: it cannot be written; then the change that it announces must not be made.
        """
        if self.has_failed:
            raise self.refusal()
        try:
            descriptor = self._opened()
            line = _encode(Event(self._next_seq, self._boot_id, op, event, data))
            self._allocate(descriptor, len(line))
            written = os.pwrite(descriptor, line, self._end)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes written")
            self._sync(descriptor)
        except OSError as error:
            self.close()
            raise JournalError(
                "cannot write the journal",
                cause=f"{self.path}: {error}",
                why="nothing is changed that is not journalled first",
                hint=f"df {self.path.parent}",
            ) from error
        self._next_seq += 1
        self._end += len(line)

    def read(self) -> Iterator[Event]:
        """All events, oldest first, without a torn last line; raises ValueError at a corrupt one."""
        contents = self.look()
        if contents.problem is not None:
            raise ValueError(f"{self.path}: {contents.problem}")
        yield from contents.events

    def look(self) -> Contents:
        """What the file says now, corrupt or not; a file that is not there is empty.

        Raises:
            NotPermittedError: this user may not read it.
            UntrustedPathError: it is a link, or another user's.
            JournalError: the disk fails.
        """
        try:
            return parse_journal(read_private(self.path))
        except FileNotFoundError:
            return Contents()
        except PermissionError as error:
            raise NotPermittedError(
                "cannot read the journal as this user",
                cause=str(error),
                hint="the same command with sudo",
            ) from error
        except OSError as error:
            raise JournalError("cannot read the journal", cause=str(error)) from error

    def unfinished(self) -> dict[str, list[Event]]:
        """Operations that began and have no end, with their events."""
        operations = _list_unfinished(self.read(), {})
        return {op: list(events) for op, events in operations.items()}

    def put_away(self, why: str) -> Path | None:
        """Moves the file aside, where it is kept, and forgets a failure: the next append starts anew.

        Returns where it is, None if there was none. Raises JournalError.
        """
        self.close()
        aside: Path | None = None
        try:
            if self.path.exists():
                aside = self.path.with_suffix(f".{why}-{self.path.stat().st_mtime_ns}")
                self.path.rename(aside)
            self._marker.unlink(missing_ok=True)
            if self.path.parent.exists():
                sync_directory(self.path.parent)
        except OSError as error:
            raise JournalError("cannot put the journal away", cause=str(error)) from error
        return aside

    def close(self) -> None:
        """Closes the file; the next append opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _sync(self, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError:
            # the kernel may have dropped the pages: trying again would believe a lie
            with contextlib.suppress(OSError):
                os.close(open_private(self._marker, os.O_WRONLY | os.O_CREAT))
            raise

    def refusal(self) -> JournalFailedError:
        """The error of a journal that has failed."""
        return JournalFailedError(
            "the journal has failed: nothing is changed until it is recovered",
            cause=f"{self.path}: an earlier fdatasync failed, so what is on disk is not known",
            hint="check the disk, then: vgpumgr recover",
        )

    def _allocate(self, descriptor: int, more: int) -> None:
        wanted = self._end + more
        if wanted > self._allocated:
            size = -(-wanted // _CHUNK_BYTES) * _CHUNK_BYTES
            os.posix_fallocate(descriptor, 0, size)
            # where zeros have been written, a line is a change of data alone: its sync needs no commit of
            # the file system's own journal
            zeros = bytes(size - self._allocated)
            if os.pwritev(descriptor, [zeros], self._allocated) != len(zeros):
                raise OSError(errno.ENOSPC, "short write")
            self._allocated = size

    def _opened(self) -> int:
        if self._descriptor is None:
            make_directory(self.path.parent)
            self._repair()
            self._descriptor = open_private(self.path, os.O_WRONLY | os.O_CREAT)
            status = os.fstat(self._descriptor)
            self._allocated = status.st_size
            file = status.st_dev, status.st_ino
            if status.st_size == 0 or _safe_names.get(self.path) != file:
                # a new file is only safe once its directory is on disk as well
                sync_directory(self.path.parent)
                _safe_names[self.path] = file
        return self._descriptor

    def _repair(self) -> None:
        """Cuts a torn last line off; moves a corrupt journal aside."""
        contents = self.look()
        if contents.problem is not None:
            self.put_away("corrupt")
            contents = Contents()
        elif contents.torn:
            # zeros again behind the last line, before anything is written there
            truncate_file(self.path, contents.end)
        self._next_seq = contents.events[-1].seq + 1 if contents.events else 1
        self._end = contents.end
        self._rotate(contents)

    def _rotate(self, contents: Contents) -> None:
        """Starts a new file where the old one is large and nothing in it is unfinished."""
        if contents.end >= _ROTATE_BYTES and not contents.unfinished:
            self.path.replace(self.path.with_suffix(".old"))
            self._end = 0
