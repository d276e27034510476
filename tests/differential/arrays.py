"""Arrays and textures, as a program of its own: what they are made of, parts that are copied, and what kernels read."""

from __future__ import annotations

import ctypes
import random
import struct
import zlib
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

STEPS, POINTS = 30, 64
HOST, DEVICE, ARRAY = 1, 2, 3
FLOAT, HALF, BYTE, SHORT = 0x20, 0x10, 1, 9
SIZES = {FLOAT: 4, HALF: 2, BYTE: 1, SHORT: 2}
LAYERED, SURFACE, CUBEMAP = 1, 2, 4
#: what the program calls, by the name under which it is in sequences
ARRAY_PROGRAMS = {
    "cuArray3DCreate_v2": [
        "cuArrayCreate_v2", "cuArrayDestroy", "cuArray3DGetDescriptor_v2", "cuMipmappedArrayCreate",
        "cuMipmappedArrayGetLevel", "cuMipmappedArrayDestroy", "cuMemcpy3D_v2", "cuMemcpyHtoA_v2", "cuMemcpyAtoH_v2",
        "cuMemcpyDtoA_v2", "cuMemcpyAtoD_v2", "cuMemcpyAtoA_v2", "cuTexObjectCreate", "cuTexObjectDestroy",
        "cuTexObjectGetTextureDesc", "cuSurfObjectCreate", "cuSurfObjectDestroy",
    ],
}  # fmt: skip

KERNEL = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry sample(.param .u64 t, .param .u64 at, .param .u64 out) {
 .reg .b64 %p<6>; .reg .f32 %f<7>; .reg .b32 %r<2>;
 ld.param.u64 %p0, [t]; ld.param.u64 %p1, [at]; ld.param.u64 %p2, [out]; mov.u32 %r0, %tid.x;
 mul.wide.u32 %p3, %r0, 8; add.s64 %p1, %p1, %p3; mul.wide.u32 %p4, %r0, 16; add.s64 %p2, %p2, %p4;
 ld.global.v2.f32 {%f0, %f1}, [%p1];
 tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%p0, {%f0, %f1}];
 st.global.v4.f32 [%p2], {%f2, %f3, %f4, %f5}; ret; }
