"""vGPUs of both frameworks: types, parents, devices, definitions.

*Mediated devices*: a UUID written to ``create`` makes a device below a parent; the device has that
UUID. *Vendor-VFIO* (kernel 6.8 and later): a type written to a virtual function makes that function
the device. Here both have a UUID: the kernel's, or one of ours that tells two users of the same
function apart. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import PciAddress

#: an attribute file below the device's directory, and what is written to it, in order
Attributes = tuple[tuple[str, str], ...]


class Framework(StrEnum):
    """Which interface of the kernel a parent has; told apart by its files."""

    MDEV = "mdev"
    VENDOR_VFIO = "vendor-vfio"


@dataclass(frozen=True, slots=True)
class VgpuType:
    """A kind of vGPU. None means: neither the kernel nor NVML says.

    ``id`` is the kernel's (``nvidia-222``, ``mtty-1``; a number with vendor-VFIO) and may change
    with the driver; ``name`` is the vendor's full name (``GRID T4-2A``), which stays.
    """

    id: str
    name: str
    framework: Framework
    device_api: str | None = None
    description: str | None = None
    framebuffer_bytes: int | None = None
    heads: int | None = None
    #: on a whole GPU of its own
    max_instances: int | None = None
    #: frames each second; 0: no limit
    frame_rate_limit: int | None = None
    #: width and height in pixels
    resolution: tuple[int, int] | None = None
    #: the GPU-instance profile that it lives in (NVML's id); None: time-sliced on the whole GPU
    gpu_instance_profile_id: int | None = None
    #: how many share one GPU instance; None where not MIG-backed
    max_per_gpu_instance: int | None = None

    @property
    def short_name(self) -> str:
        """The name without the vendor's word: ``T4-2A``."""
        return self.name.split()[-1] if self.name.split() else self.id

    @property
    def is_mig_backed(self) -> bool:
        """Whether it needs a GPU instance."""
        return self.gpu_instance_profile_id is not None


@dataclass(frozen=True, slots=True)
class VgpuOffer:
    """A type on one parent, with how many more the kernel says can be created there now."""

    type: VgpuType
    available: int


@dataclass(frozen=True, slots=True)
class VgpuParent:
    """A device that vGPUs are created on: a GPU, one of its virtual functions, or a device without
    hardware (``mtty``). Its types are read as of one moment.
    """

    name: str
    framework: Framework
    offers: tuple[VgpuOffer, ...]
    pci: PciAddress | None = None
    #: the GPU that a virtual function belongs to; the parent itself where it is a GPU
    physical: PciAddress | None = None
    numa_node: int | None = None
    driver: str | None = None

    @property
    def is_virtual_function(self) -> bool:
        """Whether it is one, which holds one vGPU at most."""
        return self.pci is not None and self.physical not in (None, self.pci)

    @property
    def board(self) -> str:
        """The name that all functions of one GPU share."""
        return str(self.physical) if self.physical is not None else self.name


@dataclass(frozen=True, slots=True)
class VgpuDevice:
    """A vGPU that the kernel shows. ``uuid`` is None for a virtual function that is not ours."""

    uuid: str | None
    parent: str
    framework: Framework
    type_id: str
    type_name: str
    pci: PciAddress | None = None
    iommu_group: int | None = None
    driver: str | None = None
    attributes: Attributes = ()
    #: where on the GPU (mixed sizes), in the driver's units
    placement_id: int | None = None
    gpu_instance_id: int | None = None
    #: the VM that has it open, as the driver says
    vm_name: str | None = None

    @property
    def key(self) -> str:
        """What names it on this host: its UUID, or the function's address."""
        return self.parent if self.framework is Framework.VENDOR_VFIO else str(self.uuid)

    def is_of(self, spec: VgpuSpec) -> bool:
        """Whether it is the vGPU that was created so; a virtual function has no UUID."""
        if self.uuid is not None:
            return self.uuid == spec.uuid
        return (self.parent, self.type_id) == (spec.parent, spec.type_id)


