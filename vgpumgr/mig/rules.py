"""When a GPU instance fits: the rules, as a pure function of what NVML reports.

Five rules, in the words of NVIDIA's MIG user guide ("Supported MIG Profiles", "Placement of GPU
Instances"): instances do not overlap on the memory axis; their compute slices do not exceed the
GPU's; no profile has more instances than its maximum; an instance with all media engines (+me.all)
lives only beside instances without any (-me; nvml.h at NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME);
all instances together have no more media engines than the board (an A30 has one NVJPG, so 1g.6gb+me
excludes 2g.12gb+me).
Where NVML states a remaining capacity, zero is believed as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfile, Placement, Variant

# Fields of MigProfile that count media engines, and what NVIDIA calls these.
ENGINES = {"decoders": "NVDEC", "encoders": "NVENC", "jpegs": "NVJPG", "ofas": "OFA"}


def find_engine_totals(profiles: Sequence[MigProfile]) -> dict[str, int]:
    """Kinds of media engines that limit layouts, with how many the board has.

    NVML states no total, but the profile of the whole board has them all. A kind of which one
    profile's full number of instances would have more than that is shared, and limits nothing.
    """
    totals = {e: max((int(getattr(p, e)) for p in profiles), default=0) for e in ENGINES}
    return {
        engine: total
        for engine, total in totals.items()
        if total and all(p.max_instances * getattr(p, engine) <= total for p in profiles)
    }


@dataclass(frozen=True, slots=True)
class Occupant:
    """An instance as far as the rules care; ``id`` is the GPU instance's, or None for a planned
    one.
    """

    id: int | None
    profile: MigProfile
    placement: Placement

    def __str__(self) -> str:
        name = f"instance {self.id}" if self.id is not None else "a planned instance"
        return f"{name} ({self.profile.name} at {self.placement})"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What is on one GPU and how much the GPU has; placing returns a new value."""

    compute_slices: int
    profiles: tuple[MigProfile, ...]
    occupants: tuple[Occupant, ...] = ()
    #: the media engines that limit layouts: found once, however many instances are tried
    engines: Mapping[str, int] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, gpu: Gpu) -> Occupancy:
        """The GPU's observed instances. An instance of a profile that NVML does not list keeps its
        place.
        """
        by_id = {profile.id: profile for profile in gpu.profiles}
        occupants = []
        for instance in gpu.instances:
            profile = by_id.get(instance.profile_id) or MigProfile(
                name=instance.profile,
                enum=-1,
                id=instance.profile_id,
                slices=instance.slices,
                memory_bytes=instance.memory_bytes,
                max_instances=1,
                sm_count=0,
                placements=(instance.placement,),
            )
            occupants.append(Occupant(instance.id, profile, instance.placement))
        engines = find_engine_totals(gpu.profiles)
        return cls(gpu.compute_slices, gpu.profiles, tuple(occupants), engines)

    @property
    def free_compute_slices(self) -> int:
        """Compute slices that no instance has."""
        return self.compute_slices - sum(o.profile.slices for o in self.occupants)

    def with_instance(self, profile: MigProfile, placement: Placement) -> Occupancy:
        """The same GPU with one planned instance more."""
        added = Occupant(None, profile, placement)
        return replace(self, occupants=(*self.occupants, added))

    def without(self, occupants: Iterable[Occupant]) -> Occupancy:
        """The same GPU with these instances gone."""
        gone = tuple(occupants)
        kept = tuple(o for o in self.occupants if o not in gone)
        return replace(self, occupants=kept)

    def fits(self, profile: MigProfile, placement: Placement) -> bool:
        """Whether all rules allow one more instance of ``profile`` there."""
        return (
            placement in profile.placements
            and not any(placement.overlaps(o.placement) for o in self.occupants)
            and self._budgets_allow(profile)
        )

    def list_fits(self, profile: MigProfile) -> tuple[Placement, ...]:
        """Every placement where one more instance of ``profile`` fits."""
        return tuple(p for p in profile.placements if self.fits(profile, p))

    def missing_budgets(self, profile: MigProfile) -> tuple[str, ...]:
        """Which rules other than geometry forbid one more of ``profile``, in words."""
        reasons = []
        free = self.free_compute_slices
        if profile.slices > free:
            reasons.append(f"it needs {profile.slices} compute slices, {free} free")
        count = self._count(profile)
        if count >= profile.max_instances:
            plural = "s" if profile.max_instances > 1 else ""
            reasons.append(f"the GPU allows {profile.max_instances} instance{plural} of it")
        if clash := self._media_clash(profile):
            reasons.append(f"{clash} has or needs media engines")
        else:
            reasons += [f"too few {ENGINES[e]} engines are left" for e in self._lacking(profile)]
        return tuple(reasons)

    def _budgets_allow(self, profile: MigProfile) -> bool:
        return (
            profile.slices <= self.free_compute_slices
            and self._count(profile) < profile.max_instances
            and self._media_clash(profile) is None
            and not self._lacking(profile)
        )

    def _lacking(self, profile: MigProfile) -> list[str]:
        """Kinds of media engines of which too few are left."""
        present = [profile, *(o.profile for o in self.occupants)]
        totals = find_engine_totals(self.profiles) if self.engines is None else self.engines
        return [
            engine
            for engine, total in totals.items()
            if sum(getattr(p, engine) for p in present) > total
        ]

    def _count(self, profile: MigProfile) -> int:
        return sum(o.profile.id == profile.id for o in self.occupants)

    def _media_clash(self, profile: MigProfile) -> Occupant | None:
        """The instance that cannot live beside ``profile`` because one of both takes all media
        engines.
        """
        variant = profile.name.variant
        if variant is Variant.NO_MEDIA:
            return None
        for occupant in self.occupants:
            other = occupant.profile.name.variant
            both = (variant, other)
            if Variant.ALL_MEDIA in both and other is not Variant.NO_MEDIA:
                return occupant
        return None


def count_packable(occupancy: Occupancy, profile: MigProfile) -> int:
    """How many more of one profile the GPU takes, if nothing else comes. Exact.

    Placements of one profile are intervals, for which taking the one that ends first is optimal;
    slices and the maximum cap the result.
    """
    count = 0
    while fits := occupancy.list_fits(profile):
        first = min(fits, key=lambda placement: (placement.end, placement.start))
        occupancy = occupancy.with_instance(profile, first)
        count += 1
    return count


def measure_room(occupancy: Occupancy) -> int:
    """The room left, in compute slices: what each profile could still get alone, added up.

    A number to compare two states of one GPU with. It falls when a placement blocks big profiles,
    and that is what least fragmentation means here.
    """
    return sum(count_packable(occupancy, p) * p.slices for p in occupancy.profiles)
