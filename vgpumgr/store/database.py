"""The state file: SQLite in WAL mode, STRICT tables, numbered migrations.

``PRAGMA user_version`` is the number of migrations applied. A file from a newer program is refused;
a file that is not a database is moved aside and kept.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vgpumgr.errors import StoreError, StoreTooNewError
from vgpumgr.host.lock import lock_file

#: applied in order, each in one transaction; never changed once released
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE attachment (
        id TEXT PRIMARY KEY,
        vm_uuid TEXT NOT NULL UNIQUE,
        vm_name TEXT NOT NULL,
        gpu TEXT NOT NULL,
        state TEXT NOT NULL,
        created_s REAL NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    """,
    # CRC-32 of ``record``: SQLite itself does not notice a flipped bit in it
    "ALTER TABLE attachment ADD COLUMN crc INTEGER;",
    # a VM may have several; ``number`` tells them apart
    """
    CREATE TABLE attachment_next (
        id TEXT PRIMARY KEY,
        vm_uuid TEXT NOT NULL,
        number INTEGER NOT NULL DEFAULT 0,
        vm_name TEXT NOT NULL,
        gpu TEXT,
        state TEXT NOT NULL,
        created_s REAL NOT NULL,
        record TEXT NOT NULL,
        crc INTEGER,
        UNIQUE (vm_uuid, number)
    ) STRICT;
    INSERT INTO attachment_next (id, vm_uuid, vm_name, gpu, state, created_s, record, crc)
        SELECT id, vm_uuid, vm_name, gpu, state, created_s, record, crc FROM attachment;
    DROP TABLE attachment;
    ALTER TABLE attachment_next RENAME TO attachment;
    """,
)


#: "vg" and the number of migrations: what the file is, and the version once more
_APPLICATION_ID = 0x76670000
COLUMNS = "id, vm_uuid, number, vm_name, gpu, state, created_s, record, crc"

#: how a damaged file shows: SQLite quotes damaged names in its messages, which then are no text
DAMAGE = (sqlite3.Error, OSError, UnicodeDecodeError)

