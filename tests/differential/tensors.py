"""Descriptors of tensors, as a program of its own: right and wrong ones, compared where they have no address."""

from __future__ import annotations

import ctypes
import random
import zlib
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

STEPS = 20
#: what the program calls, by the name under which it is in sequences
TENSOR_PROGRAMS = {
    "cuTensorMapEncodeTiled": ["cuTensorMapEncodeIm2col", "cuTensorMapReplaceAddress"]
}


class TensorProgram:
    def __init__(self, cu: ctypes.CDLL, seed: int) -> None:
        self.cu, self.chance, self.answers = cu, random.Random(seed), list[Any]()
        self.memory = c_uint64()
        self.map = (c_uint64 * 32)()
        # 128 bytes that begin at a multiple of as many
        self.at = c_void_p((ctypes.addressof(self.map) + 127) & ~127)
        self.made = False
        self("cuMemAlloc_v2", byref(self.memory), c_size_t(1 << 16))

    def __call__(self, name: str, *arguments: Any) -> int:
        code: int = getattr(self.cu, name)(*arguments)
        self.answers.append([name, code])
        return code

    def odd(self, usual: int, *others: int) -> int:
        return self.chance.choice((usual,) * 12 + others)

    def address(self) -> c_uint64:
        return c_uint64(self.memory.value + self.odd(0, 64, 8))

    def encode(self) -> None:
        rank, tiled = self.odd(3, 1, 4, 5, 0, 6), self.chance.random() < 0.6
        sizes = (c_uint64 * 6)(*(self.odd(64, 1, 1000, 0) for _ in range(6)))
        strides = (c_uint64 * 6)(*(self.odd(4096, 32, 24, 1 << 40) for _ in range(6)))
        boxes = (c_uint32 * 6)(*(self.odd(8, 64, 256, 0, 257) for _ in range(6)))
        steps = (c_uint32 * 6)(*(self.odd(1, 2, 8, 0, 9) for _ in range(6)))
        corners = [(c_int * 6)(*(self.odd(0, -1, 1, -40000) for _ in range(6))) for _ in range(2)]
        first = (self.at, self.odd(6, 0, 7, 99), rank, self.address(), sizes, strides)
        last = (self.odd(0, 1, 99), self.odd(3, 0, 99), self.odd(0, 2, 99), self.odd(0, 1, 99))
        if tiled:
            code = self("cuTensorMapEncodeTiled", *first, boxes, steps, *last)
        else:
            code = self("cuTensorMapEncodeIm2col", *first, *corners, 64, 128, steps, *last)
        self.made = code == 0

    def move(self) -> None:
        """To nowhere in particular, so that its bytes are the same in each process."""
        code = self("cuTensorMapReplaceAddress", self.at, c_void_p(self.odd(0x10000, 0, 8)))
        if code == 0:
            assert self.at.value is not None
            self.answers.append(zlib.crc32(ctypes.string_at(self.at.value, 128)))


def run_tensors(cu: ctypes.CDLL, seed: int) -> list[Any]:
    made = TensorProgram(cu, seed)
    for _ in range(STEPS):
        made.encode()
        if made.made or made.chance.random() < 0.3:
            made.move()
    if made.memory.value:
        made("cuMemFree_v2", made.memory)
    return made.answers
