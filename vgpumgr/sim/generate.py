# SPDX-License-Identifier: Apache-2.0
"""Data files of machines as large as one likes, for measuring."""

from __future__ import annotations

_FIRST_BUS = 0x10
_FIRST_GROUP = 10


def machine_text(gpus: int, vfs: int, board: str, vgpu: str) -> str:
    """A vGPU host of so many GPUs of a board, each with so many VFs, as TOML.

    ``vgpu`` is ``mdev`` or ``vendor-vfio``. The machine's model checks what does not go together.
    """
    step = (256 - _FIRST_BUS) // max(gpus, 1)
    head = (
        f'description = "Generated: {gpus} x {board}, {vfs} VFs each, {vgpu}"\n'
        'driver_version = "580.95.02"\ncuda_version = "13.0"\n'
        f'kernel = "{"6.1.0-28-amd64" if vgpu == "mdev" else "6.8.0-51-generic"}"\n'
        f'vgpu = "{vgpu}"\n'
    )
    return head + "".join(
        f'\n[[gpu]]\nboard = "{board}"\naddress = "0000:{_FIRST_BUS + index * step:02x}:00.0"\n'
        f"numa_node = {index * 2 // gpus}\niommu_group = {_FIRST_GROUP + index}\n"
        f'cpus = "{index * 8}-{index * 8 + 7}"\npcie_switch = {index}\nvfs = {vfs}\n'
        for index in range(gpus)
    )
