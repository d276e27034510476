"""MIG: profiles, placements, and the instances on a GPU.

Units: a placement counts positions on the GPU's memory axis (8 on an A100, 4 on an A30, 12 on an
RTX PRO 6000); compute is counted in slices (7 on an A100). Both come from NVML, never from a table
of ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.identity import GpuUuid, MigUuid

_NAME = re.compile(
    r"(?:MIG\s+)?(?:(?P<c>\d+)c\.)?(?P<g>\d+)g\.(?P<gb>\d+)gb(?P<variant>\+me\.all|\+me|\+gfx|-me)?",
    re.IGNORECASE,
)


class Variant(StrEnum):
    """What a profile adds to or takes from the plain one of its size."""

    PLAIN = ""
    MEDIA = "+me"
    ALL_MEDIA = "+me.all"
    GRAPHICS = "+gfx"
    NO_MEDIA = "-me"


@dataclass(frozen=True, slots=True, order=True)
class MigProfileName:
    """``[<c>c.]<g>g.<gb>gb[variant]``: compute slices, slices of the GPU instance, nominal
    gigabytes.
    """

    slices: int
    gigabytes: int
    variant: Variant = Variant.PLAIN
    compute_slices: int | None = None

    @classmethod
    def parse(cls, text: str) -> MigProfileName:
        """Reads a name, with or without NVML's ``MIG `` in front. Raises ValueError."""
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"not a MIG profile name: {text!r}; names look like 1g.10gb or 3g.40gb+me"
            )
        slices = int(match["g"])
        compute = int(match["c"]) if match["c"] else None
        if compute is not None and not 0 < compute <= slices:
            raise ValueError(f"{text!r} asks for {compute} of {slices} compute slices")
        return cls(
            slices=slices,
            gigabytes=int(match["gb"]),
            variant=Variant((match["variant"] or "").lower()),
            # the c part is left out where it equals g
            compute_slices=None if compute == slices else compute,
        )

    @property
    def gpu_instance(self) -> MigProfileName:
        """The profile of the GPU instance alone, without the ``c`` part."""
        return MigProfileName(self.slices, self.gigabytes, self.variant)

    def __str__(self) -> str:
        compute = f"{self.compute_slices}c." if self.compute_slices else ""
        return f"{compute}{self.slices}g.{self.gigabytes}gb{self.variant}"


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """The half-open range ``[start, start + size)`` on an axis."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """First position behind the range."""
        return self.start + self.size

    def overlaps(self, other: Placement) -> bool:
        """Whether both claim some position."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"{self.start}:{self.size}"


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One GPU-instance profile as NVML reports it for one GPU.

    ``enum`` is NVML_GPU_INSTANCE_PROFILE_*; ``id`` is what create and capacity calls take; the two
    differ. ``remaining`` is NVML's own count of instances that still fit, None where it gives none
    (MIG mode off).
    """

    name: MigProfileName
    enum: int
    id: int
    slices: int
    memory_bytes: int
    max_instances: int
    sm_count: int
    placements: tuple[Placement, ...]
    remaining: int | None = None
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpegs: int = 0
    ofas: int = 0


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    """A compute instance; with its GPU instance it is what CUDA calls a device."""

    id: int
    profile_id: int
    slices: int
    uuid: MigUuid | None
    placement: Placement | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance with its compute instances; one without any is not yet a usable device."""

    id: int
    profile_id: int
    profile: MigProfileName
    placement: Placement
    slices: int
    memory_bytes: int
    compute_instances: tuple[ComputeInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class MigMode:
    """MIG mode of one GPU.

    ``current`` and ``pending`` differ between a request and the reset that carries it out.
    ``needs_reset``: on this architecture the mode changes only by a reset, which no client of the
    GPU survives (Ampere).
    """

    supported: bool
    current: bool = False
    pending: bool = False
    needs_reset: bool = False


class MigActivation(StrEnum):
    """What became of a request to change MIG mode (NVML's activation status)."""

    DONE = "done"
    RESET_REQUIRED = "reset-required"
    IN_USE = "in-use"


@dataclass(frozen=True, slots=True)
class MigModeChange:
    """Answer to a MIG mode request: the modes read back, and NVML's reason where it is only
    pending.
    """

    current: bool
    pending: bool
    activation: MigActivation
    status_code: int
    status_text: str


@dataclass(frozen=True, slots=True)
class DesiredInstance:
    """A GPU instance at its place; ``compute`` are the places of its compute instances in it."""

    profile: str
    placement: Placement
    compute: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class DesiredLayout:
    """What one GPU is to look like, without the slices of attachments: those have records."""

    gpu: GpuUuid
    mig_enabled: bool
    instances: tuple[DesiredInstance, ...]
    saved_s: float


class LayoutStore(Protocol):
    """Remembers layouts. May raise StoreError."""

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """All, by the GPU's UUID."""

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Writes some, each in the place of that of the same GPU, and forgets those of other GPUs; all of
        it or nothing.
        """


class NoLayouts:
    """Remembers nothing: for operations that no boot repeats."""

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """None."""
        return {}

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Cannot."""
        raise TypeError(f"no store for {len(layouts)} layouts, or to forget {len(forgotten)}")


def make_desired(
    gpu: GpuUuid,
    mig_enabled: bool,
    instances: Sequence[GpuInstance],
    spared: Collection[Placement],
    now_s: float,
) -> DesiredLayout:
    """The layout to remember of a GPU as it is now, without what is at places that are spared."""
    found = []
    for instance in instances:
        if instance.placement in spared:
            continue
        places = tuple(
            _place(instance, number) for number in range(len(instance.compute_instances))
        )
        found.append(DesiredInstance(str(instance.profile), instance.placement, places))
    return DesiredLayout(gpu, mig_enabled, tuple(found), now_s)


def _place(instance: GpuInstance, number: int) -> Placement:
    compute = instance.compute_instances[number]
    if compute.placement is not None:
        return compute.placement
    before = sum(c.slices for c in instance.compute_instances[:number])
    return Placement(before, compute.slices)
