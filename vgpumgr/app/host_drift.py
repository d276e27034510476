"""What differs on the host beside attachments: functions, virtual functions, vGPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgpumgr.app.operations.pci_restore import find_drift_of_pci
from vgpumgr.app.parts import Parts
from vgpumgr.app.vf_hints import find_enabling
from vgpumgr.errors import StoreError
from vgpumgr.model.vgpu_record import VgpuRecord, VgpuState
from vgpumgr.planning.drift import Drift, DriftKind
from vgpumgr.planning.vgpu_drift import find_vgpu_drift
from vgpumgr.planning.vgpus import OPERATIONS
from vgpumgr.steps.vgpu import list_holders


def find_host_drift(parts: Parts) -> list[Drift]:
    """Every difference; a host where nothing was ever taken or created is not looked at. Raises
    StoreError, and what looking raises.
    """
    return [*find_drift_of_pci(parts), *find_drift_of_vgpus(parts)]


def find_store_drift(parts: Parts) -> list[Drift]:
    """Damage to the state file, its copy, and each kind of record."""
    return [
        Drift(DriftKind(damage.kind), damage.subject, damage.text, hint=damage.hint)
        for damage in parts.store.list_damage()
    ]


def compare_despite(
    damage: Sequence[Drift], compare: Callable[[], Sequence[Drift]]
) -> Sequence[Drift]:
    """The differences; none where what is damaged, and reported as that, cannot be read."""
    try:
        return compare()
    except StoreError:
        if not damage:
            raise
        return ()


def find_drift_of_vgpus(parts: Parts) -> Sequence[Drift]:
    """What differs of vGPUs that no attachment has."""
    records = [r for r in parts.vgpu_store.list_vgpus() if r.attachment is None]
    looked_at = [r for r in records if _is_expected(parts, r)]
    if not looked_at:
        return ()
    present = {r.spec.uuid for r in looked_at if parts.vgpus.find_device(r.spec) is not None}
    gone = [r for r in looked_at if r.spec.uuid not in present]
    holders = {r.spec.uuid: list_holders(parts.vgpus, r) for r in gone if r.boot == parts.boot_id}
    # those of an earlier boot: what brings back the function that they were on
    first = {
        r.spec.uuid: command
        for r in gone
        if r.spec.uuid not in holders and (command := find_enabling(parts, r.spec.parent))
    }
    return tuple(find_vgpu_drift(gone, parts.boot_id, present, holders, _list_busy(parts), first))


def _is_expected(parts: Parts, record: VgpuRecord) -> bool:
    if record.boot != parts.boot_id or record.lost:
        return record.auto
    return record.state is VgpuState.ACTIVE


def _list_busy(parts: Parts) -> set[str]:
    """What unfinished operations are about."""
    plans = (events[0].data for events in parts.open_journal().look().unfinished.values())
    return {
        str(plan.get("result", {}).get("vgpu"))
        for plan in plans
        if plan.get("operation") in OPERATIONS
    }
