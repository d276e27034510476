"""The remembered layouts: one small file in the state directory, replaced as a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from vgpumgr.errors import StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.identity import GpuUuid
from vgpumgr.plan.layout_record import DesiredLayout
from vgpumgr.store.files import DAMAGE, pack_rows, read_either, replace_file, unpack_rows

_FORMAT = 1


class LayoutFile:
    """See ``LayoutStore``. The caller holds the machine's lock when it writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """All, by the GPU's UUID; none if nothing was ever applied. Raises StoreError."""
        try:
            return read_either(self.path, _parse) or {}
        except DAMAGE as error:
            raise self._unusable(error) from error

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Writes some, each in the place of that of the same GPU, and forgets those of other GPUs. Raises
        StoreError.
        """
        known = dict(self.read_layouts()) | {str(layout.gpu): layout for layout in layouts}
        rows = encode([known[gpu] for gpu in sorted(known) if gpu not in forgotten])
        try:
            replace_file(self.path, pack_rows("layouts", _FORMAT, rows))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "cannot use the remembered MIG layouts",
            cause=f"{self.path}: {error}",
            hint=f"look at it, move it and its copy away, then apply the layout again: {self.path}",
        )


def _parse(text: str) -> Mapping[str, DesiredLayout]:
    layouts = [decode(DesiredLayout, row) for row in unpack_rows("layouts", _FORMAT, text)]
    return {str(layout.gpu): layout for layout in layouts}
