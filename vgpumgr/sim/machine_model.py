"""The data of simulated machines: the files' models, and the machine that they make together."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from vgpumgr.model.frozen import dataclass
from vgpumgr.sim.pcibus import Address, Function, Sriov
from vgpumgr.sim.vgpu_model import Family, Strict, VgpuTypes, build_family

_MIB = 1 << 20
_NVIDIA = 0x10DE
_NAMESPACE = uuid.UUID("6f3f1c1e-52c5-5d0e-8a0b-6f2a8c1d7e11")
_ARCHITECTURES = {
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}  # NVML_DEVICE_ARCH_*
#: fields of a board that the state has under the same name
_AS_ON_BOARD = (
    "sm_count", "cores_per_sm", "sm_clock_mhz", "mem_clock_mhz", "memory_bus_bits", "idle_temperature_c",
    "max_temperature_c", "pcie_gen",
)  # fmt: skip
_BRANDS = {"geforce": 5, "nvidia": 14, "nvidia-rtx": 13}  # NVML_BRAND_*
_LINK_SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}

CpuList = Annotated[str, StringConstraints(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$", max_length=63)]


class Engines(Strict):
    """How many engines of each kind a board has."""

    copy_: int = Field(alias="copy", ge=1)
    decoders: int = Field(ge=0)
    encoders: int = Field(ge=0)
    jpegs: int = Field(ge=0)
    ofas: int = Field(ge=0)


class BoardSriov(Strict):
    """A board's SR-IOV capability; NVIDIA's driver refuses writes to ``sriov_numvfs``."""

    total: int = Field(ge=1)
    vf_device: int


class Board(Strict):
    """A table of ``data/boards.toml``: what is the same for every board of a model."""

    name: str
    mig_table: str | None = None
    """The key of its table in ``data/mig-profiles.json``; none: the board has no MIG."""
    vgpu_types: str | None = None
    """The key of its table in ``data/vgpu-types.toml``; none: the board has no vGPU."""
    brand: Literal["geforce", "nvidia", "nvidia-rtx"]
    architecture: Literal["turing", "ampere", "ada", "hopper", "blackwell"]
    compute_capability: Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")]
    device_id: int
    subsystem_id: int
    class_code: int
    part_number: str
    vbios: str
    memory_mib: int
    memory_reserved_mib: int
    sm_count: int
    cores_per_sm: int
    sm_clock_mhz: int
    mem_clock_mhz: int
    memory_bus_bits: int
    power_limit_w: int
    idle_power_w: int
    idle_temperature_c: int
    max_temperature_c: int
    pcie_gen: Literal[3, 4, 5]
    bar_mib: tuple[int, ...]
    engines: Engines
    sriov: BoardSriov | None = None
    media: dict[str, tuple[int, int, int]] = Field(default={})
    """Decoders, JPEG engines and OFAs of profiles whose row in the MIG table lacks them."""


class Placement(Strict):
    """A place on the board's memory axis."""

    start: int
    size: int


class MigProfile(BaseModel):
    """A row of a MIG table; the file carries more, for other readers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    nvml_profile_enum_value: int
    gi_profile_id: int
    compute_slices: int
    max_instances: int
    placements: tuple[Placement, ...]
    memory_gib_nvidia_smi: float
    sm: int
    copy_engines: int
    nvdec: int = 0
    nvenc: int = 0
    nvjpg: int = 0
    ofa: int = 0


class MigTable(BaseModel):
    """The MIG profiles of a board. A table of which the file knows no placements is refused."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    memory_axis_units: int
    compute_slices_total: int
    mig_mode_needs_gpu_reset: bool | None
    profiles: tuple[MigProfile, ...]


class MigTables(BaseModel):
    """``data/mig-profiles.json``: tables by name, checked when a board uses them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gpus: dict[str, dict[str, object]]

    def for_board(self, board: Board) -> MigTable | None:
        """The board's table. ValueError: no such table, or the board gives engines to a profile it lacks."""
        if board.mig_table is None:
            return None
        if board.mig_table not in self.gpus:
            raise ValueError(f"no MIG table {board.mig_table!r}")
        table = MigTable.model_validate(self.gpus[board.mig_table])
        if unknown := board.media.keys() - {profile.name for profile in table.profiles}:
            raise ValueError(f"engines of unknown profiles: {', '.join(sorted(unknown))}")
        return table


