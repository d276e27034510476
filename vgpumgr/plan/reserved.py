"""Places of slices that are gone, after a reboot or a reset, and that ``restore`` will bring back: pure.

Nobody else gets such a place. A new instance there could have the very UUID of the old one, and two VMs would
have one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement
from vgpumgr.plan.record import AttachmentRecord

#: above every id that a driver gives: nobody owns or joins such an instance
_FIRST_ID = 1 << 20


def reserve(gpus: Sequence[Gpu], records: Sequence[AttachmentRecord]) -> tuple[Gpu, ...]:
    """The GPUs as if the recorded slices that are gone were there."""
    return tuple(_with_lost(gpu, records) for gpu in gpus)


def _with_lost(gpu: Gpu, records: Sequence[AttachmentRecord]) -> Gpu:
    lost: dict[Placement, GpuInstance] = {}
    for record in records:
        part = record.mig_part
        if part is None or record.gpu != gpu.uuid or part.placement in lost:
            continue
        profile = next((p for p in gpu.profiles if p.id == part.gpu_profile_id), None)
        taken = (i.placement for i in (*gpu.instances, *lost.values()))
        if profile is None or any(place.overlaps(part.placement) for place in taken):
            continue
        lost[part.placement] = GpuInstance(
            id=_FIRST_ID + len(lost),
            profile_id=profile.id,
            profile=MigProfileName.parse(record.profile).gpu_instance,
            placement=part.placement,
            slices=profile.slices,
            memory_bytes=profile.memory_bytes,
        )
    return replace(gpu, instances=(*gpu.instances, *lost.values())) if lost else gpu
