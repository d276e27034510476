"""What an operation on vGPUs works on: vGPUs, the record of ours, and the GPUs below them."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgpumgr.mdev.control import NoVgpus, VgpuControl
from vgpumgr.plan.layout_world import LayoutWorld
from vgpumgr.plan.vgpu_record import NoVgpuStore, VgpuStore


@dataclass
class VgpuOperation(LayoutWorld):
    """One operation on vGPUs, and on the GPU instances that they live in."""

    vgpus: VgpuControl = field(default_factory=NoVgpus)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)
