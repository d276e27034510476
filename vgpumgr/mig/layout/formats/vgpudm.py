"""nvidia-vgpu-device-manager's configuration, ``version: v1`` with ``vgpu-configs``."""

from __future__ import annotations

from vgpumgr.mig.layout.formats.common import read_layouts, read_vgpus
from vgpumgr.mig.layout.formats.parted import check_version, read_parted_choice
from vgpumgr.mig.layout.formats.reader import Value
from vgpumgr.mig.layout.formats.spec import Dialect, GpuSpec, LayoutFile


def read_vgpu_dm(root: Value) -> LayoutFile:
    """Reads a file with ``vgpu-configs``. Raises LayoutFileError."""
    keys = root.read_keys(("version", "vgpu-configs"), ("version", "vgpu-configs"))
    check_version(keys["version"])
    return read_layouts(Dialect.VGPU_DM, keys["vgpu-configs"], _read_entry)


def _read_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(
        ("device-filter", "devices", "vgpu-devices"), ("devices", "vgpu-devices")
    )
    vgpus = read_vgpus(keys["vgpu-devices"])
    choice = read_parted_choice(keys)
    return GpuSpec(choice, False, value.where, vgpus=vgpus, says_mig=False)