#: SQLite's answers that say nothing about the file: the disk is full, no descriptors, no permission
_OF_THE_HOST = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
#: what a file that was cut off, or a bad block in it, answers
_OF_THE_FILE = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ})


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file has the name now."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file itself is bad; then looking at the machine makes a new one.
    A full disk, too, makes SQLite fail, and must never cost the file.
    """
    if isinstance(error, OSError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code in _OF_THE_FILE or code & 0xFF not in _OF_THE_HOST


@dataclass
class _Held:
    """A connection that one thread keeps for a while, to the file that had the name then."""

    thread: int
    connection: sqlite3.Connection | None = None
    file: tuple[int, int] | None = None

    def empty_log(self) -> None:
        """Moves what was committed into the file, as closing does: a damaged log is taken for a shorter
        one, and nobody would notice what it held.
        """
        if self.connection is not None:
            with contextlib.suppress(sqlite3.Error):  # committed it is
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        """Closes it; the next transaction opens another."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Database:
    """A state file; made at the first write, readable before that as if empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: _Held | None = None

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Until the end, the transactions of this thread share one connection: opening one takes longer
        than a transaction. A commit is on disk, and in the file itself, when it returns, as ever.
        """
        if self._held is not None:
            yield
            return
        held = self._held = _Held(threading.get_ident())
        try:
            yield
        finally:
            self._held = None
            held.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection for reading, or None if nothing was ever written."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            yield None
            return
        with self._transaction(self._open_for_reading) as connection:
            yield connection

    def _open_for_reading(self) -> sqlite3.Connection:
        if not self._is_ours():
            return self._open_read_only()
        try:
            with contextlib.ExitStack() as stack:
                connection = stack.enter_context(closing(self._open()))
                # WAL mode makes its files with the first read
                connection.execute("PRAGMA schema_version").fetchone()
                stack.pop_all()
                return connection
        except sqlite3.OperationalError:
            # a full disk has no room for them; what is in the file itself can be read without
            if not self._is_idle():
                raise
            return self._open_read_only()

    def _is_idle(self) -> bool:
        """Without a log, or with an empty one, all there is stands in the file itself."""
        log = self.path.with_name(self.path.name + "-wal")
        return not log.exists() or log.stat().st_size == 0

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, committed at the end. Raises StoreError."""
        with self._transaction(self._open) as connection:
            yield connection
        held = self._held
        if held is not None and held.thread == threading.get_ident():
            held.empty_log()

    @contextmanager
    def _transaction(
        self, opener: Callable[[], sqlite3.Connection]
    ) -> Iterator[sqlite3.Connection]:
        try:
            with self._lend(opener) as connection, connection:
                yield connection
        except DAMAGE as error:
            raise self._unusable(error) from error

    @contextmanager
    def _lend(
        self,
        opener: Callable[[], sqlite3.Connection],
        keeper: Callable[[], sqlite3.Connection] | None = None,
    ) -> Iterator[sqlite3.Connection]:
        """The connection that is kept, which ``keeper`` opens if there is none; else one of its own."""
        held = self._held
        connection = self._take_held(held, keeper or self._open) if held is not None else None
        if held is None or connection is None:
            with closing(opener()) as connection:
                yield connection
            return
        try:
            yield connection
        except BaseException:
            # what has failed once is not used again
            held.close()
            raise

    def _take_held(
        self, held: _Held, keeper: Callable[[], sqlite3.Connection]
    ) -> sqlite3.Connection | None:
        """None where each transaction does better by itself: on another thread, for a user who only
        reads, on a full disk.
        """
        if held.thread != threading.get_ident():
            return None
        if held.connection is not None and held.file != _identify(self.path):
            held.close()
        if held.connection is None and self._is_ours():
            with contextlib.suppress(sqlite3.OperationalError), contextlib.ExitStack() as stack:
                connection = stack.enter_context(closing(keeper()))
                connection.execute("PRAGMA schema_version").fetchone()
                held.connection, held.file = connection, _identify(self.path)
                stack.pop_all()
        return held.connection

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "cannot use the state file",
            cause=f"{self.path}: {error}",
            hint=f"df {self.path.parent}; ls -l {self.path.parent}",
        )

    def _is_ours(self) -> bool:
        """Whether this user may write: even a reader of a file in WAL mode usually does."""
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _open_read_only(self) -> sqlite3.Connection:
        options = "mode=ro&immutable=1" if self._is_idle() else "mode=ro"
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{options}", timeout=10, uri=True
        )
        version = self._version(connection)
        if version != len(MIGRATIONS):
            connection.close()
            raise StoreError(
                "cannot read the state file as this user",
                cause=f"{self.path} has version {version}, this program reads {len(MIGRATIONS)}",
                why="only its owner can bring it up to date",
                hint="sudo vgpumgr gpu list",
            )
        return connection

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self.move_aside()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            if self._version(connection) != len(MIGRATIONS):
                # SQLite's own waiting does not cover the change to WAL mode
                with lock_file(self.path.with_suffix(".lock")):
                    connection.execute("PRAGMA journal_mode = WAL")
                    self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        if version > len(MIGRATIONS):
            raise StoreTooNewError(
                "cannot use the state file",
                cause=f"{self.path} has version {version}, this program knows {len(MIGRATIONS)}",
                hint="install the newer vgpumgr again",
            )
        for number, migration in enumerate(MIGRATIONS[version:], version + 1):
            script = (
                f"BEGIN IMMEDIATE; {migration} PRAGMA user_version = {number};"
                f" PRAGMA application_id = {_APPLICATION_ID + number}; COMMIT;"
            )
            connection.executescript(script)

    def find_damage(self) -> str | None:
        """What is wrong with the file, None if nothing is.

        Raises:
            StoreTooNewError: a newer program's.
            StoreError: the host does not let us look; the file may be as good as ever.
        """
        if not self.path.exists():
            return None
        try:
            # not ``_open``, which puts a damaged file away by itself
            with self._lend(self._connect, self._connect) as connection:
                answers = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
                # what integrity_check does not look at: that the columns are those of this program
                connection.execute(f"SELECT {COLUMNS} FROM attachment").fetchall()
        except StoreTooNewError as error:
            if self._is_really_newer():
                raise
            return str(error)
        except DAMAGE as error:
            if not is_damage(error):
                raise self._unusable(error) from error
            return str(error)
        return None if answers == ["ok"] else answers[0]

    def _is_really_newer(self) -> bool:
        """The version stands in the file twice: a flipped bit changes one of them."""
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                again = int(connection.execute("PRAGMA application_id").fetchone()[0])
                return again == _APPLICATION_ID + self._version(connection)
        except DAMAGE as error:
            if not is_damage(error):
                raise self._unusable(error) from error
            return False

    def move_aside(self) -> None:
        """Puts the file away, where it is kept; the next write makes a new one."""
        if self._held is not None:
            # closed later, it would take away the log of the new one
            self._held.close()
        aside = self.path.with_suffix(f".corrupt-{self.path.stat().st_mtime_ns}")
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
