"""Documents of layouts: plans, differences, exports. See ``documents`` for what they promise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, PlacementDocument
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement

if TYPE_CHECKING:
    from vgpumgr.planning.vgpu_layouts import VgpuChange, VgpuTarget


class LayoutStepDocument(Document):
    """One call of the driver. Parts that do not apply are null."""

    kind: Literal[
        "mig.mode.enable",
        "mig.mode.disable",
        "mig.gi.create",
        "mig.gi.destroy",
        "mig.ci.create",
        "mig.ci.destroy",
        "mdev.create",
        "mdev.delete",
    ]
    gpu: str = Field(description="UUID")
    gpu_index: int
    profile: str | None = None
    placement: PlacementDocument | None = Field(
        default=None,
        description="of a compute instance: on the compute slices of its GPU instance",
    )
    instance: int | None = Field(default=None, description="id of the GPU instance, if it exists")
    compute_instance: int | None = None
    key: str | None = Field(default=None, description="joins a creation and what happens inside")
    parent_profile: str | None = Field(default=None, description="of a compute instance: its home")
    parent_placement: PlacementDocument | None = None
    disrupts: list[str] = Field(default_factory=list, description="who loses the slice by it")
    vgpu_type: str | None = Field(default=None, description="of a vGPU")
    parent: str | None = Field(default=None, description="of a vGPU: what it is created on")
    vgpu: str | None = Field(default=None, description="UUID of a vGPU that goes")


class LayoutCostDocument(Document):
    """What a plan does, in numbers."""

    disruptions: int
    gi_destroys: int
    gi_creates: int
    ci_destroys: int
    ci_creates: int
    mode_changes: int
    kept: int
    calls: int
    vgpu_creates: int = 0
    vgpu_deletes: int = 0


class GpuExplanationDocument(Document):
    """A sentence about one GPU."""

    gpu: str
    text: str


class TargetInstanceDocument(Document):
    """A wanted GPU instance."""

    profile: str
    compute: list[str] | None = Field(description="null: one compute instance of full size")
    placement: PlacementDocument | None


class GpuTargetDocument(Document):
    """What is wanted of one GPU."""

    gpu: str
    mig_enabled: bool
    instances: list[TargetInstanceDocument] | None = Field(description="null: left as they are")


class VgpuTargetDocument(Document):
    """The vGPUs that are wanted of one GPU, by type."""

    gpu: str
    vgpus: dict[str, int]
    instances: dict[str, int] | None = Field(
        default=None, description="GPU instances that the same layout makes, by profile"
    )


class LayoutPlanDocument(Document):
    """``vgpumgr mig layout plan -o json``, and what ``--out`` saves."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    layout: str | None = Field(description="name of the layout in its file")
    source: str | None = Field(description="the file")
    applied: bool = Field(description="whether the steps were done")
    steps: list[LayoutStepDocument]
    disruptive: bool = Field(description="somebody loses a slice that he uses")
    destructive: bool = Field(description="something that exists is destroyed")
    cost: LayoutCostDocument
    explanations: list[GpuExplanationDocument]
    notes: list[str] = Field(description="what the lint found in the file")
    targets: list[GpuTargetDocument]
    vgpu_targets: list[VgpuTargetDocument] = Field(default_factory=list)
    allowed: list[str] = Field(description="what --allow-disruptive named")
    digest: str = Field(description="of the state that the plan was made for")


class DifferenceDocument(Document):
    """One way in which a GPU is not as the layout says."""

    gpu: str
    gpu_index: int
    text: str


class LayoutAssertDocument(Document):
    """``vgpumgr mig layout assert -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    layout: str
    source: str
    matches: bool
    differences: list[DifferenceDocument]
    notes: list[str]


class LayoutFileDocument(Document):
    """A layout file or checkpoint as data, and what it cannot say."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    file: dict[str, Any]
    notes: list[str]


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
    from vgpumgr.planning.vgpu_layouts import VgpuTarget

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
