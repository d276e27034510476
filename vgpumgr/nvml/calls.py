"""Calls into nvidia-ml-py, by name, with NVML's code kept when they fail.

Each symbol is tried when it is needed: the Python package may know functions that the driver lacks,
and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

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
from vgpumgr.host.helper_server import HelperFaultError

# What an optional fact may answer instead of a value.
_ABSENT = frozenset(
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
        if error.data["code"] in _ABSENT:
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
    19: NvmlInUseError,
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
    19: "a process, or a compute instance, still uses it",
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
