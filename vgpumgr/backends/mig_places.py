"""Which place on which GPU a slice of MIG gets, a VM's by ``forward`` or a command's: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpumgr.errors import (
    GpuStuckError,
    NoRoomError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.placement import (
    Constraints,
    IdleSlice,
    SlicePlacement,
    choose_placements,
    find_profile,
)
from vgpumgr.mig.selection import find_mig_device, select_gpu
from vgpumgr.model.attachment import (
    AttachmentRecord,
)
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.drift import (
    has_slice,
)
from vgpumgr.planning.reservations import explain_kept, keep_places, list_lost
from vgpumgr.planning.snapshot import NumaPolicy, Snapshot


def choose_slices(
    request: AttachRequest,
    nodes: Collection[int],
    snapshot: Snapshot,
    name: MigProfileName,
    refusal: str,
    among: Sequence[Gpu] | None = None,
) -> tuple[SlicePlacement, ...]:
    """Places for all that is asked for, on GPUs that suit the NUMA ``nodes``; ``among``: those that may be chosen, if
    not all. Raises what ``choose_placements`` does, NoRoomError where no GPU is as near as --numa strict wants it,
    GpuDrainedError and GpuStuckError; their first lines begin with ``refusal``.
    """
    near = NumaPolicy.of(request.numa, nodes)
    if named := find_mig_device(snapshot.gpus, request.gpu or ""):
        device = IdleSlice(named[0].uuid, *named[1:])
        taken = _take_named(request, snapshot, name, device, refusal)
        return (_place_on(named[0], taken, request, near),)
    gpus = _list_candidates(request, snapshot.gpus if among is None else among, near, refusal)
    snapshot.check_not_drained(refusal, *(gpu.pci for gpu in gpus))
    drained = _list_drained(gpus, snapshot)
    gpus = [gpu for gpu in gpus if snapshot.find_drain(gpu.pci) is None]
    held = _list_stuck(gpus, snapshot)
    if gpus and len(held) == len(gpus):
        raise GpuStuckError(
            f"{refusal}: a call has not come back",
            why="one more would only wait for the same lock",
            held_by=held,
            hint="vgpumgr status",
        )
    gpus = [gpu for gpu in gpus if str(gpu.uuid) not in snapshot.stuck]
    owners = [owner for record in snapshot.records if (owner := record.owner)]
    # after a reboot the number that is recorded may be another program's instance
    joinable = {
        (gpu.uuid, r.gpu_instance_id)
        for gpu in gpus
        for r in snapshot.records
        if r.gpu == gpu.uuid
        and r.gpu_instance_id is not None
        and r.backend is BackendName.FORWARD
        and has_slice(r, gpu)
        and not r.is_taken
        and r.share_part is None
    }
    idle = [
        one for gpu in gpus for one in _list_idle(gpu, snapshot) if _is_of_layout(one, snapshot)
    ]
    # of a GPU that is named no other is preferred
    nodes = near.nodes if request.gpu is None else frozenset[int]()
    constraints = Constraints(request.spread, nodes)
    there = {gpu.uuid: gpu for gpu in gpus}
    lost = list_lost(gpus, snapshot.records, snapshot.instances)
    try:
        seats = choose_placements(
            keep_places(gpus, lost), name, request.count, owners, joinable, constraints, idle
        )
        return tuple(_place_on(there[s.choice.gpu.uuid], s, request, near) for s in seats)
    except VgpumgrError as error:
        error.error = f"{refusal}: {error.error}"
        error.held_by = (*error.held_by, *held)
        if drained:
            error.why = "; ".join(filter(None, [error.why, *drained]))
        if isinstance(error, NoRoomError):
            explain_kept(error, lost)
            _hint_at_idle(error, request, gpus, snapshot, name)
        raise


def _place_on(
    gpu: Gpu, seat: SlicePlacement, request: AttachRequest, near: NumaPolicy
) -> SlicePlacement:
    """The place on the GPU as it is, without the places that are kept. Where --gpu left no choice, it says how near
    that is; else the choice has said it.
    """
    where = "" if request.gpu is None else near.describe(gpu.numa_node, None)
    return replace(seat, choice=replace(seat.choice, gpu=gpu, why=f"{seat.choice.why}{where}"))


def _take_named(
    request: AttachRequest,
    snapshot: Snapshot,
    name: MigProfileName,
    device: IdleSlice,
    refusal: str,
) -> SlicePlacement:
    """The MIG device that --gpu names, also one of another program. Raises NoRoomError where it cannot be had."""
    gpu = next(gpu for gpu in snapshot.gpus if gpu.uuid == device.gpu)
    snapshot.check_not_drained(refusal, gpu.pci)
    profile, held_by = find_profile(gpu, name), list_holders(gpu, device, snapshot)
    own = name_compute(device.instance.profile, device.compute.slices, device.instance.slices)
    why = None
    if profile is None or not device.suits(name):
        why = f"it is a {own}"
    elif request.count > 1:
        why = f"it is one slice, and {request.count} are asked for"
    elif held_by:
        why = "it is in use"
    elif str(gpu.uuid) in snapshot.stuck:
        why = snapshot.stuck[str(gpu.uuid)]
    if why is None and profile is not None:
        return device.place(gpu, name, profile)
    raise NoRoomError(
        f"{refusal}: it cannot have {device.compute.uuid}",
        why=why,
        held_by=held_by,
        hint=f"--gpu {gpu.index}, for any place on that GPU; vgpumgr mig list",
    )


def list_holders(gpu: Gpu, device: IdleSlice, snapshot: Snapshot) -> list[str]:
    """Who has a MIG device: VMs with an attachment, vGPUs, processes."""
    instance, compute = device.instance, device.compute
    mine = [r for r in snapshot.records if _has(r, gpu, device)]
    found = [f"{r.holder} ({r.profile})" if r.share_part else r.holder for r in mine]
    found += [
        owner.holder
        for owner in snapshot.vgpu_owners
        if (owner.gpu, owner.gpu_instance_id) == (gpu.uuid, instance.id)
    ]
    found += [
        str(process)
        for process in gpu.processes
        if process.gpu_instance_id == instance.id
        and process.compute_instance_id in (None, compute.id)
        and not (process.is_holder and found)
    ]
    return list(dict.fromkeys(found))


def _has(record: AttachmentRecord, gpu: Gpu, device: IdleSlice) -> bool:
    """Whether an attachment, however far it is, has that MIG device, or made its GPU instance."""
    part = record.mig_part
    if part is None or (record.gpu, part.placement) != (gpu.uuid, device.instance.placement):
        return False
    if not part.taken or part.compute is None:
        return True
    if part.ref is not None:
        return part.ref.uuid == device.compute.uuid
    return device.compute.placement in (None, part.compute)


def _list_idle(gpu: Gpu, snapshot: Snapshot) -> list[IdleSlice]:
    """The MIG devices without a holder."""
    devices = [IdleSlice(gpu.uuid, i, c) for i in gpu.instances for c in i.compute_instances]
    return [one for one in devices if not list_holders(gpu, one, snapshot)]


def _is_of_layout(device: IdleSlice, snapshot: Snapshot) -> bool:
    """Whether its GPU instance was made by the layout that was applied to its GPU."""
    layout = snapshot.layouts.get(str(device.gpu))
    made = (str(device.instance.profile), device.instance.placement)
    return layout is not None and made in [(i.profile, i.placement) for i in layout.instances]


def _hint_at_idle(
    error: NoRoomError,
    request: AttachRequest,
    gpus: Sequence[Gpu],
    snapshot: Snapshot,
    name: MigProfileName,
) -> None:
    """Names the idle MIG devices of that profile that another program made."""
    idle = [one for gpu in gpus for one in _list_idle(gpu, snapshot) if one.suits(name)]
    others = [one for one in idle if not _is_of_layout(one, snapshot)]
    if others:
        error.hint = f"--gpu {others[0].compute.uuid} takes that {request.profile}, which is idle"


def _list_candidates(
    request: AttachRequest, gpus: Sequence[Gpu], near: NumaPolicy, refusal: str
) -> Sequence[Gpu]:
    if request.gpu is not None:
        gpus = [select_gpu(gpus, request.gpu)]
    left = [gpu for gpu in gpus if not near.is_refused(gpu.numa_node)]
    if left or not gpus:
        return left
    error = near.explain([f"{gpu} on {gpu.numa_node}" for gpu in gpus])
    error.error = f"{refusal}: {error.error}"
    raise error


def _list_stuck(gpus: Sequence[Gpu], snapshot: Snapshot) -> list[str]:
    return [
        f"{gpu}: {snapshot.stuck[str(gpu.uuid)]}" for gpu in gpus if str(gpu.uuid) in snapshot.stuck
    ]


def list_left_alone(gpus: Sequence[Gpu], snapshot: Snapshot) -> list[str]:
    """GPUs that are not asked: those that are drained or stuck, and why."""
    return [*_list_drained(gpus, snapshot), *_list_stuck(gpus, snapshot)]


def _list_drained(gpus: Sequence[Gpu], snapshot: Snapshot) -> list[str]:
    return [f"{gpu}: {drain}" for gpu in gpus if (drain := snapshot.find_drain(gpu.pci))]
