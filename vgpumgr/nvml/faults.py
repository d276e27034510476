"""From NVML's return codes to errors that say what to do; its code and text stay in the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgpumgr.errors import (
    GpuLostError,
    NvmlError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlMissingError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlPermissionError,
)

IN_USE = 19
# nvml.h, nvmlReturn_t
_KINDS: Mapping[int, type[NvmlError]] = {
    1: NvmlMissingError,
    3: NvmlNotSupportedError,
    4: NvmlPermissionError,
    6: NvmlNotFoundError,
    9: NvmlMissingError,
    12: NvmlMissingError,
    13: NvmlNotSupportedError,
    15: GpuLostError,
    16: GpuLostError,
    18: NvmlMissingError,
    IN_USE: NvmlInUseError,
    23: NvmlInsufficientResourcesError,
}
_WHYS: Mapping[int, str] = {
    1: "NVML was not initialised, or the driver went away meanwhile",
    4: "this needs root, or read access to the capability under /proc/driver/nvidia/capabilities",
    6: "it has gone, or never was there",
    9: "the NVIDIA kernel driver is not loaded",
    12: "libnvidia-ml.so.1 is not installed: this host has no NVIDIA driver",
    13: "the installed driver is too old for this function",
    15: "the GPU does not answer on the bus any more",
    16: "the GPU works again only after a reset",
    18: "the kernel module and libnvidia-ml.so.1 are of different versions, as after an update",
    IN_USE: "a process, or a compute instance, still uses it",
    23: "no free place or compute slices, or an instance is already there",
}
_HINTS: Mapping[int, str] = {
    4: "repeat as root",
    6: "vgpumgr gpu list; vgpumgr mig list",
    9: "modprobe nvidia; or vgpumgr --machine NAME for a simulated machine",
    12: "install the NVIDIA driver; or vgpumgr --machine NAME for a simulated machine",
    15: "nvidia-smi --gpu-reset, or reboot; dmesg names the Xid",
    16: "nvidia-smi --gpu-reset",
    18: "reboot, or reload the nvidia modules",
    19: "stop the holders, then repeat",
    23: "vgpumgr mig list",
}


def make_error(error: str, data: Mapping[str, Any], held_by: Sequence[str] = ()) -> NvmlError:
    """The error for a failed call; ``data`` as ``calls.fault`` made it, ``error`` in the user's
    words.
    """
    code = int(data["code"])
    kind = _KINDS.get(code, NvmlError)
    return kind(
        error,
        cause=f"{data['call']}: {data['text']} (NVML {code})",
        why=_WHYS.get(code),
        held_by=held_by,
        hint=_HINTS.get(code),
    )
