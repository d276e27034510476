"""The MIG part of NVML: profiles with placements, GPU instances, compute instances.

Call sequence: MIG user guide and nvml.h. The profile *enumerator* selects the information call, the
*id* that it answers goes into every other call.
"""

from __future__ import annotations

import math
from ctypes import byref, c_uint
from typing import Any

import pynvml

from vgpumgr.host.helper_server import HelperFaultError
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigProfile,
    MigProfileName,
    Placement,
    Variant,
)
from vgpumgr.nvml.calls import call, fault, text, try_call

_GIB = 1 << 30
# NVML_GPU_INSTANCE_PROFILE_*: which enumerators are not the plain profile of their size
_VARIANTS = {
    **dict.fromkeys((7, 8), Variant.MEDIA),
    **dict.fromkeys((10, 11, 12, 17), Variant.GRAPHICS),
    **dict.fromkeys((13, 14), Variant.NO_MEDIA),
    **dict.fromkeys((15, 16), Variant.ALL_MEDIA),
}


def derive_name(
    enum: int, slices: int, memory_bytes: int, device_memory_bytes: int
) -> MigProfileName:
    """The name of profile ``enum`` with these slices and memory on a device of that memory."""
    eighths = math.ceil(memory_bytes / device_memory_bytes * 8 - 1e-9)
    total_gib = math.ceil(device_memory_bytes / _GIB)
    gigabytes = math.floor(eighths * total_gib / 8 + 0.5)
    return MigProfileName(slices, gigabytes, _VARIANTS.get(enum, Variant.PLAIN))


_MIB = 1 << 20
# Enumerators are tried up to here; INVALID_ARGUMENT ends the list earlier.
_ENUM_LIMIT = 64
# Some drivers report fewer instances than there can be, so buffers are larger than their count.
_BUFFER = 64


def list_profiles(handle: Any) -> tuple[MigProfile, ...]:
    """Every GPU-instance profile of the device, in the order of its enumerators."""
    found = []
    for enum in range(_ENUM_LIMIT):
        try:
            info = _profile_info(handle, enum)
        except HelperFaultError as error:
            if error.data["code"] == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            raise
        if info is not None:
            found.append(_make_profile(handle, enum, info))
    return tuple(found)


def list_instances(handle: Any, profiles: tuple[MigProfile, ...]) -> tuple[GpuInstance, ...]:
    """GPU instances with their compute instances, in placement order.

    Not by walking MIG devices: an instance without a compute instance is none, and the walk is
    slow.
    """
    found = [
        _read_instance(gi, profile)
        for profile in profiles
        for gi in _collect(
            "nvmlDeviceGetGpuInstances", handle, profile.id, pynvml.c_nvmlGpuInstance_t
        )
    ]
    return tuple(sorted(found, key=lambda instance: (instance.placement, instance.id)))


def create_instance(handle: Any, profile_id: int, placement: Placement) -> GpuInstance:
    """Creates a GPU instance at the placement and reads it back."""
    profile = next((p for p in list_profiles(handle) if p.id == profile_id), None)
    if profile is None:
        raise fault(pynvml.NVML_ERROR_NOT_SUPPORTED, "nvmlDeviceGetGpuInstanceProfileInfo")
    where = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
    gi = call("nvmlDeviceCreateGpuInstanceWithPlacement", handle, profile_id, byref(where))
    return _read_instance(gi, profile)


def create_compute(
    handle: Any, gpu_instance_id: int, slices: int, placement: Placement | None = None
) -> ComputeInstance:
    """Creates the compute instance that has that many slices."""
    gi = call("nvmlDeviceGetGpuInstanceById", handle, gpu_instance_id)
    for info in _list_compute_profiles(gi):
        if info.sliceCount == slices:
            return _read_compute(_create_compute(gi, info.id, placement), info)
    raise fault(pynvml.NVML_ERROR_NOT_SUPPORTED, "nvmlGpuInstanceGetComputeInstanceProfileInfo")


def _create_compute(gi: Any, profile_id: int, placement: Placement | None) -> Any:
    """A driver that knows no placements of compute instances chooses the place itself."""
    if placement is not None:
        where = pynvml.c_nvmlComputeInstancePlacement_t(placement.start, placement.size)
        name = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"
        try:
            return call(name, gi, profile_id, byref(where))
        except HelperFaultError as error:
            if error.data["code"] != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
    return call("nvmlGpuInstanceCreateComputeInstance", gi, profile_id)


