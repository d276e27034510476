"""Plans and targets of layouts to documents and back, and the digest that tells states apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from vgpumgr.daemon.documents import PlacementDocument
from vgpumgr.daemon.layout_documents import (
    GpuExplanationDocument,
    GpuTargetDocument,
    LayoutCostDocument,
    LayoutStepDocument,
    TargetInstanceDocument,
)
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement

_DESTRUCTIONS = (StepKind.GI_DESTROY, StepKind.CI_DESTROY, StepKind.MODE_DISABLE)


def describe_step(step: MigStepSpec, gpus: Sequence[Gpu]) -> LayoutStepDocument:
    """The document of one step."""
    index = next(gpu.index for gpu in gpus if gpu.uuid == step.gpu_uuid)
    return LayoutStepDocument(
        kind=step.kind.value,
        gpu=step.gpu_uuid,
        gpu_index=index,
        profile=step.profile,
        placement=_describe_place(step.placement),
        instance=step.instance_id,
        compute_instance=step.compute_instance_id,
        key=step.key,
        parent_profile=step.parent_profile,
        parent_placement=_describe_place(step.parent_placement),
        disrupts=list(step.disrupts),
    )


def describe_cost(plan: LayoutPlan) -> LayoutCostDocument:
    """The document of what a plan does."""
    return LayoutCostDocument(**plan.cost.as_dict())


def describe_explanations(plan: LayoutPlan) -> list[GpuExplanationDocument]:
    """A sentence for each GPU."""
    return [GpuExplanationDocument(gpu=gpu, text=text) for gpu, text in plan.explanations]


def describe_target(target: GpuTarget) -> GpuTargetDocument:
    """The document of what is wanted of one GPU."""
    instances = None
    if target.instances is not None:
        instances = [_describe_instance(one) for one in target.instances]
    return GpuTargetDocument(
        gpu=target.gpu_uuid, mig_enabled=target.mig_enabled, instances=instances
    )


def _describe_instance(one: TargetInstance) -> TargetInstanceDocument:
    return TargetInstanceDocument(
        profile=one.profile,
        compute=None if one.compute is None else list(one.compute),
        placement=_describe_place(one.placement),
    )


def _describe_place(place: Placement | None) -> PlacementDocument | None:
    return None if place is None else PlacementDocument(start=place.start, size=place.size)


def read_target(document: GpuTargetDocument) -> GpuTarget:
    """The reverse of ``describe_target``."""
    if document.instances is None:
        return GpuTarget(document.gpu, document.mig_enabled)
    instances = tuple(
        TargetInstance(
            one.profile,
            None if one.compute is None else tuple(one.compute),
            Placement(one.placement.start, one.placement.size) if one.placement else None,
        )
        for one in document.instances
    )
    return GpuTarget(document.gpu, document.mig_enabled, instances)


def is_destructive(plan: LayoutPlan) -> bool:
    """Whether anything that exists is destroyed."""
    return any(step.kind in _DESTRUCTIONS for step in plan.steps)


def compute_digest(gpus: Sequence[Gpu], targets: Sequence[GpuTarget]) -> str:
    """Of all that a plan for these targets rests on: mode and instances of the GPUs."""
    named = {target.gpu_uuid for target in targets}
    state = [_list_state(gpu) for gpu in gpus if gpu.uuid in named]
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _list_state(gpu: Gpu) -> Any:
    instances = [
        [
            instance.id,
            str(instance.profile),
            str(instance.placement),
            [[c.id, c.slices, c.uuid] for c in instance.compute_instances],
        ]
        for instance in gpu.instances
    ]
    return [gpu.uuid, gpu.mig.current, gpu.mig.pending, instances]
