"""Places of slices that are gone, after a reboot or a reset, and that ``restore`` will bring back: pure.

Nobody else gets such a place. A new instance there could have the very UUID of the old one, and two VMs would
have one slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpumgr.errors import LayoutBusyError, VgpumgrError
from vgpumgr.mig.layout.change import LayoutPlan, StepKind
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigProfile, Placement
from vgpumgr.model.vgpu_record import VgpuInstance

#: what helps against places that are kept
GIVE_UP = "vgpumgr restore, then repeat; vgpumgr detach (for a vGPU: mdev delete) gives a place up"
#: above every id that a driver gives: nobody owns or joins such an instance
_FIRST_ID = 1 << 20


def reserve(
    gpus: Sequence[Gpu],
    records: Sequence[AttachmentRecord],
    instances: Sequence[VgpuInstance] = (),
    but: VgpuInstance | None = None,
) -> tuple[Gpu, ...]:
    """The GPUs as if the slices that are gone were there: those of attachments, and those that were
    made for vGPUs (``instances``). ``but``: the one that is brought back now.
    """
    return keep_places(gpus, list_lost(gpus, records, instances, but))


def is_reserved(instance: GpuInstance) -> bool:
    """Whether it is not there, and its place is only kept."""
    return instance.id >= _FIRST_ID


@dataclass(frozen=True, slots=True)
class LostSlice:
    """A slice as it was, and whose, in words; ``profile`` is the GPU instance's."""

    gpu: GpuUuid
    profile: MigProfile
    placement: Placement
    owner: str
    attachment: str | None = None

    def __str__(self) -> str:
        return f"{self.owner}: {self.profile.name} at {self.placement}"


def list_lost(
    gpus: Sequence[Gpu],
    records: Sequence[AttachmentRecord],
    instances: Sequence[VgpuInstance] = (),
    but: VgpuInstance | None = None,
    names: Mapping[VgpuInstance, str] | None = None,
) -> list[LostSlice]:
    """The slices that are gone, each place once. What a stranger's instance stands at is no longer
    kept: nobody can have it back. ``names``: vGPUs by the instances that were made for them.
    """
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    found: list[LostSlice] = []
    made = _list_made(by_uuid, records, instances, names or {})
    for one in (*_list_slices(by_uuid, records), *made):
        there = [i.placement for i in by_uuid[one.gpu].instances]
        there += [other.placement for other in found if other.gpu == one.gpu]
        own = but is not None and (but.gpu, but.placement) == (one.gpu, one.placement)
        if not own and not any(place.overlaps(one.placement) for place in there):
            found.append(one)
    return found


def keep_places(gpus: Sequence[Gpu], lost: Sequence[LostSlice]) -> tuple[Gpu, ...]:
    """The GPUs as if those slices were there."""
    return tuple(_with_lost(gpu, [one for one in lost if one.gpu == gpu.uuid]) for gpu in gpus)


def list_kept_pins(gpus: Sequence[Gpu], lost: Sequence[LostSlice]) -> list[Pinned]:
    """Who has the places that are kept; ``gpus`` are as ``keep_places`` gives them."""
    owners = {(one.gpu, one.placement): one.owner for one in lost}
    return [
        Pinned(gpu.uuid, instance.id, owners[gpu.uuid, instance.placement])
        for gpu in gpus
        for instance in gpu.instances
        if is_reserved(instance)
    ]


def explain_kept(error: VgpumgrError, lost: Sequence[LostSlice]) -> None:
    """Says of a refusal for want of room whom places are kept for: nobody sees anything there."""
    if not lost:
        return
    told = f"{error.why}; " if error.why else ""
    error.why = (
        f"{told}places are kept for slices that are gone since the boot and are to come back"
    )
    error.held_by = tuple(dict.fromkeys((*error.held_by, *map(str, lost))))
    error.hint = f"{error.hint}; {GIVE_UP}" if error.hint else GIVE_UP


def check_places(plan: LayoutPlan, gpus: Sequence[Gpu], lost: Sequence[LostSlice]) -> None:
    """That a change of layout takes no place that is kept. Raises LayoutBusyError."""
    names = {str(gpu.uuid): str(gpu) for gpu in gpus}
    for spec in plan.steps:
        if spec.kind not in (StepKind.GI_CREATE, StepKind.MODE_DISABLE):
            continue
        place = spec.placement
        kept = [
            one
            for one in lost
            if str(one.gpu) == spec.gpu_uuid and (place is None or one.placement.overlaps(place))
        ]
        if kept:
            what = "turn MIG off" if place is None else f"create {spec.profile} at {place}"
            raise LayoutBusyError(
                f"cannot {what} on {names[spec.gpu_uuid]}",
                why="the place is kept for slices that are gone since the boot and are to come back",
                held_by=[str(one) for one in kept],
                hint=GIVE_UP,
            )


def _list_slices(
    gpus: Mapping[GpuUuid, Gpu], records: Sequence[AttachmentRecord]
) -> Iterator[LostSlice]:
    for record in records:
        part, gpu = record.mig_part, gpus.get(record.gpu) if record.gpu else None
        if part is None or gpu is None:
            continue
        profile = next((p for p in gpu.profiles if p.id == part.gpu_profile_id), None)
        if profile is not None:
            yield LostSlice(gpu.uuid, profile, part.placement, _name(record), record.id)


def _list_made(
    gpus: Mapping[GpuUuid, Gpu],
    records: Sequence[AttachmentRecord],
    instances: Sequence[VgpuInstance],
    names: Mapping[VgpuInstance, str],
) -> Iterator[LostSlice]:
    given = [
        (device.instance, _name(record), record.id)
        for record in records
        for device in record.host_devices
        if device.instance is not None
    ]
    others = ((instance, names.get(instance, "a vGPU"), None) for instance in instances)
    for made, owner, attachment in (*given, *others):
        gpu = gpus.get(made.gpu)
        profiles = gpu.profiles if gpu else ()
        profile = next((p for p in profiles if str(p.name) == made.profile), None)
        if profile is not None:
            yield LostSlice(made.gpu, profile, made.placement, owner, attachment)


def _name(record: AttachmentRecord) -> str:
    return f'vm "{record.vm_name}", attachment {record.id}'


def _with_lost(gpu: Gpu, lost: Sequence[LostSlice]) -> Gpu:
    made = tuple(
        GpuInstance(
            id=_FIRST_ID + number,
            profile_id=one.profile.id,
            profile=one.profile.name,
            placement=one.placement,
            slices=one.profile.slices,
            memory_bytes=one.profile.memory_bytes,
        )
        for number, one in enumerate(lost)
    )
    return replace(gpu, instances=(*gpu.instances, *made)) if made else gpu
