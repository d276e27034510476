"""Functions taken from the host and numbers of virtual functions: one small file in the state
directory, replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vgpumgr.errors import StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import Binding, VfSetting
from vgpumgr.store.files import DAMAGE, pack_rows, read_either, replace_file, unpack_rows

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
            return read_either(self.path, _parse) or _Contents()
        except DAMAGE as error:
            raise self._unusable(error) from error

    def _write(self, contents: _Contents) -> None:
        try:
            replace_file(self.path, pack_rows("contents", _FORMAT, encode(contents)))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "cannot use the record of functions taken from the host",
            cause=f"{self.path}: {error}",
            hint=f"look at it, then move it and its copy away: {self.path}",
        )


def _parse(text: str) -> _Contents:
    return decode(_Contents, unpack_rows("contents", _FORMAT, text))
