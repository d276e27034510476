"""What a channel is started on: an instance of MIG, or a share of one or of a whole GPU; a VM's or a command's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.backends.base import read_limits
from vgpumgr.backends.mig_places import choose_slices, list_left_alone
from vgpumgr.backends.mig_shares import choose_instance_shares
from vgpumgr.engine.step import Step
from vgpumgr.errors import UsageError
from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.placement import SlicePlacement, explain_refusal, find_profile
from vgpumgr.mig.selection import find_mig_device
from vgpumgr.model.attachment import ChannelPart, MigPart, SharePart, limit_memory
from vgpumgr.model.choices import ComputePolicy, Priority, Transport
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, MigRequest, ProfileRequest, ShareRequest
from vgpumgr.model.shares import name_share
from vgpumgr.planning.shares import InstancePlace, SharePlacement, choose_shares
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.mig import CreateComputeInstance, CreateGpuInstance, EnableMigMode
from vgpumgr.steps.record import TakeSlice

#: what ``--limit`` says of a share's memory is the share itself
_MEMORY = "device-memory="


class Slice(ABC):
    """A slice in its place, before it exists."""

    @property
    @abstractmethod
    def gpu(self) -> Gpu:
        """The GPU that it is on."""

    @property
    @abstractmethod
    def profile(self) -> str:
        """What it is called from now on."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """How much memory it has."""

    @property
    @abstractmethod
    def why(self) -> str:
        """Why it is there."""

    @property
    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """The fields of the record that only this kind of slice has."""

    @abstractmethod
    def list_steps(self) -> list[Step]:
        """The steps that make it."""

    def limit(self, limits: tuple[str, ...]) -> tuple[str, ...]:
        """The limits of its channel, of those that were asked for."""
        return limits

    def describe(self, transport: Transport) -> dict[str, Any]:
        """What a plan's result says of it and its channel."""
        return {"transport": str(transport), "gpu_index": self.gpu.index, "placement": None}


@dataclass(frozen=True, slots=True)
class MigSlice(Slice):
    """An instance of MIG."""

    name: MigProfileName
    seat: SlicePlacement

    @property
    def gpu(self) -> Gpu:
        """See ``Slice``."""
        return self.seat.choice.gpu

    @property
    def profile(self) -> str:
        """See ``Slice``."""
        return str(self.name)

    @property
    def memory_bytes(self) -> int:
        """See ``Slice``."""
        return self.seat.choice.profile.memory_bytes

    @property
    def why(self) -> str:
        """See ``Slice``."""
        return self.seat.choice.why

    @property
    def parts(self) -> dict[str, Any]:
        """See ``Slice``."""
        seat, choice = self.seat, self.seat.choice
        part = MigPart(
            gpu_profile_id=choice.profile.id,
            placement=choice.placement,
            compute=seat.compute,
            gpu_instance_id=seat.joins,
            mode_enabled=choice.needs_mig_mode,
            taken=seat.takes is not None,
        )
        return {"mig_part": part}

    def describe(self, transport: Transport) -> dict[str, Any]:
        """See ``Slice``."""
        place = self.seat.choice.placement
        return {
            "transport": str(transport),
            "gpu_index": self.gpu.index,
            "placement": {"start": place.start, "size": place.size},
        }

    def list_steps(self) -> list[Step]:
        """See ``Slice``."""
        seat, name = self.seat, self.name
        gpu, profile, place = seat.choice.gpu, seat.choice.profile, seat.choice.placement
        if seat.takes is not None:
            mig = str(seat.takes.compute.uuid)
            return [TakeSlice(gpu.uuid, mig, str(name), place, gpu_index=gpu.index)]
        slices = name.compute_slices or profile.slices
        parent, index = str(profile.name), gpu.index
        steps: list[Step] = []
        if seat.choice.needs_mig_mode:
            steps.append(EnableMigMode(gpu.uuid, gpu_index=index, by_record=True))
        if seat.creates:
            steps.append(CreateGpuInstance(gpu.uuid, parent, place, gpu_index=index))
        compute = name_compute(profile.name, slices, profile.slices)
        steps.append(
            CreateComputeInstance(gpu.uuid, compute, seat.compute, parent, place, gpu_index=index)
        )
        return steps


@dataclass(frozen=True, slots=True)
class ShareSlice(Slice):
    """A share of a whole GPU: nothing is created on the GPU, the channel keeps to it."""

    seat: SharePlacement

    @property
    def gpu(self) -> Gpu:
        """See ``Slice``."""
        return self.seat.gpu

    @property
    def profile(self) -> str:
        """See ``Slice``: of an equal part, what that is in bytes and percent."""
        return str(self.seat.share)

    @property
    def memory_bytes(self) -> int:
        """See ``Slice``."""
        return self.seat.share.memory

    @property
    def why(self) -> str:
        """See ``Slice``."""
        return self.seat.why

    @property
    def parts(self) -> dict[str, Any]:
        """See ``Slice``."""
        return {"share_part": _make_share_part(self.seat)}

    def limit(self, limits: tuple[str, ...]) -> tuple[str, ...]:
        """See ``Slice``."""
        return limit_memory(limits, self.seat.share.memory)

    def list_steps(self) -> list[Step]:
        """See ``Slice``."""
        return []


