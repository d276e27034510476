"""What planning knows of the host's devices, and of who has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import VgpuHost, VgpuSpec
from vgpumgr.passthrough.values import Binding, Function, User, VfSetting, find_function
from vgpumgr.plan.nearness import Nearness
from vgpumgr.plan.reserved import is_reserved
from vgpumgr.plan.vgpu_promises import Promise


@dataclass(frozen=True, slots=True)
class HostObserved:
    """The host's devices as they are at the moment of planning."""

    functions: Sequence[Function] = ()
    #: who uses a function now; those that nobody uses are left out
    users: Mapping[PciAddress, Sequence[User]] = field(default_factory=dict)
    #: whose a function is, by record or by a VM's definition: in words
    taken: Mapping[PciAddress, str] = field(default_factory=dict)
    #: sizes of memory BARs, where they are known
    bars: Mapping[PciAddress, tuple[int, ...]] = field(default_factory=dict)
    #: those that are no PCI Express devices
    conventional: Collection[PciAddress] = ()
    bindings: Sequence[Binding] = ()
    vf_settings: Sequence[VfSetting] = ()
    #: GPUs that NVML speaks about
    gpus: Sequence[Gpu] = ()
    vgpus: VgpuHost = field(default_factory=VgpuHost)
    #: vGPUs that take room as far as is recorded
    claims: Sequence[VgpuSpec] = ()
    #: definitions of vGPUs that are not there
    promises: Sequence[Promise] = ()
    #: drivers that know more of a function than vfio-pci, and whether libvirt takes such
    variants: Mapping[PciAddress, str] = field(default_factory=dict)
    takes_variants: bool = True
    #: whether devices are given by /dev/iommu: libvirt and the kernel have it
    iommufd: bool = False
    #: whether there is more than one NUMA node
    numa_matters: bool = False
    #: UUIDs of the VMs that have functions, and of the one that is to get some
    tenants: Mapping[PciAddress, str] = field(default_factory=dict)
    vm_uuid: str | None = None
    near: Nearness = field(default_factory=Nearness)
    #: the GPUs as if slices that are gone, and that a restore brings back, were there
    reserved: Sequence[Gpu] = ()
    #: GPU instances that VMs have as slices, by GPU and place
    slices: Collection[tuple[GpuUuid | None, Placement | None]] = ()

    def give(self, functions: Iterable[Function]) -> HostObserved:
        """The host as it is to be once the VM has these, too."""
        addresses = [function.address for function in functions]
        mine = dict.fromkeys(addresses, self.vm_uuid or "")
        taken = dict.fromkeys(addresses, "this attach")
        return replace(self, taken={**self.taken, **taken}, tenants={**self.tenants, **mine})

    def find(self, address: PciAddress) -> Function | None:
        """The function at an address."""
        return find_function(self.functions, address)

    def find_gpu(self, address: PciAddress) -> Gpu | None:
        """What NVML says of the function."""
        return next((gpu for gpu in self.gpus if gpu.pci == address), None)

    def list_reserved(self, address: PciAddress) -> list[GpuInstance]:
        """Slices of the GPU that are gone, and that a restore brings back."""
        gpu = next((gpu for gpu in self.reserved if gpu.pci == address), None)
        return [i for i in gpu.instances if is_reserved(i)] if gpu else []

    def find_binding(self, address: PciAddress) -> Binding | None:
        """How the function was taken from the host, if we did."""
        return next((b for b in self.bindings if b.address == address), None)

    def list_group(self, function: Function) -> list[Function]:
        """The function's IOMMU group, itself included."""
        if function.group is None:
            return [function]
        return [f for f in self.functions if f.group == function.group]

    def list_companions(self, function: Function) -> tuple[Function, ...]:
        """Functions of the same card that go with it: audio, USB. Another GPU goes only where the
        IOMMU cannot tell the two apart.
        """
        return tuple(
            f
            for f in self.functions
            if f.address != function.address
            and f.is_beside(function)
            and not f.is_bridge
            and (not f.is_gpu or f.group == function.group)
        )
