"""nvidia-mig-parted's configuration, ``version: v1``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vgpumgr.mig.layout.formats.reader import Value, shorten
from vgpumgr.mig.layout.formats.spec import (
    MOST,
    DeviceCount,
    DeviceFilter,
    Dialect,
    GpuChoice,
    GpuSpec,
    LayoutFile,
    check_sum,
    read_layouts,
    read_profile,
    read_vgpus,
)

VERSION = "v1"
_FILTER = re.compile(r"(?:0x)?([0-9a-f]{8})(?::(?:0x)?([0-9a-f]{8}))?", re.IGNORECASE)
_MOST_GPUS = 255


def read_parted(root: Value) -> LayoutFile:
    """Reads a file with ``mig-configs``. Raises LayoutFileError."""
    keys = root.read_keys(("version", "mig-configs"), ("version", "mig-configs"))
    check_version(keys["version"])
    return read_layouts(Dialect.MIG_PARTED, keys["mig-configs"], _read_entry)


def check_version(value: Value) -> None:
    """Only v1 exists. Raises LayoutFileError."""
    if value.read_text() != VERSION:
        raise value.error(
            f'unknown version "{shorten(value.read_text())}"', f"this vgpumgr reads {VERSION}"
        )


def _read_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "mig-enabled", "mig-devices"), ("devices", "mig-enabled")
    )
    mig = keys["mig-enabled"].read_bool()
    devices = _read_devices(keys.get("mig-devices"))
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
    indexes = tuple((i.read_int(0, _MOST_GPUS), i.where) for i in devices.read_items())
    return GpuChoice(indexes=indexes, filters=filters)


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


def _read_devices(value: Value | None) -> tuple[DeviceCount, ...] | None:
    if value is None or value.is_null:
        return None
    found = [
        DeviceCount(read_profile(count, name), count.read_int(0, MOST), count.where)
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
    return read_layouts(Dialect.VGPU_DM, keys["vgpu-configs"], _read_config)


def _read_config(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "vgpu-devices"), ("devices", "vgpu-devices")
    )
    vgpus = read_vgpus(keys["vgpu-devices"])
    choice = read_parted_choice(keys)
    return GpuSpec(choice, False, value.where, vgpus=vgpus, says_mig=False)
