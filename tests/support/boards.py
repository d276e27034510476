"""MIG boards as hardware reports them, and GPUs made of them.

Placements: NVIDIA's MIG user guide and transcripts of ``nvidia-smi mig -lgip`` and ``-lgipp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.model.gpu import Gpu, GpuMemory, GpuProcess
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigMode,
    MigProfile,
    MigProfileName,
    Placement,
)
from vgpumgr.model.pci import PciAddress

GIB = 1 << 30


@dataclass(frozen=True)
class Row:
    """One profile: name, enumerator, id, slices, maximum, starts, size, SMs."""

    name: str
    enum: int
    id: int
    slices: int
    maximum: int
    starts: tuple[int, ...]
    size: int
    sms: int


A100_80 = (
    Row("1g.10gb", 0, 19, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1, 14),
    Row("2g.20gb", 1, 14, 2, 3, (0, 2, 4), 2, 28),
    Row("3g.40gb", 2, 9, 3, 2, (0, 4), 4, 42),
    Row("4g.40gb", 3, 5, 4, 1, (0,), 4, 56),
    Row("7g.80gb", 4, 0, 7, 1, (0,), 8, 98),
    Row("1g.10gb+me", 7, 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 14),
    Row("1g.20gb", 9, 15, 1, 4, (0, 2, 4, 6), 2, 14),
)
A30 = (
    Row("1g.6gb", 0, 14, 1, 4, (0, 1, 2, 3), 1, 14),
    Row("2g.12gb", 1, 5, 2, 2, (0, 2), 2, 28),
    Row("4g.24gb", 3, 0, 4, 1, (0,), 4, 56),
    Row("1g.6gb+me", 7, 21, 1, 1, (0, 1, 2, 3), 1, 14),
    Row("2g.12gb+me", 8, 6, 2, 1, (0, 2), 2, 28),
)
RTX_PRO_6000 = (
    Row("1g.24gb", 0, 14, 1, 4, (0, 3, 6, 9), 3, 46),
    Row("2g.48gb", 1, 5, 2, 2, (0, 6), 6, 94),
    Row("4g.96gb", 3, 0, 4, 1, (0,), 12, 188),
    Row("1g.24gb+me", 7, 21, 1, 1, (0, 3, 6, 9), 3, 46),
    Row("1g.24gb+gfx", 10, 47, 1, 4, (0, 3, 6, 9), 3, 46),
    Row("2g.48gb+gfx", 11, 35, 2, 2, (0, 6), 6, 94),
    Row("1g.24gb-me", 13, 67, 1, 4, (0, 3, 6, 9), 3, 46),
    Row("2g.48gb-me", 14, 66, 2, 2, (0, 6), 6, 94),
    Row("1g.24gb+me.all", 15, 65, 1, 1, (0, 3, 6, 9), 3, 46),
    Row("2g.48gb+me.all", 16, 64, 2, 1, (0, 6), 6, 94),
)
BOARDS = {
    "NVIDIA A100-SXM4-80GB": (A100_80, 80),
    "NVIDIA A30": (A30, 24),
    "NVIDIA RTX PRO 6000 Blackwell": (RTX_PRO_6000, 96),
}
A100, A30_NAME, RTX = BOARDS


def make_profiles(model: str) -> tuple[MigProfile, ...]:
    """The board's profiles as NVML would list them, none created yet."""
    rows, memory_gib = BOARDS[model]
    axis = max(start + row.size for row in rows for start in row.starts)
    return tuple(
        MigProfile(
            name=MigProfileName.parse(row.name),
            enum=row.enum,
            id=row.id,
            slices=row.slices,
            memory_bytes=memory_gib * GIB * row.size // axis - GIB // 4,
            max_instances=row.maximum,
            sm_count=row.sms,
            placements=tuple(Placement(start, row.size) for start in row.starts),
        )
        for row in rows
    )


def make_uuid(kind: str, *numbers: int) -> str:
    """A UUID that tells in its last digits what it is of."""
    return f"{kind}-{0:08x}-0000-4000-8000-" + "".join(f"{n:04x}" for n in numbers).rjust(12, "0")


def make_instance(gpu_index: int, id_: int, profile: MigProfile, start: int) -> GpuInstance:
    """An instance of the profile at a start, with its one compute instance."""
    placement = next(p for p in profile.placements if p.start == start)
    uuid = MigUuid(make_uuid("MIG", gpu_index, id_))
    compute = ComputeInstance(0, 0, profile.slices, uuid, Placement(0, profile.slices), 0)
    return GpuInstance(
        id_, profile.id, profile.name, placement, profile.slices, profile.memory_bytes, (compute,)
    )


def make_gpu(
    model: str = A100,
    index: int = 0,
    layout: Sequence[tuple[str, int]] | None = (),
    processes: Sequence[GpuProcess] = (),
) -> Gpu:
    """A GPU with instances (name, start); ``layout`` None: MIG mode is off."""
    profiles = make_profiles(model)
    by_name = {str(p.name): p for p in profiles}
    instances = [
        make_instance(index, number + 1, by_name[name], start)
        for number, (name, start) in enumerate(layout or ())
    ]
    on = layout is not None
    return Gpu(
        index=index,
        uuid=GpuUuid(make_uuid("GPU", index)),
        model=model,
        pci=PciAddress(0, 7 + 8 * index, 0, 0),
        memory=GpuMemory(BOARDS[model][1] * GIB, GIB // 2),
        mig=MigMode(True, on, on, needs_reset=model != RTX),
        driver_version="580.95.05",
        architecture="Blackwell" if model == RTX else "Ampere",
        compute_capability=(12, 0) if model == RTX else (8, 0),
        profiles=profiles,
        instances=tuple(sorted(instances, key=lambda i: i.placement)),
        processes=tuple(processes),
    )
