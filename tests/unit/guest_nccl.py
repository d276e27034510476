"""NCCL for guest processes of tests: ``from tests.unit.guest_nccl import *`` in a process of its own."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.unit.guest_cuda import cu, ok
from tests.unit.transport_rig import LIB

Array = NDArray[Any]

#: the interface's numbers
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
    "float64": 8,
}  # fmt: skip
SUM, PROD, MAX, MIN, AVG = range(5)
SUCCESS, CUDA, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE, PROGRESS = range(8)
PATIENCE_S = 120.0

nccl = ctypes.CDLL(os.environ.get("GUEST_NCCL", str(LIB / "guest" / "libnccl.so.2")))
nccl.ncclGetLastError.restype = ctypes.c_char_p
nccl.ncclGetErrorString.restype = ctypes.c_char_p


class UniqueId(ctypes.Structure):
    """What a communicator's ranks have in common."""

    _fields_ = (("internal", ctypes.c_char * 128),)


class Config(ctypes.Structure):
    """The beginning of the vendor's, as NCCL_CONFIG_INITIALIZER makes it."""

    _fields_ = (
        ("size", c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", c_int),
        ("rest", c_int * 32),
    )

    def __init__(self, blocking: int) -> None:
        super().__init__(ctypes.sizeof(Config), 0xCAFEBEEF, 23203, blocking)


def last_error() -> str:
    """The library's sentence."""
    return str(nccl.ncclGetLastError(None).decode())


def done(result: int) -> None:
    """The call has succeeded."""
    assert result == SUCCESS, (result, last_error())


def make_id(path: str | None = None) -> UniqueId:
    """A new one, written to a file where ``path`` says so."""
    made = UniqueId()
    done(nccl.ncclGetUniqueId(byref(made)))
    if path:
        part = Path(path + ".part")
        part.write_bytes(bytes(made))
        part.rename(path)
    return made


def read_id(path: str) -> UniqueId:
    """That of another process, when it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not Path(path).exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(Path(path).read_bytes())


def use(device: int) -> c_void_p:
    """The device's primary context, current."""
    ok(cu.cuInit(0))
    made = c_void_p()
    ok(cu.cuDevicePrimaryCtxRetain(byref(made), device))
    ok(cu.cuCtxSetCurrent(made))
    return made


def stream() -> c_void_p:
    """A new one."""
    made = c_void_p()
    ok(cu.cuStreamCreate(byref(made), 1))
    return made


def join(unique: UniqueId, ranks: int, rank: int) -> c_void_p:
    """A communicator of the current device."""
    made = c_void_p()
    done(nccl.ncclCommInitRank(byref(made), ranks, unique, rank))
    return made


def to_device(values: Array) -> c_uint64:
    """New memory with these values."""
    made = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(made), c_size_t(max(values.nbytes, 1))))
    if values.nbytes:
        ok(cu.cuMemcpyHtoD_v2(made, values.ctypes.data_as(c_void_p), c_size_t(values.nbytes)))
    return made


def from_device(address: c_uint64, like: Array) -> Array:
    """A copy of what is there, in the shape and type of another array."""
    got = np.empty_like(like)
    if got.nbytes:
        ok(cu.cuMemcpyDtoH_v2(got.ctypes.data_as(c_void_p), address, c_size_t(got.nbytes)))
    return got


def synchronize(what: c_void_p) -> None:
    """All that is in a stream is done."""
    ok(cu.cuStreamSynchronize(what))


def async_error(comm: c_void_p) -> int:
    """Of a communicator."""
    found = c_int()
    done(nccl.ncclCommGetAsyncError(comm, byref(found)))
    return found.value


def init_all(devices: Sequence[int]) -> list[c_void_p]:
    """Communicators of one process, one for each device."""
    made = (c_void_p * len(devices))()
    done(nccl.ncclCommInitAll(made, len(devices), (c_int * len(devices))(*devices)))
    return [c_void_p(one) for one in made]
