"""Which vGPUs are ours: one small file in the state directory, replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vgpumgr.errors import StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.plan.vgpu_record import VgpuRecord, stamp
from vgpumgr.store.files import DAMAGE, pack_rows, read_either, replace_file, unpack_rows

_FORMAT = 1


class VgpuFile:
    """See ``VgpuStore``."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        """All, in the order in which they were first written. Raises StoreError."""
        try:
            found = read_either(self.path, _parse) or ()
        except DAMAGE as error:
            raise self._unusable(error) from error
        known = map(_date_instance, found)
        return tuple(r if r.boot == self._boot_id else _forget_numbers(r) for r in known)

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Writes one with the present boot, in the place of the one with the same UUID."""
        known = {known.spec.uuid: known for known in self.list_vgpus()}
        known[record.spec.uuid] = stamp(record, self._boot_id)
        self._write(tuple(known.values()))

    def delete_vgpu(self, uuid: str) -> None:
        """Forgets one; absent is no error."""
        known = self.list_vgpus()
        left = tuple(record for record in known if record.spec.uuid != uuid)
        if left != known:
            self._write(left)

    def _write(self, records: tuple[VgpuRecord, ...]) -> None:
        try:
            replace_file(self.path, pack_rows("vgpus", _FORMAT, encode(records)))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "cannot use the record of vGPUs",
            cause=f"{self.path}: {error}",
            hint=f"look at it, move it and its copy away, then vgpumgr mdev adopt each vGPU: {self.path}",
        )


def _date_instance(record: VgpuRecord) -> VgpuRecord:
    """Earlier versions did not note it: it is from no later boot than the record."""
    if record.instance is None or record.instance_boot:
        return record
    return replace(record, instance_boot=record.boot)


def _forget_numbers(record: VgpuRecord) -> VgpuRecord:
    """What another boot called them; this one has given the numbers to somebody else."""
    return replace(record, iommu_group=None, gpu_instance_id=None)


def _parse(text: str) -> tuple[VgpuRecord, ...]:
    return tuple(decode(VgpuRecord, row) for row in unpack_rows("vgpus", _FORMAT, text))
