"""Plans and targets of layouts to documents and back, and the digest that tells states apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vgpumgr.daemon.documents import PlacementDocument
from vgpumgr.daemon.layout_documents import (
    GpuExplanationDocument,
    GpuTargetDocument,
    LayoutCostDocument,
    LayoutStepDocument,
    TargetInstanceDocument,
    VgpuTargetDocument,
)
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement

if TYPE_CHECKING:
    from vgpumgr.plan.vgpu_layout import VgpuChange, VgpuTarget

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


def describe_vgpu_steps(changes: Sequence[VgpuChange]) -> list[LayoutStepDocument]:
    """The documents of what happens to vGPUs: what goes, then what comes."""
    gone = [
        LayoutStepDocument(
            kind="mdev.delete",
            gpu=change.gpu.uuid,
            gpu_index=change.gpu.index,
            vgpu_type=record.spec.type_name,
            parent=record.spec.parent,
            vgpu=record.spec.uuid,
        )
        for change in changes
        for record in change.deletes
    ]
    return gone + [
        LayoutStepDocument(
            kind="mdev.create",
            gpu=change.gpu.uuid,
            gpu_index=change.gpu.index,
            vgpu_type=spec.type_name,
            parent=spec.parent,
        )
        for change in changes
        for spec in change.creates
    ]


def describe_cost(plan: LayoutPlan, changes: Sequence[VgpuChange] = ()) -> LayoutCostDocument:
    """The document of what a plan does."""
    return LayoutCostDocument(
        **plan.cost.as_dict(),
        vgpu_creates=sum(len(change.creates) for change in changes),
        vgpu_deletes=sum(len(change.deletes) for change in changes),
    )


def describe_explanations(
    plan: LayoutPlan, changes: Sequence[VgpuChange], gpus: Sequence[Gpu]
) -> list[GpuExplanationDocument]:
    """A sentence for each GPU, in their order."""
    order = {str(gpu.uuid): gpu.index for gpu in gpus}
    texts = {gpu: [text] for gpu, text in plan.explanations}
    for change in changes:
        before = texts.setdefault(change.gpu.uuid, [])
        before.append(change.text.partition(": ")[2] if before else change.text)
    rows = sorted(texts.items(), key=lambda row: order[row[0]])
    return [GpuExplanationDocument(gpu=gpu, text="; ".join(parts)) for gpu, parts in rows]


def describe_vgpu_target(target: VgpuTarget) -> VgpuTargetDocument:
    """The document of the vGPUs that are wanted of one GPU."""
    instances = None if target.instances is None else dict(target.instances)
    return VgpuTargetDocument(gpu=target.gpu_uuid, vgpus=dict(target.wanted), instances=instances)


def read_vgpu_target(document: VgpuTargetDocument) -> VgpuTarget:
    """The reverse of ``describe_vgpu_target``."""
    from vgpumgr.plan.vgpu_layout import VgpuTarget

    return VgpuTarget(document.gpu, tuple(document.vgpus.items()), None, document.instances)


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


def compute_digest(
    gpus: Sequence[Gpu], targets: Sequence[GpuTarget], vgpus: Sequence[Any] = ()
) -> str:
    """Of all that a plan for these targets rests on: mode and instances of the GPUs, vGPUs."""
    named = {target.gpu_uuid for target in targets}
    state = [_list_state(gpu) for gpu in gpus if gpu.uuid in named] + list(vgpus)
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
