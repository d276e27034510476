"""What a GPU is to look like, and which slices on it are held: as NVML sees it, and as attachments say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from vgpumgr.errors import SliceNotFoundError
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement
from vgpumgr.model.text import list_near

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
    #: a vGPU is in it, so that the driver does not destroy it, whatever is allowed
    is_vgpu: bool = False
    #: others have shares of it, too: there is no other slice that all of them could have together
    is_share: bool = False

    @property
    def stays(self) -> bool:
        """Whether it keeps its slice whatever is allowed."""
        return self.is_vgpu or self.is_share

    @property
    def key(self) -> SliceKey:
        """What ``allow_disruptive`` calls it."""
        return (self.gpu_uuid, self.instance_id)


def list_present_targets(gpu: Gpu, gone: Collection[int] = ()) -> tuple[TargetInstance, ...]:
    """The GPU's instances as they are, each at its place, without those of some ids."""
    return tuple(
        TargetInstance(str(i.profile), _list_compute(i), i.placement)
        for i in gpu.instances
        if i.id not in gone
    )


def _list_compute(instance: GpuInstance) -> tuple[str, ...] | None:
    sizes = [compute.slices for compute in instance.compute_instances]
    if sizes == [instance.slices]:
        return None
    return tuple(f"{size}c.{instance.profile}" for size in sizes)


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
        shape = _wanted_shape(gpu, one)
        same = (i for i in left if (i.placement, _shape(i)) == (one.placement, shape))
        found = next(same, None)
        if found is None:
            yield f"there is no {one}"
        else:
            left.remove(found)
    have = Counter(_shape(i) for i in left)
    want = Counter(_wanted_shape(gpu, one) for one in wanted if one.placement is None)
    for shape in sorted(have.keys() | want.keys()):
        if have[shape] != want[shape]:
            yield f"{have[shape]}x {_describe(gpu, shape)}, expected {want[shape]}"


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


def _describe(gpu: Gpu, shape: _Shape) -> str:
    name, sizes = shape
    if sizes == (_count_slices(gpu, name),):
        return name
    inside = ", ".join(f"{size}c" for size in sizes) or "no compute instance"
    return f"{name} with {inside}"


def list_process_pins(gpu: Gpu) -> tuple[Pinned, ...]:
    """One for each process in an instance of the GPU; what an attachment holds is held by its VM."""
    return tuple(
        Pinned(gpu.uuid, p.gpu_instance_id, str(p), p.compute_instance_id)
        for p in gpu.processes
        if p.gpu_instance_id is not None and not p.is_holder
    )


def list_owner_pins(owners: Sequence[SliceOwner], free: Collection[str] = ()) -> tuple[Pinned, ...]:
    """One for each slice that belongs to a VM or a vGPU; not for slices of VMs whose names are in ``free``, but for
    those that others have shares of, too.
    """
    return tuple(
        Pinned(
            o.gpu,
            o.gpu_instance_id,
            o.share_holder or o.holder,
            o.compute_instance_id,
            o.vgpu is not None,
            o.share_holder is not None,
        )
        for o in owners
        if o.vm_name not in free or o.vgpu is not None or o.share_holder is not None
    )


def merge_pins(gpu: Gpu, *groups: Sequence[Pinned]) -> tuple[Pinned, ...]:
    """The pins of one GPU, each once, for instances that exist."""
    present = {instance.id for instance in gpu.instances}
    found = [
        pin
        for group in groups
        for pin in group
        if pin.gpu_uuid == gpu.uuid and pin.instance_id in present
    ]
    return tuple(dict.fromkeys(found))


_SHORTEST_PREFIX = 8


def find_slices(
    names: Sequence[str], gpus: Sequence[Gpu], owners: Sequence[SliceOwner]
) -> frozenset[SliceKey]:
    """The slices that the names mean; a VM or a process may have several. Raises
    SliceNotFoundError.
    """
    return frozenset(key for name in names for key in _find(name, gpus, owners))


def _find(name: str, gpus: Sequence[Gpu], owners: Sequence[SliceOwner]) -> set[SliceKey]:
    found: set[SliceKey] = {(o.gpu, o.gpu_instance_id) for o in owners if o.vm_name == name}
    for gpu in gpus:
        found |= {(gpu.uuid, i.id) for i in gpu.instances if name == f"{gpu.index}/{i.id}"}
        found |= {
            (gpu.uuid, i.id)
            for i in gpu.instances
            for c in i.compute_instances
            if c.uuid and len(name) >= _SHORTEST_PREFIX and c.uuid.startswith(name)
        }
        found |= {
            (gpu.uuid, p.gpu_instance_id)
            for p in gpu.processes
            if p.gpu_instance_id is not None and name == str(p.pid)
        }
    if not found:
        raise _explain(name, gpus, owners)
    return found


def _explain(name: str, gpus: Sequence[Gpu], owners: Sequence[SliceOwner]) -> SliceNotFoundError:
    known = [owner.vm_name for owner in owners]
    known += [f"{gpu.index}/{i.id}" for gpu in gpus for i in gpu.instances]
    near = list_near(name, known, n=1)
    return SliceNotFoundError(
        f'no slice is "{name}"',
        why=f"did you mean {near[0]}?"
        if near
        else "name a VM, a process id, a MIG UUID, or GPU/INSTANCE as in 0/3",
        hint="vgpumgr mig list",
    )


def name_pins(pins: Sequence[Pinned], gpus: Sequence[Gpu]) -> list[str]:
    """What to type to name these slices."""
    indexes = {str(gpu.uuid): gpu.index for gpu in gpus}
    return list(dict.fromkeys(f"{indexes[p.gpu_uuid]}/{p.instance_id}" for p in pins))