def _make_share_part(seat: SharePlacement) -> SharePart:
    return SharePart(seat.share, seat.policy, priority=seat.priority)


@dataclass(frozen=True, slots=True)
class InstanceShareSlice(ShareSlice):
    """A share of an instance of MIG, which the first of its shares takes or makes."""

    place: InstancePlace

    @property
    def mig(self) -> MigSlice:
        """The instance."""
        return MigSlice(self.place.seat.choice.profile.name, self.place.seat)

    @property
    def profile(self) -> str:
        """See ``Slice``."""
        return name_share(self.seat.share, self.mig.profile)

    @property
    def parts(self) -> dict[str, Any]:
        """See ``Slice``: of an instance that has shares already detach leaves what it would have left before."""
        (part,) = self.mig.parts.values()
        part = replace(part, taken=self.place.taken)
        if not self.seat.is_first:
            part = replace(part, mode_enabled=False)
        return {"mig_part": part, "share_part": _make_share_part(self.seat)}

    def list_steps(self) -> list[Step]:
        """See ``Slice``."""
        if self.seat.is_first:
            return self.mig.list_steps()
        takes, choice = self.place.seat.takes, self.place.seat.choice
        uuid = str(takes.compute.uuid) if takes else None
        gpu, name = choice.gpu, self.mig.profile
        return [TakeSlice(gpu.uuid, uuid, name, choice.placement, gpu_index=gpu.index, shared=True)]

    def describe(self, transport: Transport) -> dict[str, Any]:
        """See ``Slice``."""
        return self.mig.describe(transport)


def check_slice(request: AttachRequest, profile: ProfileRequest) -> None:
    """Raises UsageError for options that contradict the profile; needs nothing observed."""
    if not isinstance(profile, ShareRequest):
        check_no_policy(request)
        return
    policies = tuple(ComputePolicy)
    if request.compute_policy is not None and request.compute_policy not in policies:
        raise UsageError(
            f"no compute policy {request.compute_policy!r}", why=f"there are: {', '.join(policies)}"
        )
    if request.priority is not None and request.priority not in tuple(Priority):
        raise UsageError(
            f"no priority {request.priority!r}", why=f"there are: {', '.join(Priority)}"
        )
    if profile.is_memory_only and request.compute_policy != ComputePolicy.BEST_EFFORT:
        raise UsageError(
            f"{profile} says no percentage of the GPU's time",
            why="only shares of the policy best-effort, which reserves no time, can leave it out",
            hint=f"--profile {profile},30%; or --compute-policy {ComputePolicy.BEST_EFFORT}",
        )
    if any(word.startswith(_MEMORY) for word in request.limits):
        raise UsageError(
            "a share says by itself how much memory it has: --limit device-memory contradicts it",
            hint=f"--profile {profile} without --limit device-memory",
        )


def check_no_policy(request: AttachRequest) -> None:
    """Raises UsageError where a compute policy or a priority is given with what is no share."""
    if request.priority is not None:
        raise UsageError(
            "--priority is for shares", hint="--profile share:8GiB,30% --priority high"
        )
    if request.compute_policy is not None:
        raise UsageError(
            "--compute-policy is for shares", hint="--profile share:8GiB,30% --compute-policy fixed"
        )


def check_exists(profile: ProfileRequest, snapshot: Snapshot) -> None:
    """Raises ProfileNotFoundError, MigNotSupportedError where no GPU has such a profile at all."""
    name = profile.name if isinstance(profile, MigRequest) else None
    if isinstance(profile, ShareRequest):
        name = profile.instance
    if name is not None:
        gpus, name = snapshot.require_gpus(), name.gpu_instance
        if not any(find_profile(gpu, name) for gpu in gpus):
            raise explain_refusal(gpus, name)


def choose(
    request: AttachRequest,
    profile: ProfileRequest,
    nodes: Collection[int],
    snapshot: Snapshot,
    refusal: str,
) -> Sequence[Slice]:
    """A slice for each that is asked for. Raises NvmlMissingError and what ``choose_slices``, ``choose_shares`` and
    ``choose_instance_shares`` do.
    """
    gpus = snapshot.require_gpus()
    if isinstance(profile, ShareRequest) and (
        profile.instance is not None or find_mig_device(gpus, request.gpu or "")
    ):
        found = choose_instance_shares(request, profile, nodes, snapshot, refusal)
        return [InstanceShareSlice(one, one.instance) for one in found if one.instance]
    if isinstance(profile, ShareRequest):
        seats = choose_shares(request, profile, nodes, snapshot, refusal)
        return [ShareSlice(seat) for seat in seats]
    assert isinstance(profile, MigRequest)
    places = choose_slices(request, nodes, snapshot, profile.name, refusal)
    return [MigSlice(profile.name, place) for place in places]


def list_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """The GPUs that were not asked, and why."""
    alone = list_left_alone(snapshot.require_gpus(), snapshot)
    return tuple(f"left alone: {text}" for text in alone)


def make_channel_part(
    request: AttachRequest, chosen: Slice, qemu_owner: tuple[int, int] | None = None
) -> ChannelPart:
    """What a record keeps of the channel that is asked for."""
    limits = read_limits(chosen.limit(request.limits)).changed
    return ChannelPart(request.transport, qemu_owner, limits, request.allow_unconfined)
