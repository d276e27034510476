"""The state file: SQLite in WAL mode, one table for records of every kind, and their second copy.

``PRAGMA user_version`` is the version of the format; a file of a newer program is refused. Each row has a
checksum, and each kind one over all its rows. A damaged file is never written to: it is put aside whole,
once everything that has no other source was found intact, there or in the copy (ADR 11).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vgpumgr.errors import StoreError
from vgpumgr.host.files import make_directory, make_file, replace_file
from vgpumgr.host.lock import lock_file
from vgpumgr.state.records import (
    ATTACHMENT,
    KEPT,
    KINDS,
    NAMES,
    DamageError,
    Kind,
    check_version,
    current_version,
    migrate,
    read_copy,
    write_copy,
)
from vgpumgr.state.tables import (
    ERRORS,
    Transaction,
    find_lag,
    is_version_twice,
    list_good,
    load_kind,
    make_image,
    migrate_file,
    read_version,
    roll_back,
    write_changes,
)

#: what the log, its index and the copy grow by in a long command; the journal has its own room
_ROOM = 128 << 10
_UNUSABLE = "cannot use the state file"
_FILE_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

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


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file itself is bad. A full disk, too, makes SQLite fail, and must
    never cost the file.
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
    #: whether the copy was compared, and whether it has to be written again
    compared: bool = False
    is_copy_old: bool = False

    def close(self) -> None:
        """Moves what was committed into the file and closes it; the next transaction opens another."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(*ERRORS):  # it is committed
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.close()


