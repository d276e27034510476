"""What differs between the vGPUs that are recorded and those that are: pure.

Those of attachments are not here: they are the attachments' own differences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from vgpumgr.model.vgpu_record import VgpuRecord, VgpuState
from vgpumgr.planning.drift import Drift, DriftKind

RESTORE = "vgpumgr restore"


def find_vgpu_drift(
    records: Sequence[VgpuRecord],
    boot_id: str,
    present: Collection[str],
    holders: Mapping[str, Sequence[str]],
    busy: Collection[str] = (),
    first: Mapping[str, str] | None = None,
) -> Iterator[Drift]:
    """Every difference. ``present``: UUIDs of records whose vGPU is there; ``holders``: who has one
    open that is not, by UUID; ``busy``: those that an unfinished operation accounts for; ``first``:
    the command without which nothing can bring one back, by UUID.
    """
    for record in records:
        uuid = record.spec.uuid
        if record.attachment is not None or uuid in busy or uuid in present:
            continue
        if record.boot != boot_id or record.lost:
            yield from _find_since_boot(record, (first or {}).get(uuid))
        elif record.state is VgpuState.ACTIVE:
            yield _tell_gone(record, holders.get(uuid, ()))


def _find_since_boot(record: VgpuRecord, first: str | None) -> Iterator[Drift]:
    """Only what is to start by itself is missing; anything else ended with the boot it was made in."""
    if record.defined and record.auto:
        text = f"vGPU {record.spec.type_name} on {record.spec.parent} was not created again after the boot"
        if first is not None:
            text += f", which took the function: once it is there again, {RESTORE} brings it back"
        yield Drift(DriftKind.NOT_RESTORED, record.spec.uuid, text, hint=first or RESTORE)


def _tell_gone(record: VgpuRecord, held_by: Sequence[str]) -> Drift:
    uuid, what = record.spec.uuid, f"vGPU {record.spec.type_name} on {record.spec.parent}"
    if held_by:
        text = (
            f"{what} was removed by somebody else while {', '.join(held_by)} has it open: "
            "its room is taken until he lets go"
        )
        hint = f"end who holds it, then: vgpumgr mdev start {uuid}, or mdev delete {uuid}"
        return Drift(DriftKind.VGPU_HELD, uuid, text, hint=hint)
    text = f"{what} was removed by somebody else"
    hint = f"vgpumgr mdev start {uuid}, or mdev delete {uuid}"
    return Drift(DriftKind.VGPU_GONE, uuid, text, hint=hint)
