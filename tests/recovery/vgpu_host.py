"""vGPUs of both frameworks in memory, as NVIDIA's driver offers them: time-sliced ones while MIG mode is off,
MIG-backed ones in a GPU instance of their profile.

GPU 0 has mediated devices, GPU 1 vendor-VFIO; ``mtty`` needs no GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tests.support.fake_host import MTTY, FakeVgpus
from vgpumgr.errors import VgpuBusyError, VgpuNoRoomError, VgpuTakenError
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import NVIDIA, Function, PciAddress
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)

GIB = 1 << 30
#: of make_gpu: where GPU 0 and GPU 1 are
MDEV_GPU, VENDOR_GPU = PciAddress(0, 7, 0, 0), PciAddress(0, 15, 0, 0)
FUNCTIONS = 4
#: the profile 1g.10gb
_PROFILE = 19


def _make_types(framework: Framework, prefix: str, ids: tuple[str, str]) -> tuple[VgpuType, ...]:
    sliced, backed = ids
    return (
        VgpuType(sliced, f"{prefix}-8C", framework, framebuffer_bytes=8 * GIB, max_instances=4),
        VgpuType(
            backed, f"{prefix}-1-10C", framework, framebuffer_bytes=10 * GIB,
            gpu_instance_profile_id=_PROFILE, max_per_gpu_instance=1,
        ),
    )  # fmt: skip


MDEV_TYPES = _make_types(Framework.MDEV, "GRID A100", ("nvidia-468", "nvidia-474"))
VENDOR_TYPES = _make_types(Framework.VENDOR_VFIO, "NVIDIA A100X", ("1115", "1121"))
#: by the board's address
TYPES = {MDEV_GPU: MDEV_TYPES, VENDOR_GPU: VENDOR_TYPES}


def list_functions() -> list[Function]:
    """The GPUs, and the virtual functions that NVIDIA's tool has made."""
    found = []
    for number, physical in enumerate(TYPES):
        places = tuple(PciAddress(0, physical.bus, 0, 4 + n) for n in range(FUNCTIONS))
        found.append(
            Function(
                physical, NVIDIA, 0x20B2, 0x030200, "nvidia", group=20 + number, vf_total=16,
                vfs=places, vf_offset=4, vf_stride=1,
            )
        )  # fmt: skip
        found += [
            Function(p, NVIDIA, 0x20B2, 0x030200, "nvidia", group=200 + p.bus * 8 + p.function, physical=physical)
            for p in places
        ]  # fmt: skip
    return found


