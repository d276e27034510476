"""The driver API for guest processes of tests: ``from tests.unit.guest_cuda import *`` in a process of its own."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_double, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

from tests.unit.transport_rig import LIB

__all__ = [
    "PTX", "addressof", "byref", "c_double", "c_float", "c_int", "c_size_t", "c_uint", "c_uint64",
    "c_void_p", "context",
    "ctypes", "cu", "function", "launch", "memory", "module", "ok", "waits",
]  # fmt: skip

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n\0"
cu = ctypes.CDLL(str(LIB / "guest" / "libcuda.so.1"))
cu.vgpumgr_channel_waits.restype = c_uint64


def ok(result: int) -> None:
    """The call has succeeded."""
    assert result == 0, result


def waits() -> int:
    """Synchronous waits of this process so far."""
    return int(cu.vgpumgr_channel_waits())


def context() -> c_void_p:
    """The primary context of device 0, current."""
    ok(cu.cuInit(0))
    made = c_void_p()
    ok(cu.cuDevicePrimaryCtxRetain(byref(made), 0))
    ok(cu.cuCtxSetCurrent(made))
    return made


def memory(size_bytes: int) -> c_uint64:
    """Device memory."""
    made = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(made), c_size_t(size_bytes)))
    return made


def module(image: bytes = PTX) -> c_void_p:
    """A module of any image: the null driver takes them all."""
    made = c_void_p()
    ok(cu.cuModuleLoadData(byref(made), image))
    return made


def function(of: c_void_p, name: bytes = b"kernel") -> c_void_p:
    """A function of the null driver: parameters of 8, 4 and 8 bytes."""
    made = c_void_p()
    ok(cu.cuModuleGetFunction(byref(made), of, name))
    return made


def launch(what: c_void_p, block: int = 32, grid: int = 1, stream: c_void_p | None = None) -> int:
    """A launch of a null function; its result."""
    values = (c_uint64(1), c_int(2), c_double(3))
    array = (c_void_p * 3)(*(addressof(v) for v in values))
    return int(cu.cuLaunchKernel(what, grid, 1, 1, block, 1, 1, 0, stream, array, None))
