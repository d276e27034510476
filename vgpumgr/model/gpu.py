"""A GPU: what NVML and ``/sys`` together know about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.health import FaultKind, GpuFault, GpuHealth
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigMode, MigProfile
from vgpumgr.model.pci import Function, IommuGroup, PciAddress
from vgpumgr.model.text import format_time


class ProcessKind(StrEnum):
    """Which of NVML's two lists names the process."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"


#: the program that holds the slice of an attachment
HOLDER_NAME = "vgpumgr-hold"


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """The part of a GPU's time that a process had: 1 is all of it."""

    pid: int
    part: float


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """Those of the processes that had some; None: the driver has no such figures of this GPU."""

    processes: tuple[ProcessTime, ...] | None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a context on a GPU; instance ids are None for the GPU as a whole."""

    pid: int
    name: str | None
    kind: ProcessKind
    memory_bytes: int | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None

    @property
    def is_holder(self) -> bool:
        """Whether it only holds the slice of an attachment, which is a holder by itself."""
        return self.name is not None and self.name.rpartition("/")[2] == HOLDER_NAME

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name or 'unknown'})"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Frame buffer in bytes; ``used`` includes what the driver reserves."""

    total_bytes: int
    used_bytes: int
    #: of the total, what the driver and the firmware keep for themselves (``nvmlDeviceGetMemoryInfo_v2``); 0 where
    #: the driver does not say
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of the last sample period, 0 to 1."""

    gpu_ratio: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU as observed now. None means: the host does not say."""

    index: int
    uuid: GpuUuid
    model: str
    pci: PciAddress
    memory: GpuMemory
    mig: MigMode
    driver_version: str
    pci_device_id: int | None = None
    pci_subsystem_id: int | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    serial: str | None = None
    numa_node: int | None = None
    iommu_group: IommuGroup | None = None
    driver: str | None = None
    #: virtual functions that it has now, and how many it can have; None without SR-IOV
    vfs: tuple[Function, ...] = ()
    vfs_enabled: int = 0
    vfs_total: int | None = None
    utilisation: Utilisation | None = None
    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    temperature_c: int | None = None
    #: from here on the hardware slows the GPU down
    slowdown_c: int | None = None
    #: uncorrectable errors since its driver was loaded; None without ECC
    ecc_errors: int | None = None
    #: what the card draws, and the most that the driver lets it draw
    power_mw: int | None = None
    power_limit_mw: int | None = None
    #: who has a share of it, in words: recorded, not observed
    shared_by: tuple[str, ...] = ()

    @property
    def memory_positions(self) -> int:
        """Length of the memory axis that placements count on; 0 without MIG."""
        return max((p.end for profile in self.profiles for p in profile.placements), default=0)

    @property
    def compute_slices(self) -> int:
        """Compute slices of the whole GPU; 0 without MIG."""
        return max((profile.slices for profile in self.profiles), default=0)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.pci})"


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A GPU that NVML does not speak about: another vendor's, or one that the NVIDIA driver does not
    have (bound to vfio-pci, say). All of it is from ``/sys``; None means: the host does not say.
    """

    address: PciAddress
    vendor_id: int
    device_id: int
    class_code: int
    model: str
    driver: str | None = None
    numa_node: int | None = None
    iommu_group: IommuGroup | None = None
    #: sizes of the memory BARs; the largest usually shows all of the GPU's memory
    bar_bytes: tuple[int, ...] = ()
    #: virtual functions that it can have, and has; None without SR-IOV
    vfs_total: int | None = None
    vfs_enabled: int | None = None
    vfs: tuple[Function, ...] = ()
    #: the firmware draws on it
    is_boot_display: bool = False

    def __str__(self) -> str:
        return f"{self.model} ({self.address})"


@dataclass(frozen=True, slots=True)
class Sensors:
    """What the kernel's driver shows of a GPU without NVML; None: nothing of that."""

    temperature_c: float | None = None
    power_w: float | None = None
    #: the most that the card may draw for long
    power_limit_w: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    #: how busy it is, and how busy its memory is, 0 to 1
    gpu_ratio: float | None = None
    memory_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that NVML counts but cannot speak about; code and text are NVML's."""

    index: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a machine at one moment: those of NVML by their index, with the versions that NVML
    states (empty without NVML), and those that only ``/sys`` knows, by address.
    """

    driver_version: str
    nvml_version: str
    cuda_version: tuple[int, int] | None
    gpus: tuple[Gpu, ...]
    lost: tuple[LostGpu, ...] = ()
    others: tuple[PciGpu, ...] = ()
    #: whether any function may have vGPUs
    has_vgpu_parents: bool = False


#: characters of the reason for a drain
MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Drain:
    """A GPU that takes no new slice until it is resumed: by an administrator's word, also after a boot, or because it
    is unhealthy.
    """

    address: PciAddress
    #: as NVML had it; None for a GPU that NVML did not speak about
    uuid: str | None
    #: the user, by name where the host has one
    by: str
    #: None: the driver does not say since when the GPU is unhealthy
    since_s: float | None
    reason: str | None = None
    #: what makes it unhealthy
    fault: GpuFault | None = None

    @property
    def key(self) -> str:
        """What it is remembered by: a UUID moves with the card, an address stays with the slot."""
        gpu = self.uuid or str(self.address)
        return f"{gpu} {self.fault.key}" if self.fault is not None else gpu

    @property
    def is_heat(self) -> bool:
        """Whether it ends by itself, and not by an administrator's word."""
        return self.fault is not None and self.fault.kind is FaultKind.TEMPERATURE

    def is_of(self, address: PciAddress, uuid: str | None) -> bool:
        """Whether it is of that GPU, which NVML may not speak about now."""
        if self.uuid and uuid:
            return self.uuid == uuid
        return self.address == address

    def describe_end(self, gpu: object) -> str:
        """What lets the GPU, which commands call so, take slices again."""
        resume = f"vgpumgr gpu resume {gpu}"
        if self.fault is None:
            return resume
        if self.is_heat:
            return f"let GPU {gpu} cool down; it takes slices again by itself"
        return f"after a reset or repair: {resume}"

    def __str__(self) -> str:
        when = "" if self.since_s is None else format_time(self.since_s)
        if self.fault is not None:
            return f"unhealthy{f' since {when}' if when else ''}: {self.fault.text}"
        told = f"drained by {self.by} on {when}"
        return f"{told}: {self.reason}" if self.reason else told


