"""A solution as steps, in an order that is valid at every moment: first what goes, then what comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgpumgr.mig.layout.board import Board
from vgpumgr.mig.layout.change import MigStepSpec, StepKind, unique
from vgpumgr.mig.layout.compute import ComputeChange, Sizes, pack
from vgpumgr.mig.layout.solver import Solution
from vgpumgr.mig.layout.target import GpuTarget, Pinned
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigProfile,
    MigProfileName,
    Placement,
)


def list_steps(
    gpu: Gpu, board: Board, target: GpuTarget, solution: Solution | None, *, changes_mode: bool
) -> tuple[MigStepSpec, ...]:
    """MIG mode goes on before and off after everything else."""
    kind = StepKind.MODE_ENABLE if target.mig_enabled else StepKind.MODE_DISABLE
    mode = [MigStepSpec(kind, gpu.uuid)] if changes_mode else []
    steps = list(_list_instance_steps(gpu, board, solution)) if solution else []
    return tuple(mode + steps if target.mig_enabled else steps + mode)


def list_create_steps(
    gpu: Gpu, profile: MigProfile, placement: Placement
) -> tuple[MigStepSpec, ...]:
    """A GPU instance at its place, with one compute instance of full size."""
    return tuple(_create(gpu, profile, placement, (profile.slices,)))


def list_destroy_steps(gpu: Gpu, instance: GpuInstance) -> tuple[MigStepSpec, ...]:
    """A GPU instance with all that is in it; nobody may use it."""
    return tuple(_destroy(gpu, instance, ()))


def _list_instance_steps(gpu: Gpu, board: Board, solution: Solution) -> Iterable[MigStepSpec]:
    for instance in solution.destroyed:
        yield from _destroy(gpu, instance, solution.touched)
    for instance, change in solution.kept:
        yield from _change_inside(gpu, instance, change)
    for cell, sizes in sorted(solution.created, key=lambda pair: pair[0].placement):
        yield from _create(gpu, board.profiles[cell.profile], cell.placement, sizes)


def _destroy(gpu: Gpu, instance: GpuInstance, touched: Sequence[Pinned]) -> Iterable[MigStepSpec]:
    holders = [pin for pin in touched if pin.instance_id == instance.id]
    for compute in instance.compute_instances:
        yield _destroy_compute(gpu, instance, compute, holders)
    yield MigStepSpec(
        StepKind.GI_DESTROY,
        gpu.uuid,
        profile=str(instance.profile),
        placement=instance.placement,
        instance_id=instance.id,
        disrupts=tuple(unique(pin.holder for pin in holders)),
    )


def _destroy_compute(
    gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, holders: Sequence[Pinned]
) -> MigStepSpec:
    losing = [pin for pin in holders if pin.compute_instance_id in (None, compute.id)]
    return MigStepSpec(
        StepKind.CI_DESTROY,
        gpu.uuid,
        profile=name_compute(instance.profile, compute.slices, instance.slices),
        placement=compute.placement,
        instance_id=instance.id,
        compute_instance_id=compute.id,
        parent_profile=str(instance.profile),
        parent_placement=instance.placement,
        disrupts=tuple(unique(pin.holder for pin in losing)),
    )


def _change_inside(gpu: Gpu, instance: GpuInstance, change: ComputeChange) -> Iterable[MigStepSpec]:
    for compute in change.destroy:
        yield _destroy_compute(gpu, instance, compute, change.touched)
    for place in change.create:
        yield MigStepSpec(
            StepKind.CI_CREATE,
            gpu.uuid,
            profile=name_compute(instance.profile, place.size, instance.slices),
            placement=place,
            instance_id=instance.id,
            parent_profile=str(instance.profile),
            parent_placement=instance.placement,
        )


def _create(
    gpu: Gpu, profile: MigProfile, placement: Placement, sizes: Sizes
) -> Iterable[MigStepSpec]:
    key = f"{gpu.uuid}/{profile.name}@{placement}"
    yield MigStepSpec(
        StepKind.GI_CREATE, gpu.uuid, profile=str(profile.name), placement=placement, key=key
    )
    for place in pack(profile.slices, sizes, ()) or ():
        yield MigStepSpec(
            StepKind.CI_CREATE,
            gpu.uuid,
            profile=name_compute(profile.name, place.size, profile.slices),
            placement=place,
            key=key,
            parent_profile=str(profile.name),
            parent_placement=placement,
        )


def name_compute(profile: MigProfileName, size: int, slices: int) -> str:
    """``1c.3g.40gb``; the ``c`` part is left out where the whole GPU instance is meant."""
    compute = None if size == slices else size
    return str(MigProfileName(profile.slices, profile.gigabytes, profile.variant, compute))
