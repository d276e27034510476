"""The documents about VMs, attachments and channels; see ``documents`` for the rules."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, PlacementDocument


class StepDocument(Document):
    """One step of a plan."""

    kind: str = Field(description="a fixed name: mig.gi.create, domain.attach, ...")
    target: dict[str, Any] = Field(description="what it is done to")
    description: str


class PlanDocument(Document):
    """What an operation does, in order."""

    operation: Literal["attach", "detach"]
    subject: str = Field(description="the VM")
    on_failure: Literal["undo", "stop"]
    notes: list[str]
    result: dict[str, Any]
    steps: list[StepDocument]


class HostDeviceDocument(Document):
    """A device of the host that a VM is given."""

    kind: Literal["pci", "vf", "mdev"]
    address: str = Field(description="the PCI function; for a vGPU its parent")
    alias: str = Field(description="in the domain")
    previous_driver: str | None = Field(description="bound again by detach")
    uuid: str | None = Field(description="of a mediated device")
    type: str | None = Field(description="vGPU type")
    parent: str | None = Field(description="physical function of a virtual function")


class AttachmentDocument(Document):
    """A slice that belongs to a VM."""

    id: str
    vm: str
    vm_uuid: str
    profile: str
    backend: str
    number: int = Field(description="in its VM; guests see their devices in this order")
    transport: Literal["auto", "ring", "serial"] | None = Field(description="of a channel")
    state: Literal["attaching", "attached", "detaching"]
    usable: Literal["now", "next-start"] | None = Field(description="when the guest can use it")
    gpu: str | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    device: str | None = Field(description="what CUDA calls the slice: MIG-...")
    placement: PlacementDocument | None = Field(description="of its GPU instance")
    memory_bytes: int
    created_s: float
    host_devices: list[HostDeviceDocument]


class LaneDocument(Document):
    """A guest process that uses the channel, as the guest names it."""

    id: int
    pid: int
    name: str
    transport: Literal["ring", "serial"]
    calls: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int


class ChannelDocument(Document):
    """An attachment's channel: keeper, worker, and who speaks on it."""

    id: str
    vm: str
    profile: str
    device: str | None
    running: bool = Field(description="its keeper runs")
    keeper_pid: int | None
    worker_pid: int | None
    worker_ready: bool
    worker_restarts: int
    hello: bool = Field(description="the guest's agent has spoken")
    transport: Literal["ring", "serial"] | None = Field(description="what the guest uses")
    ring_bytes: int
    problem: str | None
    hidden: bool = Field(
        default=False, description="this user may not look; the rest is not known, not absent"
    )
    lanes: list[LaneDocument]
    calls: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int = Field(description="device memory that the guest's processes hold")


class VmDocument(Document):
    """A VM and what it has."""

    name: str
    uuid: str
    state: Literal["running", "paused", "shut off", "undefined"]
    persistent: bool
    attachment: AttachmentDocument | None = Field(description="the first of its attachments")
    attachments: list[AttachmentDocument] = Field(description="all, by number")
    usable: Literal["now", "next-start"] | None = Field(
        description="when the guest can use the first"
    )
    devices_live: list[str] = Field(description="aliases of our devices in the running machine")
    devices_config: list[str] = Field(description="aliases of our devices in the definition")
    channel: ChannelDocument | None = Field(description="the first of its channels")
    channels: list[ChannelDocument]
    problems: list[str]


class AttachDocument(Document):
    """``vgpumgr attach -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: PlanDocument
    attachment: AttachmentDocument | None = Field(
        description="null for a dry run; the first of several"
    )
    attachments: list[AttachmentDocument] = Field(description="all that were made")
    usable: Literal["now", "next-start"] | None
    notes: list[str] = Field(description="what happened besides the plan")


class DetachDocument(Document):
    """``vgpumgr detach -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: PlanDocument
    notes: list[str]


class VmListDocument(Document):
    """``vgpumgr vm list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vms: list[VmDocument]


class VmShowDocument(Document):
    """``vgpumgr vm show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vm: VmDocument


class VmXmlDocument(Document):
    """``vgpumgr vm xml -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vm: str
    xml: str = Field(description="the whole definition, as libvirt takes it")
    notes: list[str] = Field(description="how it came about, and advice")


class ChannelListDocument(Document):
    """``vgpumgr virtio list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    channels: list[ChannelDocument]


class ChannelShowDocument(Document):
    """``vgpumgr virtio show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    channel: ChannelDocument
    channels: list[ChannelDocument] = Field(description="all that the selector means")


class GuestPackageDocument(Document):
    """``vgpumgr virtio guest-package -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    path: str
    files: list[str]
