"""The plan of a change: its steps, what they cost, why; or why there is none.

The order of steps is valid at every moment: first what goes, then what comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, field
from enum import StrEnum

from vgpumgr.errors import (
    GpuNotFoundError,
    LayoutBusyError,
    LayoutContradictionError,
    LayoutImpossibleError,
    MigNotSupportedError,
    ProfileNotFoundError,
    VgpumgrError,
)
from vgpumgr.mig.layout.board import Board
from vgpumgr.mig.layout.compute import ComputeChange, Sizes, pack
from vgpumgr.mig.layout.solver import Solution
from vgpumgr.mig.layout.target import GpuTarget, Pinned
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, MigProfileName, Placement


class StepKind(StrEnum):
    """What a step does; one call of the driver each."""

    MODE_ENABLE = "mig.mode.enable"
    MODE_DISABLE = "mig.mode.disable"
    GI_CREATE = "mig.gi.create"
    GI_DESTROY = "mig.gi.destroy"
    CI_CREATE = "mig.ci.create"
    CI_DESTROY = "mig.ci.destroy"


@dataclass(frozen=True, slots=True)
class MigStepSpec:
    """One step, with all that is needed to do it and, for what it destroys, to create it again.

    Of a GPU instance: ``profile`` and ``placement`` on the memory axis. Of a compute instance:
    ``profile`` with its ``c`` part, ``placement`` on the compute slices of its GPU instance, and
    that GPU instance as ``parent_profile`` and ``parent_placement``.

    ``instance_id`` is the GPU instance's, where it exists before the plan; None where an earlier
    step of the same plan creates it: ``key`` is the same for that step and all that happens inside.
    """

    kind: StepKind
    gpu_uuid: str
    profile: str | None = None
    placement: Placement | None = None
    instance_id: int | None = None
    compute_instance_id: int | None = None
    key: str | None = None
    parent_profile: str | None = None
    parent_placement: Placement | None = None
    disrupts: tuple[str, ...] = ()
    """Who loses the slice by this step; empty unless that was allowed."""

    def as_dict(self) -> dict[str, object]:
        """The step as JSON has it; parts that do not apply are left out."""
        parts: dict[str, object] = {
            "kind": self.kind.value,
            "gpu": self.gpu_uuid,
            "profile": self.profile,
            "placement": _place(self.placement),
            "instance": self.instance_id,
            "compute_instance": self.compute_instance_id,
            "key": self.key,
            "parent_profile": self.parent_profile,
            "parent_placement": _place(self.parent_placement),
            "disrupts": list(self.disrupts) or None,
        }
        return {name: value for name, value in parts.items() if value is not None}


def _place(placement: Placement | None) -> dict[str, int] | None:
    return None if placement is None else {"start": placement.start, "size": placement.size}


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a plan does, in numbers; ``calls`` is the number of its steps.

    ``disruptions`` counts held slices that the plan destroys, ``kept`` the GPU instances that stay.
    """

    disruptions: int = 0
    gi_destroys: int = 0
    gi_creates: int = 0
    ci_destroys: int = 0
    ci_creates: int = 0
    mode_changes: int = 0
    kept: int = 0

    @property
    def calls(self) -> int:
        """Calls of the driver that change something."""
        instances = self.gi_destroys + self.gi_creates
        return instances + self.ci_destroys + self.ci_creates + self.mode_changes

    @classmethod
    def of(cls, steps: Sequence[MigStepSpec], kept: int, disruptions: int = 0) -> PlanCost:
        """What these steps do."""
        kinds = Counter(step.kind for step in steps)
        return cls(
            disruptions=disruptions,
            gi_destroys=kinds[StepKind.GI_DESTROY],
            gi_creates=kinds[StepKind.GI_CREATE],
            ci_destroys=kinds[StepKind.CI_DESTROY],
            ci_creates=kinds[StepKind.CI_CREATE],
            mode_changes=kinds[StepKind.MODE_ENABLE] + kinds[StepKind.MODE_DISABLE],
            kept=kept,
        )

    def __add__(self, other: PlanCost) -> PlanCost:
        return PlanCost(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {**asdict(self), "calls": self.calls}


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Steps in the order in which they are to be done, GPU after GPU.

    ``explanations`` has a sentence for every GPU that was asked about. A plan without steps means
    that everything is as it should be.
    """

    steps: tuple[MigStepSpec, ...] = ()
    cost: PlanCost = field(default_factory=PlanCost)
    explanations: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: LayoutPlan) -> LayoutPlan:
        return LayoutPlan(
            self.steps + other.steps,
            self.cost + other.cost,
            self.explanations + other.explanations,
        )

    @property
    def is_disruptive(self) -> bool:
        """Whether a held slice is destroyed."""
        return self.cost.disruptions > 0


class Reason(StrEnum):
    """Why there is no plan."""

    UNKNOWN_GPU = "unknown-gpu"
    NO_MIG = "no-mig"
    UNKNOWN_PROFILE = "unknown-profile"
    CONTRADICTION = "contradiction"
    IMPOSSIBLE = "impossible"
    BUSY = "busy"


_ERRORS: dict[Reason, type[VgpumgrError]] = {
    Reason.UNKNOWN_GPU: GpuNotFoundError,
    Reason.NO_MIG: MigNotSupportedError,
    Reason.UNKNOWN_PROFILE: ProfileNotFoundError,
    Reason.CONTRADICTION: LayoutContradictionError,
    Reason.IMPOSSIBLE: LayoutImpossibleError,
    Reason.BUSY: LayoutBusyError,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no plan, before any call of the driver.

    ``what`` says what cannot be done, ``sentence`` why; ``in_the_way`` are the held slices without
    which it could; ``helps`` says what would help. ``alternative`` is the plan that would do it at
    their expense.
    """

    reason: Reason
    what: str
    sentence: str
    gpu_uuid: str | None = None
    in_the_way: tuple[Pinned, ...] = ()
    holders: tuple[str, ...] = ()
    helps: str | None = None
    alternative: LayoutPlan | None = None

    def as_error(self) -> VgpumgrError:
        """The error for people, with the exit code that the reason has."""
        held_by = self.holders or tuple(unique(pin.holder for pin in self.in_the_way))
        return _ERRORS[self.reason](self.what, why=self.sentence, held_by=held_by, hint=self.helps)


def advise_release(pins: Sequence[Pinned], option: str | None) -> str:
    """What frees held slices. ``option``: what else takes those that may be taken; None: nothing does."""
    ways = []
    if any(pin.is_vgpu for pin in pins):
        ways.append("delete these vGPUs (vgpumgr mdev delete; vgpumgr detach for a VM's)")
    if any(pin.is_share for pin in pins):
        ways.append("detach the holders of these shares (vgpumgr detach)")
    is_all_whole = not ways
    if not all(pin.stays for pin in pins):
        way = "stop or detach the holders" if is_all_whole else "stop or detach the other holders"
        ways.append(f"{way}, or {option}" if option else way)
    return "; ".join(ways) + ("" if option and is_all_whole else ", then repeat")


def unique(words: Iterable[str]) -> list[str]:
    """Each word once, in the order of first use."""
    return list(dict.fromkeys(words))


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
    """A GPU instance with all that is in it; it must be unused."""
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