@dataclass(frozen=True, slots=True)
class VgpuSpec:
    """A vGPU to be created: everything that names it exists before it does."""

    uuid: str
    framework: Framework
    parent: str
    type_id: str
    type_name: str
    attributes: Attributes = ()
    placement_id: int | None = None
    #: its GPU is to hold vGPUs of several sizes
    mixed_sizes: bool = False

    def __post_init__(self) -> None:
        if not is_uuid(self.uuid):
            raise ValueError(f"not a UUID: {self.uuid!r}")

    @property
    def pci(self) -> PciAddress | None:
        """The function that a VM gets as a PCI device (``managed='no'``); None: by UUID, as mdev."""
        if self.framework is not Framework.VENDOR_VFIO:
            return None
        return PciAddress.parse(self.parent)

    def as_dict(self) -> dict[str, object]:
        """As documents of plans show it."""
        return {
            "uuid": self.uuid,
            "framework": str(self.framework),
            "parent": self.parent,
            "type": self.type_id,
            "type_name": self.type_name,
            "attributes": [list(pair) for pair in self.attributes],
            "placement": self.placement_id,
            "mixed_sizes": self.mixed_sizes,
        }


@dataclass(frozen=True, slots=True)
class VgpuDefinition:
    """A mediated device that mdevctl knows: ``/etc/mdevctl.d/PARENT/UUID``."""

    uuid: str
    parent: str
    type_id: str
    auto: bool = False
    attributes: Attributes = ()


@dataclass(frozen=True, slots=True)
class VgpuBoard:
    """A GPU, or a device without hardware, with all functions of it that are parents.

    ``types`` are all that it knows, also those that cannot be created now. ``equal_sizes``: all vGPUs
    on it have one framebuffer size (NVIDIA's time-sliced ones, unless mixed sizes are switched on).
    """

    name: str
    types: tuple[VgpuType, ...] = ()
    gpu: GpuUuid | None = None
    equal_sizes: bool = False
    mixed_sizes: bool | None = None

    @property
    def is_shared(self) -> bool:
        """Whether vGPUs of all types share one capacity, as on NVIDIA's GPUs."""
        return self.equal_sizes or self.mixed_sizes is not None

    def find_type(self, id_: str) -> VgpuType | None:
        """The type of that id."""
        return next((type_ for type_ in self.types if type_.id == id_), None)


@dataclass(frozen=True, slots=True)
class VgpuHost:
    """All parents and vGPUs of a machine at one moment."""

    parents: tuple[VgpuParent, ...] = ()
    devices: tuple[VgpuDevice, ...] = ()
    boards: tuple[VgpuBoard, ...] = ()

    def find_parent(self, name: str) -> VgpuParent | None:
        """The parent of that name."""
        return next((parent for parent in self.parents if parent.name == name), None)

    def find_board(self, name: str) -> VgpuBoard | None:
        """The GPU of that name."""
        return next((board for board in self.boards if board.name == name), None)

    def list_parents(self, board: str) -> list[VgpuParent]:
        """The functions of a GPU that vGPUs are created on."""
        return [parent for parent in self.parents if parent.board == board]

    def list_on(self, board: str) -> list[VgpuDevice]:
        """The vGPUs on a GPU, whichever of its functions they are on."""
        names = {parent.name for parent in self.list_parents(board)}
        return [device for device in self.devices if device.parent in names]


@dataclass(frozen=True, slots=True)
class NvmlVgpuType:
    """What NVML says of a vGPU type of one GPU."""

    id: int
    name: str
    framebuffer_bytes: int
    heads: int | None = None
    max_instances: int | None = None
    frame_rate_limit: int | None = None
    resolution: tuple[int, int] | None = None
    gpu_instance_profile_id: int | None = None
    max_per_gpu_instance: int | None = None
    creatable: bool = False


