"""Functions taken from the host and numbers of virtual functions: one small file in the state
directory, replaced as a whole.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgpumgr.errors import StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import Binding, VfSetting

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Contents:
    """All that the file says."""

    bindings: tuple[Binding, ...] = ()
    vf_settings: tuple[VfSetting, ...] = ()


class PciFile:
    """See ``host_pci.PciMemory``. The caller holds the machine's lock when it writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def list_bindings(self) -> tuple[Binding, ...]:
        """In address order; none if nothing was ever bound. Raises StoreError."""
        return self._read().bindings

    def save_binding(self, binding: Binding) -> None:
        """Writes one, in the place of that of the same address. Raises StoreError."""
        rest = [b for b in self._read().bindings if b.address != binding.address]
        rows = tuple(sorted([*rest, binding], key=lambda b: b.address))
        self._write(replace(self._read(), bindings=rows))

    def forget_binding(self, address: PciAddress) -> None:
        """Drops one; absent is no error. Raises StoreError."""
        known = self._read()
        rows = tuple(b for b in known.bindings if b.address != address)
        if rows != known.bindings:
            self._write(replace(known, bindings=rows))

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """In address order. Raises StoreError."""
        return self._read().vf_settings

    def save_vf_setting(self, setting: VfSetting) -> None:
        """Writes one, in the place of that of the same address. Raises StoreError."""
        rest = [s for s in self._read().vf_settings if s.physical != setting.physical]
        rows = tuple(sorted([*rest, setting], key=lambda s: s.physical))
        self._write(replace(self._read(), vf_settings=rows))

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """Drops one; absent is no error. Raises StoreError."""
        known = self._read()
        rows = tuple(s for s in known.vf_settings if s.physical != physical)
        if rows != known.vf_settings:
            self._write(replace(known, vf_settings=rows))

    def _read(self) -> _Contents:
        try:
            return _parse(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return _Contents()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unusable(error) from error

    def _write(self, contents: _Contents) -> None:
        rows = encode(contents)
        body = json.dumps(rows, sort_keys=True)
        text = json.dumps({"format": _FORMAT, "crc": zlib.crc32(body.encode()), "contents": rows})
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
            "cannot use the record of functions taken from the host",
            cause=f"{self.path}: {error}",
            hint=f"look at it, then move it away: {self.path}",
        )


def _parse(text: str) -> _Contents:
    document: Any = json.loads(text)
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']}, this program knows {_FORMAT}")
    body = json.dumps(document["contents"], sort_keys=True)
    if zlib.crc32(body.encode()) != document["crc"]:
        raise ValueError("its checksum does not fit")
    return decode(_Contents, document["contents"])
