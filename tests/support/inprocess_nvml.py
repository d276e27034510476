"""Our NVML client without its helper process: the simulated library in this process, for tests of many calls."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from vgpumgr.host.helper import HelperFaultError
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import GpuProcess, Inventory
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigModeChange, Placement
from vgpumgr.nvml import calls as faults
from vgpumgr.nvml.adapter import Adapter

LIBRARY = Path(__file__).parents[2] / "vgpumgr/_lib/sim/libnvidia-ml.so.1"
T = TypeVar("T")


class InProcessNvml:
    """Implements ``nvml.protocol.Nvml``; the machine is that of ``$VGPUMGR_SIM``."""

    def __init__(self) -> None:
        # loaded by path once, the library answers to its SONAME, which is what nvidia-ml-py asks for
        ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        self._adapter = Adapter()
        self.changes: list[str] = []

    def read_inventory(self) -> Inventory:
        return self._call(Inventory, "read_inventory")

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        return self._call(tuple[GpuProcess, ...], "list_processes", gpu)

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        return self._call(tuple[GpuInstance, ...], "list_gpu_instances", gpu)

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        return self._change(MigModeChange, "set_mig_mode", gpu, enabled)

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        place = (placement.start, placement.size)
        return self._change(GpuInstance, "create_gpu_instance", gpu, profile_id, *place)

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        start = None if placement is None else placement.start
        return self._change(
            ComputeInstance, "create_compute_instance", gpu, gpu_instance_id, slices, start
        )

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        self._change(None, "destroy_compute_instance", gpu, gpu_instance_id, compute_instance_id)

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        self._change(None, "destroy_gpu_instance", gpu, gpu_instance_id)

    def close(self) -> None:
        """Takes back every nvmlInit of this process, so that the next machine can be another one."""
        with contextlib.suppress(pynvml.NVMLError):
            while True:
                pynvml.nvmlShutdown()

    def _change(self, kind: Any, method: str, *arguments: Any) -> Any:
        self.changes.append(method)
        return self._call(kind, method, *arguments)

    def _call(self, kind: Any, method: str, *arguments: Any) -> Any:
        try:
            answer = getattr(self._adapter, method)(*arguments)
        except HelperFaultError as fault:
            raise faults.make_error(f"cannot {method}", fault.data) from None
        return None if kind is None else decode(kind, answer)