@dataclass(frozen=True, slots=True)
class GpuVgpus:
    """What NVML says of one GPU's vGPUs. ``sr_iov`` None: it is no vGPU host, or does not say;
    ``mixed_sizes`` None: the driver knows no such mode.
    """

    gpu: GpuUuid
    pci: PciAddress
    sr_iov: bool | None = None
    mixed_sizes: bool | None = None
    types: tuple[NvmlVgpuType, ...] = ()


def is_uuid(text: str) -> bool:
    """Whether it is a UUID in the one form that the kernel takes and shows."""
    import uuid  # which asks the platform module about the system: most commands need neither

    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


class VgpuState(StrEnum):
    """What was meant. What *is* on the host is observed."""

    #: written before the kernel is asked, so that a crash leaves something findable
    CREATING = "creating"
    ACTIVE = "active"
    #: its removal has been asked for; until it is over its capacity stays reserved
    RELEASING = "releasing"
    #: defined, not there
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True)
class VgpuInstance:
    """The GPU instance that was made for a MIG-backed vGPU, and goes with it."""

    gpu: GpuUuid
    profile: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """One vGPU of ours. ``boot``: in which it was last written; another boot knows no vGPU."""

    spec: VgpuSpec
    state: VgpuState
    created_s: float = 0.0
    boot: str = ""
    #: it is to come back: with ``auto`` at boot, else by ``mdev start``
    defined: bool = False
    auto: bool = False
    #: the attachment that it was made for
    attachment: str | None = None
    #: remembered for the time when it is removed but still held
    iommu_group: int | None = None
    #: the GPU instance that the driver put it in; void after a boot
    gpu_instance_id: int | None = None
    instance: VgpuInstance | None = None
    #: the boot in which ``instance`` was made: in another one something else may stand in its place
    instance_boot: str = ""
    #: a boot took it away, and it has not been there since
    lost: bool = False

    @property
    def takes_room(self) -> bool:
        """Whether its parent is not to be used for another."""
        return self.state is not VgpuState.INACTIVE

    @property
    def follows_mdevctl(self) -> bool:
        """Whether a definition of mdevctl says if it comes back; an attachment brings back its own."""
        return self.spec.framework is Framework.MDEV and self.attachment is None

    def is_missing(self, boot: str) -> bool:
        """Whether a boot took it away, this one or one before, and it has not been there since."""
        return self.boot != boot or self.lost

    def find_home(self, boot: str) -> VgpuInstance | None:
        """The GPU instance that was made for it, if that was in this boot."""
        return self.instance if self.instance_boot == boot else None


class VgpuStore(Protocol):
    """Remembers vGPUs. May raise StoreError. The caller holds the machine's lock when it writes."""

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        """All, in the order in which they were first written: the order of a boot."""

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Writes one with the present boot, in the place of the one with the same UUID."""

    def delete_vgpu(self, uuid: str) -> None:
        """Forgets one; absent is no error."""


def make_inactive(record: VgpuRecord, *, lost: bool = False) -> VgpuRecord:
    """The record of a vGPU that is only defined now; ``lost``: by a boot, not
    on request.
    """
    return replace(
        record,
        state=VgpuState.INACTIVE,
        iommu_group=None,
        gpu_instance_id=None,
        instance=None,
        instance_boot="",
        lost=lost,
    )


def stamp(record: VgpuRecord, boot: str) -> VgpuRecord:
    """The record as it is written in a boot: what an earlier one made for it is gone."""
    made = record.instance if record.instance_boot in ("", boot) else None
    return replace(record, boot=boot, instance=made, instance_boot=boot if made else "")


class NoVgpuStore:
    """Remembers nothing: for operations that never touch a vGPU."""

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        """None."""
        return ()

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Cannot."""
        raise TypeError(f"no store for {record.spec.uuid}")

    def delete_vgpu(self, uuid: str) -> None:
        """Nothing to forget."""


def find_record(store: VgpuStore, uuid: str) -> VgpuRecord | None:
    """What is remembered of that UUID."""
    return next((record for record in store.list_vgpus() if record.spec.uuid == uuid), None)
