"""Which instance of MIG a share gets, a VM's by ``forward`` or a command's: pure.

An instance is shared whole: its one compute instance has all slices of its GPU instance, so that memory and time of
both are the same. One that has shares of the same policy already is taken before another one is taken or made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from vgpumgr.backends.mig_places import choose_slices, list_holders
from vgpumgr.errors import NoRoomError
from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.placement import IdleSlice, SlicePlacement, find_profile
from vgpumgr.mig.selection import find_mig_device, select_gpu
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, ShareRequest
from vgpumgr.model.shares import OF_INSTANCE
from vgpumgr.planning.drift import has_slice
from vgpumgr.planning.shares import (
    Candidate,
    InstancePlace,
    SharePlacement,
    choose_policy,
    find_stop,
    list_instance_shares,
    measure_memory_shares,
    place_shares,
    refuse_shares,
)
from vgpumgr.planning.snapshot import NumaPolicy, Snapshot


def choose_instance_shares(
    request: AttachRequest,
    wanted: ShareRequest,
    nodes: Collection[int],
    snapshot: Snapshot,
    refusal: str,
) -> tuple[SharePlacement, ...]:
    """Instances for all that is asked for: the one that --gpu names, or some of the profile that ``wanted`` names.
    Exact: if they fit, they are placed. Raises NoRoomError, and for instances that are to be made what
    ``choose_slices`` does; their first lines begin with ``refusal``.
    """
    policy = choose_policy(request, wanted)
    near = NumaPolicy.of(request.numa, nodes)
    if named := find_mig_device(snapshot.gpus, request.gpu or ""):
        device = IdleSlice(named[0].uuid, *named[1:])
        one = _observe_named(named[0], device, snapshot, wanted, policy, refusal)
        placed = place_shares(request, wanted, [one], near)
        if placed is None:
            raise refuse_shares(request, wanted, policy, [one], refusal)
        return placed
    assert wanted.instance is not None
    there = list(_list_shared(request, wanted.instance, near, snapshot, policy))
    # the fewest new instances that are enough; to spread, one for each share as far as there are so many
    counts = range(request.count + 1)
    failed: NoRoomError | None = None
    for count in reversed(counts) if request.spread else counts:
        try:
            new = _list_new(request, wanted.instance, count, nodes, snapshot, policy, refusal)
        except NoRoomError as error:
            failed = failed or error
            if request.spread:
                continue
            break
        if (placed := place_shares(request, wanted, [*there, *new], near)) is not None:
            return placed
        if any(not one.takes(one.size(wanted)) for one in new):
            # more of them would not do either
            raise refuse_shares(request, wanted, policy, [*there, *new], refusal)
    if not there:
        assert failed is not None
        raise failed
    refused = refuse_shares(request, wanted, policy, there, refusal)
    if failed is not None:
        refused.why = f"{refused.why}; for another {wanted.instance}: {failed.why or failed.error}"
        refused.held_by = tuple(dict.fromkeys((*refused.held_by, *failed.held_by)))
    raise refused


def _observe_named(
    gpu: Gpu,
    device: IdleSlice,
    snapshot: Snapshot,
    wanted: ShareRequest,
    policy: ComputePolicy,
    refusal: str,
) -> Candidate:
    """The MIG device that --gpu names. Raises NoRoomError where it cannot be shared, GpuDrainedError."""
    snapshot.check_not_drained(refusal, gpu.pci)
    instance, compute = device.instance, device.compute
    name, profile = instance.profile, find_profile(gpu, instance.profile)
    own = name_compute(name, compute.slices, instance.slices)
    found = _find_shared(gpu, device, snapshot, policy)
    held_by = [] if found is not None else list_holders(gpu, device, snapshot)
    why = None
    if wanted.instance not in (None, name):
        why = f"it is a {own}"
    elif profile is None or not device.suits(name):
        why = f"it is a {own}, a part of {name}: only a whole GPU instance is shared"
    elif held_by:
        why = "it is in use as a whole"
    if why is not None or profile is None:
        raise NoRoomError(
            f"{refusal}: it cannot have a share of {compute.uuid}",
            why=why,
            held_by=held_by,
            hint=f"vgpumgr mig list --gpu {gpu.index}; or another instance: "
            f"--profile {wanted.size}{OF_INSTANCE}PROFILE",
        )
    if found is not None:
        return found
    return _make_candidate(device.place(gpu, name, profile), snapshot, policy)


def _list_shared(
    request: AttachRequest,
    name: MigProfileName,
    near: NumaPolicy,
    snapshot: Snapshot,
    policy: ComputePolicy,
) -> Iterator[Candidate]:
    """The instances of that profile that have shares already."""
    gpus: Sequence[Gpu] = snapshot.gpus
    if request.gpu is not None:
        gpus = [select_gpu(gpus, request.gpu)]
    for gpu in gpus:
        if near.is_refused(gpu.numa_node):
            continue
        for instance in gpu.instances:
            for compute in instance.compute_instances:
                device = IdleSlice(gpu.uuid, instance, compute)
                if device.suits(name):
                    found = _find_shared(gpu, device, snapshot, policy)
                    yield from () if found is None else (found,)


def _find_shared(
    gpu: Gpu, device: IdleSlice, snapshot: Snapshot, policy: ComputePolicy
) -> Candidate | None:
    """The MIG device with the shares that it has; None: it has none."""
    placement = device.instance.placement
    records = list_instance_shares(snapshot.records, gpu.uuid, placement)
    mine = [r for r in records if has_slice(r, gpu)]
    profile = find_profile(gpu, device.instance.profile)
    if not mine or profile is None:
        return None
    seat = device.place(gpu, device.instance.profile, profile)
    return _make_candidate(seat, snapshot, policy, InstancePlace(seat, mine[0].is_taken, True))


def _list_new(
    request: AttachRequest,
    name: MigProfileName,
    count: int,
    nodes: Collection[int],
    snapshot: Snapshot,
    policy: ComputePolicy,
    refusal: str,
) -> list[Candidate]:
    """So many free instances, taken or made. Raises what ``choose_slices`` does."""
    if not count:
        return []
    seats = choose_slices(replace(request, count=count), nodes, snapshot, name, refusal)
    return [_make_candidate(seat, snapshot, policy) for seat in seats]


def _make_candidate(
    seat: SlicePlacement,
    snapshot: Snapshot,
    policy: ComputePolicy,
    place: InstancePlace | None = None,
) -> Candidate:
    choice = seat.choice
    memory, gpu = choice.profile.memory_bytes, choice.gpu
    use = measure_memory_shares(gpu, choice.placement, memory, snapshot.records)
    place = place or InstancePlace(seat, taken=seat.takes is not None)
    return Candidate.of(gpu, use, policy, find_stop(gpu, snapshot), place)