class MachineGpu(Strict):
    """A GPU of a machine file."""

    board: str
    address: PciAddressText
    numa_node: int = Field(ge=-1)
    iommu_group: int | None = Field(default=None, ge=0)
    cpus: CpuList
    pcie_switch: int = Field(ge=0)
    boot_vga: bool | None = None
    uses: Uses | None = None
    vfs: int | None = Field(default=None, ge=1, le=64)
    """How many VFs its SR-IOV capability offers, where that is not the board's number."""
    uuid: (
        Annotated[
            str, StringConstraints(pattern=r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        ]
        | None
    ) = None
    """Of a board that was in another slot before; without it, made from machine and address."""


class MachineFile(Strict):
    """A file of ``machines/``."""

    description: str
    driver_version: Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)+$", max_length=20)] = (
        "0.0"
    )
    """NVIDIA's; a machine without their GPUs has none."""
    cuda_version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")] = "0.0"
    kernel: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\S*$", max_length=60)] = (
        "6.1.0-28-amd64"
    )
    """The release, as ``uname -r`` would say."""
    vgpu: Literal["mdev", "vendor-vfio"] | None = None
    """The host's driver is the vGPU manager, with this framework."""
    gpu: tuple[MachineGpu, ...] = Field(default=(), max_length=16)
    pci: tuple[MachinePci, ...] = ()
    cmdline: tuple[str, ...] = ()
    """Further words of the kernel's command line."""
    modules: dict[str, dict[str, str]] = Field(default={})
    """Loaded kernel modules and their parameters, for ``/sys/module``."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU with everything known about it."""

    machine: str
    index: int
    place: MachineGpu
    board: Board
    mig: MigTable | None
    family: Family | None = None
    """The types of vGPU that it can have; None without the vGPU manager."""
    mdev: bool = False
    """vGPUs are mediated devices; else vendor-specific VFIO."""

    @property
    def uuid(self) -> str:
        """``GPU-…``, the same each time the machine is started."""
        made = f"GPU-{uuid.uuid5(_NAMESPACE, f'{self.machine}/{self.place.address}')}"
        return self.place.uuid or made

    @property
    def serial(self) -> str:
        """A 13-digit serial number, the same each time."""
        number = uuid.uuid5(_NAMESPACE, f"{self.machine}/{self.place.address}/serial").int
        return f"{1320000000000 + number % 600000000000}"

    def function(self) -> Function:
        """The GPU on the PCI bus, bound to the vendor's driver."""
        board = self.board
        sriov = None
        if board.sriov:
            # NVIDIA's driver has no sriov_configure: its own tool makes the VFs
            total = self.place.vfs or board.sriov.total
            sriov = Sriov(
                total,
                board.sriov.vf_device,
                offset=4,
                configurable=False,
                vf_driver="nvidia",
                vendor_vfio=self.family is not None and not self.mdev,
            )
        return Function(
            address=Address.parse(self.place.address),
            vendor=_NVIDIA,
            device=board.device_id,
            subsystem_vendor=_NVIDIA,
            subsystem_device=board.subsystem_id,
            class_code=board.class_code,
            numa_node=self.place.numa_node,
            iommu_group=self.place.iommu_group,
            driver="nvidia",
            sriov=sriov,
            boot_vga=self.place.boot_vga,
            link_speed=_LINK_SPEEDS[board.pcie_gen],
            bars=tuple(mib * _MIB for mib in board.bar_mib),
        )

    def state_lines(self) -> Iterator[str]:
        """The GPU as ``vgpumgr-simstate create`` reads it."""
        yield "gpu"
        for name, value in self._fields().items():
            yield f"gpu.{name} {int(value) if isinstance(value, bool) else value}"
        for profile in self.mig.profiles if self.mig else ():
            yield from _profile_lines(profile, self.board)

    def _fields(self) -> dict[str, object]:
        return self._identity() | self._capabilities() | self._mig_fields() | self._vgpu_fields()

    def _identity(self) -> dict[str, object]:
        address = Address.parse(self.place.address)
        return {
            "name": self.board.name,
            "uuid": self.uuid,
            "serial": self.serial,
            "vbios": self.board.vbios,
            "part_number": self.board.part_number,
            "cpus": self.place.cpus,
            "pci_domain": address.domain,
            "pci_bus": address.bus,
            "pci_device": address.device,
            "pci_device_id": self.board.device_id << 16 | _NVIDIA,
            "pci_subsystem_id": self.board.subsystem_id << 16 | _NVIDIA,
            "numa_node": self.place.numa_node,
            "pcie_switch": self.place.pcie_switch,
            "minor": self.index,
            "brand": _BRANDS[self.board.brand],
            "architecture": _ARCHITECTURES[self.board.architecture],
        }

    def _capabilities(self) -> dict[str, object]:
        board = self.board
        major, minor = board.compute_capability.split(".")
        return {
            **{name: getattr(board, name) for name in _AS_ON_BOARD},
            "cc_major": major,
            "cc_minor": minor,
            "memory_bytes": board.memory_mib * _MIB,
            "memory_reserved_bytes": board.memory_reserved_mib * _MIB,
            "bar1_bytes": board.bar_mib[1] * _MIB,
            "power_limit_mw": board.power_limit_w * 1000,
            "idle_power_mw": board.idle_power_w * 1000,
            "pcie_width": 16,
            "copy_engines": board.engines.copy_,
            "decoders": board.engines.decoders,
            "encoders": board.engines.encoders,
            "jpegs": board.engines.jpegs,
            "ofas": board.engines.ofas,
            "ecc_current": True,
            "ecc_pending": True,
            "persistence": True,
        }

    def _mig_fields(self) -> dict[str, object]:
        if self.mig is None:
            return {}
        return {
            "mig_capable": True,
            "mig_needs_reset": bool(self.mig.mig_mode_needs_gpu_reset),
            "compute_slices": self.mig.compute_slices_total,
            "memory_slices": self.mig.memory_axis_units,
        }

    def _vgpu_fields(self) -> dict[str, object]:
        if self.family is None:
            return {}
        return {
            "vgpu_family": self.family.number,
            "vgpu_slots": self.family.table.gb,
            "vgpu_sriov": self.family.table.sriov,
            "vgpu_mdev": self.mdev,
            "vgpu_mixed_capable": self.family.table.mixed,
        }

    def vgpu_lines(self) -> Iterator[str]:
        """Its types of vGPU as ``vgpumgr-simstate create`` reads them."""
        if self.family is not None:
            profiles = {p.name: p.gi_profile_id for p in self.mig.profiles} if self.mig else {}
            yield from self.family.state_lines(self.board.device_id, profiles)


