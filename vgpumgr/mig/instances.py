"""GPU instances: finding and destroying them, MIG mode, and which of them are attachments' slices.

No policy: the caller has chosen GPU and placement. An instance is known before it exists by GPU, profile and
placement, so that an interrupted creation is found again. Each change is read back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from vgpumgr.errors import (
    MigModePendingError,
    MigNotSupportedError,
    NvmlInUseError,
    NvmlNotFoundError,
    ReadBackError,
)
from vgpumgr.model.attachment import (
    AttachmentRecord,
    AttachmentState,
    MigInstanceRef,
    list_sharers,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigActivation,
    MigProfile,
    Placement,
)
from vgpumgr.nvml.protocol import Nvml

if TYPE_CHECKING:
    pass


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
            f"cannot turn {word} MIG mode of {gpu}", why=f"{gpu.model} has no MIG"
        )
    if gpu.mig.current == gpu.mig.pending == enabled:
        return False
    change = nvml.set_mig_mode(gpu.uuid, enabled)
    if change.current == enabled:
        return True
    error = f"cannot turn {word} MIG mode of {gpu} now"
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
    """An instance that another program destroyed meanwhile is destroyed."""
    with contextlib.suppress(NvmlNotFoundError):
        destroy()


def list_records(records: Sequence[AttachmentRecord]) -> list[AttachmentRecord]:
    """Attachments that have a slice; those half attached or half detached are for ``recover``."""
    return [r for r in records if r.state is AttachmentState.ATTACHED and r.mig is not None]


def size_of(record: AttachmentRecord, slices: int) -> int:
    """How many slices its compute instance has in a GPU instance of ``slices``."""
    return record.mig_profile.compute_slices or slices


def list_own_compute(
    instance: GpuInstance | None, record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> list[ComputeInstance]:
    """The compute instances of an attachment in its GPU instance: its own, and where it is alone,
    all. Of shares none has its own while others are left.
    """
    part = record.mig_part
    if instance is None or part is None:
        return []
    sharers = list_sharers(record, records)
    if record.share_part is not None and sharers:
        return []
    if part.compute is None and not sharers:
        return list(instance.compute_instances)
    if part.ref is not None:
        return [c for c in instance.compute_instances if c.uuid == part.ref.uuid]
    # interrupted before its UUID was known: the one at its place that no other attachment has
    others = {other.mig.uuid for other in sharers if other.mig}
    return [
        c
        for c in instance.compute_instances
        if c.uuid not in others and c.placement in (None, part.compute)
    ]


def may_be_there(
    instances: Sequence[GpuInstance], record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> tuple[bool, bool]:
    """Whether the GPU instance and the compute instance of an attachment are among its GPU's. What an interrupted
    operation began may yet come.
    """
    if record.state is not AttachmentState.ATTACHED:
        return True, True
    instance = find_recorded_instance(instances, record)
    return instance is not None, bool(list_own_compute(instance, record, records))


def find_recorded_instance(
    instances: Sequence[GpuInstance], record: AttachmentRecord
) -> GpuInstance | None:
    """The GPU instance of an attachment among its GPU's; None if it is gone, or replaced by another
    one at its place.
    """
    part = record.mig_part
    if part is None:
        return None
    for instance in instances:
        if instance.placement != part.placement:
            continue
        if instance.profile_id != part.gpu_profile_id:
            return None
        if part.ref is None:
            # interrupted before its ids were known, or before they all were
            return instance if part.gpu_instance_id in (None, instance.id) else None
        uuids = {compute.uuid for compute in instance.compute_instances}
        same = instance.id == part.ref.gpu_instance_id
        return instance if same and (not uuids or part.ref.uuid in uuids) else None
    return None


def rebind(
    instances: Mapping[GpuUuid, Sequence[GpuInstance]], records: Sequence[AttachmentRecord]
) -> dict[str, MigInstanceRef | None]:
    """For each attachment, its slice as it is now: the one with its UUID, else one of its size at
    its place that is no other attachment's; shares of one instance have the same. None where there is none.
    """
    found: dict[str, MigInstanceRef | None] = {}
    #: by UUID, whether shares have it
    taken: dict[str, bool] = {}
    mine = list_records(records)
    for strict in (True, False):
        for record in mine:
            if found.get(record.id) is None and record.gpu is not None:
                found[record.id] = _bind(instances.get(record.gpu, ()), record, taken, strict)
    return found


def _bind(
    instances: Sequence[GpuInstance], record: AttachmentRecord, taken: dict[str, bool], strict: bool
) -> MigInstanceRef | None:
    part, is_share = record.mig_part, record.share_part is not None
    for instance in instances:
        if part is None or instance.placement != part.placement:
            continue
        if instance.profile_id != part.gpu_profile_id:
            continue
        for compute in instance.compute_instances:
            if compute.uuid is None:
                continue
            if compute.uuid in taken and not (is_share and taken[compute.uuid]):
                continue
            if _suits(record, instance, compute, strict):
                taken[compute.uuid] = is_share
                return MigInstanceRef(instance.id, compute.id, instance.placement, compute.uuid)
    return None


def _suits(
    record: AttachmentRecord, instance: GpuInstance, compute: ComputeInstance, strict: bool
) -> bool:
    if strict:
        return record.mig is not None and compute.uuid == record.mig.uuid
    return compute.slices == size_of(record, instance.slices)
