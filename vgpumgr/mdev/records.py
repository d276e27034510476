"""Records of vGPUs as mdevctl's definitions have them.

Whether a mediated device of ours comes back, and as what, is what its definition says: mdevctl may have changed it.
Virtual functions have no such definition, and what an attachment has made comes back with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.model.vgpu import VgpuDefinition, VgpuRecord, VgpuState, VgpuStore

if TYPE_CHECKING:
    from vgpumgr.mdev.control import VgpuControl


def read_records(store: VgpuStore, vgpus: VgpuControl) -> Sequence[VgpuRecord]:
    """The records, each as its definition says; one that mdevctl has undefined and that is not there is left out.
    Raises StoreError.
    """
    followed = (now for _, now in follow_definitions(store.list_vgpus(), vgpus))
    return [record for record in followed if record is not None]


def follow_definitions(
    records: Sequence[VgpuRecord], vgpus: VgpuControl
) -> list[tuple[VgpuRecord, VgpuRecord | None]]:
    """Each record, and what its definition makes of it; None: nothing is left of it. A definition that cannot be read
    changes nothing.
    """
    if not any(record.follows_mdevctl for record in records):
        return [(record, record) for record in records]
    written = {d.uuid: d for d in vgpus.list_definitions()}
    found: list[tuple[VgpuRecord, VgpuRecord | None]] = []
    for record in records:
        now, definition = record, written.get(record.spec.uuid)
        if record.follows_mdevctl and (definition or not _is_unreadable(record, vgpus)):
            now = _follow(record, definition)
        gone = now != record and now.state is VgpuState.INACTIVE and not now.defined
        found.append((record, None if gone else now))
    return found


def _is_unreadable(record: VgpuRecord, vgpus: VgpuControl) -> bool:
    return record.defined and vgpus.has_definition(record.spec.parent, record.spec.uuid)


def _follow(record: VgpuRecord, written: VgpuDefinition | None) -> VgpuRecord:
    """One that is there keeps parent and type; the definition's count when it is created again."""
    if written is None:
        return replace(record, defined=False, auto=False)
    spec = replace(record.spec, attributes=written.attributes)
    if not record.takes_room:
        same = written.type_id == spec.type_id
        name = spec.type_name if same else written.type_id
        spec = replace(spec, parent=written.parent, type_id=written.type_id, type_name=name)
    return replace(record, spec=spec, defined=True, auto=written.auto)