def _profile_lines(profile: MigProfile, board: Board) -> Iterator[str]:
    media = board.media.get(profile.name, (profile.nvdec, profile.nvjpg, profile.ofa))
    fields: dict[str, object] = {
        "name": profile.name,
        "profile_enum": profile.nvml_profile_enum_value,
        "id": profile.gi_profile_id,
        "slices": profile.compute_slices,
        "max_instances": profile.max_instances,
        "sm_count": profile.sm,
        "copy_engines": profile.copy_engines,
        "decoders": media[0],
        "encoders": profile.nvenc,
        "jpegs": media[1],
        "ofas": media[2],
        # nvidia-smi shows two decimals of what are whole multiples of 64 MiB
        "memory_bytes": round(profile.memory_gib_nvidia_smi * 16) * 64 * _MIB,
        "media": int(profile.name.endswith("+me")),
        "media_all": int(profile.name.endswith("+me.all")),
        "no_media": int(profile.name.endswith("-me")),
        "gfx": int(profile.name.endswith("+gfx")),
    }
    yield "profile"
    for name, value in fields.items():
        yield f"profile.{name} {value}"
    for place in profile.placements:
        yield f"placement {place.start} {place.size}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A whole machine."""

    name: str
    data: MachineFile
    gpus: tuple[Gpu, ...]

    @classmethod
    def build(
        cls,
        name: str,
        data: MachineFile,
        boards: dict[str, Board],
        tables: MigTables,
        vgpus: VgpuTypes,
    ) -> Machine:
        """Put the files together. ValueError: a board without data, or an address used twice."""
        addresses = [gpu.address for gpu in data.gpu] + [pci.address for pci in data.pci]
        if twice := {address for address in addresses if addresses.count(address) > 1}:
            raise ValueError(f"addresses used twice: {', '.join(sorted(twice))}")
        if unknown := {gpu.board for gpu in data.gpu} - boards.keys():
            raise ValueError(f"unknown boards: {', '.join(sorted(unknown))}")
        # NVML numbers the GPUs in the order of their PCI addresses
        places = sorted(data.gpu, key=lambda gpu: Address.parse(gpu.address))
        families = _families(data, boards, vgpus)
        gpus = tuple(
            Gpu(
                name,
                index,
                place,
                boards[place.board],
                tables.for_board(boards[place.board]),
                families.get(boards[place.board].vgpu_types or ""),
                data.vgpu == "mdev",
            )
            for index, place in enumerate(places)
        )
        return cls(name, data, gpus)

    def functions(self) -> list[Function]:
        """All PCI functions of the machine, GPUs first."""
        return [gpu.function() for gpu in self.gpus] + [pci.function() for pci in self.data.pci]

    def state_lines(self) -> Iterator[str]:
        """The machine as ``vgpumgr-simstate create`` reads it."""
        major, minor = self.data.cuda_version.split(".")
        yield f"machine.name {self.name}"
        yield f"machine.driver_version {self.data.driver_version}"
        yield f"machine.nvml_version {major}.{self.data.driver_version}"
        yield f"machine.cuda_driver_version {int(major) * 1000 + int(minor) * 10}"
        for gpu in self.gpus:
            yield from gpu.state_lines()
        for gpu in {gpu.family.number: gpu for gpu in self.gpus if gpu.family}.values():
            yield from gpu.vgpu_lines()


