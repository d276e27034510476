"""The intent journal: what is about to be done, on disk before it is done.

A line of JSON for each event: ``{"seq", "boot", "op", "event", ..., "crc"}``, appended and
fdatasync'ed. ``crc`` is the CRC-32 of the line without it. A torn last line is normal after a crash
and is cut off; anything else that does not check is a corrupt journal, which is moved aside and
kept, never believed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpumgr.errors import JournalError

#: some hundred operations
_ROTATE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal."""

    seq: int
    boot: str
    op: str
    event: str
    data: Mapping[str, Any]


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
    body = json.loads(text)
    return Event(body["seq"], body["boot"], body["op"], body["event"], body["data"])


class Journal:
    """An append-only file in the state directory; the caller holds the machine's lock."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self._next_seq = 1
        self._descriptor: int | None = None

    def append(self, op: str, event: str, data: Mapping[str, Any]) -> None:
        """Writes one event and waits until it is on disk.

        Raises:
            JournalError: it cannot be written; then the change that it announces must not be made.
        """
        try:
            descriptor = self._opened()
            line = _encode(Event(self._next_seq, self._boot_id, op, event, data))
            written = os.write(descriptor, line)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes written")
            os.fdatasync(descriptor)
        except OSError as error:
            # after a failed fsync the kernel may have dropped the pages: retrying would believe a
            # lie
            self.close()
            raise JournalError(
                "cannot write the journal",
                cause=f"{self.path}: {error}",
                why="nothing is changed that is not journalled first",
                hint=f"df {self.path.parent}",
            ) from error
        self._next_seq += 1

    def read(self) -> Iterator[Event]:
        """All events, oldest first, without a torn last line; raises ValueError at a corrupt one."""
        if not self.path.exists():
            return
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                yield _decode(line)
            except (ValueError, KeyError):
                if number == len(lines):
                    return
                raise ValueError(f"{self.path}:{number}: corrupt") from None

    def unfinished(self) -> dict[str, list[Event]]:
        """Operations that began and have no end, with their events."""
        operations: dict[str, list[Event]] = {}
        for event in self.read():
            if event.event == "end":
                operations.pop(event.op, None)
            else:
                operations.setdefault(event.op, []).append(event)
        return operations

    def close(self) -> None:
        """Closes the file; the next append opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._repair()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
            _sync_directory(self.path.parent)
        return self._descriptor

    def _repair(self) -> None:
        """Cuts a torn last line off; moves a corrupt journal aside."""
        try:
            events = list(self.read())
        except ValueError:
            aside = self.path.with_suffix(f".corrupt-{self.path.stat().st_mtime_ns}")
            self.path.rename(aside)
            events = []
        if self.path.exists():
            os.truncate(self.path, sum(len(_encode(event)) for event in events))
        self._next_seq = events[-1].seq + 1 if events else 1
        self._rotate()

    def _rotate(self) -> None:
        """Starts a new file where the old one is large and nothing in it is unfinished."""
        if not self.path.exists() or self.path.stat().st_size < _ROTATE_BYTES:
            return
        if not self.unfinished():
            self.path.replace(self.path.with_suffix(".old"))


def _sync_directory(path: Path) -> None:
    """A new file is only safe once its directory is on disk as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
