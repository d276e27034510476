"""The tables of the state file: their rows, seals and version, over one connection."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing

from vgpumgr.state.records import (
    ATTACHMENT,
    KEPT,
    KINDS,
    NAMES,
    DamageError,
    Kind,
    Row,
    current_version,
    migrate,
    sum_kind,
    sum_row,
)

_SCHEMA = """
CREATE TABLE record (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    text TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE seal (
    kind TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
#: "vg" and the version once more
_APPLICATION_ID = 0x76670000
#: where a database says that it is read and written with a log (WAL): SQLite's file format, 1.3.3
_FORMAT_BYTES, _WAL_FORMAT = slice(18, 20), b"\2\2"
#: how a damaged file shows: SQLite quotes damaged names in its messages, which then are no text
ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)


class Transaction:
    """Changes of records of any kind, which are made together when it ends, or not at all."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.changes: dict[tuple[str, str], Row | None] = {}

    def put(self, name: str, id_: str, text: str) -> None:
        """Writes one, in the place of the one with the same id."""
        kind = self.kinds[name]
        old = kind.rows.get(id_)
        if old is not None and old.text == text:
            return
        after = max((row.seq for row in kind.rows.values()), default=-1) + 1
        self._change(name, id_, Row(old.seq if old else after, text))

    def drop(self, name: str, id_: str) -> None:
        """Forgets one; absent is no error."""
        if id_ in self.kinds[name].rows:
            self._change(name, id_, None)

    def _change(self, name: str, id_: str, row: Row | None) -> None:
        rows = dict(self.kinds[name].rows)
        if row is None:
            del rows[id_]
        else:
            rows[id_] = row
        first = not any(kind == name for kind, _ in self.changes)
        self.kinds[name] = Kind(self.kinds[name].revision + first, rows)
        self.changes[name, id_] = row


def roll_back(connection: sqlite3.Connection) -> None:
    """Ends a transaction that was not committed."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def read_version(connection: sqlite3.Connection) -> int:
    """The version of the format."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_version_twice(connection: sqlite3.Connection) -> bool:
    """The version stands in the file twice: a flipped bit changes one of them."""
    again = int(connection.execute("PRAGMA application_id").fetchone()[0])
    return again == _APPLICATION_ID + read_version(connection)


def load_kind(connection: sqlite3.Connection, name: str) -> Kind:
    """All records of a kind. Raises DamageError, and what SQLite raises."""
    seal = connection.execute("SELECT revision, crc FROM seal WHERE kind = ?", (name,)).fetchone()
    if seal is None:
        raise DamageError(f"the {NAMES[name]} is not there")
    rows = connection.execute(
        "SELECT id, seq, text, crc FROM record WHERE kind = ? ORDER BY seq, id", (name,)
    )
    found = {}
    for id_, seq, text, crc in rows:
        found[id_] = row = Row(seq, text)
        if sum_row(name, id_, row) != crc:
            raise DamageError(f"the checksum of {name} {id_} does not fit")
    kind = Kind(seal[0], found)
    if sum_kind(name, kind) != seal[1]:
        raise DamageError(f"the checksum of the {NAMES[name]} does not fit")
    return kind


def list_good(connection: sqlite3.Connection) -> Iterator[tuple[str, Row]]:
    """The attachments that check, up to where the file cannot be read on."""
    with contextlib.suppress(*ERRORS):
        for id_, seq, text, crc in connection.execute("SELECT id, seq, text, crc FROM record"):
            if sum_row(ATTACHMENT, id_, Row(seq, text)) == crc:
                yield id_, Row(seq, text)


def write_changes(connection: sqlite3.Connection, transaction: Transaction) -> None:
    """Writes what a transaction changed, and the seals of its kinds."""
    for (name, id_), row in transaction.changes.items():
        if row is None:
            connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (name, id_))
        else:
            _write_row(connection, name, id_, row)
    for name in {name for name, _ in transaction.changes}:
        _seal(connection, name, transaction.kinds[name])


def _write_row(connection: sqlite3.Connection, name: str, id_: str, row: Row) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO record (kind, id, seq, text, crc) VALUES (?, ?, ?, ?, ?)",
        (name, id_, row.seq, row.text, sum_row(name, id_, row)),
    )


def _seal(connection: sqlite3.Connection, name: str, kind: Kind) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO seal (kind, revision, crc) VALUES (?, ?, ?)",
        (name, kind.revision, sum_kind(name, kind)),
    )


def find_lag(kinds: Mapping[str, Kind], copy: Mapping[str, Kind] | None) -> str | None:
    """Whether the copy has what the file lost: a damaged log looks like a shorter one."""
    for name in KEPT if copy is not None else ():
        assert copy is not None
        if copy[name].revision > kinds[name].revision:
            return f"the {NAMES[name]} is older than its copy"
    return None


def _write_all(connection: sqlite3.Connection, kinds: Mapping[str, Kind]) -> None:
    connection.execute("DELETE FROM record")
    for name in KINDS:
        kind = kinds.get(name, Kind())
        for id_, row in kind.rows.items():
            _write_row(connection, name, id_, row)
        _seal(connection, name, kind)
    version = current_version()
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID + version}")


def migrate_file(connection: sqlite3.Connection) -> None:
    """Brings all records up to date, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = read_version(connection)
        if version < 1:
            raise DamageError(f"its version cannot be {version}")
        if version < current_version():
            names = [row[0] for row in connection.execute("SELECT kind FROM seal")]
            found = {name: load_kind(connection, name) for name in names if name in KINDS}
            _write_all(connection, migrate(found, version))
        connection.execute("COMMIT")
    finally:
        roll_back(connection)


def make_image(kinds: Mapping[str, Kind]) -> bytes:
    """The bytes of a database file with those rows, in WAL mode."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
        _write_all(connection, kinds)
        image = bytearray(connection.serialize())
    image[_FORMAT_BYTES] = _WAL_FORMAT
    return bytes(image)