def find_drain(
    drains: Iterable[Drain], address: PciAddress, uuid: str | None = None
) -> Drain | None:
    """The drain of a GPU; None: it takes slices."""
    return next((drain for drain in drains if drain.is_of(address, uuid)), None)


class DrainStore(Protocol):
    """Remembers drained GPUs. May raise StoreError."""

    def list_drains(self) -> Sequence[Drain]:
        """All, in address order."""

    def save_drain(self, drain: Drain) -> None:
        """Writes one, in the place of that of the same key."""

    def forget_drain(self, drain: Drain) -> None:
        """Drops the one of the same key; absent is no error. Uncorrectable ECC errors that were counted so far make
        the GPU unhealthy no more.
        """

    def list_health(self) -> Sequence[GpuHealth]:
        """What is remembered of GPUs' events."""


#: who says that a GPU is unhealthy
BY_DRIVER = "the driver"


def list_drains(store: DrainStore, gpus: Sequence[Gpu]) -> tuple[Drain, ...]:
    """All GPUs that take no new slice, with every reason: what is recorded, but for faults that the driver no longer
    reports, and what the driver says now of ``gpus``. Faults come first. May raise StoreError.
    """
    recorded, found = store.list_drains(), list[Drain]()
    health = {one.uuid: one for one in store.list_health()}
    for gpu in gpus:
        known = health.get(gpu.uuid)
        noted = next((d for d in recorded if d.key == f"{gpu.uuid} {FaultKind.ECC}"), None)
        errors, accepted = gpu.ecc_errors or 0, known.accepted_errors if known else 0
        # fewer than were accepted are others: the count begins anew with the driver
        if errors and (noted is not None or errors != accepted):
            fault = GpuFault(FaultKind.ECC, _describe_errors(errors), errors=errors)
            since_s = noted.since_s if noted else None
            found.append(Drain(gpu.pci, gpu.uuid, BY_DRIVER, since_s, fault=fault))
        if gpu.temperature_c is not None and gpu.temperature_c >= (gpu.slowdown_c or 1000):
            text = f"{gpu.temperature_c} °C; at {gpu.slowdown_c} °C it slows down"
            fault = GpuFault(FaultKind.TEMPERATURE, text)
            found.append(Drain(gpu.pci, gpu.uuid, BY_DRIVER, None, fault=fault))
    answering = {gpu.uuid for gpu in gpus if gpu.ecc_errors is not None}
    for drain in recorded:
        is_ecc = drain.fault is not None and drain.fault.kind is FaultKind.ECC
        if not (is_ecc and drain.uuid in answering):  # what counts is the driver's count
            found.append(drain)
    return tuple(sorted(found, key=lambda d: (d.address, d.fault is None, d.since_s or 0)))


def _describe_errors(count: int) -> str:
    word = "error" if count == 1 else "errors"
    return f"{count} uncorrectable ECC {word} since its driver was loaded"
