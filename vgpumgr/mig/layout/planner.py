"""The least change that brings GPUs to a layout. Pure: observed models in, steps out."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from vgpumgr.mig.layout.change import LayoutPlan, Refusal
from vgpumgr.mig.layout.target import GpuTarget, Pinned, SliceKey
from vgpumgr.model.gpu import Gpu


def plan_layout(
    gpus: Sequence[Gpu],
    targets: Sequence[GpuTarget],
    pinned: Sequence[Pinned] = (),
    allow_disruptive: AbstractSet[SliceKey] = frozenset(),
) -> LayoutPlan:
    """The least change; raises the error of the refusal where there is none (``try_layout``)."""
    outcome = try_layout(gpus, targets, pinned, allow_disruptive)
    if isinstance(outcome, Refusal):
        raise outcome.as_error()
    return outcome


def try_layout(
    gpus: Sequence[Gpu],
    targets: Sequence[GpuTarget],
    pinned: Sequence[Pinned] = (),
    allow_disruptive: AbstractSet[SliceKey] = frozenset(),
) -> LayoutPlan | Refusal:
    """As ``plan_layout``, but the refusal is a value, with the disruptive plan where one exists."""
    raise NotImplementedError
