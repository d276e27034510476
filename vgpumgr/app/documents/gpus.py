"""Documents of GPUs, their MIG instances and profiles; see ``documents.base`` for the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vgpumgr.app.documents.base import (
    SCHEMA,
    Document,
    Field,
    PlacementDocument,
    StepDocument,
)
from vgpumgr.app.documents.shares import GpuSharesDocument, describe_instance_shares
from vgpumgr.mig.placement import count_fits, list_fits, list_refusals
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.gpu import Drain, Gpu, PciGpu, Sensors, find_drain
from vgpumgr.model.health import GpuHealth, describe_xid
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile
from vgpumgr.model.pci import Function, PciAddress
from vgpumgr.model.vgpu import VgpuDevice, VgpuType

FrameworkName = Literal["mdev", "vendor-vfio"]


class ProcessDocument(Document):
    """A process with a context on the GPU or on one of its instances."""

    pid: int
    name: str | None = Field(description="as the kernel has it, at most 15 characters")
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None


class HolderDocument(Document):
    """What a MIG instance belongs to: a VM, a command of the host, or a vGPU that no known VM has."""

    kind: Literal["vm", "run", "vgpu"]
    name: str = Field(description="the VM's or the run's; for a vGPU its type and name")


class ComputeInstanceDocument(Document):
    """A compute instance: the MIG device that CUDA sees."""

    id: int
    uuid: str | None = Field(description="MIG-..., what CUDA_VISIBLE_DEVICES takes")
    slices: int
    memory_used_bytes: int | None
    vm: str | None = Field(
        description="the VM that it is attached to; of several that have shares of it, the first"
    )
    attachment: str | None
    holder: HolderDocument | None = Field(
        default=None, description="null: it is free; of several, the first VM, else the first"
    )


class InstanceDocument(Document):
    """A GPU instance and its holders. ``vm``, ``attachment`` and ``holder`` are of one holder: the first VM, else
    the first run or vGPU. ``shares`` lists all holders of shares.
    """

    id: int
    profile: str
    placement: PlacementDocument
    slices: int
    memory_bytes: int
    vm: str | None = Field(
        description="the VM that it is attached to; of several that have slices or shares of it, the first"
    )
    attachment: str | None = Field(description="id of the holder's attachment, run or vGPU")
    holder: HolderDocument | None = Field(
        default=None, description="null: it is free; of several, the first VM, else the first"
    )
    compute_instances: list[ComputeInstanceDocument]
    processes: list[ProcessDocument]
    shares: GpuSharesDocument | None = Field(
        default=None, description="who has shares of it; null: it is not shared"
    )


class MigModeDocument(Document):
    """MIG mode, and what is free."""

    supported: bool
    current: bool
    pending: bool
    needs_reset: bool = Field(description="the mode changes only by a reset of the GPU")
    compute_slices: int = Field(description="of the whole GPU; 0 without MIG")
    compute_slices_used: int
    memory_positions: int = Field(description="length of the memory axis; 0 without MIG")
    memory_positions_used: int


class IommuGroupDocument(Document):
    """The IOMMU group; all its members go to one VM together."""

    number: int
    members: list[str]


class UtilisationDocument(Document):
    """Share of the last sample period in which kernels ran, and memory was read or written."""

    gpu_ratio: float
    memory_ratio: float


class SliceDeviceDocument(Document):
    """A vGPU or a virtual function of a GPU, which a VM has or can have as a device."""

    kind: Literal["vgpu", "vf"] = Field(
        description="vf: a function that goes to a VM as it is, without a vGPU type"
    )
    name: str = Field(description="a mediated device's UUID, else the address of the function")
    profile: str = Field(description="the vGPU type's name, or vf")
    function: str = Field(description="the PCI function that it is on")
    driver: str | None = Field(description="kernel driver of a virtual function; null for a vGPU")
    memory_bytes: int | None = Field(description="its frame buffer, where the type has one")
    gpu_instance: int | None = Field(description="id of the GPU instance that the vGPU is in")
    vm: str | None = Field(description="the VM that has it")
    attachment: str | None = Field(description="id of that attachment")


class FaultDocument(Document):
    """What makes a GPU unhealthy."""

    kind: Literal["xid", "ecc", "temperature"] = Field(description="how it shows")
    xid: int | None = Field(description="number of the Xid; null for the other kinds")
    text: str = Field(description="its meaning in words")


class DrainDocument(Document):
    """That a GPU takes no new slice."""

    by: str = Field(description="the user who drained it, by name where the host has one")
    since_s: float | None = Field(
        description="when, in seconds since 1970; null where the driver does not say it of a fault"
    )
    reason: str | None
    fault: FaultDocument | None = Field(
        default=None, description="where the driver says that the GPU is unhealthy"
    )
    text: str = Field(description="the same in words")


class XidCountDocument(Document):
    """An Xid that the driver has reported of a GPU."""

    xid: int = Field(description="its number")
    text: str = Field(description="its number and meaning in words")
    count: int = Field(description="how often it was reported")
    last_s: float = Field(description="when last, in seconds since 1970")


class GpuHealthDocument(Document):
    """What the driver says of a GPU's health."""

    healthy: bool = Field(description="whether nothing of it keeps new slices away")
    temperature_c: int | None = Field(description="null: the driver gives none")
    slowdown_c: int | None = Field(description="from here on the hardware slows the GPU down")
    ecc_errors: int | None = Field(
        description="uncorrectable errors since the driver was loaded; null without ECC"
    )
    power_w: float | None = Field(description="what the card draws; null: the driver gives none")
    power_limit_w: float | None = Field(description="the most that the driver lets it draw")
    xids: list[XidCountDocument] = Field(description="those that were reported, by number")


