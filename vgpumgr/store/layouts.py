"""The remembered layouts: one small file in the state directory, replaced as a whole."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgpumgr.errors import StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.plan.layout_record import DesiredLayout

_FORMAT = 1


class LayoutFile:
    """See ``LayoutStore``. The caller holds the machine's lock when it writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """All, by the GPU's UUID; none if nothing was ever applied. Raises StoreError."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise self._unusable(error) from error
        try:
            return {str(layout.gpu): layout for layout in _parse(text)}
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable(error) from error

    def save_layouts(self, layouts: Sequence[DesiredLayout]) -> None:
        """Writes some, each in the place of that of the same GPU. Raises StoreError."""
        known = dict(self.read_layouts()) | {str(layout.gpu): layout for layout in layouts}
        rows = encode([known[gpu] for gpu in sorted(known)])
        body = json.dumps(rows, sort_keys=True)
        text = json.dumps({"format": _FORMAT, "crc": zlib.crc32(body.encode()), "layouts": rows})
        try:
            self._replace(text + "\n")
        except OSError as error:
            raise self._unusable(error) from error

    def _replace(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "cannot use the remembered MIG layouts",
            cause=f"{self.path}: {error}",
            hint=f"look at it, move it away, then apply the layout again: {self.path}",
        )


def _parse(text: str) -> list[DesiredLayout]:
    document: Any = json.loads(text)
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']}, this program knows {_FORMAT}")
    body = json.dumps(document["layouts"], sort_keys=True)
    if zlib.crc32(body.encode()) != document["crc"]:
        raise ValueError("its checksum does not fit")
    return [decode(DesiredLayout, row) for row in document["layouts"]]
