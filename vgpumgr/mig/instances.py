"""Observing, creating and destroying MIG slices (one GPU instance with one compute instance), and
MIG mode.

No policy: who calls has chosen GPU and placement. A slice is known before it exists by GPU, profile
and placement, so that an interrupted creation is found again (``find_instance``). Everything reads
back what it did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from vgpumgr.errors import (
    MigInstanceNotFoundError,
    MigModePendingError,
    MigNotSupportedError,
    NvmlInUseError,
    NvmlNotFoundError,
    ReadBackError,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import GpuInstance, MigActivation, MigProfile, Placement
from vgpumgr.model.slice import MigInstanceRef, Slice, SliceKind
from vgpumgr.nvml.protocol import Nvml


def observe_instances(nvml: Nvml, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
    """The GPU's instances as they are now, in placement order."""
    return nvml.list_gpu_instances(gpu)


def find_instance(
    nvml: Nvml, gpu: GpuUuid, profile: MigProfile, placement: Placement
) -> GpuInstance | None:
    """The instance of that profile at exactly that place, if there is one."""
    for instance in nvml.list_gpu_instances(gpu):
        if instance.profile_id == profile.id and instance.placement == placement:
            return instance
    return None


def observe_slice(nvml: Nvml, slice_: Slice) -> bool:
    """Whether a MIG slice exists exactly as recorded: ids, placement and UUID."""
    ref = _ref(slice_)
    for instance in nvml.list_gpu_instances(slice_.gpu):
        if instance.id == ref.gpu_instance_id and instance.placement == ref.placement:
            return any(
                c.id == ref.compute_instance_id and c.uuid == ref.uuid
                for c in instance.compute_instances
            )
    return False


def create_slice(
    nvml: Nvml,
    gpu: GpuUuid,
    profile: MigProfile,
    placement: Placement,
    compute_slices: int | None = None,
) -> Slice:
    """Creates the GPU instance and its compute instance, and reads the MIG device's UUID back.

    ``compute_slices`` below the profile's asks for a smaller compute instance. If the second step
    fails, the first is undone before the error goes on.
    """
    instance = nvml.create_gpu_instance(gpu, profile.id, placement)
    try:
        if instance.placement != placement:
            raise ReadBackError(
                f"asked for {profile.name} at {placement}, it was put at {instance.placement}"
            )
        return _create_compute(nvml, gpu, profile, instance, compute_slices or profile.slices)
    except BaseException:
        destroy_instance(nvml, gpu, instance.id)
        raise


def _create_compute(
    nvml: Nvml, gpu: GpuUuid, profile: MigProfile, instance: GpuInstance, slices: int
) -> Slice:
    compute = nvml.create_compute_instance(gpu, instance.id, slices)
    if compute.uuid is None:
        raise ReadBackError(f"the driver gave {profile.name} no UUID")
    ref = MigInstanceRef(instance.id, compute.id, instance.placement, compute.uuid)
    name = profile.name
    if slices != profile.slices:
        name = type(name)(name.slices, name.gigabytes, name.variant, slices)
    return Slice(SliceKind.MIG, gpu, str(name), instance.memory_bytes, ref)


def destroy_slice(nvml: Nvml, slice_: Slice) -> None:
    """Destroys a MIG slice, if what is at its place is still it.

    Restartable: what is already gone is no error. A slice whose UUID belongs to something else now
    is left alone (MigInstanceNotFoundError). Raises NvmlInUseError with the processes that hold it.
    """
    ref = _ref(slice_)
    for instance in nvml.list_gpu_instances(slice_.gpu):
        if instance.id != ref.gpu_instance_id:
            continue
        uuids = {compute.uuid for compute in instance.compute_instances}
        if instance.placement != ref.placement or (uuids and ref.uuid not in uuids):
            raise MigInstanceNotFoundError(
                f"cannot destroy {slice_.profile} {ref.uuid}",
                why=f"instance {instance.id} is now {instance.profile} at {instance.placement}",
                hint="vgpumgr mig list",
            )
        destroy_instance(nvml, slice_.gpu, instance.id)


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


def _ref(slice_: Slice) -> MigInstanceRef:
    if slice_.mig is None:
        raise ValueError(f"not a MIG slice: {slice_}")
    return slice_.mig


def _get(nvml: Nvml, gpu: GpuUuid, gpu_instance_id: int) -> GpuInstance | None:
    return next((i for i in nvml.list_gpu_instances(gpu) if i.id == gpu_instance_id), None)


def _tolerate_absent(destroy: Callable[[], None]) -> None:
    """What somebody else destroyed between our look and our call is as good as destroyed by us."""
    with contextlib.suppress(NvmlNotFoundError):
        destroy()
