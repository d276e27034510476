"""What the program needs of NVML, as our own interface.

Implementations: ``nvml.client.NvmlClient`` (a helper process with a deadline that loads the genuine
or the simulated library); tests have their own. Every method may raise any subclass of
``errors.NvmlError``, and ``HelperLateError`` or ``HelperDiedError``. Values are read afresh on
every call, nothing is remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vgpumgr.model.gpu import GpuProcess, Inventory
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigModeChange, Placement

if TYPE_CHECKING:
    from vgpumgr.model.vgpu import GpuVgpus


class Nvml(Protocol):
    """One machine's NVML."""

    def read_inventory(self) -> Inventory:
        """All GPUs with profiles, placements, instances and processes; host facts (NUMA, IOMMU) are
        left None.
        """

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        """Processes with a context on the GPU or on an instance of it."""

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        """The GPU's instances with their compute instances, in placement order."""

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        """Asks for a MIG mode and reads both modes back; success may mean pending only."""

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        """Creates a GPU instance exactly there; it has no compute instance yet."""

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        """Creates the compute instance of that many slices on a GPU instance; without a placement
        the driver chooses one.
        """

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        """Destroys one compute instance."""

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        """Destroys a GPU instance that has no compute instances left."""

    def list_vgpus(self) -> tuple[GpuVgpus, ...]:
        """What each GPU that is a vGPU host says of vGPU types and modes; others are left out."""

    def set_mixed_sizes(self, gpu: GpuUuid, enabled: bool) -> None:
        """Whether time-sliced vGPUs of different sizes may share the GPU; it must have none."""
