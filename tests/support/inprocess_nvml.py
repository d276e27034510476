"""Our NVML client without its helper process: the simulated library in this process, for tests of many calls."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import pynvml

from vgpumgr.host.helper import HelperFaultError
from vgpumgr.model.codec import encode
from vgpumgr.model.gpu import GpuProcess, Inventory
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigModeChange, Placement
from vgpumgr.nvml.adapter import Adapter
from vgpumgr.nvml.client import make_error

LIBRARY = Path(__file__).parents[2] / "vgpumgr/_lib/sim/libnvidia-ml.so.1"


class InProcessNvml:
    """Implements ``nvml.protocol.Nvml``; the machine is that of ``$VGPUMGR_SIM``."""

    def __init__(self) -> None:
        # loaded by path once, the library answers to its SONAME, which is what nvidia-ml-py asks for
        ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        self._adapter = Adapter()
        self.changes: list[str] = []

    def read_inventory(self) -> Inventory:
        return self._call("read_inventory")

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        return self._call("list_processes", gpu)

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        return self._call("list_gpu_instances", gpu)

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        return self._change("set_mig_mode", gpu, enabled)

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        return self._change("create_gpu_instance", gpu, profile_id, encode(placement))

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        place = None if placement is None else encode(placement)
        return self._change("create_compute_instance", gpu, gpu_instance_id, slices, place)

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        self._change("destroy_compute_instance", gpu, gpu_instance_id, compute_instance_id)

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        self._change("destroy_gpu_instance", gpu, gpu_instance_id)

    def close(self) -> None:
        """Takes back every nvmlInit of this process, so that the next machine can be another one."""
        with contextlib.suppress(pynvml.NVMLError):
            while True:
                pynvml.nvmlShutdown()

    def _change(self, method: str, *arguments: Any) -> Any:
        self.changes.append(method)
        return self._call(method, *arguments)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._adapter, method)(*arguments)
        except HelperFaultError as fault:
            raise make_error(f"cannot {method}", fault.data) from None