"""


class Made(ctypes.Structure):
    _fields_ = [(name, c_size_t) for name in ("width", "height", "depth")] + [
        (name, c_uint) for name in ("format", "channels", "flags")
    ]


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [
        (f"{side}_{name}", kind)
        for side in ("from", "to")
        for name, kind in (
            ("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("type", c_uint), ("host", c_void_p),
            ("device", c_uint64), ("array", c_uint64), ("reserved", c_void_p), ("pitch", c_size_t), ("rows", c_size_t),
        )
    ] + [(name, c_size_t) for name in ("width", "height", "depth")]  # fmt: skip


class Array:
    """An array that the program has made; ``alive`` as far as it knows."""

    def __init__(self, handle: int, made: Made) -> None:
        self.handle, self.made, self.alive = handle, made, True
        self.element = SIZES[made.format] * made.channels
        self.row = made.width * self.element
        self.rows, self.slices = max(1, made.height), max(1, made.depth)


class ArrayProgram:
    """Arrays and objects by number; a handle is used after its end as long as no other array has been made."""

    def __init__(self, cu: ctypes.CDLL, seed: int) -> None:
        self.cu, self.chance, self.answers = cu, random.Random(seed), list[Any]()
        self.arrays: list[Array] = []
        self.objects: list[tuple[int, bool]] = []
        self.memory, self.back = c_uint64(), ctypes.create_string_buffer(1 << 16)
        self("cuMemAlloc_v2", byref(self.memory), c_size_t(1 << 14))
        self("cuMemsetD8_v2", self.memory, 7, c_size_t(1 << 14))

    def __call__(self, name: str, *arguments: Any) -> int:
        code: int = getattr(self.cu, name)(*arguments)
        self.answers.append([name, code])
        return code

    def data(self, size: int) -> bytes:
        """Small numbers in any format: no infinities, which filters would make of large halves."""
        return bytes(self.chance.randrange(64) for _ in range(size))

    def fill(self, array: Array) -> None:
        whole = self.data(array.row * array.rows * array.slices)
        copy = Copy(
            from_type=HOST,
            from_pitch=array.row,
            from_rows=array.rows,
            to_type=ARRAY,
            to_array=array.handle,
        )
        copy.from_host = ctypes.cast(c_char_p(whole), c_void_p)
        copy.width, copy.height, copy.depth = array.row, array.rows, array.slices
        self("cuMemcpy3D_v2", byref(copy))

    def shape(self) -> Made:
        """Of an array that is made next."""
        self.arrays = [array for array in self.arrays if array.alive]
        pick = self.chance.choice
        flags = pick(
            (0, 0, SURFACE, SURFACE, LAYERED, CUBEMAP if self.chance.random() < 0.1 else 0)
        )
        depth = pick((0, 0, 0, 3, 5)) if flags != LAYERED else pick((0, 2, 3, 3))
        channels = pick((1, 1, 2, 4, 3 if self.chance.random() < 0.1 else 1))
        return Made(
            pick((1, 7, 16, 30)), pick((0, 5, 8, 8)), depth, pick(tuple(SIZES)), channels, flags
        )

    def create(self) -> None:
        made, handle = self.shape(), c_uint64()
        if not self("cuArray3DCreate_v2", byref(handle), byref(made)):
            self.arrays.append(Array(handle.value, made))
            self.fill(self.arrays[-1])

    def create_levels(self) -> None:
        made, whole, handle = self.shape(), c_uint64(), c_uint64()
        if self("cuMipmappedArrayCreate", byref(whole), byref(made), self.chance.randrange(5)):
            return
        for level in range(3):
            if not self("cuMipmappedArrayGetLevel", byref(handle), whole, level):
                told = Made()
                self("cuArray3DGetDescriptor_v2", byref(told), handle)
                array = Array(handle.value, told)
                self.fill(array)
                self.read(array)
                self("cuArrayDestroy", handle)
        self("cuMipmappedArrayDestroy", whole)
        self("cuArray3DGetDescriptor_v2", byref(made), handle)

    def array(self) -> Array | None:
        return self.chance.choice(self.arrays) if self.arrays else None

    def destroy(self) -> None:
        if (array := self.array()) is not None:
            self("cuArrayDestroy", c_uint64(array.handle))
            array.alive = False

    def describe(self) -> None:
        if (array := self.array()) is not None:
            told = Made()
            self("cuArray3DGetDescriptor_v2", byref(told), c_uint64(array.handle))
            self.answers.append(bytes(told).hex())

    def part(self, array: Array) -> tuple[int, int, int, int, int, int]:
        """Mostly inside."""
        if self.chance.random() < 0.1:
            return (*(self.chance.choice((0, 1, 4, 64, 1 << 63)) for _ in range(3)), 8, 2, 1)
        width = self.chance.randrange(array.made.width) + 1
        height, depth = (
            self.chance.randrange(array.rows) + 1,
            self.chance.randrange(array.slices) + 1,
        )
        x = self.chance.randrange(array.made.width - width + 1) * array.element
        return (x, self.chance.randrange(array.rows - height + 1), self.chance.randrange(array.slices - depth + 1),
                width * array.element, height, depth)  # fmt: skip

    def read(self, array: Array) -> None:
        copy = Copy(
            from_type=ARRAY,
            from_array=array.handle,
            to_type=HOST,
            to_pitch=array.row,
            to_rows=array.rows,
        )
        copy.to_host = ctypes.cast(self.back, c_void_p)
        copy.width, copy.height, copy.depth = array.row, array.rows, array.slices
        if not self("cuMemcpy3D_v2", byref(copy)):
            self.answers.append(zlib.crc32(self.back.raw[: array.row * array.rows * array.slices]))

    def copy(self) -> None:
        """Between an array and the program's memory, the device's, or another array."""
        array, other, with_memory = (
            self.array(),
            self.array(),
            self.chance.choice((HOST, DEVICE, ARRAY)),
        )
        if array is None or other is None:
            return
        copy, into = Copy(), self.chance.random() < 0.6
        x, y, z, copy.width, copy.height, copy.depth = self.part(array)
        pitch = copy.width + self.chance.choice((0, 0, 16)) - (self.chance.random() < 0.05)
        mine = {"x": x, "y": y, "z": z, "type": ARRAY, "array": array.handle}
        theirs = {"type": with_memory, "pitch": pitch, "rows": copy.height}
        if with_memory == HOST:
            source = ctypes.create_string_buffer(self.data(64 << 10), 64 << 10)
            theirs["host"] = ctypes.addressof(source if into else self.back)
        elif with_memory == DEVICE:
            theirs["device"] = self.memory.value
        else:
            theirs = {"type": ARRAY, "array": other.handle, "x": x}
        if with_memory != ARRAY and pitch * copy.height * copy.depth > 1 << 14:
            return
        for side, values in (("to", mine if into else theirs), ("from", theirs if into else mine)):
            for name, value in values.items():
                setattr(copy, f"{side}_{name}", value)
        self("cuCtxSynchronize")
        self("cuMemcpy3D_v2", byref(copy))
        self("cuCtxSynchronize")
        self.read(array)

    def line(self) -> None:
        array = self.array()
        if array is None:
            return
        size = c_size_t(array.element * self.chance.randrange(9))
        at = c_size_t(array.element * self.chance.randrange(3))
        handle = c_uint64(array.handle)
        self.chance.choice((
            lambda: self("cuMemcpyHtoA_v2", handle, at, self.data(256), size),
            lambda: self("cuMemcpyAtoH_v2", self.back, handle, at, size),
            lambda: self("cuMemcpyDtoA_v2", handle, at, self.memory, size),
            lambda: self("cuMemcpyAtoD_v2", self.memory, handle, at, size),
            lambda: self("cuMemcpyAtoA_v2", handle, at, handle, c_size_t(0), c_size_t(array.element)),
        ))()  # fmt: skip
        self("cuCtxSynchronize")
        self.read(array)

    def texture(self) -> None:
        """Of an array or of rows of memory; what it reads is only asked of two dimensions without layers."""
        array, chance = self.array(), self.chance
        resource, how, made = (c_uint64 * 18)(), (c_uint * 28)(), c_uint64()
        rows = chance.random() < 0.3
        if array is None:
            return
        if rows:
            resource[:7] = [
                3,
                self.memory.value,
                1 << 32 | FLOAT,
                30,
                8,
                chance.choice((128, 160, 100)),
                0,
            ]
        else:
            resource[0], resource[1] = 0, array.handle
        how[:3] = [chance.randrange(4)] * 3
        how[3], how[4] = (
            chance.randrange(2),
            chance.choice((0, 1, 2, 3, 0x10 if chance.random() < 0.2 else 2)),
        )
        how[10:14] = list(struct.unpack("4I", struct.pack("4f", 1.5, 2, 3, 4)))
        if self("cuTexObjectCreate", byref(made), resource, how, None):
            return
        told = (c_uint * 28)()
        self("cuTexObjectGetTextureDesc", told, made)
        self.answers.append(list(told)[:14])
        flat = rows or (array.alive and array.made.height and not array.made.depth)
        if flat and (rows or how[4] & 1 == 0 or array.made.format in (FLOAT, HALF)):
            self.sample(made)
        self("cuTexObjectDestroy", made)
        if chance.random() < 0.3:
            self("cuTexObjectDestroy", made)

    def sample(self, texture: c_uint64) -> None:
        module, function = c_void_p(), c_void_p()
        places = [self.chance.randrange(-64, 512) / 32 for _ in range(2 * POINTS)]
        at = c_uint64(self.memory.value + 8192)
        out = c_uint64(self.memory.value + 8192 + 8 * POINTS)
        self("cuModuleLoadData", byref(module), KERNEL)
        self("cuModuleGetFunction", byref(function), module, b"sample")
        self("cuMemcpyHtoD_v2", at, struct.pack(f"{2 * POINTS}f", *places), c_size_t(8 * POINTS))
        parameters = (c_void_p * 3)(*map(ctypes.addressof, (texture, at, out)))
        self("cuLaunchKernel", function, 1, 1, 1, POINTS, 1, 1, 0, None, parameters, None)
        if not self("cuMemcpyDtoH_v2", self.back, out, c_size_t(16 * POINTS)):
            self.answers.append(zlib.crc32(self.back.raw[: 16 * POINTS]))
        self("cuModuleUnload", module)

    def surface(self) -> None:
        array, made = self.array(), c_uint64()
        if array is None:
            return
        if not self("cuSurfObjectCreate", byref(made), (c_uint64 * 18)(0, array.handle)):
            self("cuTexObjectDestroy", made)
            self("cuSurfObjectDestroy", made)
        self("cuSurfObjectDestroy", made)

    def end(self) -> list[Any]:
        for array in self.arrays:
            self("cuArrayDestroy", c_uint64(array.handle))
        if self.memory.value:
            self("cuMemFree_v2", self.memory)
        return self.answers


def run_arrays(cu: ctypes.CDLL, seed: int) -> list[Any]:
    made = ArrayProgram(cu, seed)
    usual = (made.create, made.create, made.copy, made.copy, made.copy, made.texture, made.texture)
    every = (*usual, made.create_levels, made.destroy, made.describe, made.line, made.surface)
    for _ in range(STEPS):
        made.chance.choice(every)()
    return made.end()
