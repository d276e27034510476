"""Layout files: our own format (docs/layouts.md), nvidia-mig-parted's and vgpu-device-manager's.

They become one form (``LayoutFile``), whatever the dialect, before it meets the GPUs of a machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from vgpumgr.errors import LayoutNotFoundError, UsageError
from vgpumgr.mig.layout.formats.reader import Value, Where, check_label, read_root, shorten
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.mig import MigProfileName, Placement
from vgpumgr.model.text import list_near

# of a file that is something else, enough to guess by
_LOOKED_AT = 20
_MARKS = ("schema", "layouts", "version", "mig-configs", "vgpu-configs")


def read_layout_file(text: str, source: str) -> LayoutFile:
    """Reads a file in our own format or mig-parted's. Raises LayoutFileError with file, line and
    key.
    """
    return read_layout_root(read_root(text, source))


def read_layout_root(root: Value) -> LayoutFile:
    """As ``read_layout_file``, of a document that has been parsed."""
    keys = {key.lower(): value for key, value in root.read_pairs()}
    if "migstate" in keys:
        raise root.error("this is a checkpoint, not a layout", hint="vgpumgr mig restore FILE")
    if "mig-configs" in keys:
        return read_parted(root)
    if "vgpu-configs" in keys:
        return read_vgpu_dm(root)
    if "schema" in keys or "layouts" in keys:
        return read_own(root)
    if "version" in keys:
        return read_parted(root)
    raise root.error(
        "not a layout file",
        _guess(list(keys)) or f"it has neither schema: {SCHEMA} nor mig-configs",
        "docs/layouts.md has examples",
    )


def _guess(keys: list[str]) -> str | None:
    for key in map(shorten, keys[:_LOOKED_AT]):
        if near := list_near(key, _MARKS, n=1):
            return f'unknown key "{key}", did you mean {near[0]}?'
    return None


def choose_layout(file: LayoutFile, name: str | None) -> str:
    """The name of the layout that is meant; one that is alone needs none. Raises
    LayoutNotFoundError, UsageError.
    """
    known = list(file.layouts)
    if name is None:
        if len(known) == 1:
            return known[0]
        raise UsageError(
            f"{file.source} has {len(known)} layouts; which one?",
            why=_list_names(known),
            hint=f"-c {known[0]}",
        )
    if name in file.layouts:
        return name
    near = list_near(name, known, n=1)
    raise LayoutNotFoundError(
        f'{file.source} has no layout "{shorten(name)}"',
        why=f"did you mean {near[0]}?" if near else _list_names(known),
    )


def _list_names(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"it has {shown}{more}"


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
    """Which GPUs are meant. ``names`` None means all; an index counts in the order of PCI addresses.
    ``models`` (patterns) and ``filters`` narrow it; empty means any.
    """

    names: tuple[tuple[str, Where], ...] | None = None
    models: tuple[str, ...] = ()
    filters: tuple[DeviceFilter, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether no single GPU is named: then those that cannot are passed over."""
        return self.names is None


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """So many equal GPU instances; ``compute`` None: one compute instance of full size. Or so many MIG
    devices, as mig-parted counts them: the GPU instances around them follow.
    """

    profile: MigProfileName
    count: int
    where: Where
    compute: tuple[MigProfileName, ...] | None = None
    placement: Placement | None = None


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
    devices: tuple[InstanceSpec, ...] | None = None
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


SCHEMA = "vgpumgr/mig-layout/v1"
_PLACEMENT = re.compile(r"(\d{1,3}):(\d{1,3})")
_SHORT = re.compile(r"(\d{1,2})c")


def read_own(root: Value) -> LayoutFile:
    """Reads a file with ``schema: vgpumgr/mig-layout/v1``. Raises LayoutFileError."""
    keys = root.read_keys(("schema", "layouts"), ("schema", "layouts"))
    schema = keys["schema"].read_text()
    if schema != SCHEMA:
        raise keys["schema"].error(
            f'unknown schema "{shorten(schema)}"', f"this vgpumgr reads {SCHEMA}"
        )
    return read_layouts(Dialect.OWN, keys["layouts"], _read_entry)


