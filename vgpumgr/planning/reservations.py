"""Places that are kept for what is to come back: pure.

Slices that are gone, after a reboot or a reset, and that ``restore`` brings back: a new instance in such a place could
have the very UUID of the old one, and two VMs would have one slice. So nothing else gets it.

vGPUs that are defined and not there: the kernel calls their virtual functions free, but another vGPU on one keeps the
defined vGPU from starting. For functions, which hold one vGPU each, a definition is a reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpumgr.errors import LayoutBusyError, VgpumgrError
from vgpumgr.mig.layout.change import LayoutPlan, StepKind
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigProfile, Placement
from vgpumgr.model.pci import VfSetting
from vgpumgr.model.vgpu import VgpuDefinition, VgpuHost, VgpuInstance, VgpuParent, VgpuRecord

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
    return f"{record.holder}, attachment {record.id}"


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


@dataclass(frozen=True, slots=True)
class Reservation:
    """One definition without its vGPU. ``auto``: it starts at boot. ``ours``: not mdevctl's alone."""

    parent: str
    uuid: str
    type_name: str
    auto: bool
    ours: bool = True

    def __str__(self) -> str:
        when = "at boot" if self.auto else "when asked for"
        return f"vGPU {self.type_name} {self.uuid}, started {when}"


def list_reservations(
    records: Iterable[VgpuRecord],
    definitions: Iterable[VgpuDefinition],
    host: VgpuHost,
    without: str | None = None,
) -> list[Reservation]:
    """Of ours those that are not there; of others' definitions all. ``without``: not that UUID's."""
    known = {record.spec.uuid: record for record in records}
    found = [
        Reservation(record.spec.parent, uuid, record.spec.type_name, record.auto)
        for uuid, record in known.items()
        if record.defined and not record.takes_room
    ]
    found += [
        Reservation(d.parent, d.uuid, _find_name(d, host), d.auto, ours=False)
        for d in definitions
        if d.uuid not in known
    ]
    return [reservation for reservation in found if reservation.uuid != without]


def _find_name(definition: VgpuDefinition, host: VgpuHost) -> str:
    parent = host.find_parent(definition.parent)
    board = host.find_board(parent.board) if parent else None
    type_ = board.find_type(definition.type_id) if board else None
    return type_.name if type_ else definition.type_id


def list_reserved_on(reservations: Iterable[Reservation], parent: VgpuParent) -> list[Reservation]:
    """Those on one parent; none on one that holds many vGPUs."""
    if not parent.is_virtual_function:
        return []
    return [reservation for reservation in reservations if reservation.parent == parent.name]


def keep_unreserved(
    reservations: Sequence[Reservation], parents: Sequence[VgpuParent], *, define: bool
) -> tuple[list[VgpuParent], list[Reservation]]:
    """The parents for something new, those without definitions first; and what keeps the others.

    One that starts at boot keeps its function; another only from what is to be defined (``define``).
    """
    free, shared, kept = [], [], []
    for parent in parents:
        there = list_reserved_on(reservations, parent)
        if not there:
            free.append(parent)
        elif define or any(reservation.auto for reservation in there):
            kept += there
        else:
            shared.append(parent)
    return [*free, *shared], kept


def describe_kept(kept: Sequence[Reservation]) -> str:
    """Why the functions that are left are not used."""
    names = "; ".join(f"{reservation.parent} for {reservation}" for reservation in kept[:4])
    more = f" and {len(kept) - 4} more" if len(kept) > 4 else ""
    return (
        f"its free virtual functions are kept: {names}{more}; --gpu FUNCTION takes one all the same"
    )


def describe_shared(reservations: Sequence[Reservation], parent: VgpuParent) -> tuple[str, ...]:
    """The note on one that is used nevertheless."""
    return tuple(
        f"{parent.name} is also where {reservation} is defined: only one of them can be there at a time"
        for reservation in list_reserved_on(reservations, parent)
    )


def describe_fleeting(
    settings: Iterable[VfSetting], parent: VgpuParent, gpu: Gpu | None
) -> tuple[str, ...]:
    """The note on what is to come back on a function that itself does not, as far as is recorded."""
    if not parent.is_virtual_function:
        return ()
    if any(setting.physical == parent.physical and setting.persist for setting in settings):
        return ()
    name = parent.board if gpu is None else gpu.index
    command = f"vgpumgr vf enable {name} --persist"
    return (f"after a boot {parent.name} is there only if something enables it: {command}",)
