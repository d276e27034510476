"""The plan of a change: its steps in order, what they cost, why; or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
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
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.mig import Placement

SCHEMA = "vgpumgr/v1"


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

    def __add__(self, other: PlanCost) -> PlanCost:
        return PlanCost(
            self.disruptions + other.disruptions,
            self.gi_destroys + other.gi_destroys,
            self.gi_creates + other.gi_creates,
            self.ci_destroys + other.ci_destroys,
            self.ci_creates + other.ci_creates,
            self.mode_changes + other.mode_changes,
            self.kept + other.kept,
        )

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {
            "disruptions": self.disruptions,
            "gi_destroys": self.gi_destroys,
            "gi_creates": self.gi_creates,
            "ci_destroys": self.ci_destroys,
            "ci_creates": self.ci_creates,
            "mode_changes": self.mode_changes,
            "kept": self.kept,
            "calls": self.calls,
        }


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Steps in the order in which they are to be done, GPU after GPU.

    ``explanations`` has a sentence for every GPU that was asked about. A plan without steps means
    that everything is as it should be.
    """

    steps: tuple[MigStepSpec, ...] = ()
    cost: PlanCost = field(default_factory=PlanCost)
    explanations: tuple[tuple[str, str], ...] = ()

    @property
    def is_disruptive(self) -> bool:
        """Whether somebody loses a slice that he uses."""
        return self.cost.disruptions > 0

    def as_dict(self) -> dict[str, object]:
        """The plan as ``-o json`` has it."""
        return {
            "schema": SCHEMA,
            "steps": [step.as_dict() for step in self.steps],
            "disruptive": self.is_disruptive,
            "cost": self.cost.as_dict(),
            "explanations": [{"gpu": gpu, "text": text} for gpu, text in self.explanations],
        }


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


def unique(words: Iterable[str]) -> list[str]:
    """Each word once, in the order of first use."""
    return list(dict.fromkeys(words))
