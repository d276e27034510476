"""The second copy of what neither the journal nor the domains' metadata can give back.

It is one text file beside the state file, in another format, so that no single fault hits both.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.state.records import DamageError, Kind, Row, check_version, migrate

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
