# SPDX-License-Identifier: Apache-2.0
"""What a program compiled by nvcc does with the runtime, done by hand; and the error codes it may get."""

import ctypes
from collections.abc import Callable
from typing import Any

INVALID_VALUE, OUT_OF_MEMORY, NO_BINARY, ILLEGAL_ADDRESS = 1, 2, 209, 700
INVALID_CONFIGURATION, INVALID_PITCH, INVALID_SYMBOL, INVALID_DIRECTION = 9, 12, 13, 21
INSUFFICIENT_DRIVER, INVALID_FUNCTION, NO_DEVICE, INVALID_DEVICE = 35, 98, 100, 101
INVALID_HANDLE, NOT_READY, LAUNCH_FAILURE, NOT_SUPPORTED = 400, 600, 719, 801
PRIMARY = ["cuDevicePrimaryCtxRetain 100", "cuCtxSetCurrent 0x564"]
THREAD_STREAM = "0x2"


def at(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


class Dim3(ctypes.Structure):
    """dim3 by value."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Wrapper(ctypes.Structure):
    """nvcc's wrapper around a fat binary."""

    _fields_ = (
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_int),
        ("container", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )


# What a program's start-up code hands over lives as long as the program.
KEPT: list[Any] = []
KERNEL, VARIABLE, MANAGED = at(0x111000), at(0x222000), at(0x333000)


def register(cudart: ctypes.CDLL, *, version: int = 1, prefix: bytes = b"") -> int:
    """Does what nvcc's start-up code does for one image with a kernel and a variable."""
    parts = (ctypes.c_uint64 * 2)(0x00100001BA55ED50, 48)
    prelinked = (ctypes.c_void_p * 2)(ctypes.addressof(parts), None)
    extra = ctypes.addressof(prelinked) if version == 2 else None
    wrapper = Wrapper(0x466243B1, version, 0xFA7, extra)
    cudart.__cudaRegisterFatBinary.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(cudart.__cudaRegisterFatBinary(ctypes.byref(wrapper)))
    names = (ctypes.c_char_p(prefix + b"kernel"), ctypes.c_char_p(prefix + b"variable"))
    KEPT.extend((parts, prelinked, wrapper, names))
    none = ctypes.c_void_p()
    cudart.__cudaRegisterFunction(handle, KERNEL, KERNEL, names[0], -1, *[none] * 5)
    cudart.__cudaRegisterVar(handle, VARIABLE, VARIABLE, names[1], 0, ctypes.c_size_t(64), 0, 0)
    cudart.__cudaRegisterFatBinaryEnd(handle)
    assert handle.value
    return handle.value


def launch(cudart: ctypes.CDLL, block: int = 32, name: str = "cudaLaunchKernel") -> int:
    argument = ctypes.c_int(42)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    grid, threads = Dim3(2, 1, 1), Dim3(block, 1, 1)
    launch: Callable[..., int] = getattr(cudart, name)
    return launch(KERNEL, grid, threads, arguments, ctypes.c_size_t(16), None)