def destroy_compute(handle: Any, gpu_instance_id: int, compute_instance_id: int) -> None:
    """Destroys one compute instance."""
    gi = call("nvmlDeviceGetGpuInstanceById", handle, gpu_instance_id)
    ci = call("nvmlGpuInstanceGetComputeInstanceById", gi, compute_instance_id)
    call("nvmlComputeInstanceDestroy", ci)


def destroy_instance(handle: Any, gpu_instance_id: int) -> None:
    """Destroys one GPU instance."""
    gi = call("nvmlDeviceGetGpuInstanceById", handle, gpu_instance_id)
    call("nvmlGpuInstanceDestroy", gi)


def _profile_info(handle: Any, enum: int) -> Any | None:
    """The newest structure that the driver answers; None where the board lacks the profile."""
    for version in (2, 1):
        try:
            return call("nvmlDeviceGetGpuInstanceProfileInfo", handle, enum, version)
        except HelperFaultError as error:
            code = error.data["code"]
            if code == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return None
            if version == 2 and code in (
                pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            ):
                continue
            raise
    return None


def _make_profile(handle: Any, enum: int, info: Any) -> MigProfile:
    memory_bytes = info.memorySizeMB * _MIB
    return MigProfile(
        name=_name(handle, enum, info, memory_bytes),
        enum=enum,
        id=info.id,
        slices=info.sliceCount,
        memory_bytes=memory_bytes,
        max_instances=info.instanceCount,
        sm_count=info.multiprocessorCount,
        placements=_list_placements(handle, info.id),
        remaining=try_call("nvmlDeviceGetGpuInstanceRemainingCapacity", handle, info.id),
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpegs=info.jpegCount,
        ofas=info.ofaCount,
    )


def _name(handle: Any, enum: int, info: Any, memory_bytes: int) -> MigProfileName:
    stated = text(getattr(info, "name", b"") or b"")
    try:
        return MigProfileName.parse(stated)
    except ValueError:
        total = call("nvmlDeviceGetMemoryInfo", handle).total
        return derive_name(enum, info.sliceCount, memory_bytes, total)


def _list_placements(handle: Any, profile_id: int) -> tuple[Placement, ...]:
    count = c_uint(0)
    name = "nvmlDeviceGetGpuInstancePossiblePlacements"
    if try_call(name, handle, profile_id, None, byref(count)) is None:
        return ()
    # room for more, should the driver answer more the second time
    count = c_uint(count.value + _BUFFER)
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    call(name, handle, profile_id, array, byref(count))
    return tuple(sorted(Placement(p.start, p.size) for p in array[: count.value]))


def _collect(name: str, owner: Any, profile_id: int, kind: Any) -> list[Any]:
    """The handles that a list call fills in; none where the profile cannot be asked about."""
    count = c_uint(_BUFFER)
    array = (kind * _BUFFER)()
    if try_call(name, owner, profile_id, array, byref(count)) is None:
        return []
    return list(array[: count.value])


def _read_instance(gi: Any, profile: MigProfile) -> GpuInstance:
    info = call("nvmlGpuInstanceGetInfo", gi)
    compute = [
        _read_compute(ci, ci_profile)
        for ci_profile in _list_compute_profiles(gi)
        for ci in _collect(
            "nvmlGpuInstanceGetComputeInstances", gi, ci_profile.id, pynvml.c_nvmlComputeInstance_t
        )
    ]
    return GpuInstance(
        id=info.id,
        profile_id=info.profileId,
        profile=profile.name,
        placement=Placement(info.placement.start, info.placement.size),
        slices=profile.slices,
        memory_bytes=profile.memory_bytes,
        compute_instances=tuple(sorted(compute, key=lambda c: c.id)),
    )


def _list_compute_profiles(gi: Any) -> list[Any]:
    found = []
    for enum in range(_ENUM_LIMIT):
        try:
            found.append(
                call(
                    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
                    gi,
                    enum,
                    pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
                )
            )
        except HelperFaultError as error:
            if error.data["code"] == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            if error.data["code"] != pynvml.NVML_ERROR_NOT_SUPPORTED:
                raise
    return found


def _read_compute(ci: Any, profile: Any) -> ComputeInstance:
    info = call("nvmlComputeInstanceGetInfo_v2", ci)
    uuid = try_call("nvmlDeviceGetUUID", info.device) if info.device else None
    memory = try_call("nvmlDeviceGetMemoryInfo", info.device) if info.device else None
    return ComputeInstance(
        id=info.id,
        profile_id=info.profileId,
        slices=profile.sliceCount,
        uuid=None if uuid is None else MigUuid(text(uuid)),
        placement=Placement(info.placement.start, info.placement.size),
        memory_used_bytes=None if memory is None else memory.used,
    )
