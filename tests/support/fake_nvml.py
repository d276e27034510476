"""NVML in memory: enough to watch what our code asks of it, with failures on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.support.boards import make_uuid
from vgpumgr.errors import NvmlError, NvmlInsufficientResourcesError, NvmlNotFoundError
from vgpumgr.model.gpu import Gpu, GpuProcess, Inventory, LostGpu
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigActivation, MigModeChange, Placement
from vgpumgr.model.vgpu import GpuVgpus


class FakeNvml:
    """Implements ``nvml.protocol.Nvml``; ``fail`` maps a method's name to what its next call raises."""

    def __init__(self, gpus: Sequence[Gpu], lost: Sequence[LostGpu] = ()) -> None:
        self.gpus = {gpu.uuid: gpu for gpu in gpus}
        self.lost = tuple(lost)
        self.fail: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.activation = MigActivation.DONE
        self._next = 100

    def read_inventory(self) -> Inventory:
        self._enter("read_inventory")
        return Inventory("580.95.05", "13.580.95.05", (13, 0), tuple(self.gpus.values()), self.lost)

    def list_vgpus(self) -> tuple[GpuVgpus, ...]:
        """It says nothing of vGPUs: ``FakeVgpus`` does."""
        return ()

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        self._enter("list_processes")
        return self.gpus[gpu].processes

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        self._enter("list_gpu_instances")
        return self.gpus[gpu].instances

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        self._enter("set_mig_mode")
        mode = self.gpus[gpu].mig
        current = enabled if self.activation is MigActivation.DONE else mode.current
        self._put(gpu, mig=replace(mode, current=current, pending=enabled))
        code = {MigActivation.DONE: 0, MigActivation.IN_USE: 19}.get(self.activation, 16)
        return MigModeChange(current, enabled, self.activation, code, "words of NVML")

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        self._enter("create_gpu_instance")
        if any(i.placement.overlaps(placement) for i in self.gpus[gpu].instances):
            raise NvmlInsufficientResourcesError("no room")
        profile = next(p for p in self.gpus[gpu].profiles if p.id == profile_id)
        self._next += 1
        instance = GpuInstance(
            self._next, profile_id, profile.name, placement, profile.slices, profile.memory_bytes
        )
        self._put(gpu, instances=(*self.gpus[gpu].instances, instance))
        return instance

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        self._enter("create_compute_instance")
        instance = self._get(gpu, gpu_instance_id)
        taken = [c.id for c in instance.compute_instances]
        id_ = next(n for n in range(8) if n not in taken)
        uuid = MigUuid(make_uuid("MIG", self.gpus[gpu].index, gpu_instance_id + 1000 * id_))
        if sum(c.slices for c in instance.compute_instances) + slices > instance.slices:
            raise NvmlInsufficientResourcesError("no slices left")
        compute = ComputeInstance(id_, 0, slices, uuid, placement)
        changed = replace(instance, compute_instances=(*instance.compute_instances, compute))
        self._replace(gpu, gpu_instance_id, changed)
        return compute

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        self._enter("destroy_compute_instance")
        instance = self._get(gpu, gpu_instance_id)
        kept = tuple(c for c in instance.compute_instances if c.id != compute_instance_id)
        if len(kept) == len(instance.compute_instances):
            raise NvmlNotFoundError("no such compute instance")
        self._replace(gpu, gpu_instance_id, replace(instance, compute_instances=kept))

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        self._enter("destroy_gpu_instance")
        if self._get(gpu, gpu_instance_id).compute_instances:
            raise NvmlError("in use")
        kept = tuple(i for i in self.gpus[gpu].instances if i.id != gpu_instance_id)
        self._put(gpu, instances=kept)

    def _enter(self, name: str) -> None:
        self.calls.append(name)
        if error := self.fail.pop(name, None):
            raise error

    def _get(self, gpu: GpuUuid, id_: int) -> GpuInstance:
        for instance in self.gpus[gpu].instances:
            if instance.id == id_:
                return instance
        raise NvmlNotFoundError("no such GPU instance")

    def _replace(self, gpu: GpuUuid, id_: int, changed: GpuInstance) -> None:
        kept = tuple(changed if i.id == id_ else i for i in self.gpus[gpu].instances)
        self._put(gpu, instances=kept)

    def _put(self, gpu: GpuUuid, **changes: object) -> None:
        self.gpus[gpu] = replace(self.gpus[gpu], **changes)  # type: ignore[arg-type]