class Database:
    """A state file; made at the first write, readable before that as if empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.copy = path.with_suffix(".copy")
        self._held: _Held | None = None
        self._running = threading.local()

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Until the end, the transactions of this thread share one connection, and the copy is written
        once. A commit is on disk when it returns, as ever. Raises StoreError where the disk has no room
        for the changes of one command: what is begun could not be recorded to its end.
        """
        if self._held is not None:
            yield
            return
        self._check_room()
        held = self._held = _Held(threading.get_ident())
        try:
            yield
        finally:
            try:
                if held.is_copy_old:
                    self._write_copy_later()
            finally:
                self._held = None
                held.close()

    def _check_room(self) -> None:
        if not self.path.parent.exists():
            return
        disk = os.statvfs(self.path.parent)
        free = disk.f_bavail * disk.f_frsize
        if free < _ROOM:
            raise self._unusable(OSError(errno.ENOSPC, f"only {free >> 10} KiB are left"))

    def read(self, name: str) -> Mapping[str, str]:
        """The texts of a kind by id, in the order of their first writing; of the copy, if the file is
        damaged or gone. Raises StoreError.
        """
        running = self._find_running()
        kind = running.kinds[name] if running is not None else self._read_intact(name)
        return {id_: row.text for id_, row in kind.rows.items()}

    def _find_running(self) -> Transaction | None:
        return getattr(self._running, "transaction", None)

    def _read_intact(self, name: str) -> Kind:
        try:
            with self._reading() as connection:
                if connection is not None:
                    return load_kind(connection, name)
        except DamageError as error:
            if name not in KEPT:
                raise self._refuse_damaged(error) from error
            return self._read_from_copy(name, error)
        return self._read_from_copy(name, None) if name in KEPT else Kind()

    def _read_from_copy(self, name: str, damage: DamageError | None) -> Kind:
        """``damage``: that of the file; None: there is none."""
        try:
            copy = self._read_copy()
        except DamageError as error:
            raise self._refuse_lost(name, damage or "it is gone", error) from error
        if copy is None and damage is not None:
            raise self._refuse_lost(name, damage, "it is gone") from damage
        return copy[name] if copy is not None else Kind()

    def _read_copy(self) -> dict[str, Kind] | None:
        return read_copy(self.copy, KEPT, current_version())

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes that are made when it ends, unless an error ends it; one in another is part of that.

        A damaged file is put aside first. Raises StoreError, and then nothing is changed.
        """
        running = self._find_running()
        if running is not None:
            yield running
            return
        with ExitStack() as stack:
            connection, transaction = self._begin(stack)
            self._running.transaction = transaction
            try:
                yield transaction
            finally:
                del self._running.transaction
            if not transaction.changes:
                return
            with self._telling():
                write_changes(connection, transaction)
                connection.execute("COMMIT")
        self._follow_with_copy(transaction)

    def _begin(self, stack: ExitStack) -> tuple[sqlite3.Connection, Transaction]:
        try:
            return self._try_begin(stack)
        except DamageError:
            self.put_away()
        try:
            return self._try_begin(stack)
        except DamageError as error:
            raise self._refuse_damaged(error) from error

    def _try_begin(self, stack: ExitStack) -> tuple[sqlite3.Connection, Transaction]:
        if not self._is_there():
            self._make()
        with ExitStack() as inner, self._telling():
            connection = inner.enter_context(self._lend(self._open))
            inner.callback(roll_back, connection)
            connection.execute("BEGIN IMMEDIATE")
            kinds = {name: load_kind(connection, name) for name in KINDS}
            self._compare_once(kinds)
            stack.push(inner.pop_all())
        return connection, Transaction(kinds)

    def _compare_once(self, kinds: Mapping[str, Kind]) -> None:
        """Whether the copy knows of later changes. Raises DamageError."""
        held = self._find_held()
        if held is None or not held.compared:
            if problem := find_lag(kinds, self._try_copy()):
                raise DamageError(problem)
            if held is not None:
                held.compared = True

    def _try_copy(self) -> dict[str, Kind] | None:
        try:
            return self._read_copy()
        except DamageError:
            return None

    def _find_held(self) -> _Held | None:
        held = self._held
        return held if held is not None and held.thread == threading.get_ident() else None

    def _follow_with_copy(self, done: Transaction) -> None:
        held = self._find_held()
        if held is not None:
            held.is_copy_old = held.is_copy_old or any(name in KEPT for name, _ in done.changes)
        else:
            self._write_copy_if_old(done.kinds)

    def _write_copy_later(self) -> None:
        """What was done is done; where the copy cannot be written, the next command writes it."""
        with contextlib.suppress(StoreError, DamageError), self._reading() as connection:
            if connection is not None:
                self._write_copy_if_old({name: load_kind(connection, name) for name in KEPT})

    def _write_copy_if_old(self, kinds: Mapping[str, Kind]) -> None:
        copy = self._try_copy()
        if copy is None or any(copy[name].contents != kinds[name].contents for name in KEPT):
            with contextlib.suppress(OSError):
                self._write_copy(kinds)

    def _write_copy(self, kinds: Mapping[str, Kind]) -> None:
        write_copy(self.copy, {name: kinds[name] for name in KEPT}, current_version())

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that sees one moment, or None if nothing was ever written. Raises DamageError."""
        if not self._is_there():
            yield None
            return
        with self._telling(), self._lend(self._open_for_reading) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                roll_back(connection)

    def _is_there(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _open_for_reading(self) -> sqlite3.Connection:
        if not self._is_ours():
            return self._open_read_only()
        try:
            with ExitStack() as stack:
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
    def _telling(self) -> Iterator[None]:
        """Errors of SQLite as DamageError, or as StoreError where the file may be as good as ever."""
        try:
            yield
        except ERRORS as error:
            if is_damage(error):
                raise DamageError(str(error)) from error
            raise self._unusable(error) from error

    @contextmanager
    def _lend(self, opener: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
        """The connection that is kept, or one of its own."""
        held = self._find_held()
        connection = self._take_held(held) if held is not None else None
        if held is None or connection is None:
            with closing(opener()) as connection:
                yield connection
            return
        try:
            yield connection
        except (sqlite3.Error, DamageError):
            # what has failed once is not used again
            held.close()
            raise

    def _take_held(self, held: _Held) -> sqlite3.Connection | None:
        """None where each transaction does better by itself: for a user who only reads, on a full disk."""
        if held.connection is not None and held.file != _identify(self.path):
            held.close()
        if held.connection is None and self._is_ours():
            with contextlib.suppress(sqlite3.OperationalError), ExitStack() as stack:
                connection = stack.enter_context(closing(self._open()))
                connection.execute("PRAGMA schema_version").fetchone()
                held.connection, held.file = connection, _identify(self.path)
                stack.pop_all()
        return held.connection

    def _is_ours(self) -> bool:
        """Whether this user may write: even a reader of a file in WAL mode usually does."""
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _open_read_only(self) -> sqlite3.Connection:
        options = "mode=ro&immutable=1" if self._is_idle() else "mode=ro"
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{options}", timeout=10, uri=True, isolation_level=None
        )
        with ExitStack() as stack:
            stack.callback(connection.close)
            version, known = read_version(connection), current_version()
            check_version(version, known, self.path, _UNUSABLE)
            if version != known:
                raise StoreError(
                    "cannot read the state file as this user",
                    cause=f"{self.path} has version {version}, this program reads {known}",
                    why="only its owner can bring it up to date",
                    hint="sudo vgpumgr gpu list",
                )
            stack.pop_all()
        return connection

    def _open(self) -> sqlite3.Connection:
        """A connection to a file of this version; one of an older version is brought up to date."""
        make_directory(self.path.parent)
        with ExitStack() as stack:
            connection = stack.enter_context(closing(self._connect()))
            version, known = read_version(connection), current_version()
            if version != known:
                if version > known and not is_version_twice(connection):
                    raise DamageError(f"its version cannot be {version}")
                check_version(version, known, self.path, _UNUSABLE)
                with self._locked():
                    migrate_file(connection)
            stack.pop_all()
        return connection

    def _connect(self) -> sqlite3.Connection:
        make_file(self.path)
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Only one process makes a file, brings it up to date, or puts it aside."""
        if getattr(self._running, "is_locked", False):
            yield
            return
        with lock_file(self.path.with_suffix(".lock")):
            self._running.is_locked = True
            try:
                yield
            finally:
                self._running.is_locked = False

    def _make(self) -> None:
        """A new file, with what the copy says. Raises StoreError."""
        with self._locked():
            if not self._is_there():
                kinds = {name: self._read_intact(name) for name in KEPT}
                self._replace(kinds)
                self._write_copy_if_old(kinds)

    def _replace(self, kinds: Mapping[str, Kind]) -> None:
        """Puts a new file with those rows in the place of what is there, which is moved aside."""
        try:
            replace_file(self.path, make_image(kinds), sync=True, before=self._move_aside)
        except OSError as error:
            raise self._unusable(error) from error

    def find_damage(self) -> str | None:
        """What is wrong with the file, None if nothing is.

        Raises:
            StoreTooNewError: a newer program's.
            StoreError: the host does not let us look; the file may be as good as ever.
        """
        damage, _ = self._examine()
        return damage

    def list_damage(self) -> tuple[str | None, str | None]:
        """What is wrong with the file, and with the copy of an intact one. Raises as ``find_damage``."""
        damage, kinds = self._examine()
        return damage, self._compare_copy(kinds) if damage is None and kinds is not None else None

    def _examine(self) -> tuple[str | None, Mapping[str, Kind] | None]:
        """What is wrong with the file, and what can be read of it."""
        if not self._is_there():
            return f"{self.path.name} is gone" if self.copy.exists() else None, None
        try:
            with self._reading() as connection:
                assert connection is not None
                answers = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
                kinds = {name: load_kind(connection, name) for name in KINDS}
                cut = self._find_cut(connection)
        except DamageError as error:
            return str(error), None
        if answers != ["ok"]:
            return answers[0], kinds
        return cut or find_lag(kinds, self._try_copy()), kinds

    def _find_cut(self, connection: sqlite3.Connection) -> str | None:
        """What a file that ends too early lacks. SQLite does not notice if that is in pages that are free; a log
        that is not empty may have it.
        """
        (wanted,) = connection.execute(_FILE_BYTES).fetchone()
        if not self._is_idle() or (found := self.path.stat().st_size) >= wanted:
            return None
        return f"it has {found} bytes of {wanted}"

    def find_copy_damage(self) -> str | None:
        """What is wrong with the copy of an intact file, None if nothing is."""
        return self._compare_copy(self._read_kept()) if self._is_there() else None

    def _compare_copy(self, kinds: Mapping[str, Kind]) -> str | None:
        try:
            copy = self._read_copy()
        except DamageError as error:
            return str(error)
        if copy is None:
            return "it is gone"
        if any(copy[name].contents != kinds[name].contents for name in KEPT):
            return "it is not what the state file has"
        return None

    def _read_kept(self) -> dict[str, Kind]:
        """What the copy of an intact file has to say. Raises StoreError."""
        try:
            with self._reading() as connection:
                assert connection is not None
                return {name: load_kind(connection, name) for name in KEPT}
        except DamageError as error:
            raise self._refuse_damaged(error) from error

    def rewrite_copy(self) -> None:
        """Makes the copy of an intact file anew. Raises StoreError."""
        try:
            self._write_copy(self._read_kept())
        except OSError as error:
            raise self._unusable(error) from error

    def put_away(self) -> Mapping[str, str]:
        """Moves a damaged file aside and makes a new one of all that is intact; answers the attachments.
        Raises StoreError where something that has no other source is damaged in the copy, too; then
        nothing is changed.
        """
        with self._locked():
            if self.find_damage() is None:  # another process was faster
                return self.read(ATTACHMENT)
            there, copy = self._salvage(), self._try_copy()
            kinds = {}
            for name in KEPT:
                found = [k for k in (there.get(name), copy[name] if copy else None) if k]
                if not found:
                    raise self._refuse_lost(name, "it is damaged", "it is damaged, too")
                kinds[name] = max(found, key=lambda kind: kind.revision)
            rows = there.get(ATTACHMENT, Kind()).rows
            try:
                self._write_copy(kinds)
            except OSError as error:
                raise self._unusable(error) from error
            self._replace({**kinds, ATTACHMENT: Kind(1, rows)})
        return {id_: row.text for id_, row in rows.items()}

    def _salvage(self) -> dict[str, Kind]:
        """Kinds of which all can be read, and those attachments that can."""
        found: dict[str, Kind] = {}
        if not self._is_there():
            return found
        try:
            with closing(self._connect()) as connection:
                version = read_version(connection)
                if not 1 <= version <= current_version():
                    version = current_version()  # it is damaged: a newer file is never put away
                for name in KINDS:
                    with contextlib.suppress(DamageError, *ERRORS):
                        found[name] = load_kind(connection, name)
                if ATTACHMENT not in found:
                    good = sorted(list_good(connection), key=lambda pair: pair[1].seq)
                    found[ATTACHMENT] = Kind(1, dict(good))
                return migrate(found, version)
        except (DamageError, *ERRORS):
            return {}

    def _move_aside(self) -> None:
        if self._held is not None:
            # closed later, it would take away the log of the new one
            self._held.close()
        if self._is_there():
            stamp = self.path.stat().st_mtime_ns
            self.path.rename(self.path.with_suffix(f".corrupt-{stamp}"))
        for suffix in ("-wal", "-shm"):  # the new file must not take them for its own
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            _UNUSABLE,
            cause=f"{self.path}: {error}",
            hint=f"df {self.path.parent}; ls -l {self.path.parent}",
        )

    def _refuse_damaged(self, error: Exception) -> StoreError:
        return StoreError(_UNUSABLE, cause=f"{self.path}: {error}", hint="vgpumgr recover")

    def _refuse_lost(self, name: str, file: object, copy: object) -> StoreError:
        return StoreError(
            f"cannot use the {NAMES[name]}",
            cause=f"{self.path}: {file}; {self.copy}: {copy}",
            why="both are damaged, so that nothing is changed",
            hint=f"restore one of them from a backup, or move both away: {self.path} {self.copy}",
        )


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file has the name now."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