def _read_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(("gpus", "model", "mig", "instances", "vgpus"))
    if "gpus" not in keys and "model" not in keys:
        raise value.error("which GPUs?", "an entry has gpus, or model, or both")
    says_mig = "mig" in keys or "instances" in keys
    if not says_mig and "vgpus" not in keys:
        raise value.error("the entry says nothing about its GPUs", "it lacks mig and instances")
    mig = keys["mig"].read_bool() if "mig" in keys else True
    instances = _read_instances(keys["instances"]) if "instances" in keys else None
    if instances and not mig:
        raise keys["instances"].error("instances together with mig: false")
    vgpus = read_vgpus(keys["vgpus"]) if "vgpus" in keys else None
    choice = _read_choice(keys.get("gpus"), keys.get("model"))
    return GpuSpec(choice, mig, value.where, instances, vgpus=vgpus, says_mig=says_mig)


def _read_choice(gpus: Value | None, model: Value | None) -> GpuChoice:
    models = tuple(_read_selector(v) for v in _one_or_many(model)) if model else ()
    if gpus is None or (not gpus.is_list and gpus.read_text() == "all"):
        return GpuChoice(models=models)
    names = tuple((_read_selector(item), item.where) for item in _one_or_many(gpus))
    if not names:
        raise gpus.error("no GPU is named", "write all, or leave the entry out")
    return GpuChoice(names=names, models=models)


def _read_selector(value: Value) -> str:
    text = value.read_text()
    if len(text) > LONGEST_SELECTOR:
        raise value.error(f'"{shorten(text)}" is too long to name a GPU')
    return text


def _one_or_many(value: Value) -> list[Value]:
    return value.read_items() if value.is_list else [value]


def _read_instances(value: Value) -> tuple[InstanceSpec, ...]:
    found = tuple(_read_instance(item) for item in value.read_items())
    check_sum(value, sum(one.count for one in found))
    return found


def _read_instance(value: Value) -> InstanceSpec:
    """``3g.40gb``, or the same with a count, a place, compute instances."""
    if not value.is_map:
        return _make(value, read_profile(value), 1, None, None)
    keys = value.read_keys(("profile", "count", "placement", "compute"), ("profile",))
    profile = read_profile(keys["profile"])
    count = keys["count"].read_int(1, MOST) if "count" in keys else 1
    placement = _read_placement(keys["placement"]) if "placement" in keys else None
    if placement is not None and count > 1:
        raise keys["placement"].error(f"one place for {count} instances", "write one entry each")
    compute = _read_compute(keys["compute"], profile) if "compute" in keys else None
    return _make(value, profile, count, compute, placement)


def _make(
    value: Value,
    profile: MigProfileName,
    count: int,
    compute: tuple[MigProfileName, ...] | None,
    placement: Placement | None,
) -> InstanceSpec:
    """``1c.3g.40gb`` alone is a GPU instance with that one compute instance."""
    if profile.compute_slices is not None:
        if compute is not None:
            raise value.error(
                f"{profile} names a compute instance, and compute names others",
                f"write profile: {profile.gpu_instance}",
            )
        compute = (profile,)
    return InstanceSpec(profile.gpu_instance, count, value.where, compute, placement)


def _read_placement(value: Value) -> Placement:
    """``4:4``: start and size on the memory axis."""
    match = _PLACEMENT.fullmatch(value.read_text().strip())
    if match is None or int(match[2]) == 0:
        raise value.error(
            f'"{shorten(value.read_text())}" is no placement',
            "write start:size on the memory axis, as in 4:4",
            "vgpumgr mig profiles -o wide",
        )
    return Placement(int(match[1]), int(match[2]))


def _read_compute(value: Value, owner: MigProfileName) -> tuple[MigProfileName, ...]:
    """``[1c, 2c]`` or with full names; ``[]`` means none."""
    found = []
    for item in value.read_items():
        short = _SHORT.fullmatch(item.read_text().strip())
        name = read_profile(item, f"{short[1]}c.{owner.gpu_instance}" if short else None)
        if name.gpu_instance != owner.gpu_instance:
            raise item.error(f"{name} is no compute instance of {owner.gpu_instance}")
        found.append(name)
    if len(found) > MOST:
        raise value.error(f"{len(found)} compute instances", f"no GPU has more than {MOST}")
    return tuple(found)