class GpuDocument(Document):
    """One GPU."""

    index: int
    uuid: str
    model: str
    pci: str
    numa_node: int | None
    iommu_group: IommuGroupDocument | None
    driver: str | None = Field(description="kernel driver bound to the PCI function")
    driver_version: str
    architecture: str | None
    compute_capability: str | None
    serial: str | None
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation: UtilisationDocument | None
    mig: MigModeDocument
    instances: list[InstanceDocument]
    processes: list[ProcessDocument] = Field(description="those on the GPU as a whole")
    vms: list[str] = Field(
        default_factory=list, description="VMs that have it, a virtual function or a vGPU of it"
    )
    vfs_total: int | None = Field(
        default=None, description="virtual functions it can have; null without SR-IOV"
    )
    vfs_enabled: int | None = Field(default=None, description="virtual functions it has now")
    devices: list[SliceDeviceDocument] = Field(
        default_factory=list, description="its vGPUs and virtual functions"
    )
    drained: DrainDocument | None = Field(
        default=None, description="where it takes no new slice: who said so"
    )
    health: GpuHealthDocument | None = Field(default=None, description="as the driver sees it now")
    shares: GpuSharesDocument | None = Field(
        default=None, description="who has shares of it, and what still fits"
    )


class SensorsDocument(Document):
    """What the kernel's driver of a GPU shows of it now; null: nothing of that."""

    temperature_c: float | None = Field(description="of the GPU itself, not of its memory")
    power_w: float | None = Field(description="what the card draws")
    power_limit_w: float | None = Field(description="the most that it may draw for long")
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    gpu_ratio: float | None = Field(description="how busy the GPU is, 0 to 1")
    memory_ratio: float | None = Field(description="how busy its memory is, 0 to 1")


class PciGpuDocument(Document):
    """A GPU that NVML does not speak about, as ``/sys`` shows it."""

    model: str
    pci: str
    vendor_id: int
    device_id: int
    class_code: int = Field(description="three bytes: base class, subclass, interface")
    numa_node: int | None
    iommu_group: IommuGroupDocument | None
    driver: str | None = Field(description="kernel driver bound to the PCI function")
    bar_bytes: list[int] = Field(description="sizes of its memory BARs")
    vfs_total: int | None = Field(description="virtual functions it can have; null without SR-IOV")
    vfs_enabled: int | None
    boot_display: bool = Field(description="the firmware draws on it")
    vms: list[str] = Field(
        default_factory=list, description="VMs that have it, a virtual function or a vGPU of it"
    )
    devices: list[SliceDeviceDocument] = Field(
        default_factory=list, description="its vGPUs and virtual functions"
    )
    drained: DrainDocument | None = Field(
        default=None, description="where it takes no new slice: who said so"
    )
    sensors: SensorsDocument | None = Field(
        default=None, description="null: its driver shows none, or does not answer"
    )


class LostGpuDocument(Document):
    """A GPU that NVML counts but cannot speak about."""

    index: int
    nvml_code: int
    nvml_text: str


class MachineDocument(Document):
    """Where the answer comes from."""

    name: str | None = Field(description="null on the real machine")
    simulated: bool
    driver_version: str | None = Field(description="null without NVML, as the next two")
    nvml_version: str | None
    cuda_version: str | None


