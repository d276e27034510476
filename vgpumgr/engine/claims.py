"""What a step takes for itself on the host: a place on a GPU, a PCI function, a vGPU.

Read from the step as the journal has it, so that what an unfinished operation accounts for is known whatever its
family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from vgpumgr.engine.step import Step

#: the kind of claims on a GPU or a place on it; its name is the GPU's UUID
GPU_CLAIM = "gpu"
#: steps that concern a whole GPU
_WHOLE = ("mig.mode.enable", "mig.mode.disable", "mdev.mixed-sizes")


@dataclass(frozen=True, slots=True)
class Claim:
    """``first`` and ``size`` are a place on a GPU; None: all of it. Two that are ``shared`` do not collide."""

    kind: str
    name: str
    first: int | None = None
    size: int = 0
    shared: bool = False
    #: of a GPU instance: its profile, where the step says it
    profile: str | None = None

    def collides(self, other: Claim) -> bool:
        """Whether not both can be had."""
        if (self.kind, self.name) != (other.kind, other.name) or (self.shared and other.shared):
            return False
        if self.first is None or other.first is None:
            return True
        return self.first < other.first + other.size and other.first < self.first + self.size


def list_claims(step: Step) -> Iterator[Claim]:
    """The claims of one step."""
    kind, target = step.kind, cast("Mapping[str, Any]", step.target)
    if kind.startswith("mig.") or kind in _WHOLE:
        yield from _list_gpu_claims(kind, target)
    elif kind.startswith(("passthrough.", "vf.")):
        row = target.get("binding", target)
        address = row.get("address", row.get("physical"))
        if address is not None:
            yield Claim("function", str(address))
        if row.get("gpu_uuid"):
            yield Claim(GPU_CLAIM, str(row["gpu_uuid"]))
    elif kind.startswith("mdev."):
        if target.get("uuid"):
            yield Claim("vgpu", str(target["uuid"]))
        if target.get("parent"):
            yield Claim("function", str(target["parent"]), shared=True)


def _list_gpu_claims(kind: str, target: Mapping[str, Any]) -> Iterator[Claim]:
    place = target.get("parent_placement") or target.get("placement")
    if kind in _WHOLE:
        yield Claim(GPU_CLAIM, str(target["gpu"]))
    elif place is not None:
        profile = target.get("profile") if kind.startswith("mig.gi.") else None
        first, size = int(place["start"]), int(place["size"])
        yield Claim(GPU_CLAIM, str(target["gpu"]), first, size, profile=profile)


def find_collision(wanted: Iterable[Claim], held: Iterable[Claim]) -> Claim | None:
    """The first that is wanted and held."""
    kept = list(held)
    return next((one for one in wanted if any(one.collides(other) for other in kept)), None)
