"""What a GPU is to look like, and what on it may not be touched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from vgpumgr.model.mig import MigProfileName, Placement

parse_name = lru_cache(maxsize=1024)(MigProfileName.parse)
"""``MigProfileName.parse``, remembered: layouts repeat a handful of names."""

SliceKey = tuple[str, int]
"""A GPU instance: the GPU's UUID and the instance's id."""


@dataclass(frozen=True, slots=True)
class TargetInstance:
    """One GPU instance that is wanted.

    ``profile`` is the canonical name of a GPU-instance profile (``3g.40gb``, ``1g.10gb+me``).
    ``compute`` names its compute instances (``("1c.3g.40gb", "2c.3g.40gb")``); None means one of
    full size, ``()`` means none. ``placement`` None leaves the choice to the planner.
    """

    profile: str
    compute: tuple[str, ...] | None = None
    placement: Placement | None = None

    @property
    def compute_slices(self) -> tuple[int, ...]:
        """Slices of each compute instance, largest first. Raises ValueError for a name that is no
        compute instance of this profile.
        """
        name = parse_name(self.profile)
        if self.compute is None:
            return (name.slices,)
        return tuple(sorted((_read_slices(name, text) for text in self.compute), reverse=True))

    def __str__(self) -> str:
        inside = "" if self.compute is None else f" with {', '.join(self.compute) or 'nothing'}"
        place = "" if self.placement is None else f" at {self.placement}"
        return f"{self.profile}{inside}{place}"


def _read_slices(owner: MigProfileName, text: str) -> int:
    name = parse_name(text)
    if name.gpu_instance != owner.gpu_instance:
        raise ValueError(f"{text} is no compute instance of {owner}")
    return name.compute_slices or name.slices


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """What is wanted of one GPU. ``instances`` None leaves the instances as they are."""

    gpu_uuid: str
    mig_enabled: bool = True
    instances: tuple[TargetInstance, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pinned:
    """A slice that may not be touched, and who holds it (``vm "build7"``, ``process 41 (python3)``).

    ``compute_instance_id`` None: the GPU instance with everything in it; otherwise that compute
    instance, and the GPU instance around it only as such.
    """

    gpu_uuid: str
    instance_id: int
    holder: str
    compute_instance_id: int | None = None

    @property
    def key(self) -> SliceKey:
        """What ``allow_disruptive`` calls it."""
        return (self.gpu_uuid, self.instance_id)