class FrameworkVgpus(FakeVgpus):
    """Implements ``mdev.control.VgpuControl``."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus: dict[GpuUuid, Gpu] = {}
        self.definitions: dict[tuple[str, str], VgpuDefinition] = {}
        #: the GPU instance of MIG-backed ones, by what names the vGPU
        self.inside: dict[str, tuple[GpuUuid, int]] = {}

    def read_host(self) -> VgpuHost:
        bare = super().read_host()
        parents, boards = list(bare.parents), list(bare.boards)
        mtty = [d for d in self.devices.values() if d.parent == "mtty"]
        parents[0] = replace(parents[0], offers=(VgpuOffer(MTTY, self.room - len(mtty)),))
        for gpu in self.gpus.values():
            types = TYPES.get(gpu.pci, ())
            if types:
                boards.append(VgpuBoard(str(gpu.pci), types, gpu.uuid, equal_sizes=True))
                parents += self._list_parents(gpu, types)
        return VgpuHost(tuple(parents), tuple(self.devices.values()), tuple(boards))

    def _list_parents(self, gpu: Gpu, types: tuple[VgpuType, ...]) -> Iterator[VgpuParent]:
        taken = {device.parent for device in self.devices.values()}
        for number in range(FUNCTIONS):
            place = PciAddress(0, gpu.pci.bus, 0, 4 + number)
            offers = tuple(
                VgpuOffer(t, int(str(place) not in taken and self._has_room(gpu, t))) for t in types
            )
            yield VgpuParent(
                str(place), types[0].framework, offers, place, gpu.pci, driver="nvidia"
            )

    def _has_room(self, gpu: Gpu, type_: VgpuType) -> bool:
        if type_.is_mig_backed:
            return gpu.mig.current and self._find_instance(gpu) is not None
        return not gpu.mig.current

    def _find_instance(self, gpu: Gpu) -> int | None:
        """A GPU instance that has room."""
        taken = Counter(self.inside.values())
        (each,) = [t.max_per_gpu_instance or 1 for t in TYPES[gpu.pci] if t.is_mig_backed]
        for instance in gpu.instances:
            free = taken[gpu.uuid, instance.id] < each
            if instance.profile_id == _PROFILE and instance.compute_instances and free:
                return instance.id
        return None

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:
        if spec.framework is Framework.MDEV:
            return self.devices.get(spec.uuid)
        return self.devices.get(spec.parent)

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        if spec.parent == "mtty":
            return super().create(spec)
        self._enter("create")
        known = self.find_device(spec)
        mine = spec.framework is Framework.MDEV and known is not None
        if known is not None and (not mine or known.type_id != spec.type_id):
            raise VgpuTakenError(f"{spec.parent} is taken")
        if known is not None:
            return known
        return self._make(spec)

    def _make(self, spec: VgpuSpec) -> VgpuDevice:
        place = PciAddress.parse(spec.parent)
        gpu = next(g for g in self.gpus.values() if g.pci.bus == place.bus)
        type_ = next(t for t in TYPES[gpu.pci] if t.id == spec.type_id)
        taken = any(device.parent == spec.parent for device in self.devices.values())
        if taken or not self._has_room(gpu, type_):
            raise VgpuNoRoomError(f"no room for {spec.type_name}")
        vendor = spec.framework is Framework.VENDOR_VFIO
        key = spec.parent if vendor else spec.uuid
        instance = self._find_instance(gpu) if type_.is_mig_backed else None
        if instance is not None:
            self.inside[key] = (gpu.uuid, instance)
        self.devices[key] = VgpuDevice(
            None if vendor else spec.uuid, spec.parent, spec.framework, type_.id, type_.name,
            pci=place if vendor else None, iommu_group=60 + place.function, driver="nvidia",
            gpu_instance_id=instance if vendor else None,
        )  # fmt: skip
        return self.devices[key]

    def delete(self, spec: VgpuSpec) -> None:
        self._enter("delete")
        device = self.find_device(spec)
        if device is None:
            return
        if held_by := self.list_holders(device):
            raise VgpuBusyError(f"{device.key} is held", held_by=held_by)
        self.devices.pop(device.key)
        self.inside.pop(device.key, None)

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:
        if device.pci is None or self.hypervisor is None:
            return super().list_holders(device)
        return tuple(
            f"QEMU of {machine.name}"
            for machine in self.hypervisor.machines.values()
            for given in (machine.running.pci_hostdevs if machine.running else ())
            if given.source and given.source.pci == device.pci
        )

    def is_occupied(self, gpu: GpuUuid, instance: int | None = None) -> bool:
        """Whether a vGPU is in the instance, or on the GPU at all."""
        if instance is not None:
            return (gpu, instance) in self.inside.values()
        bus = self.gpus[gpu].pci.bus
        return any(d.parent.startswith(f"0000:{bus:02x}:") for d in self.devices.values())

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        return tuple(self.definitions[key] for key in sorted(self.definitions))

    def has_definition(self, parent: str, uuid: str) -> bool:
        return (parent, uuid) in self.definitions

    def write_definition(self, definition: VgpuDefinition) -> None:
        self.definitions[definition.parent, definition.uuid] = definition

    def remove_definition(self, parent: str, uuid: str) -> None:
        self.definitions.pop((parent, uuid), None)
