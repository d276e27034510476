"""Documents of layouts and capacity: plans, differences, exports, why a profile does not fit, and what makes room."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, PlacementDocument
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.mig.layout.target import GpuTarget
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import Gpu

if TYPE_CHECKING:
    from vgpumgr.planning.vgpus import VgpuChange, VgpuTarget


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
    disruptive: bool = Field(description="a VM or process loses a slice that it uses")
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
    return LayoutStepDocument.of(
        step,
        gpu=step.gpu_uuid,
        gpu_index=index,
        instance=step.instance_id,
        compute_instance=step.compute_instance_id,
    )


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
    return VgpuTargetDocument.of(target, gpu=target.gpu_uuid, vgpus=dict(target.wanted))


def read_vgpu_target(document: VgpuTargetDocument) -> VgpuTarget:
    """The reverse of ``describe_vgpu_target``."""
    from vgpumgr.planning.vgpus import VgpuTarget

    return VgpuTarget(document.gpu, tuple(document.vgpus.items()), None, document.instances)


def describe_target(target: GpuTarget) -> GpuTargetDocument:
    """The document of what is wanted of one GPU."""
    return GpuTargetDocument.of(target, gpu=target.gpu_uuid)


def read_target(document: GpuTargetDocument) -> GpuTarget:
    """The reverse of ``describe_target``."""
    data = document.as_data()
    return decode(GpuTarget, {"gpu_uuid": data.pop("gpu"), **data})


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


class ObstacleDocument(Document):
    """An instance in the way, and who holds it."""

    instance: int | None = Field(description="null: not there, its place is only kept")
    profile: str
    placement: PlacementDocument
    holders: list[str] = Field(description="VMs and processes; empty: it is not in use")


class WhyRow(Document):
    """The answer for one GPU."""

    gpu: str | None = Field(default=None, description="bus address of the GPU")
    gpu_index: int | None = Field(description="null for a GPU that NVML does not speak about")
    gpu_uuid: str | None = Field(description="null for a GPU that NVML does not speak about")
    fits: bool
    places: list[PlacementDocument] = Field(description="where a MIG profile fits")
    rules: list[str] = Field(description="which rules forbid it, in words")
    remove: list[ObstacleDocument] = Field(description="the fewest whose removal frees a place")
    kept: list[ObstacleDocument] = Field(
        description="slices that are gone since a boot and are to come back: places of theirs"
    )
    sentence: str
    moving: str | None = Field(description="which moves alone free a place, where some do")


class WhyDocument(Document):
    """``vgpumgr why PROFILE -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profile: str
    fits: bool = Field(description="on some GPU")
    gpus: list[WhyRow]
    notes: list[str] = Field(default_factory=list, description="what is not known, and why")


class MoveDocument(Document):
    """An instance that would go to another place."""

    instance: int
    profile: str
    from_: PlacementDocument = Field(in_json="from")
    to: PlacementDocument
    vms: list[str] = Field(description="VMs that have it and are shut off")
    onto: int | None = Field(description="the unused instance there that takes its part")


class DefragRow(Document):
    """How one GPU would get room. ``steps`` null: not without taking from running holders."""

    gpu_index: int
    gpu_uuid: str
    possible: bool
    moves: list[MoveDocument]
    remove: list[ObstacleDocument] = Field(description="unused instances that have to go")
    at: PlacementDocument | None = Field(description="where the new instance would be")
    steps: list[dict[str, Any]] | None = Field(description="as in mig layout plan")
    sentence: str


class DefragDocument(Document):
    """``vgpumgr mig defrag --plan PROFILE -o json``; the best option first."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profile: str
    options: list[DefragRow]
