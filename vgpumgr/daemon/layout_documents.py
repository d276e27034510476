"""Documents of layouts: plans, differences, exports. See ``documents`` for what they promise."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.daemon.documents import SCHEMA, Document, Field, PlacementDocument


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