VERSION = "v1"
_FILTER = re.compile(r"(?:0x)?([0-9a-f]{8})(?::(?:0x)?([0-9a-f]{8}))?", re.IGNORECASE)
_MOST_GPUS = 255


def read_parted(root: Value) -> LayoutFile:
    """Reads a file with ``mig-configs``. Raises LayoutFileError."""
    keys = root.read_keys(("version", "mig-configs"), ("version", "mig-configs"))
    check_version(keys["version"])
    return read_layouts(Dialect.MIG_PARTED, keys["mig-configs"], _read_parted_entry)


def check_version(value: Value) -> None:
    """Only v1 exists. Raises LayoutFileError."""
    if value.read_text() != VERSION:
        raise value.error(
            f'unknown version "{shorten(value.read_text())}"', f"this vgpumgr reads {VERSION}"
        )


def _read_parted_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "mig-enabled", "mig-devices"), ("devices", "mig-enabled")
    )
    mig = keys["mig-enabled"].read_bool()
    devices = _read_parted_devices(keys.get("mig-devices"))
    if mig and devices is None:
        raise value.error(
            'key "mig-devices" is missing', "MIG is enabled; {} means without instances"
        )
    if not mig and devices:
        raise keys["mig-devices"].error("instances together with mig-enabled: false")
    return GpuSpec(
        read_parted_choice(keys), mig, value.where, devices=(devices or ()) if mig else None
    )


def read_parted_choice(keys: Mapping[str, Value]) -> GpuChoice:
    """Which GPUs: ``device-filter`` and ``devices``. Raises LayoutFileError."""
    filters = _read_filters(keys["device-filter"]) if "device-filter" in keys else ()
    devices = keys["devices"]
    if not devices.is_list:
        if devices.read_text() != "all":
            raise devices.error(
                f'expected all or a list of indexes, found "{shorten(devices.read_text())}"'
            )
        return GpuChoice(filters=filters)
    names = tuple((str(i.read_int(0, _MOST_GPUS)), i.where) for i in devices.read_items())
    return GpuChoice(names=names, filters=filters)


def _read_filters(value: Value) -> tuple[DeviceFilter, ...]:
    """A word or a list; an empty word means every board, as a missing one."""
    items = value.read_items() if value.is_list else [value]
    return tuple(_read_filter(item) for item in items if item.read_text())


def _read_filter(value: Value) -> DeviceFilter:
    match = _FILTER.fullmatch(value.read_text())
    if match is None:
        raise value.error(
            f'"{shorten(value.read_text())}" is no device filter',
            "write device and vendor id as in 0x20B210DE",
        )
    return DeviceFilter(int(match[1], 16), int(match[2], 16) if match[2] else None)


def _read_parted_devices(value: Value | None) -> tuple[InstanceSpec, ...] | None:
    if value is None or value.is_null:
        return None
    found = [
        InstanceSpec(read_profile(count, name), count.read_int(0, MOST), count.where)
        for name, count in value.read_pairs()
    ]
    check_sum(value, sum(one.count for one in found))
    if found and not any(one.count for one in found):
        raise value.error("all counts are zero", "{} means without instances")
    return tuple(one for one in found if one.count)


def read_vgpu_dm(root: Value) -> LayoutFile:
    """Reads a file with ``vgpu-configs``. Raises LayoutFileError."""
    keys = root.read_keys(("version", "vgpu-configs"), ("version", "vgpu-configs"))
    check_version(keys["version"])
    return read_layouts(Dialect.VGPU_DM, keys["vgpu-configs"], _read_vgpu_dm_entry)


def _read_vgpu_dm_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "vgpu-devices"), ("devices", "vgpu-devices")
    )
    vgpus = read_vgpus(keys["vgpu-devices"])
    choice = read_parted_choice(keys)
    return GpuSpec(choice, False, value.where, vgpus=vgpus, says_mig=False)
