"""Small state files: replaced as a whole, checked by a sum, safe on disk when the call returns."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


def replace_file(path: Path, text: str) -> None:
    """The new text or the old one, never half of either. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
