"""The interface of the PTX interpreter (ptx_runner.Module) on a GPU and its own driver, so that what is expected of the
interpreter can be asked of silicon: with ``VGPUMGR_PTX_GPU=PATH-OF-LIBCUDA`` the tests of PTX run there.

What only the interpreter has (its checks, its schedules, where a faulty access stands) skips the test that asks for it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NoReturn

import pytest

#: CUDA's codes, as the interpreter's; see ptx_runner
STATUS = {
    218: 1,
    222: 2,
    209: 3,
    2: 4,
    700: 5,
    716: 6,
    715: 7,
    719: 7,
    710: 8,
    1: 9,
    718: 10,
    701: 9,
}
LOG_BYTES = 8192


@functools.cache
def cuda() -> Any:
    """The driver."""
    library = ctypes.CDLL(os.environ["VGPUMGR_PTX_GPU"])
    assert library.cuInit(0) == 0
    return library


class Context:
    """One for all modules: to make one takes longer than most tests. An error ends it, and the next one is made."""

    def __init__(self) -> None:
        self.handle = c_void_p()
        self.generation = 0
        self.make()

    def make(self) -> None:
        assert cuda().cuCtxCreate_v2(byref(self.handle), 0, 0) == 0

    def enter(self) -> None:
        assert cuda().cuCtxSetCurrent(self.handle) == 0

    def lose(self) -> None:
        cuda().cuCtxDestroy_v2(self.handle)
        self.generation += 1
        self.make()


@functools.cache
def context() -> Context:
    """The process's."""
    return Context()


def ok(code: int) -> None:
    """Raises PtxError with the interpreter's code for it."""
    if code:
        raise error(code, f"CUDA error {code}")


def error(code: int, message: str) -> Exception:
    from tests.sim.ptx_runner import PtxError

    return PtxError(STATUS.get(code, 1000 + code), message)


def not_here(what: str) -> NoReturn:
    """Skips the test."""
    pytest.skip(f"a GPU has no {what}")


class GpuModule:
    """See ptx_runner.Module."""

    def __init__(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._module, self._cluster, self._memory = c_void_p(), (0, 0, 0), list[c_uint64]()
        self._data, self._generation = data, -1
        self._enter()

    def _load(self) -> None:
        """Into the context that there is now; an error of a kernel ends one."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        keys = (c_int * 2)(5, 6)  # the log of errors, its size
        values = (c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        code = cuda().cuModuleLoadDataEx(byref(self._module), self._data + b"\0", 2, keys, values)
        if code:
            raise error(code, log.value.decode(errors="replace"))

    def close(self) -> None:
        """Gives everything back."""
        if self._generation == context().generation:
            context().enter()
            for address in self._memory:
                cuda().cuMemFree_v2(address)
            cuda().cuModuleUnload(self._module)
        self._memory, self._module = [], c_void_p()

    def __del__(self) -> None:
        if self._module:
            self.close()

    def _enter(self) -> None:
        context().enter()
        if self._generation != context().generation:
            self._generation, self._memory = context().generation, []
            self._load()

    def alloc(self, size: int) -> int:
        """Device memory of this many bytes, zeroed."""
        self._enter()
        address = c_uint64()
        ok(cuda().cuMemAlloc_v2(byref(address), c_size_t(max(size, 1))))
        self._memory.append(address)
        ok(cuda().cuMemsetD8_v2(address, 0, c_size_t(max(size, 1))))
        return address.value

    def upload(self, code: str, values: Any) -> int:
        """Device memory that holds these values of one ``struct`` code."""
        data = struct.pack(f"<{len(values)}{code}", *values)
        address = self.alloc(len(data))
        self.write(address, data)
        return address

    def write(self, address: int, data: bytes) -> None:
        """Copies to the device."""
        self._enter()
        ok(cuda().cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data))))

    def read(self, address: int, code: str, count: int) -> list[Any]:
        """Copies ``count`` values from the device."""
        self._enter()
        size = struct.calcsize(f"<{count}{code}")
        buffer = ctypes.create_string_buffer(size)
        ok(cuda().cuMemcpyDtoH_v2(buffer, c_uint64(address), c_size_t(size)))
        return list(struct.unpack(f"<{count}{code}", buffer.raw))

    def variable(self, name: str) -> tuple[int, int]:
        """Address and size of a .global or .const variable."""
        self._enter()
        address, size = c_uint64(), c_size_t()
        ok(cuda().cuModuleGetGlobal_v2(byref(address), byref(size), self._module, name.encode()))
        return address.value, size.value

    def info(self, name: str) -> NoReturn:
        """The interpreter's description of a kernel."""
        not_here(f"description of {name} as the interpreter has")

    def cancel(self) -> None:
        """Another thread's stop of a kernel."""
        not_here("way to stop a kernel")

    def schedule(self, seed: int) -> None:
        """Its own order; none other can be had."""
        if seed:
            not_here("chosen order of threads")

    def by_lane(self, yes: bool) -> None:
        """One engine is all that it has."""

    def check(self, checks: int) -> None:
        """The interpreter's checks."""
        if checks:
            not_here("checks")

    def cluster(self, *blocks: int) -> None:
        """So many blocks are a cluster, in every launch from now on."""
        self._cluster = (
            ((*blocks, 1, 1)[0], (*blocks, 1, 1)[1], (*blocks, 1, 1)[2]) if blocks else (0, 0, 0)
        )

    def lane_instructions(self) -> NoReturn:
        """Of the interpreter's engine."""
        not_here("engine to ask")

    def run(
        self, name: str, grid: Any, block: Any, codes: str = "", *arguments: Any, shared: int = 0
    ) -> None:
        """Launches and waits."""
        from tests.sim.ptx_runner import _three, pack_params

        self._enter()
        function = c_void_p()
        ok(cuda().cuModuleGetFunction(byref(function), self._module, name.encode()))
        if shared > 48 << 10:
            ok(cuda().cuFuncSetAttribute(function, 8, shared))
        params = ctypes.create_string_buffer(pack_params(codes, *arguments))
        size = c_size_t(len(params) - 1)
        extra = (c_void_p * 5)(1, ctypes.addressof(params), 2, ctypes.addressof(size), 0)
        shape = [*map(int, _three(grid)), *map(int, _three(block)), shared]
        if any(self._cluster):
            attribute = (c_uint * 18)(4, 0, *self._cluster)

            class Config(ctypes.Structure):
                _fields_ = [
                    ("shape", c_uint * 7),
                    ("stream", c_void_p),
                    ("attrs", c_void_p),
                    ("count", c_uint),
                ]

            config = Config((c_uint * 7)(*shape), None, ctypes.addressof(attribute), 1)
            code = cuda().cuLaunchKernelEx(byref(config), function, None, extra)
        else:
            code = cuda().cuLaunchKernel(function, *shape, None, None, extra)
        if code := code or cuda().cuCtxSynchronize():
            if cuda().cuCtxSynchronize():
                context().lose()
            raise error(code, f"CUDA error {code}")

    @property
    def printed(self) -> str:
        """What kernels printed, which goes to the process's output here."""
        not_here("printf that can be read")
