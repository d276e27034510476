"""Places of slices that are gone, after a reboot or a reset, and that ``restore`` will bring back: pure.

Nobody else gets such a place. A new instance there could have the very UUID of the old one, and two VMs would
have one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.plan.vgpu_record import VgpuInstance

#: above every id that a driver gives: nobody owns or joins such an instance
_FIRST_ID = 1 << 20


def reserve(
    gpus: Sequence[Gpu],
    records: Sequence[AttachmentRecord],
    instances: Sequence[VgpuInstance] = (),
) -> tuple[Gpu, ...]:
    """The GPUs as if the slices that are gone were there: those of attachments, and those that were
    made for vGPUs (``instances``).
    """
    lost = [*_list_slices(records), *_list_made(gpus, [*instances, *_list_of_devices(records)])]
    return tuple(_with_lost(gpu, [one for one in lost if one.gpu == gpu.uuid]) for gpu in gpus)


def is_reserved(instance: GpuInstance) -> bool:
    """Whether it is not there, and its place is only kept."""
    return instance.id >= _FIRST_ID


@dataclass(frozen=True, slots=True)
class _Lost:
    """A slice as it was."""

    gpu: GpuUuid | None
    profile_id: int
    profile: MigProfileName
    placement: Placement


def _list_slices(records: Sequence[AttachmentRecord]) -> list[_Lost]:
    return [
        _Lost(
            record.gpu,
            record.mig_part.gpu_profile_id,
            MigProfileName.parse(record.profile).gpu_instance,
            record.mig_part.placement,
        )
        for record in records
        if record.mig_part is not None
    ]


def _list_of_devices(records: Sequence[AttachmentRecord]) -> list[VgpuInstance]:
    return [d.instance for r in records for d in r.host_devices if d.instance is not None]


def _list_made(gpus: Sequence[Gpu], instances: Sequence[VgpuInstance]) -> list[_Lost]:
    profiles = {(gpu.uuid, str(p.name)): p for gpu in gpus for p in gpu.profiles}
    return [
        _Lost(made.gpu, profile.id, profile.name, made.placement)
        for made in instances
        if (profile := profiles.get((made.gpu, made.profile))) is not None
    ]


def _with_lost(gpu: Gpu, slices: Sequence[_Lost]) -> Gpu:
    lost: dict[Placement, GpuInstance] = {}
    for one in slices:
        profile = next((p for p in gpu.profiles if p.id == one.profile_id), None)
        taken = (i.placement for i in (*gpu.instances, *lost.values()))
        if profile is None or any(place.overlaps(one.placement) for place in taken):
            continue
        lost[one.placement] = GpuInstance(
            id=_FIRST_ID + len(lost),
            profile_id=profile.id,
            profile=one.profile,
            placement=one.placement,
            slices=profile.slices,
            memory_bytes=profile.memory_bytes,
        )
    return replace(gpu, instances=(*gpu.instances, *lost.values())) if lost else gpu
