"""What a layout file says, whatever its dialect, before it meets the GPUs of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.mig.layout.formats.reader import Where
from vgpumgr.model.mig import MigProfileName, Placement


class Dialect(StrEnum):
    """Whose format a file has."""

    OWN = "vgpumgr"
    MIG_PARTED = "mig-parted"
    VGPU_DM = "vgpu-device-manager"


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """A board by its PCI ids, each as NVML has them: device in the upper half, vendor in the lower.
    ``subsystem`` None means any.
    """

    device: int
    subsystem: int | None = None


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """Which GPUs are meant. ``names`` None means all; ``indexes`` count in the order of PCI
    addresses. ``models`` (patterns) and ``filters`` narrow it; empty means any.
    """

    names: tuple[tuple[str, Where], ...] | None = None
    indexes: tuple[tuple[int, Where], ...] | None = None
    models: tuple[str, ...] = ()
    filters: tuple[DeviceFilter, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether no single GPU is named: then those that cannot are passed over."""
        return self.names is None and self.indexes is None


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """So many equal GPU instances. ``compute`` None: one compute instance of full size."""

    profile: MigProfileName
    count: int
    where: Where
    compute: tuple[MigProfileName, ...] | None = None
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """So many MIG devices, as mig-parted counts them: the GPU instances around them follow."""

    profile: MigProfileName
    count: int
    where: Where


@dataclass(frozen=True, slots=True)
class VgpuCount:
    """So many vGPUs of a type, by whatever name the file has for it."""

    type: str
    count: int
    where: Where


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One entry of a layout. ``instances`` None leaves them as they are; ``devices`` is what
    mig-parted has instead. ``vgpus`` None leaves those as they are, and without ``says_mig`` the
    entry is about them only.
    """

    choice: GpuChoice
    mig: bool
    where: Where
    instances: tuple[InstanceSpec, ...] | None = None
    devices: tuple[DeviceCount, ...] | None = None
    vgpus: tuple[VgpuCount, ...] | None = None
    says_mig: bool = True


@dataclass(frozen=True, slots=True)
class LayoutFile:
    """A file that was read: its layouts by name."""

    source: str
    dialect: Dialect
    layouts: Mapping[str, tuple[GpuSpec, ...]]
