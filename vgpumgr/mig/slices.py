"""The slices of attachments among a GPU's instances: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, list_sharers
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfileName
from vgpumgr.model.slice import MigInstanceRef


def list_records(records: Sequence[AttachmentRecord]) -> list[AttachmentRecord]:
    """Attachments that have a slice; those half attached or half detached are for ``recover``."""
    return [r for r in records if r.state is AttachmentState.ATTACHED and r.mig is not None]


def size_of(record: AttachmentRecord, slices: int) -> int:
    """How many slices its compute instance has in a GPU instance of ``slices``."""
    return MigProfileName.parse(record.profile).compute_slices or slices


def list_own_compute(
    instance: GpuInstance | None, record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> list[ComputeInstance]:
    """The compute instances of an attachment in its GPU instance: its own, and where it is alone,
    all.
    """
    part = record.mig_part
    if instance is None or part is None:
        return []
    sharers = list_sharers(record, records)
    if part.compute is None and not sharers:
        return list(instance.compute_instances)
    if part.ref is not None:
        return [c for c in instance.compute_instances if c.uuid == part.ref.uuid]
    # interrupted before its UUID was known: the one at its place that is nobody else's
    others = {other.mig.uuid for other in sharers if other.mig}
    return [
        c
        for c in instance.compute_instances
        if c.uuid not in others and c.placement in (None, part.compute)
    ]


def find_recorded_instance(
    instances: Sequence[GpuInstance], record: AttachmentRecord
) -> GpuInstance | None:
    """The GPU instance of an attachment among its GPU's; None if it is gone, or replaced by another
    one at its place.
    """
    part = record.mig_part
    if part is None:
        return None
    for instance in instances:
        if instance.placement != part.placement:
            continue
        if instance.profile_id != part.gpu_profile_id:
            return None
        if part.ref is None:
            # interrupted before its ids were known, or before they all were
            return instance if part.gpu_instance_id in (None, instance.id) else None
        uuids = {compute.uuid for compute in instance.compute_instances}
        same = instance.id == part.ref.gpu_instance_id
        return instance if same and (not uuids or part.ref.uuid in uuids) else None
    return None


def rebind(
    instances: Mapping[GpuUuid, Sequence[GpuInstance]], records: Sequence[AttachmentRecord]
) -> dict[str, MigInstanceRef | None]:
    """For each attachment, its slice as it is now: the one with its UUID, else one of its size at
    its place that is no other attachment's. None where there is none.
    """
    found: dict[str, MigInstanceRef | None] = {}
    taken: set[str] = set()
    mine = list_records(records)
    for strict in (True, False):
        for record in mine:
            if found.get(record.id) is None and record.gpu is not None:
                found[record.id] = _bind(instances.get(record.gpu, ()), record, taken, strict)
    return found


def _bind(
    instances: Sequence[GpuInstance], record: AttachmentRecord, taken: set[str], strict: bool
) -> MigInstanceRef | None:
    part = record.mig_part
    for instance in instances:
        if part is None or instance.placement != part.placement:
            continue
        if instance.profile_id != part.gpu_profile_id:
            continue
        for compute in instance.compute_instances:
            if compute.uuid is None or compute.uuid in taken:
                continue
            if _suits(record, instance, compute, strict):
                taken.add(compute.uuid)
                return MigInstanceRef(instance.id, compute.id, instance.placement, compute.uuid)
    return None


def _suits(
    record: AttachmentRecord, instance: GpuInstance, compute: ComputeInstance, strict: bool
) -> bool:
    if strict:
        return record.mig is not None and compute.uuid == record.mig.uuid
    return compute.slices == size_of(record, instance.slices)