class GpuListDocument(Document):
    """``vgpumgr gpu list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: MachineDocument
    gpus: list[GpuDocument]
    others: list[PciGpuDocument] = Field(description="GPUs that NVML does not speak about")
    lost: list[LostGpuDocument]


class ProfileFitDocument(Document):
    """A profile on one GPU: how many more fit, and if none does, why not."""

    name: str
    id: int
    slices: int
    memory_bytes: int
    sm_count: int
    max_instances: int
    placements: list[PlacementDocument]
    free_placements: list[PlacementDocument]
    free: int = Field(description="how many more of this profile alone fit")
    why_not: str | None


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


class VfCapacityDocument(Document):
    """What a GPU has left of virtual functions that go to VMs as they are."""

    possible: int = Field(
        description="how many its driver makes, by the word of the vendor's library where there is one"
    )
    enabled: int
    used: int = Field(description="how many of these VMs have")
    free: int = Field(description="how many VMs more can have one now")
    why_not: str | None = Field(description="where it is none: why")


class GpuShowDocument(Document):
    """``vgpumgr gpu show GPU -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: MachineDocument
    gpu: GpuDocument | None = Field(description="null for a GPU that NVML does not speak about")
    other: PciGpuDocument | None = Field(description="null for one that it does")
    profiles: list[ProfileFitDocument]
    held_by: list[str] = Field(
        default_factory=list,
        description="who has device files of it or of its virtual functions open",
    )
    vgpu_types: list[VgpuTypeDocument] = Field(
        default_factory=list, description="the vGPU types that it offers, and how many more fit"
    )
    vgpu_note: str | None = Field(
        default=None, description="what a vGPU host needs before it offers types"
    )
    vf_capacity: VfCapacityDocument | None = Field(
        default=None,
        description="of a GPU that NVML does not speak about; null without SR-IOV",
    )


class GpuDrainDocument(Document):
    """``vgpumgr gpu drain GPU -o json``, and ``resume``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    change: Literal["drain", "resume"]
    pci: str
    index: int | None = Field(description="null for a GPU that NVML does not speak about")
    uuid: str | None
    name: str = Field(description="for people")
    dry_run: bool
    steps: list[StepDocument] = Field(description="none: it is so already")
    drained: DrainDocument | None = Field(description="as it is, or would be, afterwards")
    used_by: list[str] = Field(description="who uses the GPU, and goes on")
    notes: list[str]


class MigInstanceRow(InstanceDocument):
    """An instance with the GPU that it is on."""

    gpu_index: int
    gpu_uuid: str


class MigListDocument(Document):
    """``vgpumgr mig list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    instances: list[MigInstanceRow]
    note: str | None = Field(default=None, description="where there are none: why")


class MigProfileRow(ProfileFitDocument):
    """A profile with the GPU that offers it."""

    gpu_index: int
    gpu_uuid: str


