"""Rows of the store as text with checksums, how a newer version reads those of an older one, and the second copy of
what neither the journal nor the domains' metadata can give back.

The copy is one text file beside the state file, in another format, so that no single fault hits both.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from vgpumgr.errors import StoreTooNewError
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.model.frozen import dataclass

ATTACHMENT, LAYOUT, FUNCTION, VF_SETTING, VGPU, DRAIN, HEALTH = KINDS = (
    "attachment", "layout", "function", "vf-setting", "vgpu", "drain", "health",
)  # fmt: skip
#: kinds that neither the journal nor the domains' metadata can give back: they have a copy
KEPT = (LAYOUT, FUNCTION, VF_SETTING, VGPU, DRAIN, HEALTH)
#: what people call them
NAMES = {
    ATTACHMENT: "record of attachments",
    LAYOUT: "remembered MIG layouts",
    FUNCTION: "record of functions taken from the host",
    VF_SETTING: "record of functions taken from the host",
    VGPU: "record of vGPUs",
    DRAIN: "record of drained GPUs",
    HEALTH: "record of GPUs' health",
}

#: a record of one kind as it was written, to the same record of the next version; None drops it
Migration = Callable[[str, Any], Any]


def _keep(_name: str, data: Any) -> Any:
    """For a version that only adds a kind."""
    return data


#: number n (from 0) turns records of version n + 1 into those of version n + 2; never changed once released.
#: Version 2 has drained GPUs, too, version 3 GPUs' health
MIGRATIONS: tuple[Migration, ...] = (_keep, _keep)


class DamageError(Exception):
    """What is stored does not check; the text says how that shows."""


class Row(NamedTuple):
    """One record: where it stands among those of its kind, and its JSON."""

    seq: int
    text: str


@dataclass(frozen=True)
class Kind:
    """All records of one kind by id, in the order in which they were first written; ``revision`` counts
    its changes.
    """

    revision: int = 0
    rows: Mapping[str, Row] = field(default_factory=dict)

    @property
    def contents(self) -> tuple[int, list[tuple[str, str]]]:
        """What a copy of it has, too."""
        return self.revision, [(id_, row.text) for id_, row in self.rows.items()]


def current_version() -> int:
    """The version of the formats of this program."""
    return 1 + len(MIGRATIONS)


def check_version(found: int, known: int, path: Path, text: str) -> None:
    """Raises StoreTooNewError."""
    if found > known:
        raise StoreTooNewError(
            text,
            cause=f"{path} has version {found}, this program knows {known}",
            hint="install the newer vgpumgr again",
        )


def migrate(kinds: Mapping[str, Kind], version: int) -> dict[str, Kind]:
    """Records of an older version as those of this one. Raises DamageError."""
    answer = dict(kinds)
    for migration in MIGRATIONS[version - 1 :]:
        answer = {name: _migrate_kind(name, kind, migration) for name, kind in answer.items()}
    return answer


def _migrate_kind(name: str, kind: Kind, migration: Migration) -> Kind:
    rows = {}
    for id_, row in kind.rows.items():
        try:
            data = migration(name, json.loads(row.text))
        except (ValueError, KeyError, TypeError) as error:
            raise DamageError(f"{name} {id_} cannot be brought up to date: {error}") from error
        if data is not None:
            rows[id_] = Row(row.seq, to_text(data))
    return Kind(kind.revision + 1, rows)


def to_text(data: Any) -> str:
    """The JSON that is stored."""
    return json.dumps(data, sort_keys=True)


def sum_row(name: str, id_: str, row: Row) -> int:
    """SQLite itself does not notice a flipped bit in a row."""
    return zlib.crc32(f"{name}\0{id_}\0{row.seq}\0{row.text}".encode())


def sum_kind(name: str, kind: Kind) -> int:
    """Nor does it notice a row that is gone."""
    sums = [sum_row(name, id_, row) for id_, row in kind.rows.items()]
    return zlib.crc32(f"{name}\0{kind.revision}\0{sums}".encode())


_TOO_NEW = "cannot use the copy of the state file"


def write_copy(path: Path, kinds: Mapping[str, Kind], version: int) -> None:
    """Writes the kinds in the place of what the copy has. Raises OSError."""
    body = {
        name: {"revision": kind.revision, "rows": [[id_, r.text] for id_, r in kind.rows.items()]}
        for name, kind in kinds.items()
    }
    text = json.dumps({"version": version, "crc": _sum(body, version), "kinds": body})
    make_directory(path.parent)
    replace_file(path, f"{text}\n", sync=True)


def read_copy(path: Path, names: tuple[str, ...], version: int) -> dict[str, Kind] | None:
    """The kinds of those names in the present format; None: there is no file.

    Raises:
        DamageError: it cannot be read, or its checksum does not fit.
        StoreTooNewError: a newer version wrote it.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        body, found = document["kinds"], document["version"]
        if document["crc"] != _sum(body, found):
            raise DamageError("its checksum does not fit")
        check_version(found, version, path, _TOO_NEW)
        kinds = {name: _read_kind(kind) for name, kind in body.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamageError(str(error)) from error
    kinds = migrate(kinds, found)
    return {name: kinds.get(name, Kind()) for name in names}


def _read_kind(data: Any) -> Kind:
    rows = {str(id_): Row(number, str(text)) for number, (id_, text) in enumerate(data["rows"])}
    return Kind(int(data["revision"]), rows)


def _sum(body: Any, version: Any) -> int:
    return zlib.crc32(json.dumps([version, body], sort_keys=True).encode())
