"""Documents of passthrough and virtual functions; see ``documents`` for the rules."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.app.documents.attachments import StepDocument
from vgpumgr.app.documents.base import SCHEMA, Document, Field
from vgpumgr.model.functions import VfMethod

Change = Literal["passthrough bind", "passthrough unbind", "vf enable", "vf disable"]
VerdictWord = Literal["viable", "bindable", "shared", "in-use", "no-iommu"]


class BindingDocument(Document):
    """That a function was taken from the host by vgpumgr."""

    driver: str
    previous: str | None = Field(description="the driver of before; it comes back")
    persist: bool = Field(description="taken again at every boot")


class FunctionDocument(Document):
    """One PCI function."""

    address: str
    kind: str = Field(description="gpu, vf, audio, usb, ucsi, bridge, network, storage, ...")
    model: str
    vendor_id: str
    device_id: str
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    boot_display: bool
    physical: str | None = Field(description="of a virtual function: the physical one")
    users: list[str] = Field(description="who uses it now")
    binding: BindingDocument | None


class PassthroughRow(FunctionDocument):
    """A GPU or a virtual function of one, and whether it can go to a VM."""

    gpu_index: int | None
    gpu_uuid: str | None
    companions: list[str] = Field(description="functions that go with it")
    reset_methods: list[str] | None = Field(
        description="how it is reset between VMs; empty: not at all; null: the kernel does not say"
    )
    power_state: str | None = Field(description="D0 to D3cold")
    verdict: VerdictWord
    blockers: list[str] = Field(description="who is in the way")
    why: str | None
    hint: str | None


class PassthroughListDocument(Document):
    """``vgpumgr passthrough list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    functions: list[PassthroughRow]
    iommu: bool = Field(description="whether the kernel uses an IOMMU")
    notes: list[str]


class GroupDocument(Document):
    """An IOMMU group with all its members."""

    number: int
    members: list[FunctionDocument]
    verdict: VerdictWord
    blockers: list[str]
    why: str | None
    hint: str | None


class GroupListDocument(Document):
    """``vgpumgr passthrough groups -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    groups: list[GroupDocument]
    iommu: bool
    notes: list[str]


class PciChangeDocument(Document):
    """``passthrough bind`` and ``unbind``, ``vf enable`` and ``disable``, with ``-o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    change: Change
    subject: str = Field(description="the function's address")
    dry_run: bool
    steps: list[StepDocument]
    concerns: list[str] = Field(description="who uses it now, and may lose it")
    result: dict[str, Any]
    notes: list[str]


class VfDocument(Document):
    """One virtual function."""

    index: int = Field(description="from 0")
    address: str
    driver: str | None
    iommu_group: int | None
    users: list[str] = Field(description="who uses it now: VMs, processes")
    configured: list[str] = Field(description="VMs whose definition names it")
    quotas: dict[str, str]
    framebuffer_bytes: int | None = Field(
        description="its part of the GPU's memory, where the vendor's library says (AMD)"
    )


class PhysicalDocument(Document):
    """A function that can have virtual functions."""

    address: str
    model: str
    driver: str | None
    total: int
    count: int
    method: VfMethod | None = Field(description="how their number is set; null: see why_not")
    why_not: str | None
    persist: bool
    vfs: list[VfDocument]


class VfListDocument(Document):
    """``vgpumgr vf list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    physicals: list[PhysicalDocument]
    notes: list[str]
