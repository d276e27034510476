"""Small state files: replaced as a whole, checked by a sum, safe on disk when the call returns.

Each stands there twice, as itself and as ``.copy``: what cannot be observed (what an administrator asked to be
kept) must outlive a damaged sector.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
#: how a damaged file shows
DAMAGE = (OSError, ValueError, KeyError, TypeError)


def replace_file(path: Path, text: str) -> None:
    """The new text or the old one, never half of either. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = (path, _copy_of(path))
    # both are whole on disk before the first has its name
    written = [_write_beside(file, text) for file in files]
    for temporary, file in zip(written, files, strict=True):
        temporary.replace(file)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_either(path: Path, parse: Callable[[str], T]) -> T | None:
    """What the file says, or its copy if the file is damaged or gone; None if neither was ever written.

    Raises one of ``DAMAGE`` if neither can be believed.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except DAMAGE as error:
        try:
            return parse(_copy_of(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            if isinstance(error, FileNotFoundError):
                return None
            raise error from None
        except DAMAGE:
            raise error from None


def _copy_of(path: Path) -> Path:
    return path.with_suffix(".copy")


def _write_beside(path: Path, text: str) -> Path:
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def pack_rows(name: str, format_: int, rows: Any) -> str:
    """Rows under a name, with the number of the format and a sum."""
    body = json.dumps(rows, sort_keys=True)
    return json.dumps({"format": format_, "crc": zlib.crc32(body.encode()), name: rows}) + "\n"


def unpack_rows(name: str, format_: int, text: str) -> Any:
    """What ``pack_rows`` packed. Raises ValueError, KeyError, TypeError."""
    document: Any = json.loads(text)
    if document["format"] != format_:
        raise ValueError(f"format {document['format']}, this program knows {format_}")
    body = json.dumps(document[name], sort_keys=True)
    if zlib.crc32(body.encode()) != document["crc"]:
        raise ValueError("its checksum does not fit")
    return document[name]
