"""The helper process that loads AMD's host library: ``python -m vgpumgr.host.amdsmi_helper FD``.

Bound are the functions that AMD documents for virtual functions of a host ("AMD SMI for virtualization", installed
with its GIM driver as ``/usr/local/lib/libamdsmi.so``), and only types whose layout it documents. ROCm installs a
library of the same name for GPUs that are not virtualized; it is known by what it lacks.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from vgpumgr.host.helper import HelperFaultError, serve

#: the kind of fault of a library that is not there, and of a call that it refused
MISSING, REFUSED = "missing", "amdsmi"
_NAMES = ("libamdsmi.so", "/usr/local/lib/libamdsmi.so")
_NEEDED = (
    "amdsmi_init",
    "amdsmi_shut_down",
    "amdsmi_get_processor_handles",
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_num_vf",
    "amdsmi_get_vf_partition_info",
    "amdsmi_get_vf_bdf",
    "amdsmi_set_num_vf",
)
_INIT_AMD_GPUS = 1 << 1
_MAX_GPUS = 32
_MAX_VFS = 32
#: amdsmi_status_t, those that these calls answer with
_TEXTS = {
    1: "invalid parameters",
    2: "command not supported",
    7: "API call failed",
    8: "timeout in API call",
    9: "retry operation",
    10: "permission denied",
    12: "I/O error",
    15: "not enough memory",
    18: "initialisation failed",
    30: "processor busy",
    31: "processor not found",
    32: "processor not initialized",
    34: "processor driver not loaded",
}


class _Share(ctypes.Structure):
    """``amdsmi_vf_fb_info_t``: MiB."""

    _fields_ = (
        ("offset", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 3),
    )


class _Partition(ctypes.Structure):
    """``amdsmi_partition_info_t``; the handle is a structure of one 64-bit number."""

    _fields_ = (
        ("vf", ctypes.c_uint64),
        ("share", _Share),
        ("reserved", ctypes.c_uint64 * 3),
    )


class AmdSmi:
    """The calls of the helper. Each opens and closes the library, so that the driver may be unloaded."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

    def read_vfs(self, address: str) -> dict[str, Any]:
        """How many virtual functions a GPU has and can have, and what each has of its memory in MiB."""
        with _Session(self._load()) as session:
            return session.read_vfs(session.find(address))

    def set_vf_count(self, address: str, count: int) -> None:
        """Changes their number."""
        with _Session(self._load()) as session:
            gpu = session.find(address)
            session.call("amdsmi_set_num_vf", gpu, ctypes.c_uint32(count))

    def _load(self) -> ctypes.CDLL:
        if self._library is None:
            self._library = _open_library()
        return self._library


class _Session:
    """Between ``amdsmi_init`` and ``amdsmi_shut_down``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __enter__(self) -> _Session:
        self.call("amdsmi_init", ctypes.c_uint64(_INIT_AMD_GPUS))
        return self

    def __exit__(self, *_: object) -> None:
        self._library.amdsmi_shut_down()

    def call(self, name: str, *args: Any) -> None:
        """Raises HelperFaultError with what the library answered."""
        status = getattr(self._library, name)(*args) & 0xFFFFFFFF
        if status:
            text = _TEXTS.get(status, "unknown error")
            raise HelperFaultError(REFUSED, {"code": status, "text": text, "call": name})

    def find(self, address: str) -> ctypes.c_void_p:
        """The handle of the GPU at a bus address."""
        count = ctypes.c_uint32(_MAX_GPUS)
        handles = (ctypes.c_void_p * _MAX_GPUS)()
        self.call("amdsmi_get_processor_handles", None, ctypes.byref(count), handles)
        for value in handles[: min(count.value, _MAX_GPUS)]:
            handle = ctypes.c_void_p(value)
            if self._read_bdf("amdsmi_get_gpu_device_bdf", handle) == address:
                return handle
        raise HelperFaultError(
            REFUSED,
            {"code": 31, "text": _TEXTS[31], "call": "amdsmi_get_processor_handles"},
        )

    def read_vfs(self, gpu: ctypes.c_void_p) -> dict[str, Any]:
        """See ``AmdSmi.read_vfs``."""
        enabled, supported = ctypes.c_uint32(), ctypes.c_uint32()
        self.call("amdsmi_get_num_vf", gpu, ctypes.byref(enabled), ctypes.byref(supported))
        count = min(enabled.value, _MAX_VFS)
        rows = (_Partition * _MAX_VFS)()
        if count:
            # the array holds the most that there can be, whatever number the library answers
            self.call("amdsmi_get_vf_partition_info", gpu, ctypes.c_uint(count), rows)
        shares = [
            {
                "address": self._read_bdf("amdsmi_get_vf_bdf", ctypes.c_uint64(row.vf)),
                "offset_mib": row.share.offset,
                "size_mib": row.share.size,
            }
            for row in rows[:count]
        ]
        return {"enabled": enabled.value, "supported": supported.value, "vfs": shares}

    def _read_bdf(self, name: str, handle: ctypes.c_void_p | ctypes.c_uint64) -> str:
        """``amdsmi_bdf_t``: function 3 bits, device 5, bus 8, domain 48, from the lowest."""
        bdf = ctypes.c_uint64()
        self.call(name, handle, ctypes.byref(bdf))
        value = bdf.value
        return f"{value >> 16:04x}:{value >> 8 & 0xFF:02x}:{value >> 3 & 31:02x}.{value & 7:x}"


def _open_library() -> ctypes.CDLL:
    """The first that has all functions. On a simulated machine only the linker's choice counts."""
    complaints = []
    for name in _NAMES[:1] if "VGPUMGR_SIM" in os.environ else _NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            complaints.append(str(error))
            continue
        lacking = [function for function in _NEEDED if not hasattr(library, function)]
        if not lacking:
            return library
        complaints.append(f"{name} has no {lacking[0]}: it is not that of the host driver")
    raise HelperFaultError(MISSING, {"text": "; ".join(complaints)})


if __name__ == "__main__":
    serve(int(sys.argv[1]), AmdSmi())
