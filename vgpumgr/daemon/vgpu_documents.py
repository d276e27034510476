"""Documents of vGPUs. See ``documents`` for what they promise."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.daemon.attachment_documents import StepDocument
from vgpumgr.daemon.documents import SCHEMA, Document, Field

FrameworkName = Literal["mdev", "vendor-vfio"]


class ResolutionDocument(Document):
    """The largest picture, in pixels."""

    width: int
    height: int


class VgpuTypeDocument(Document):
    """A vGPU type on one GPU, and how many more fit. Null: neither kernel nor driver says."""

    gpu: str = Field(description="bus address of the GPU; the parent's name where it has none")
    gpu_index: int | None
    framework: FrameworkName
    id: str = Field(description="the kernel's; may change with the driver")
    name: str
    framebuffer_bytes: int | None
    heads: int | None
    max_instances: int | None = Field(description="on a GPU of their own")
    frame_rate_limit: int | None = Field(description="frames each second")
    resolution: ResolutionDocument | None
    mig_profile: str | None = Field(
        description="of the GPU instance it lives in; null: time-sliced"
    )
    free: int = Field(description="how many more can really be created now")
    reason: str | None = Field(description="why none")


class VgpuTypesDocument(Document):
    """``vgpumgr mdev types -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    types: list[VgpuTypeDocument]
    note: str | None = Field(description="where there are none: what it takes")


class AttributeDocument(Document):
    """An attribute, in the order in which it is written."""

    name: str
    value: str


class VgpuDocument(Document):
    """A vGPU that is there, or defined, or on its way."""

    uuid: str | None = Field(description="null: a virtual function that is not ours")
    state: Literal["active", "defined", "creating", "releasing", "ghost", "missing"] = Field(
        description="releasing: removed while held, its room is not free yet; "
        "ghost: the same, removed without us; missing: ours, and gone without us"
    )
    ours: bool
    framework: FrameworkName
    type: str
    type_id: str
    parent: str
    gpu: str | None = Field(description="as in the list of types; null: its parent is gone")
    gpu_index: int | None
    defined: bool = Field(description="it is to come back")
    auto: bool = Field(description="at boot, not only when asked for")
    attributes: list[AttributeDocument]
    iommu_group: int | None
    placement: int | None = Field(description="where on the GPU, as the driver counts")
    gpu_instance: int | None
    attachment: str | None
    vm: str | None
    held_by: list[str] = Field(description="who keeps it from being released")


class VgpuListDocument(Document):
    """``vgpumgr mdev list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vgpus: list[VgpuDocument]


class VgpuPlanDocument(Document):
    """What an operation on a vGPU does, in order."""

    operation: str
    subject: str
    on_failure: Literal["undo", "stop"]
    notes: list[str]
    result: dict[str, Any]
    steps: list[StepDocument]


class VgpuChangeDocument(Document):
    """What ``mdev create``, ``delete``, ``define``, ``start``, ``stop`` and ``adopt`` answer."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: VgpuPlanDocument
    vgpu: VgpuDocument | None = Field(description="as it is afterwards; null: gone, or a dry run")
    notes: list[str] = Field(description="what happened besides the plan")
