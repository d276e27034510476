"""How GPUs differ from a layout, in sentences. Compares; plans nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance

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