def _families(data: MachineFile, boards: dict[str, Board], vgpus: VgpuTypes) -> dict[str, Family]:
    if data.vgpu is None:
        return {}
    names = sorted({boards[gpu.board].vgpu_types or "" for gpu in data.gpu} - {""})
    return {name: build_family(number, name, vgpus) for number, name in enumerate(names, 1)}


PciAddressText = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")
]
PciIds = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]


class PciSriov(Strict):
    """The SR-IOV capability of a function."""

    total: int = Field(ge=1, le=64)
    vf_device: int
    offset: int = Field(default=1, ge=1)
    stride: int = Field(default=1, ge=1)
    configurable: bool = True
    """Whether its driver lets ``sriov_numvfs`` be written."""
    at_boot: int = 0
    """VFs that its driver makes by itself when it is loaded."""
    vf_driver: str | None = None
    """The driver of the host that takes new VFs; empty: none. By default the function's own."""


class IntelQuotas(Strict):
    """Where the driver shows the shares of VFs, and what there is to share."""

    layout: Literal["xe", "i915"]
    vram_mib: int = 0
    ggtt_mib: int = 4096
    tiles: int = 1


class PciSensors(Strict):
    """What the sensors of a GPU say, where its driver shows them."""

    temperature_c: int
    power_w: int
    limit_w: int
    """The most that the card may draw for long."""
    memory_mib: int = 0
    memory_used_mib: int = 0
    busy_percent: int = 0
    memory_busy_percent: int = 0


class GimGpu(Strict):
    """What AMD's driver for hosts knows of a GPU."""

    supported: int = Field(ge=1, le=31)
    framebuffer_mib: int
    reserved_mib: int = 0
    """What the physical function keeps of the frame buffer."""
    fixed: bool = False
    """Whether the number of VFs is as it was when the driver was loaded."""


class Uses(Strict):
    """What the host does with a function while its driver has it."""

    net: str | None = None
    """A network interface that is up."""
    disk: str | None = None
    """A disk; ``mounts`` are where it is mounted."""
    mounts: tuple[str, ...] = ()
    graphics: str | None = None
    """A frame buffer, with the console on it."""
    drm: str | None = None
    sound: int | None = None
    """The number of a sound card."""
    usb: int | None = None
    """The number of a USB bus; ``plugged`` devices are plugged into it."""
    plugged: int = 0


class MachinePci(Strict):
    """Another PCI function of a machine file: ``ids`` and ``subsystem`` are ``vendor:device``."""

    address: PciAddressText
    ids: PciIds
    subsystem: PciIds
    class_code: int = Field(ge=0, le=0xFFFFFF)
    numa_node: int = Field(ge=-1)
    iommu_group: int | None = Field(default=None, ge=0)
    driver: str | None = None
    revision: int = 0xA1
    bar_mib: tuple[int, ...] = ()
    boot_vga: bool | None = None
    sriov: PciSriov | None = None
    quotas: IntelQuotas | None = None
    partitions: tuple[str, ...] = ()
    """Compute partitions that amdgpu offers; the first is in force."""
    gim: GimGpu | None = None
    sensors: PciSensors | None = None
    uses: Uses | None = None

    def function(self) -> Function:
        """The function on the PCI bus, as its own driver has it."""
        vendor, device = (int(part, 16) for part in self.ids.split(":"))
        subsystem_vendor, subsystem_device = (int(part, 16) for part in self.subsystem.split(":"))
        return Function(
            address=Address.parse(self.address),
            vendor=vendor,
            device=device,
            subsystem_vendor=subsystem_vendor,
            subsystem_device=subsystem_device,
            class_code=self.class_code,
            numa_node=self.numa_node,
            iommu_group=self.iommu_group,
            driver=self.driver,
            revision=self.revision,
            bars=tuple(mib * _MIB for mib in self.bar_mib),
            boot_vga=self.boot_vga,
            sriov=self._sriov(),
        )

    def _sriov(self) -> Sriov | None:
        if self.sriov is None:
            return None
        data = self.sriov
        driver = self.driver if data.vf_driver is None else data.vf_driver or None
        return Sriov(
            data.total,
            data.vf_device,
            data.offset,
            data.stride,
            data.configurable,
            at_boot=data.at_boot,
            vf_driver=driver,
        )
