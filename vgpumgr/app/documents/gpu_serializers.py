"""Models to documents: one GPU with its instances and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.app.documents.base import (
    ComputeInstanceDocument,
    GpuDocument,
    InstanceDocument,
    IommuGroupDocument,
    MigModeDocument,
    PciGpuDocument,
    PlacementDocument,
    ProcessDocument,
    ProfileFitDocument,
    UtilisationDocument,
)
from vgpumgr.mig.placement import list_refusals
from vgpumgr.mig.rules import Occupancy, count_packable
from vgpumgr.model.gpu import Gpu, GpuProcess, PciGpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, Placement
from vgpumgr.model.pci import IommuGroup
from vgpumgr.model.slice import SliceOwner

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
    group = gpu.iommu_group
    use = gpu.utilisation
    capability = gpu.compute_capability
    return GpuDocument(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        pci=str(gpu.pci),
        numa_node=gpu.numa_node,
        iommu_group=_describe_group(group) if group else None,
        driver=gpu.driver,
        driver_version=gpu.driver_version,
        architecture=gpu.architecture,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        serial=gpu.serial,
        memory_total_bytes=gpu.memory.total_bytes,
        memory_used_bytes=gpu.memory.used_bytes,
        utilisation=UtilisationDocument(gpu_ratio=use.gpu_ratio, memory_ratio=use.memory_ratio)
        if use
        else None,
        mig=_describe_mode(gpu),
        instances=[describe_instance(gpu, instance, owners) for instance in gpu.instances],
        processes=[_describe_process(p) for p in gpu.processes if p.gpu_instance_id is None],
    )


def describe_pci_gpu(gpu: PciGpu) -> PciGpuDocument:
    """The document of a GPU that NVML does not speak about."""
    return PciGpuDocument(
        model=gpu.model,
        pci=str(gpu.address),
        vendor_id=gpu.vendor_id,
        device_id=gpu.device_id,
        class_code=gpu.class_code,
        numa_node=gpu.numa_node,
        iommu_group=_describe_group(gpu.iommu_group) if gpu.iommu_group else None,
        driver=gpu.driver,
        bar_bytes=list(gpu.bar_bytes),
        vfs_total=gpu.vfs_total,
        vfs_enabled=gpu.vfs_enabled,
        boot_display=gpu.is_boot_display,
    )


def describe_instance(gpu: Gpu, instance: GpuInstance, owners: Owners) -> InstanceDocument:
    """The document of one GPU instance."""
    own = owners.get((gpu.uuid, instance.id), ())
    owner = own[0] if own else None
    return InstanceDocument(
        id=instance.id,
        profile=str(instance.profile),
        placement=_describe_placement(instance.placement),
        slices=instance.slices,
        memory_bytes=instance.memory_bytes,
        vm=owner.vm_name if owner else None,
        attachment=owner.attachment_id if owner else None,
        compute_instances=[_describe_compute(c, own) for c in instance.compute_instances],
        processes=[_describe_process(p) for p in gpu.processes if p.gpu_instance_id == instance.id],
    )


def describe_profile(gpu: Gpu, profile: MigProfile) -> ProfileFitDocument:
    """The document of one profile on one GPU, with what fits now or why nothing does."""
    refusals = list_refusals([gpu], profile.name)
    occupancy = Occupancy.of(gpu)
    return ProfileFitDocument(
        name=str(profile.name),
        id=profile.id,
        slices=profile.slices,
        memory_bytes=profile.memory_bytes,
        sm_count=profile.sm_count,
        max_instances=profile.max_instances,
        placements=[_describe_placement(p) for p in profile.placements],
        free_placements=[]
        if refusals
        else [_describe_placement(p) for p in occupancy.list_fits(profile)],
        free=0 if refusals else count_packable(occupancy, profile),
        why_not=refusals[0].reason if refusals else None,
    )


def _describe_mode(gpu: Gpu) -> MigModeDocument:
    occupancy = Occupancy.of(gpu)
    return MigModeDocument(
        supported=gpu.mig.supported,
        current=gpu.mig.current,
        pending=gpu.mig.pending,
        needs_reset=gpu.mig.needs_reset,
        compute_slices=gpu.compute_slices,
        compute_slices_used=gpu.compute_slices - occupancy.free_compute_slices,
        memory_positions=gpu.memory_positions,
        memory_positions_used=sum(i.placement.size for i in gpu.instances),
    )


def _describe_group(group: IommuGroup) -> IommuGroupDocument:
    return IommuGroupDocument(number=group.number, members=[str(m) for m in group.members])


def _describe_placement(placement: Placement) -> PlacementDocument:
    return PlacementDocument(start=placement.start, size=placement.size)


def _describe_compute(
    compute: ComputeInstance, owners: Sequence[SliceOwner]
) -> ComputeInstanceDocument:
    owner = next((o for o in owners if o.compute_instance_id in (None, compute.id)), None)
    return ComputeInstanceDocument(
        id=compute.id,
        uuid=compute.uuid,
        slices=compute.slices,
        memory_used_bytes=compute.memory_used_bytes,
        vm=owner.vm_name if owner else None,
        attachment=owner.attachment_id if owner else None,
    )


def _describe_process(process: GpuProcess) -> ProcessDocument:
    return ProcessDocument(
        pid=process.pid,
        name=process.name,
        kind=process.kind.value,
        memory_bytes=process.memory_bytes,
    )
