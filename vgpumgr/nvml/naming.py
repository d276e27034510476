"""A profile's name where NVML gives none (before the v2 structure): the field's own arithmetic.

The profile's share of the device's memory, rounded up to whole eighths, times the device's GiB,
rounded up. Reproduces the names of A30, A100, H100, H200 and RTX PRO 6000.
"""

from __future__ import annotations

import math

from vgpumgr.model.mig import MigProfileName, Variant

_GIB = 1 << 30
# NVML_GPU_INSTANCE_PROFILE_*: which enumerators are not the plain profile of their size
_VARIANTS = {
    **dict.fromkeys((7, 8), Variant.MEDIA),
    **dict.fromkeys((10, 11, 12, 17), Variant.GRAPHICS),
    **dict.fromkeys((13, 14), Variant.NO_MEDIA),
    **dict.fromkeys((15, 16), Variant.ALL_MEDIA),
}


def derive_name(
    enum: int, slices: int, memory_bytes: int, device_memory_bytes: int
) -> MigProfileName:
    """The name of profile ``enum`` with these slices and memory on a device of that memory."""
    eighths = math.ceil(memory_bytes / device_memory_bytes * 8 - 1e-9)
    total_gib = math.ceil(device_memory_bytes / _GIB)
    gigabytes = math.floor(eighths * total_gib / 8 + 0.5)
    return MigProfileName(slices, gigabytes, _VARIANTS.get(enum, Variant.PLAIN))
