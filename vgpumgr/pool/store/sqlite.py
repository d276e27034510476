"""The store of a pool on one host: one SQLite file, used by several processes at once.

Leases count by the kernel's clock that goes on while the machine sleeps, which all processes of the host share. After
a boot it begins anew, and each lease has its whole time again. The clock of the day has no part in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vgpumgr.errors import (
    NotPermittedError,
    PoolHistoryError,
    PoolLeaseError,
    PoolStoreError,
    VgpumgrError,
)
from vgpumgr.host.clock import Clock
from vgpumgr.host.files import PRIVATE, make_directory, make_file
from vgpumgr.pool.store.interface import (
    At,
    Compare,
    Delete,
    Entry,
    Event,
    Snapshot,
    Transaction,
    end_of_prefix,
)
from vgpumgr.state.database import is_damage

_FORMAT = 1
#: events that a watch may still read
_HISTORY = 10_000
#: between two reads of a watch
_POLL_S = 0.02
_BUSY_S = 10
#: with less the disk is full: SQLite's index of its log alone has half of it
_LEAST_SPACE = 1 << 16
_TABLES = """
CREATE TABLE entry (key TEXT PRIMARY KEY, value TEXT NOT NULL, created INTEGER NOT NULL,
                    revision INTEGER NOT NULL, lease INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE event (number INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT, revision INTEGER NOT NULL) STRICT;
CREATE TABLE lease (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_s INTEGER NOT NULL, end_s REAL NOT NULL,
                    boot TEXT NOT NULL) STRICT;
CREATE TABLE head (revision INTEGER NOT NULL, forgotten INTEGER NOT NULL) STRICT;
INSERT INTO head VALUES (1, 0);
CREATE INDEX entry_lease ON entry (lease) WHERE lease <> 0;
"""
_ENTRY = "SELECT key, value, created, revision, lease FROM entry"


class SqliteStore:
    """See ``interface.Store``. The file is made where it is missing."""

    def __init__(self, path: Path, clock: Clock, boot: str) -> None:
        self._path = path
        self._clock = clock
        self._boot = boot
        self._connection: sqlite3.Connection | None = None
        with self._describing("open"):
            self._connection = self._open()

    def get(self, key: str) -> Entry | None:
        """See ``interface.Store``."""
        with self._changing("read"):
            row = self._run(f"{_ENTRY} WHERE key = ?", key).fetchone()
        return None if row is None else Entry(*row)

    def range(self, prefix: str) -> Snapshot:
        """See ``interface.Store``."""
        with self._changing("read"):
            rows = self._run(
                f"{_ENTRY} WHERE key >= ? AND key < ? ORDER BY key", prefix, end_of_prefix(prefix)
            ).fetchall()
            revision = self._read_head()[0]
        return Snapshot({row[0]: Entry(*row) for row in rows}, revision)

    def transact(self, transaction: Transaction) -> int | None:
        """See ``interface.Store``. Its outcome is always known."""
        with self._changing("write"):
            if not all(map(self._holds, transaction.compares)):
                return None
            revision = self._read_head()[0] + 1
            has_changed = False
            for change in transaction.changes:
                if isinstance(change, Delete):
                    has_changed |= self._delete(change.key, revision)
                    continue
                if change.lease and not self._has_lease(change.lease):
                    raise _lease_ended(change.lease)
                self._run(
                    "INSERT INTO entry VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                    "value = excluded.value, revision = excluded.revision, lease = excluded.lease",
                    change.key, change.value, revision, revision, change.lease,
                )  # fmt: skip
                self._record(change.key, change.value, revision)
                has_changed = True
            if not has_changed:
                return revision - 1
            self._advance(revision)
            return revision

    def grant_lease(self, ttl_s: int) -> int:
        """See ``interface.Store``."""
        with self._changing("write"):
            row = self._run(
                "INSERT INTO lease (ttl_s, end_s, boot) VALUES (?, ?, ?) RETURNING id",
                ttl_s, self._clock.monotonic_s() + ttl_s, self._boot,
            ).fetchone()  # fmt: skip
            return int(row[0])

    def keep_alive(self, lease: int) -> None:
        """See ``interface.Store``."""
        with self._changing("write"):
            if not self._has_lease(lease):
                raise _lease_ended(lease)
            now_s = self._clock.monotonic_s()
            self._run("UPDATE lease SET end_s = ttl_s + ? WHERE id = ?", now_s, lease)

    def revoke_lease(self, lease: int) -> None:
        """See ``interface.Store``."""
        with self._changing("write"):
            self._end_lease(lease)

    def watch(self, prefix: str, revision: int) -> SqliteWatch:
        """See ``interface.Store``."""
        return SqliteWatch(SqliteStore(self._path, self._clock, self._boot), prefix, revision)

    def read_events(self, prefix: str, revision: int) -> tuple[Sequence[Event], int]:
        """Those of such keys from a revision on, and the revision of the next one. Raises PoolHistoryError."""
        with self._changing("read"):
            head, forgotten = self._read_head()
            if revision <= forgotten:
                raise PoolHistoryError(
                    f"the pool's store no longer has the events of revision {revision}",
                    why=f"{self._path} keeps the last {_HISTORY}",
                )
            rows = self._run(
                "SELECT key, value, revision FROM event WHERE revision >= ? AND key >= ? AND key < ? "
                "ORDER BY number", revision, prefix, end_of_prefix(prefix),
            ).fetchall()  # fmt: skip
        return [Event(*row) for row in rows], max(head + 1, revision)

    def wait(self, duration_s: float) -> None:
        """Until the file may have changed, or a lease may have ended."""
        self._clock.sleep(min(duration_s, _POLL_S))

    def read_clock_s(self) -> float:
        """The clock that its leases count by."""
        return self._clock.monotonic_s()

    def close(self) -> None:
        """See ``interface.Store``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # one statement each

    def _run(self, text: str, *values: object) -> sqlite3.Cursor:
        if self._connection is None:
            raise PoolStoreError("the pool's store is closed")
        return self._connection.execute(text, values)

    def _read_head(self) -> tuple[int, int]:
        row = self._run("SELECT revision, forgotten FROM head").fetchone()
        if row is None:
            raise PoolStoreError(
                f"cannot read the pool's store {self._path}",
                cause="its revision is missing",
                why="the file is damaged; nothing was written to it",
            )
        revision, forgotten = row
        return revision, forgotten

    def _holds(self, compare: Compare) -> bool:
        row = self._run("SELECT value, revision FROM entry WHERE key = ?", compare.key).fetchone()
        if isinstance(compare, At):
            return compare.revision == (row[1] if row else 0)
        return row is not None and row[0] == compare.value

    def _has_lease(self, lease: int) -> bool:
        return self._run("SELECT 1 FROM lease WHERE id = ?", lease).fetchone() is not None

    def _delete(self, key: str, revision: int) -> bool:
        is_deleted = self._run("DELETE FROM entry WHERE key = ?", key).rowcount > 0
        if is_deleted:
            self._record(key, None, revision)
        return is_deleted

    def _record(self, key: str, value: str | None, revision: int) -> None:
        self._run("INSERT INTO event (key, value, revision) VALUES (?, ?, ?)", key, value, revision)

    def _advance(self, revision: int) -> None:
        self._run("UPDATE head SET revision = ?", revision)
        # in large pieces, so that most transactions remove nothing
        if revision % 256 == 0:
            last = self._run(
                "SELECT revision FROM event ORDER BY number DESC LIMIT 1 OFFSET ?", _HISTORY
            ).fetchone()
            if last is not None:
                self._run("DELETE FROM event WHERE revision <= ?", last[0])
                self._run("UPDATE head SET forgotten = ?", last[0])

    def _end_lease(self, lease: int) -> None:
        self._run("DELETE FROM lease WHERE id = ?", lease)
        keys = self._run("SELECT key FROM entry WHERE lease = ? ORDER BY key", lease).fetchall()
        if keys:
            revision = self._read_head()[0] + 1
            for (key,) in keys:
                self._delete(key, revision)
            self._advance(revision)

    def _end_leases(self) -> None:
        """Those whose time is over. A boot that began since gives each its whole time again."""
        now_s = self._clock.monotonic_s()
        self._run(
            "UPDATE lease SET end_s = ttl_s + ?, boot = ? WHERE boot <> ?", now_s, self._boot, self._boot
        )  # fmt: skip
        for (lease,) in self._run("SELECT id FROM lease WHERE end_s <= ?", now_s).fetchall():
            self._end_lease(lease)

    def _is_due(self) -> bool:
        """Whether a lease has to be ended before anything is read."""
        now_s = self._clock.monotonic_s()
        row = self._run(
            "SELECT 1 FROM lease WHERE boot <> ? OR end_s <= ? LIMIT 1", self._boot, now_s
        )
        return row.fetchone() is not None

    # the file

    @contextmanager
    def _changing(self, verb: str) -> Iterator[None]:
        """One transaction of SQLite. A reader takes the lock for writers only where a lease has to be ended."""
        with self._describing(verb):
            self._run("BEGIN" if verb == "read" else "BEGIN IMMEDIATE")
            try:
                if self._is_due():
                    if verb == "read":
                        self._run("ROLLBACK")
                        self._run("BEGIN IMMEDIATE")
                    self._end_leases()
                yield
                self._run("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error, PoolStoreError):
                    self._run("ROLLBACK")
                raise

    @contextmanager
    def _describing(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._explain(verb, error) from error

    def _explain(self, verb: str, error: Exception) -> VgpumgrError:
        text = f"cannot {verb} the pool's store {self._path}"
        if isinstance(error, PermissionError):
            return NotPermittedError(text, cause=str(error), hint="the same with sudo")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            why = f"another process has it locked for more than {_BUSY_S} s"
        elif code == sqlite3.SQLITE_FULL or self._is_disk_full(code, error):
            why = "the disk is full; nothing of the change was made"
        elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            why = "this user cannot write there, or the file system is read-only"
        elif is_damage(error):
            why = "the file is damaged; nothing was written to it"
        else:
            why = None
        return PoolStoreError(text, cause=str(error), why=why)

    def _is_disk_full(self, code: int, error: Exception) -> bool:
        """SQLite says of its log and its index only that they cannot be written."""
        if isinstance(error, OSError):
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        if code not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
            return False
        with contextlib.suppress(OSError):
            found = os.statvfs(self._path.parent)
            return found.f_bavail * found.f_frsize < _LEAST_SPACE
        return False

    def _open(self) -> sqlite3.Connection:
        make_directory(self._path.parent)
        make_file(self._path, PRIVATE)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Once; another process may do so at the same time. Raises PoolStoreError for a newer file."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute("COMMIT")
        elif version != _FORMAT:
            raise PoolStoreError(
                f"cannot use the pool's store {self._path}",
                cause=f"its format is {version}, and this program has {_FORMAT}",
                why="another version of vgpumgr has made it",
            )


class SqliteWatch:
    """See ``interface.Watch``."""

    def __init__(self, store: SqliteStore, prefix: str, revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._revision = revision

    def read(self, timeout_s: float) -> Sequence[Event]:
        """See ``interface.Watch``."""
        end_s = self._store.read_clock_s() + timeout_s
        while True:
            events, self._revision = self._store.read_events(self._prefix, self._revision)
            left_s = end_s - self._store.read_clock_s()
            if events or left_s <= 0:
                return events
            self._store.wait(left_s)

    def close(self) -> None:
        """See ``interface.Watch``."""
        self._store.close()


def _lease_ended(lease: int) -> PoolLeaseError:
    return PoolLeaseError(f"lease {lease} of the pool's store has ended")
