"""The audit log: who changed what, and what came of it. JSON lines, each chained to the one before.

``hash`` is SHA-256 over the entry without it, keys sorted; ``prev`` is the entry before's. A line that
was changed, taken out or moved breaks the chain. At its size limit the file becomes ``.1`` and the
chain goes on in a new one; a last line torn by a crash is cut off, and an entry says so.

``vgpumgr audit`` says whether the chain of a log and its older files is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgpumgr.errors import AuditError
from vgpumgr.host.clock import Clock
from vgpumgr.host.files import make_directory, open_private, read_private, truncate_file
from vgpumgr.host.sockets import Peer

FILE_NAME = "audit.jsonl"
MAX_BYTES = 8 << 20
KEPT = 4
#: that one request may read
MAX_ENTRIES = 1000
_START = "0" * 64
#: in this time each user gets one line at once and one line for further refusals
REFUSALS_S = 60.0
_REFUSED_USERS = 100
_REFUSED_SHOWN = 16
_UNKNOWN: dict[str, object] = {"uid": None, "pid": None}


class AuditLog:
    """Appends entries, synced to disk before ``append`` returns. Safe to use from any thread."""

    def __init__(self, path: Path, clock: Clock, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        make_directory(path.parent)
        torn = self._cut_torn_line()
        self._prev, self._number = self._read_last()
        if torn:
            # what is cut off is told, but a full disk must not keep the daemon from starting
            with contextlib.suppress(AuditError):
                self.append({"event": "recovered", "cut_bytes": torn})

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds one entry. Raises AuditError."""
        with self._lock:
            body = {"n": self._number + 1, "time_s": self._clock.wall_s(), **entry}
            body["prev"] = self._prev
            body["hash"] = _digest(body)
            line = json.dumps(body, sort_keys=True) + "\n"
            try:
                self._make_room(len(line))
                self._write(line.encode())
            except OSError as error:
                raise AuditError("the audit log cannot be written", cause=str(error)) from error
            self._prev, self._number = body["hash"], body["n"]

    def read_last(self, limit: int) -> list[dict[str, Any]]:
        """At most so many entries, oldest first, of this log and the one that it was rotated into last. Raises
        AuditError.
        """
        lines: list[bytes] = []
        try:
            for path in (self.path, self._numbered(1)):
                if len(lines) < limit and path.exists():
                    lines = [*read_private(path).splitlines(), *lines]
        except OSError as error:
            raise AuditError("the audit log cannot be read", cause=str(error)) from error
        # what is no entry is what ``vgpumgr audit`` reports
        return [json.loads(line) for line in lines[-limit:] if _is_entry(line)]

    def _write(self, line: bytes) -> None:
        fd = open_private(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        size = os.fstat(fd).st_size
        try:
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, "short write")
            os.fdatasync(fd)
        except OSError:
            # refused is what it announces: it must not stand there, and the next one takes its number
            os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)

    def _make_room(self, more: int) -> None:
        if not self.path.exists() or self.path.stat().st_size + more <= self._max_bytes:
            return
        for number in range(KEPT - 1, 0, -1):
            old = self._numbered(number)
            if old.exists():
                old.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _cut_torn_line(self) -> int:
        """How many bytes were cut off behind the last whole entry: a line without its end, or one
        whose text never reached the disk.
        """
        if not os.path.lexists(self.path):
            return 0
        data = read_private(self.path)
        whole = data.rfind(b"\n") + 1
        last = data.rfind(b"\n", 0, max(whole - 1, 0)) + 1
        if whole and not _is_entry(data[last:whole]):
            whole = last
        if whole != len(data):
            truncate_file(self.path, whole)
        return len(data) - whole

    def _read_last(self) -> tuple[str, int]:
        for path in (self.path, self._numbered(1)):
            lines = path.read_bytes().splitlines() if path.exists() else []
            if lines:
                try:
                    entry = json.loads(lines[-1])
                    return str(entry["hash"]), int(entry["n"])
                except (ValueError, KeyError, TypeError):
                    return _START, 0  # the break stays visible to verify_audit
        return _START, 0


class RefusalLog:
    """Records refused attempts with their user. The first attempt is an entry at once, further attempts within a
    minute are one entry, so that refusals do not fill the log. Lives on one event loop.
    """

    def __init__(self, audit: AuditLog, period_s: float = REFUSALS_S) -> None:
        self._audit = audit
        self._period_s = period_s
        self._later: dict[object, list[str]] = {}
        self._who: dict[object, dict[str, object]] = {}

    def note(self, peer: Peer | None, method: str, target: str) -> None:
        """Records one attempt."""
        key, who = (peer.key, peer.identify()) if peer else (None, _UNKNOWN)
        attempt = f"{method} {target[:200]}"
        if key not in self._later and len(self._later) >= _REFUSED_USERS:
            key, who = None, _UNKNOWN
        if key in self._later:
            self._later[key].append(attempt)
            return
        self._later[key], self._who[key] = [], who
        asyncio.get_running_loop().call_later(self._period_s, self._flush, key)
        self._append({**who, "attempt": attempt})

    def close(self) -> None:
        """Writes the entries that wait for their minute."""
        for key in list(self._later):
            self._flush(key)

    def _flush(self, key: object) -> None:
        attempts, who = self._later.pop(key, []), self._who.pop(key, _UNKNOWN)
        if attempts:
            distinct = list(dict.fromkeys(attempts))[:_REFUSED_SHOWN]
            named = {name: value for name, value in who.items() if name != "pid"}
            self._append({**named, "more": len(attempts), "attempts": distinct})

    def _append(self, entry: Mapping[str, Any]) -> None:
        with contextlib.suppress(AuditError):  # the refusal stands without its entry
            self._audit.append({"event": "refused", **entry})


def _is_entry(line: bytes) -> bool:
    try:
        return "hash" in json.loads(line)
    except (ValueError, TypeError):
        return False


def verify_audit(path: Path) -> str | None:
    """What is wrong with a log file, None if its chain is whole."""
    return _verify(path.read_bytes().splitlines())


def has_none(path: Path) -> bool:
    """Whether there is neither a log nor one that it was rotated into."""
    return not any(path.parent.glob(f"{path.name}*"))


def verify_all(path: Path) -> str | None:
    """The same of a log and all that it was rotated into, oldest first."""
    older = [path.with_name(f"{path.name}.{number}") for number in range(KEPT, 0, -1)]
    files = [*(file for file in older if file.exists()), path]
    return _verify([line for file in files for line in file.read_bytes().splitlines()])


def _verify(lines: Sequence[bytes]) -> str | None:
    prev: str | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            stated = entry.pop("hash")
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"line {number} is not an entry"
        if _digest(entry) != stated:
            return f"line {number} was changed"
        if prev is not None and entry["prev"] != prev:
            return f"an entry is missing before line {number}"
        prev = stated
    return None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
