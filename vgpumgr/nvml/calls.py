"""Calls into nvidia-ml-py, by name, with NVML's code kept when they fail; those of MIG and vGPUs as values.

Each symbol is tried when it is needed: the Python package may know functions that the driver lacks,
and the reverse.

MIG (call sequence: MIG user guide and nvml.h): the profile *enumerator* selects the information call, the *id* that it
answers goes into every other call. vGPUs: a GPU that is no vGPU host answers NOT_SUPPORTED to the first question and is
left out; the profile of the GPU instance that a type lives in is NVML's to say, and does not follow from names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from ctypes import byref, c_uint
from typing import TYPE_CHECKING, Any

import pynvml

from vgpumgr.host.helper_server import HelperFaultError
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigProfile,
    MigProfileName,
    Placement,
    Variant,
)
from vgpumgr.model.pci import PciAddress

if TYPE_CHECKING:
    from vgpumgr.model.vgpu import GpuVgpus, NvmlVgpuType

_MIB, _GIB = 1 << 20, 1 << 30
#: what NVML says instead of an id that is not there
_NO_ID = 0xFFFFFFFF
# Enumerators are tried up to here; INVALID_ARGUMENT ends the list earlier.
_ENUM_LIMIT = 64
# Some drivers report fewer instances than there can be, so buffers are larger than their count.
_BUFFER = 64
# What an optional fact may answer instead of a value.
ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
    }
)


def call(name: str, *args: Any) -> Any:
    """``pynvml.name(*args)``; raises HelperFaultError of kind ``nvml`` with code, text and
    function.
    """
    try:
        function = getattr(pynvml, name)
    except AttributeError:
        raise fault(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, name) from None
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise fault(error.value, name) from error


def try_call(name: str, *args: Any) -> Any:
    """As ``call``, but None where this GPU, driver or user does not get the fact."""
    try:
        return call(name, *args)
    except HelperFaultError as error:
        if error.data["code"] in ABSENT:
            return None
        raise


def fault(code: int, name: str) -> HelperFaultError:
    """The fault that crosses to the caller."""
    return HelperFaultError("nvml", {"code": code, "text": error_text(code), "call": name})


def error_text(code: int) -> str:
    """NVML's own words for a code, from the library where it is loaded."""
    try:
        return text(pynvml.nvmlErrorString(code))
    except pynvml.NVMLError:
        return str(pynvml.NVMLError(code))


def text(value: bytes | str) -> str:
    """Strings come as bytes or text, by version of the package."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def id_or_none(value: int | None) -> int | None:
    """An id; None where NVML has none."""
    return None if value == _NO_ID else value


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


def list_profiles(handle: Any) -> tuple[MigProfile, ...]:
    """Every GPU-instance profile of the device, in the order of its enumerators."""
    infos = _enumerate(lambda enum: _profile_info(handle, enum))
    return tuple(_make_profile(handle, enum, info) for enum, info in infos)


def _enumerate(ask: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
    """The enumerators of the profiles that there are, with what NVML answers of them."""
    for enum in range(_ENUM_LIMIT):
        try:
            info = ask(enum)
        except HelperFaultError as error:
            if error.data["code"] == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                return
            if error.data["code"] != pynvml.NVML_ERROR_NOT_SUPPORTED:
                raise
        else:
            yield enum, info


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


def _profile_info(handle: Any, enum: int) -> Any:
    """The newest structure that the driver answers."""
    name = "nvmlDeviceGetGpuInstanceProfileInfo"
    try:
        return call(name, handle, enum, 2)
    except HelperFaultError as error:
        if error.data["code"] not in (
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        ):
            raise
    return call(name, handle, enum, 1)


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
    # space for more, should the driver answer more the second time
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
    name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
    engines = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    return [info for _, info in _enumerate(lambda enum: call(name, gi, enum, engines))]


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


def list_vgpus() -> tuple[GpuVgpus, ...]:
    """Each GPU that is a vGPU host; NVML is initialised."""
    found = (_try_gpu(index) for index in range(call("nvmlDeviceGetCount")))
    return tuple(gpu for gpu in found if gpu is not None)


def _try_gpu(index: int) -> GpuVgpus | None:
    """One that is lost hides no other; the inventory lists it as lost."""
    try:
        return _read_vgpus(call("nvmlDeviceGetHandleByIndex", index))
    except HelperFaultError:
        return None


def _read_vgpus(handle: Any) -> GpuVgpus | None:
    from vgpumgr.model.vgpu import GpuVgpus

    types = try_call("nvmlDeviceGetSupportedVgpus", handle)
    if types is None:
        return None
    creatable = set(try_call("nvmlDeviceGetCreatableVgpus", handle) or ())
    pci = call("nvmlDeviceGetPciInfo", handle)
    mode = try_call("nvmlDeviceGetHostVgpuMode", handle)
    mixed = try_call("nvmlDeviceGetVgpuHeterogeneousMode", handle)
    return GpuVgpus(
        gpu=GpuUuid(text(call("nvmlDeviceGetUUID", handle))),
        pci=PciAddress(pci.domain, pci.bus, pci.device),
        sr_iov=None if mode is None else mode == pynvml.NVML_HOST_VGPU_MODE_SRIOV,
        mixed_sizes=None if mixed is None else bool(mixed),
        types=tuple(_read_type(handle, id_, id_ in creatable) for id_ in types),
    )


def _read_type(handle: Any, id_: int, creatable: bool) -> NvmlVgpuType:
    from vgpumgr.model.vgpu import NvmlVgpuType  # the first call of every command needs none

    profile = id_or_none(try_call("nvmlVgpuTypeGetGpuInstanceProfileId", id_))
    resolution = try_call("nvmlVgpuTypeGetResolution", id_)
    return NvmlVgpuType(
        id=id_,
        name=text(call("nvmlVgpuTypeGetName", id_)),
        framebuffer_bytes=call("nvmlVgpuTypeGetFramebufferSize", id_),
        heads=try_call("nvmlVgpuTypeGetNumDisplayHeads", id_),
        max_instances=try_call("nvmlVgpuTypeGetMaxInstances", handle, id_),
        frame_rate_limit=try_call("nvmlVgpuTypeGetFrameRateLimit", id_),
        resolution=None if resolution is None else (resolution[0], resolution[1]),
        gpu_instance_profile_id=profile,
        max_per_gpu_instance=(
            None if profile is None else try_call("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", id_)
        ),
        creatable=creatable,
    )
