"""Which instance of MIG a share gets, a VM's by ``forward`` or a command's: pure.

An instance is shared whole: its one compute instance has all slices of its GPU instance, so that memory and time of
both are the same. One that has shares of the same policy already is taken before another one is taken or made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from vgpumgr.backends.mig_places import choose_slices, list_holders
from vgpumgr.errors import GpuDrainedError, GpuStuckError, NoRoomError, VgpumgrError
from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.placement import IdleSlice, SlicePlacement, find_profile
from vgpumgr.mig.selection import find_mig_device, select_gpu
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, ShareRequest
from vgpumgr.model.shares import MAX_COMPUTE, OF_INSTANCE, Share
from vgpumgr.planning.drift import RESTORE, find_lost, has_slice
from vgpumgr.planning.shares import (
    Candidate,
    InstancePlace,
    SharePlacement,
    ShareUse,
    choose_policy,
    find_stop,
    list_instance_shares,
    measure_instance_shares,
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
    gpus = snapshot.gpus if request.gpu is None else [select_gpu(snapshot.gpus, request.gpu)]
    search = _Search(
        request, wanted, wanted.instance, nodes, snapshot, policy, refusal, tuple(gpus)
    )
    return search.place_near() or search.place()


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for instances of the profile ``name`` on some GPUs."""

    request: AttachRequest
    wanted: ShareRequest
    name: MigProfileName
    nodes: Collection[int]
    snapshot: Snapshot
    policy: ComputePolicy
    refusal: str
    gpus: tuple[Gpu, ...]

    @property
    def near(self) -> NumaPolicy:
        """What the VM's NUMA nodes mean."""
        return NumaPolicy.of(self.request.numa, self.nodes)

    def place_near(self) -> tuple[SharePlacement, ...] | None:
        """Everything, with as much as fits on GPUs that are near the VM and in MIG mode, as slices are placed; None:
        there is nothing of that to prefer, or it does not fit, or --spread wants instances before near ones.
        """
        near = self.near
        own = tuple(
            gpu
            for gpu in self.gpus
            if gpu.mig.current
            and not near.is_far(gpu.numa_node)
            and find_profile(gpu, self.name) is not None
            and find_stop(gpu, self.snapshot) is None
        )
        if self.request.spread and self.request.count > 1:
            return None
        if not near.nodes or not own or len(own) == len(self.gpus):
            return None
        mine = replace(self, gpus=own)
        # what they refuse is refused once more, and said, with all GPUs
        with suppress(VgpumgrError):
            placed, states, _ = mine._try()
            if placed is not None:
                return placed
            fits = sum(one.count(one.size(self.wanted)) for one in states)
            if not fits:
                return None
            placed = mine._with_count(fits)._try()[0]
            others = replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu not in own))
            more = others._with_count(self.request.count - fits).place()
            return None if placed is None else (*placed, *more)
        return None

    def _with_count(self, count: int) -> _Search:
        return replace(self, request=replace(self.request, count=count))

    def place(self) -> tuple[SharePlacement, ...]:
        """Everything on these GPUs. Raises NoRoomError and what ``choose_slices`` does."""
        try:
            placed, states, failed = self._try()
        except (GpuDrainedError, GpuStuckError) as error:
            if small := self._offer_small():
                error.hint = f"{error.hint}; or {self._refuse(small).hint}"
            raise
        if placed is not None:
            return placed
        small = [] if failed is None else self._offer_small()
        if not states and not small:
            assert failed is not None
            raise failed
        refused = self._refuse([*states, *small])
        if failed is not None:
            refused.held_by = tuple(dict.fromkeys((*refused.held_by, *failed.held_by)))
        if failed is not None and all(one.use.records for one in states):
            # none is free; else how many are is said already
            refused.why = f"{refused.why}; for another {self.name}: {failed.why or failed.error}"
        raise refused

    def _try(
        self,
    ) -> tuple[tuple[SharePlacement, ...] | None, list[Candidate], NoRoomError | None]:
        """Everything on these GPUs, or the instances on which most of it fits, and why there is no other one."""
        there = list(self._list_shared())
        # the fewest new instances that are enough; to spread, one for each share as far as there are so many
        counts = range(self.request.count + 1)
        states, failed = there, None
        for count in reversed(counts) if self.request.spread else counts:
            try:
                new = self._list_new(count)
            except NoRoomError as error:
                failed = failed or error
                if self.request.spread:
                    continue
                break
            states = [*there, *new]
            placed = place_shares(self.request, self.wanted, states, self.near)
            if placed is not None:
                return placed, states, None
            if self.request.spread or any(not one.takes(one.size(self.wanted)) for one in new):
                # neither fewer nor more of them would do
                break
        return None, states, failed

    def _list_shared(self) -> Iterator[Candidate]:
        """The instances of that profile that have shares already."""
        for gpu in self.gpus:
            if self.near.is_refused(gpu.numa_node):
                continue
            for instance in gpu.instances:
                for compute in instance.compute_instances:
                    device = IdleSlice(gpu.uuid, instance, compute)
                    if device.suits(self.name):
                        found = _find_shared(gpu, device, self.snapshot, self.policy)
                        yield from () if found is None else (found,)

    def _list_new(self, count: int) -> list[Candidate]:
        """So many free instances, taken or made; of a profile that has less memory on one kind of GPU than on another,
        such as hold the share. Raises what ``choose_slices`` does.
        """
        if not count:
            return []
        able = [gpu for gpu in self.gpus if self._can_hold(gpu)]
        if not able and (small := self._offer_small()):
            return small
        return self._make(count, able or self.gpus)

    def _offer_small(self) -> list[Candidate]:
        """An instance that is too small for the share, for a refusal to name the nearest share that fits: of the GPUs
        that take one the one where it has most memory. None: none takes one.
        """
        sizes = {
            gpu.uuid: profile.memory_bytes
            for gpu in self.gpus
            if (profile := find_profile(gpu, self.name)) is not None
            if not self._can_hold(gpu) and not self.near.is_refused(gpu.numa_node)
        }
        for size in sorted(set(sizes.values()), reverse=True):
            with suppress(VgpumgrError):
                return self._make(1, [gpu for gpu in self.gpus if sizes.get(gpu.uuid) == size])
        return []

    def _make(self, count: int, gpus: Sequence[Gpu]) -> list[Candidate]:
        """So many free instances on these. Raises what ``choose_slices`` does."""
        request = replace(self.request, count=count)
        seats = choose_slices(request, self.nodes, self.snapshot, self.name, self.refusal, gpus)
        return [_make_candidate(seat, self.snapshot, self.policy) for seat in seats]

    def _refuse(self, states: Sequence[Candidate]) -> NoRoomError:
        return refuse_shares(self.request, self.wanted, self.policy, states, self.refusal)

    def _can_hold(self, gpu: Gpu) -> bool:
        """Whether an empty instance of that GPU has enough for a share, and is not too far away."""
        profile = find_profile(gpu, self.name)
        if profile is None or self.near.is_refused(gpu.numa_node):
            return False
        whole = Share(profile.memory_bytes, MAX_COMPUTE)
        one = Candidate(gpu, ShareUse((), whole, whole, None), self.policy)
        return one.takes(one.size(self.wanted))


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
    hint = f"vgpumgr mig list --gpu {gpu.index}; or another instance: --profile {wanted.size}{OF_INSTANCE}PROFILE"
    why: str | None = None
    gone = measure_instance_shares(gpu, instance, snapshot.records) if found is None else None
    if gone is not None and gone.records:
        why, held_by, hint = "its shares are not restored yet", gone.holders, RESTORE
        first = gone.records[0]
        if first.mig_part is not None and first.mig_part.gpu_profile_id != instance.profile_id:
            drift = find_lost(first, gpu)
            why, hint = f"{first.holder}: {drift.text}", drift.hint or RESTORE
    elif wanted.instance not in (None, name):
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
            hint=hint,
        )
    if found is not None:
        return found
    return _make_candidate(device.place(gpu, name, profile), snapshot, policy)


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
    return _make_candidate(seat, snapshot, policy, InstancePlace(seat, mine[0].is_taken))


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
