"""What a detach does about host devices: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import VFIO, Binding
from vgpumgr.plan.domain_steps import DetachDevices
from vgpumgr.plan.hostdev_steps import (
    DropVfs,
    HandOverVfs,
    ReturnFunction,
    ReturnVgpu,
    UnplugDevices,
)
from vgpumgr.plan.instance_steps import plan_without_instance
from vgpumgr.plan.pci_steps import ReleaseDriver, RemoveVfs
from vgpumgr.plan.record import AttachmentRecord, HostDevice
from vgpumgr.plan.step import Step
from vgpumgr.plan.vgpu_record import VgpuInstance
from vgpumgr.plan.vgpu_steps import DeleteVgpu
from vgpumgr.plan.world import World


def plan_unplug(record: AttachmentRecord, vm: Vm, timeout_s: float) -> list[Step[World]]:
    """The definition first: should the guest not let go, its next start is without the device."""
    aliases = tuple(device.alias for device in record.host_devices)
    steps: list[Step[World]] = []
    if vm.config is not None:
        steps.append(DetachDevices(vm.name, vm.uuid, aliases, Scope.CONFIG, timeout_s))
    if vm.live is not None:
        steps.append(UnplugDevices(vm.name, vm.uuid, aliases, Scope.LIVE, timeout_s))
    return steps


def plan_return(
    record: AttachmentRecord,
    records: Sequence[AttachmentRecord],
    gpus: Sequence[Gpu],
    homes: Mapping[str, VgpuInstance | None],
) -> list[Step[World]]:
    """Everything back to what it was before the attach, in reverse. ``homes``: the GPU instances that
    were made for vGPUs, by UUID; the last that lives in one takes it along.
    """
    own = {device.vgpu.uuid for device in record.host_devices if device.vgpu is not None}
    others = [home for uuid, home in homes.items() if uuid not in own and home is not None]
    others += [h for r in records if r.id != record.id for h in list_homes(r, homes)]
    steps: list[Step[World]] = []
    for device in reversed(record.host_devices):
        if device.vgpu is not None:
            home = homes.get(device.vgpu.uuid, device.instance)
            steps += [ReturnVgpu(DeleteVgpu(device.vgpu), home)] if device.created else []
            if home is not None and device.created:
                steps += plan_without_instance(home, gpus, others)
        elif device.address is not None and device.created:
            steps.append(ReturnFunction(ReleaseDriver(_make_binding(device, device.address))))
        if device.made_vfs and device.parent is not None:
            steps.append(_plan_vfs(record, records, device.parent, device.made_vfs))
    return steps


def list_homes(
    record: AttachmentRecord, homes: Mapping[str, VgpuInstance | None]
) -> list[VgpuInstance]:
    """The GPU instances that were made for its vGPUs, and are there for all that is known."""
    found = [homes.get(d.vgpu.uuid, d.instance) for d in record.host_devices if d.vgpu]
    return [home for home in found if home is not None]


def tell_kept(
    record: AttachmentRecord,
    gpus: Sequence[Gpu],
    homes: Mapping[str, VgpuInstance | None],
) -> list[str]:
    """What stands where a GPU instance of its vGPUs was before a boot: it may be anybody's, and stays."""
    own = list_homes(record, homes)
    return [
        f"{there.profile} at {there.placement} on {gpu} stays: the one that was made for "
        f"{device.vgpu.type_name} ended with an earlier boot, this one may be somebody else's; "
        f"vgpumgr mig list shows what is in it"
        for device in record.host_devices
        if device.vgpu is not None and device.instance is not None and not own
        for gpu in gpus
        if gpu.uuid == device.instance.gpu
        for there in gpu.instances
        if there.placement == device.instance.placement
    ]


def _make_binding(device: HostDevice, address: PciAddress) -> Binding:
    """As ``attach`` bound it; what is remembered of the binding itself may be lost."""
    return Binding(
        address=address,
        driver=device.driver or VFIO,
        previous=device.previous_driver,
        override=None,
        vendor_id=0,
        device_id=0,
        boot_id="",
    )


def _plan_vfs(
    record: AttachmentRecord,
    records: Sequence[AttachmentRecord],
    physical: PciAddress,
    count: int,
) -> Step[World]:
    """Whoever made the virtual functions removes them, or hands that over."""
    for other in records:
        if other.id != record.id and any(d.parent == physical for d in other.host_devices):
            return HandOverVfs(physical, count, other)
    return DropVfs(RemoveVfs(physical, count))
