"""What a layout file says, whatever its dialect, before it meets the GPUs of a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.mig.layout.formats.reader import Value, Where, check_label, shorten
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


#: more instances than any board has places; a larger number can only be a mistake
MOST = 64
#: as many as a PCI function can have virtual ones
MOST_VGPUS = 256
#: of what names GPUs or a vGPU type
LONGEST_SELECTOR = 128


def read_layouts(
    dialect: Dialect, layouts: Value, read_entry: Callable[[Value], GpuSpec]
) -> LayoutFile:
    """Layouts by name, each a list of entries. Raises LayoutFileError."""
    found = {
        check_label(name, value.where): _read_layout(value, read_entry)
        for name, value in layouts.read_pairs()
    }
    if not found:
        raise layouts.error("there is no layout in it")
    return LayoutFile(layouts.where.source, dialect, found)


def _read_layout(value: Value, read_entry: Callable[[Value], GpuSpec]) -> tuple[GpuSpec, ...]:
    entries = tuple(read_entry(item) for item in value.read_items())
    if not entries:
        raise value.error("the layout is empty", "it says nothing about any GPU")
    return entries


def read_profile(value: Value, text: str | None = None) -> MigProfileName:
    """A profile's name. Raises LayoutFileError."""
    text = value.read_text() if text is None else text
    try:
        if len(text) > 60:
            raise ValueError("names look like 1g.10gb or 3g.40gb+me")
        return MigProfileName.parse(text)
    except ValueError as error:
        words = str(error).partition("; ")
        raise value.error(
            f'"{shorten(text)}" is no MIG profile', words[2] or words[0], "vgpumgr mig profiles"
        ) from None


def check_sum(value: Value, count: int) -> None:
    """Refuses more instances than any GPU has places. Raises LayoutFileError."""
    if count > MOST:
        raise value.error(f"{count} instances on one GPU", f"no GPU has more than {MOST}")


def read_vgpus(value: Value) -> tuple[VgpuCount, ...]:
    """``{A100-4C: 2}``; ``{}`` means none. A count of zero is as if it were not there."""
    found = []
    for name, count in value.read_pairs():
        if not name.strip() or len(name) > LONGEST_SELECTOR:
            raise count.error(f'"{shorten(name)}" names no vGPU type', hint="vgpumgr mdev types")
        found.append(VgpuCount(name.strip(), count.read_int(0, MOST_VGPUS), count.where))
    if sum(one.count for one in found) > MOST_VGPUS:
        raise value.error(f"more than {MOST_VGPUS} vGPUs on one GPU")
    return tuple(one for one in found if one.count)
