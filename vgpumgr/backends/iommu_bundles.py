"""GPUs that can go to a VM only together, because the IOMMU cannot tell them apart: pure.

VFIO gives an IOMMU group to one VM as a whole. Where the host's drivers have several GPUs of one
group, none of them can go alone; all of them can, to the same VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TypeVar

from vgpumgr.model.functions import Function
from vgpumgr.planning.snapshot import Snapshot

T = TypeVar("T")


def list_given(host: Snapshot, gpus: Iterable[Function]) -> tuple[Function, ...]:
    """All functions that go with these GPUs, each once."""
    found = {f.address: f for gpu in gpus for f in (gpu, *host.list_companions(gpu))}
    return tuple(found.values())


def list_blockers(host: Snapshot, given: Sequence[Function]) -> list[Function]:
    """What the host's drivers have of the groups of ``given``, and is not given."""
    groups = {f.group for f in given if f.group is not None}
    known = {f.address for f in given}
    return [
        f for f in host.functions if f.group in groups and f.address not in known and not f.is_free
    ]


def find_bundle(host: Snapshot, function: Function) -> tuple[Function, ...]:
    """The GPU with those that must go with it, itself first; alone where that would not help."""
    bundle = [function]
    while blockers := list_blockers(host, list_given(host, bundle)):
        more = next((f for f in blockers if f.is_gpu and f.physical is None), None)
        if more is None:
            return (function,)
        bundle.append(more)
    return tuple(bundle)


def fill(singles: Sequence[T], bundles: Sequence[Sequence[T]], count: int) -> list[T] | None:
    """Exactly so many: as many singles as possible, the rest of whole bundles."""
    for number in range(len(bundles) + 1):
        for chosen in combinations(bundles, number):
            together = [one for bundle in chosen for one in bundle]
            left = count - len(together)
            if 0 <= left <= len(singles):
                return [*singles[:left], *together]
    return None


def name_all(gpus: Sequence[Function]) -> str:
    """Their addresses, in a sentence."""
    return " and ".join(str(gpu.address) for gpu in gpus)


def advise(bundle: Sequence[Function]) -> str:
    """What to do about GPUs that go only together."""
    first, count = bundle[0].address, len(bundle)
    others = ", ".join(f"vgpumgr passthrough bind {gpu.address}" for gpu in bundle[1:])
    return (
        f"vgpumgr attach VM --profile passthrough --gpu {first} --count {count} gives all to one VM; "
        f"or, to leave the rest unused: {others}"
    )
