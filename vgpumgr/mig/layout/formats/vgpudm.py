"""nvidia-vgpu-device-manager's configuration, ``version: v1`` with ``vgpu-configs``."""

from __future__ import annotations

from vgpumgr.mig.layout.formats.own import read_vgpus
from vgpumgr.mig.layout.formats.parted import check_version, read_parted_choice
from vgpumgr.mig.layout.formats.reader import Value, check_label
from vgpumgr.mig.layout.formats.spec import Dialect, GpuSpec, LayoutFile


def read_vgpu_dm(root: Value) -> LayoutFile:
    """Reads a file with ``vgpu-configs``. Raises LayoutFileError."""
    keys = root.read_keys(("version", "vgpu-configs"), ("version", "vgpu-configs"))
    check_version(keys["version"])
    layouts = {
        check_label(name, value.where): _read_layout(value)
        for name, value in keys["vgpu-configs"].read_pairs()
    }
    if not layouts:
        raise keys["vgpu-configs"].error("there is no layout in it")
    return LayoutFile(root.where.source, Dialect.VGPU_DM, layouts)


def _read_layout(value: Value) -> tuple[GpuSpec, ...]:
    entries = tuple(_read_entry(item) for item in value.read_items())
    if not entries:
        raise value.error("the layout is empty", "it says nothing about any GPU")
    return entries


def _read_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "vgpu-devices"), ("devices", "vgpu-devices")
    )
    vgpus = read_vgpus(keys["vgpu-devices"])
    choice = read_parted_choice(keys)
    return GpuSpec(choice, False, value.where, vgpus=vgpus, says_mig=False)
