"""``protocol.Nvml`` over a helper process with a deadline for every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from vgpumgr.errors import HelperDiedError, NvmlError
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import read_name
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import GpuProcess, Inventory
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigModeChange, Placement
from vgpumgr.model.vgpu import GpuVgpus

#: how a late call of this kind is recorded
READ_INVENTORY = "read_inventory"
STUCK = "the GPUs are not read again while an earlier read is stuck"
T = TypeVar("T")
READ_TIMEOUT_S = 30.0
# Destroying takes about a second, a mode change may reset the GPU.
CHANGE_TIMEOUT_S = 120.0
#: nvml.h, nvmlReturn_t
_IN_USE = 19


class NvmlClient:
    """One machine's NVML. The helper starts with the first call; a late one is replaced by the
    next.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        clock: Clock | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        change_timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> None:
        self._helper = HelperOnDemand(machine, "vgpumgr.nvml.helper", clock=clock)
        self._read_timeout_s = read_timeout_s
        self._change_timeout_s = change_timeout_s

    def start_early(self) -> None:
        """Starts the helper now; if it cannot start, the first call says why."""
        self._helper.start_early()

    def read_inventory(self) -> Inventory:
        """See ``Nvml``."""
        inventory = self._read(Inventory, "read the GPUs", READ_INVENTORY)
        gpus = tuple(replace(gpu, processes=_name_all(gpu.processes)) for gpu in inventory.gpus)
        return replace(inventory, gpus=gpus)

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        """See ``Nvml``."""
        what = f"list the processes on {gpu}"
        return _name_all(self._read(tuple[GpuProcess, ...], what, "list_processes", gpu=gpu))

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        """See ``Nvml``."""
        what = f"list the MIG instances of {gpu}"
        return self._read(tuple[GpuInstance, ...], what, "list_gpu_instances", gpu=gpu)

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        """See ``Nvml``."""
        what = f"turn MIG {'on' if enabled else 'off'} on {gpu}"
        answer = self._change(what, "set_mig_mode", gpu, enabled=enabled)
        return decode(MigModeChange, answer)

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        """See ``Nvml``."""
        what = f"create a GPU instance (profile {profile_id} at {placement}) on {gpu}"
        answer = self._change(
            what,
            "create_gpu_instance",
            gpu,
            profile_id=profile_id,
            start=placement.start,
            size=placement.size,
        )
        return decode(GpuInstance, answer)

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        """See ``Nvml``."""
        what = (
            f"create a compute instance of {slices} slices in instance {gpu_instance_id} of {gpu}"
        )
        answer = self._change(
            what,
            "create_compute_instance",
            gpu,
            gpu_instance_id=gpu_instance_id,
            slices=slices,
            start=None if placement is None else placement.start,
        )
        return decode(ComputeInstance, answer)

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        """See ``Nvml``."""
        where = f"instance {gpu_instance_id} of {gpu}"
        self._change(
            f"destroy compute instance {compute_instance_id} in {where}",
            "destroy_compute_instance",
            gpu,
            gpu_instance_id=gpu_instance_id,
            compute_instance_id=compute_instance_id,
        )

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        """See ``Nvml``."""
        self._change(
            f"destroy GPU instance {gpu_instance_id} on {gpu}",
            "destroy_gpu_instance",
            gpu,
            gpu_instance_id=gpu_instance_id,
        )

    def list_vgpus(self) -> tuple[GpuVgpus, ...]:
        """See ``Nvml``."""
        return self._read(tuple[GpuVgpus, ...], "read the vGPU types", "list_vgpus")

    def set_mixed_sizes(self, gpu: GpuUuid, enabled: bool) -> None:
        """See ``Nvml``."""
        what = f"turn mixed vGPU sizes {'on' if enabled else 'off'} on {gpu}"
        self._change(what, "set_mixed_sizes", gpu, enabled=enabled)

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        self._helper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, kind: type[T], what: str, method: str, **params: Any) -> T:
        try:
            try:
                answer = self._helper.call(method, params, self._read_timeout_s)
            except HelperDiedError:
                # ended by whoever takes a GPU from the driver; a read may be made again
                answer = self._helper.call(method, params, self._read_timeout_s)
            return decode(kind, answer)
        except HelperFaultError as fault:
            raise _make_error(what, fault) from None

    def _change(self, what: str, method: str, gpu: GpuUuid, **params: Any) -> Any:
        try:
            return self._helper.call(method, {"gpu": gpu, **params}, self._change_timeout_s)
        except HelperFaultError as fault:
            held_by = self._list_holders(gpu, params) if fault.data["code"] == _IN_USE else ()
            raise _make_error(what, fault, held_by) from None

    def _list_holders(self, gpu: GpuUuid, params: dict[str, Any]) -> list[str]:
        """Processes on the GPU, or on the instance that the failed call named."""
        try:
            processes = self.list_processes(gpu)
        except NvmlError:
            return []
        wanted = params.get("gpu_instance_id")
        return [str(p) for p in processes if wanted is None or p.gpu_instance_id == wanted]


def _make_error(what: str, fault: HelperFaultError, held_by: Sequence[str] = ()) -> NvmlError:
    from vgpumgr.nvml.calls import make_error

    return make_error(f"cannot {what}", fault.data, held_by)


def _name_all(processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
    return tuple(replace(process, name=read_name(process.pid)) for process in processes)