class MigProfilesDocument(Document):
    """``vgpumgr mig profiles -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profiles: list[MigProfileRow]
    note: str | None = Field(default=None, description="where there are none: why")


#: those of each GPU instance, by its GPU and id: several where they share it
Owners = Mapping[tuple[GpuUuid, int], Sequence[SliceOwner]]


def index_owners(owners: Sequence[SliceOwner]) -> Owners:
    """Owners by GPU and GPU instance."""
    found: dict[tuple[GpuUuid, int], list[SliceOwner]] = {}
    for owner in owners:
        found.setdefault((owner.gpu, owner.gpu_instance_id), []).append(owner)
    return found


def describe_gpu(gpu: Gpu, owners: Owners) -> GpuDocument:
    """The document of one GPU."""
    capability = gpu.compute_capability
    return GpuDocument.of(
        gpu,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory_total_bytes=gpu.memory.total_bytes,
        memory_used_bytes=gpu.memory.used_bytes,
        mig=_describe_mode(gpu),
        vfs_enabled=gpu.vfs_enabled if gpu.vfs_total else None,
        instances=[describe_instance(gpu, instance, owners) for instance in gpu.instances],
        processes=_list_processes(gpu, None),
    )


def describe_drain(drain: Drain | None) -> DrainDocument | None:
    """The document of a drain; None for a GPU that takes slices."""
    if drain is None:
        return None
    fault = None if drain.fault is None else FaultDocument.of(drain.fault)
    return DrainDocument.of(drain, fault=fault, text=str(drain))


def describe_health(
    gpu: Gpu, drains: Sequence[Drain], known: Sequence[GpuHealth]
) -> GpuHealthDocument:
    """What the driver says of one GPU, and has said."""
    counts = next((one.xids for one in known if one.uuid == gpu.uuid), ())
    return GpuHealthDocument.of(
        gpu,
        healthy=not any(d.fault is not None and d.is_of(gpu.pci, gpu.uuid) for d in drains),
        power_w=_in_watts(gpu.power_mw),
        power_limit_w=_in_watts(gpu.power_limit_mw),
        xids=[XidCountDocument.of(one, text=describe_xid(one.xid)) for one in counts],
    )


def _in_watts(power_mw: int | None) -> float | None:
    return None if power_mw is None else power_mw / 1000


def mark_drained(document: GpuListDocument, drains: Sequence[Drain]) -> GpuListDocument:
    """With the drains of its GPUs."""

    def find(pci: str, uuid: str | None = None) -> DrainDocument | None:
        return describe_drain(find_drain(drains, PciAddress.parse(pci), uuid))

    return document.replace(
        gpus=[gpu.replace(drained=find(gpu.pci, gpu.uuid)) for gpu in document.gpus],
        others=[gpu.replace(drained=find(gpu.pci)) for gpu in document.others],
    )


def describe_pci_gpu(gpu: PciGpu, sensors: Sensors | None = None) -> PciGpuDocument:
    """The document of a GPU that NVML does not speak about."""
    return PciGpuDocument.of(
        gpu,
        pci=str(gpu.address),
        boot_display=gpu.is_boot_display,
        sensors=None if sensors is None else SensorsDocument.of(sensors),
    )


def describe_vgpu(
    device: VgpuDevice, type_: VgpuType | None, owner: AttachmentRecord | None
) -> SliceDeviceDocument:
    """The document of a vGPU."""
    return SliceDeviceDocument(
        kind="vgpu",
        name=device.key,
        profile=device.type_name,
        function=device.parent,
        driver=None,
        memory_bytes=type_.framebuffer_bytes if type_ else None,
        gpu_instance=device.gpu_instance_id,
        vm=owner.vm_name if owner else device.vm_name,
        attachment=owner.id if owner else None,
    )


def describe_vf(function: Function, owner: AttachmentRecord | None) -> SliceDeviceDocument:
    """The document of a virtual function that goes to a VM as it is."""
    return SliceDeviceDocument(
        kind="vf",
        name=str(function.address),
        profile="vf",
        function=str(function.address),
        driver=function.driver,
        memory_bytes=None,
        gpu_instance=None,
        vm=owner.vm_name if owner else None,
        attachment=owner.id if owner else None,
    )


def describe_instance(gpu: Gpu, instance: GpuInstance, owners: Owners) -> InstanceDocument:
    """The document of one GPU instance."""
    own = owners.get((gpu.uuid, instance.id), ())
    return InstanceDocument.of(
        instance,
        **_name_owners(own),
        compute_instances=[_describe_compute(c, own) for c in instance.compute_instances],
        processes=_list_processes(gpu, instance.id),
    )


def add_instance_shares(
    records: Sequence[AttachmentRecord],
    gpu: Gpu,
    documents: Sequence[InstanceDocument],
    drain: DrainDocument | None,
) -> list[InstanceDocument]:
    """The documents of a GPU's instances with their shares."""
    there, why = (
        {instance.id: instance for instance in gpu.instances},
        drain.text if drain else None,
    )
    return [
        one.replace(shares=describe_instance_shares(records, gpu, there[one.id], why))
        for one in documents
    ]


def describe_profile(
    gpu: Gpu, profile: MigProfile, drain: Drain | None = None
) -> ProfileFitDocument:
    """The document of one profile on one GPU, with what fits now or why nothing does."""
    reasons = (
        [r.reason for r in list_refusals([gpu], profile.name)] if drain is None else [str(drain)]
    )
    fits = () if reasons else list_fits(gpu, profile)
    return ProfileFitDocument.of(
        profile,
        free_placements=[PlacementDocument.of(place) for place in fits],
        free=0 if reasons else count_fits(gpu, profile),
        why_not=reasons[0] if reasons else None,
    )


def _describe_mode(gpu: Gpu) -> MigModeDocument:
    return MigModeDocument.of(
        gpu.mig,
        compute_slices=gpu.compute_slices,
        compute_slices_used=sum(i.slices for i in gpu.instances),
        memory_positions=gpu.memory_positions,
        memory_positions_used=sum(i.placement.size for i in gpu.instances),
    )


def _describe_compute(
    compute: ComputeInstance, owners: Sequence[SliceOwner]
) -> ComputeInstanceDocument:
    own = [o for o in owners if o.compute_instance_id in (None, compute.id)]
    return ComputeInstanceDocument.of(compute, **_name_owners(own))


def _name_owners(owners: Sequence[SliceOwner]) -> dict[str, Any]:
    """One of them: the first VM, else the first."""
    if not owners:
        return {"vm": None, "attachment": None, "holder": None}
    one = next((o for o in owners if o.kind == "vm"), owners[0])
    return {
        "vm": one.vm_name if one.kind == "vm" else None,
        "attachment": one.attachment_id,
        "holder": HolderDocument(kind=one.kind, name=one.vm_name),
    }


def _list_processes(gpu: Gpu, instance: int | None) -> list[ProcessDocument]:
    return [ProcessDocument.of(p) for p in gpu.processes if p.gpu_instance_id == instance]
