"""Finding and destroying GPU instances, and MIG mode.

No policy: who calls has chosen GPU and placement. An instance is known before it exists by GPU,
profile and placement, so that an interrupted creation is found again. What changes something reads
back what it did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from vgpumgr.errors import (
    MigModePendingError,
    MigNotSupportedError,
    NvmlInUseError,
    NvmlNotFoundError,
    ReadBackError,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigActivation, MigProfile, Placement
from vgpumgr.model.slice import SliceOwner
from vgpumgr.nvml.protocol import Nvml


def find_instance(
    nvml: Nvml, gpu: GpuUuid, profile: MigProfile, placement: Placement
) -> GpuInstance | None:
    """The instance of that profile at exactly that place, if there is one."""
    for instance in nvml.list_gpu_instances(gpu):
        if instance.profile_id == profile.id and instance.placement == placement:
            return instance
    return None


def destroy_instance(nvml: Nvml, gpu: GpuUuid, gpu_instance_id: int) -> None:
    """Destroys a GPU instance with all its compute instances; restartable, absent is no error."""
    instance = _get(nvml, gpu, gpu_instance_id)
    if instance is None:
        return
    for compute in instance.compute_instances:
        _tolerate_absent(partial(nvml.destroy_compute_instance, gpu, instance.id, compute.id))
    _tolerate_absent(partial(nvml.destroy_gpu_instance, gpu, gpu_instance_id))
    if _get(nvml, gpu, gpu_instance_id) is not None:
        raise ReadBackError(f"GPU instance {gpu_instance_id} is still there after its removal")


def ensure_mig_mode(nvml: Nvml, gpu: Gpu, enabled: bool) -> bool:
    """Brings MIG mode to ``enabled``; returns whether anything was changed.

    Raises MigNotSupportedError, NvmlInUseError naming the GPU's clients, or MigModePendingError
    where a reset must follow.
    """
    word = "on" if enabled else "off"
    if not gpu.mig.supported:
        raise MigNotSupportedError(
            f"cannot turn MIG {word} on {gpu}", why=f"{gpu.model} has no MIG"
        )
    if gpu.mig.current == gpu.mig.pending == enabled:
        return False
    change = nvml.set_mig_mode(gpu.uuid, enabled)
    if change.current == enabled:
        return True
    error = f"cannot turn MIG {word} on {gpu} now"
    cause = f"nvmlDeviceSetMigMode: {change.status_text} ({change.status_code})"
    in_use = change.activation is MigActivation.IN_USE
    holders = [str(process) for process in nvml.list_processes(gpu.uuid)] if in_use else []
    if in_use and change.pending != enabled:
        raise NvmlInUseError(
            error,
            cause=cause,
            why="the mode changes only while nothing uses the GPU",
            held_by=holders,
            hint="stop them, then repeat",
        )
    raise MigModePendingError(
        error,
        cause=cause,
        why="the mode changes only while nothing uses the GPU; the request stays pending"
        if in_use
        else "the mode changes at the next reset of the GPU",
        held_by=holders,
        hint=f"stop them, then repeat; or nvidia-smi -i {gpu.index} --gpu-reset"
        if holders
        else f"nvidia-smi -i {gpu.index} --gpu-reset",
    )


def _get(nvml: Nvml, gpu: GpuUuid, gpu_instance_id: int) -> GpuInstance | None:
    return next((i for i in nvml.list_gpu_instances(gpu) if i.id == gpu_instance_id), None)


def _tolerate_absent(destroy: Callable[[], None]) -> None:
    """What somebody else destroyed between our look and our call is as good as destroyed by us."""
    with contextlib.suppress(NvmlNotFoundError):
        destroy()


class OwnerProvider(Protocol):
    """Knows the attachments of a machine."""

    def list_owners(self) -> Sequence[SliceOwner]:
        """One entry for each MIG slice that is recorded as some VM's."""


class NoOwners:
    """Where nothing is remembered, nobody owns anything."""

    def list_owners(self) -> Sequence[SliceOwner]:
        """Always empty."""
        return ()
