"""Virtual memory, as a program of its own: nothing else uses what it maps, so that all of it is defined."""

from __future__ import annotations

import ctypes
import random
import zlib
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tests.differential.calls import IMAGES

UNITS, STEPS = 6, 40
DEVICE, READ_WRITE = 1, 3
#: what the program calls, by the name under which it is in sequences
VIRTUAL_PROGRAMS = {
    "cuMemMap": [
        "cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
        "cuMemUnmap", "cuMemSetAccess", "cuMemGetAccess", "cuMemRetainAllocationHandle",
        "cuMemGetAllocationPropertiesFromHandle",
    ],
}  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int), ("flags", c_uint)]


class VirtualProgram:
    """Addresses, handles and mappings by number; a handle is used after its end as long as no other has been made."""

    def __init__(self, cu: ctypes.CDLL, seed: int) -> None:
        self.cu, self.chance, self.answers = cu, random.Random(seed), list[Any]()
        # CUmemAllocationProp: pinned, no handles for others, on device 0
        self.properties = (c_uint64 * 16)(1, DEVICE)
        self.unit, self.base = c_size_t(), c_uint64()
        self.handles: list[int] = []
        self("cuMemGetAllocationGranularity", byref(self.unit), self.properties, 0)
        self("cuMemAddressReserve", byref(self.base), self.bytes(UNITS), *[c_uint64(0)] * 3)
        self.back = ctypes.create_string_buffer(4096)

    def __call__(self, name: str, *arguments: Any) -> int:
        code: int = getattr(self.cu, name)(*arguments)
        self.answers.append([name, code])
        return code

    def bytes(self, units: float) -> c_size_t:
        return c_size_t(int(self.unit.value * units))

    def place(self) -> c_uint64:
        """Mostly where something may be mapped."""
        offset = self.chance.randrange(UNITS) * self.unit.value
        return c_uint64(self.base.value + offset + self.chance.choice((0,) * 20 + (4096,)))

    def units(self) -> c_size_t:
        return self.bytes(self.chance.choice((1, 1, 1, 2, 2, 3, UNITS, 0, 0.5)))

    def handle(self) -> c_uint64:
        return c_uint64(self.chance.choice(self.handles) if self.handles else 0)

    def create(self) -> None:
        made = c_uint64()
        if not self("cuMemCreate", byref(made), self.units(), self.properties, c_uint64(0)):
            self.handles.append(made.value)

    def release(self) -> None:
        if self.handles:
            number = self.chance.randrange(len(self.handles))
            self("cuMemRelease", c_uint64(self.handles.pop(number)))

    def retain(self) -> None:
        found = c_uint64()
        if not self("cuMemRetainAllocationHandle", byref(found), c_void_p(self.place().value)):
            self.handles.append(found.value)

    def describe(self) -> None:
        asked = (c_uint64 * 16)()
        self("cuMemGetAllocationPropertiesFromHandle", asked, self.handle())
        self.answers.append(list(asked)[:2])

    def map(self) -> None:
        offset = self.bytes(self.chance.random() < 0.1)
        self("cuMemMap", self.place(), self.units(), offset, self.handle(), c_uint64(0))

    def unmap(self) -> None:
        """What runs may use it."""
        self("cuCtxSynchronize")
        self("cuMemUnmap", self.place(), self.units())

    def set_access(self) -> None:
        self("cuCtxSynchronize")
        flags = self.chance.choice((READ_WRITE,) * 5 + (0, 1, 2))
        wanted = Access(DEVICE, self.chance.choice((0,) * 9 + (7,)), flags)
        self("cuMemSetAccess", self.place(), self.units(), byref(wanted), c_size_t(1))

    def get_access(self) -> None:
        flags = c_uint64(9)
        self("cuMemGetAccess", byref(flags), byref(Access(DEVICE, 0)), self.place())
        self.answers.append(flags.value)

    def address(self) -> c_uint64:
        """Around the border of two units."""
        return c_uint64(self.place().value + self.chance.choice((0, 100, self.unit.value - 600)))

    def fill(self) -> None:
        value, size = self.chance.randrange(256), self.chance.choice((64, 1000, 4096))
        self("cuMemsetD8_v2", self.address(), value, c_size_t(size))

    def copy(self) -> None:
        self("cuMemcpyDtoD_v2", self.address(), self.address(), c_size_t(64))

    def write(self) -> None:
        data = bytes(self.chance.randrange(256) for _ in range(1000))
        self("cuMemcpyHtoD_v2", self.address(), data, c_size_t(1000))

    def look(self) -> None:
        start, size, value = c_uint64(), c_size_t(), c_uint64()
        at = self.address()
        if not self("cuMemGetAddressRange_v2", byref(start), byref(size), at):
            self.answers.append([start.value - self.base.value, size.value])
        for attribute in (2, 9, 11, 12, 13):  # type, device, start, size, mapped
            value.value = 0
            if not self("cuPointerGetAttribute", byref(value), attribute, at):
                self.answers.append(value.value - (self.base.value if attribute == 11 else 0))

    def read(self) -> None:
        """What was written, or what lay there: memory that nobody has written to is compared by nobody."""
        at = self.address()
        self("cuMemsetD8_v2", at, 5, c_size_t(128))
        if not self("cuMemcpyDtoH_v2", self.back, at, c_size_t(128)):
            self.answers.append(zlib.crc32(self.back.raw[:128]))

    def launch(self) -> None:
        """Only to what is there: the end of a context is the end of the sequence."""
        at, flags = self.place(), c_uint64(0)
        self("cuMemGetAccess", byref(flags), byref(Access(DEVICE, 0)), at)
        if flags.value != READ_WRITE:
            return
        module, function = c_void_p(), c_void_p()
        self("cuModuleLoadData", byref(module), IMAGES["all"].encode())
        self("cuModuleGetFunction", byref(function), module, b"fill")
        cells = (c_uint64(at.value), c_uint(32), c_uint(self.chance.randrange(99)))
        parameters = (c_void_p * 3)(*map(ctypes.addressof, cells))
        self("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)
        self("cuCtxSynchronize")
        self("cuMemcpyDtoH_v2", self.back, at, c_size_t(128))
        self.answers.append(zlib.crc32(self.back.raw[:128]))
        self("cuModuleUnload", module)

    def end(self) -> list[Any]:
        """Some of it in the wrong order first, then all; what runs may use it."""
        self("cuCtxSynchronize")
        self("cuMemAddressFree", self.base, self.bytes(UNITS))
        for unit in range(UNITS):
            for size in (1, 2, 3, UNITS):
                at = c_uint64(self.base.value + unit * self.unit.value)
                self("cuMemUnmap", at, self.bytes(size))
        while self.handles:
            self.release()
        self("cuMemAddressFree", self.base, self.bytes(UNITS))
        return self.answers


def run_virtual(cu: ctypes.CDLL, seed: int) -> list[Any]:
    made = VirtualProgram(cu, seed)
    usual = (made.create, made.map, made.set_access, made.read, made.fill)
    every = (*usual, made.map, made.set_access, made.unmap, made.release, made.retain)
    every += (made.describe, made.get_access, made.copy, made.write, made.look, made.launch)
    for _ in range(STEPS):
        made.chance.choice(every)()
    return made.end()
