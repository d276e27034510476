"""What a GPU is to look like, and what on it may not be touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement

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


_Shape = tuple[str, tuple[int, ...]]


def list_differences(gpus: Sequence[Gpu], targets: Sequence[GpuTarget]) -> list[tuple[Gpu, str]]:
    """Every difference, GPU after GPU; none means that all is as asked."""
    by_uuid = {str(gpu.uuid): gpu for gpu in gpus}
    return [
        (by_uuid[target.gpu_uuid], text)
        for target in targets
        for text in _compare(by_uuid[target.gpu_uuid], target)
    ]


def _compare(gpu: Gpu, target: GpuTarget) -> Iterator[str]:
    wanted = "on" if target.mig_enabled else "off"
    if gpu.mig.current != target.mig_enabled:
        yield f"MIG mode is {_word(gpu.mig.current)}, expected {wanted}"
    elif gpu.mig.pending != target.mig_enabled:
        yield f"MIG mode is to be turned {_word(gpu.mig.pending)} by a reset, expected {wanted}"
    if target.mig_enabled and target.instances is not None:
        yield from _compare_instances(gpu, target.instances)


def _word(mode: bool) -> str:
    return "on" if mode else "off"


def _compare_instances(gpu: Gpu, wanted: Sequence[TargetInstance]) -> Iterator[str]:
    """Those with a place first; what is left is compared by number."""
    left = list(gpu.instances)
    for one in wanted:
        if one.placement is None:
            continue
        found = next((i for i in left if _matches(gpu, i, one)), None)
        if found is None:
            yield f"there is no {one}"
        else:
            left.remove(found)
    have = Counter(_shape(i) for i in left)
    want = Counter(_wanted_shape(gpu, one) for one in wanted if one.placement is None)
    for shape in sorted(have.keys() | want.keys()):
        if have[shape] != want[shape]:
            yield f"{have[shape]}x {_tell(gpu, shape)}, expected {want[shape]}"


def _matches(gpu: Gpu, instance: GpuInstance, wanted: TargetInstance) -> bool:
    return instance.placement == wanted.placement and _shape(instance) == _wanted_shape(gpu, wanted)


def _shape(instance: GpuInstance) -> _Shape:
    sizes = sorted((c.slices for c in instance.compute_instances), reverse=True)
    return (str(instance.profile), tuple(sizes))


def _wanted_shape(gpu: Gpu, wanted: TargetInstance) -> _Shape:
    """Full size is what the board says, not the number in the name."""
    whole = _count_slices(gpu, wanted.profile)
    sizes = wanted.compute_slices if wanted.compute is not None or whole is None else (whole,)
    return (wanted.profile, sizes)


def _count_slices(gpu: Gpu, name: str) -> int | None:
    return next((p.slices for p in gpu.profiles if str(p.name) == name), None)


def _tell(gpu: Gpu, shape: _Shape) -> str:
    name, sizes = shape
    if sizes == (_count_slices(gpu, name),):
        return name
    inside = ", ".join(f"{size}c" for size in sizes) or "no compute instance"
    return f"{name} with {inside}"
