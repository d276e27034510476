"""The vGPU part of NVML: which types each GPU knows, what they need, whether sizes may be mixed.

A GPU that is no vGPU host answers NOT_SUPPORTED to the first question and is left out. The profile of
the GPU instance that a type lives in is NVML's to say: it does not follow from names.
"""

from __future__ import annotations

from typing import Any

import pynvml

from vgpumgr.host.helper_server import HelperFaultError
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import GpuVgpus, NvmlVgpuType
from vgpumgr.nvml.calls import call, text, try_call

_NONE = 0xFFFFFFFF


def list_vgpus() -> tuple[GpuVgpus, ...]:
    """Each GPU that is a vGPU host; NVML is initialised."""
    found = (_try_gpu(index) for index in range(call("nvmlDeviceGetCount")))
    return tuple(gpu for gpu in found if gpu is not None)


def _try_gpu(index: int) -> GpuVgpus | None:
    """One that is lost hides no other; that it is lost is told by the inventory."""
    try:
        return _read_gpu(call("nvmlDeviceGetHandleByIndex", index))
    except HelperFaultError:
        return None


def set_mixed_sizes(handle: Any, enabled: bool) -> None:
    """Heterogeneous mode of one GPU; it must have no vGPU."""
    call("nvmlDeviceSetVgpuHeterogeneousMode", handle, int(enabled))


def _read_gpu(handle: Any) -> GpuVgpus | None:
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
    profile = try_call("nvmlVgpuTypeGetGpuInstanceProfileId", id_)
    backed = profile not in (None, _NONE)
    resolution = try_call("nvmlVgpuTypeGetResolution", id_)
    return NvmlVgpuType(
        id=id_,
        name=text(call("nvmlVgpuTypeGetName", id_)),
        framebuffer_bytes=call("nvmlVgpuTypeGetFramebufferSize", id_),
        heads=try_call("nvmlVgpuTypeGetNumDisplayHeads", id_),
        max_instances=try_call("nvmlVgpuTypeGetMaxInstances", handle, id_),
        frame_rate_limit=try_call("nvmlVgpuTypeGetFrameRateLimit", id_),
        resolution=None if resolution is None else (resolution[0], resolution[1]),
        gpu_instance_profile_id=profile if backed else None,
        max_per_gpu_instance=(
            try_call("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", id_) if backed else None
        ),
        creatable=creatable,
    )
