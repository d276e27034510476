"""Waits for values in memory, writes of them and reductions, as a program of its own: every wait is met at its end."""

from __future__ import annotations

import ctypes
import random
import zlib
from ctypes import byref, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any

WORDS, STREAMS, STEPS = 64, 3, 30
WAIT_32, WRITE_32, WAIT_64, WRITE_64, BARRIER, REDUCTION = 1, 2, 4, 5, 6, 8
UNSIGNED_32, UNSIGNED_64 = 14, 22
#: what the program calls, by the name under which it is in sequences
WAIT_PROGRAMS = {
    "cuStreamBatchMemOp_v2": [
        "cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamWriteValue32_v2", "cuStreamWriteValue64_v2",
        "cuStreamWaitValue32", "cuStreamWriteValue64", "cuStreamBatchMemOp",
    ],
}  # fmt: skip


class WaitProgram:
    """Memory whose words only rise: a wait for less than a word becomes is met, whenever the word is read."""

    def __init__(self, cu: ctypes.CDLL, seed: int) -> None:
        self.cu, self.chance, self.answers = cu, random.Random(seed), list[Any]()
        self.memory, self.round = c_uint64(), 1
        self.kept: list[object] = []
        self("cuMemAlloc_v2", byref(self.memory), c_size_t(8 * WORDS))
        self("cuMemsetD8_v2", self.memory, 0, c_size_t(8 * WORDS))
        self("cuCtxSynchronize")
        self.streams = [c_void_p() for _ in range(STREAMS)]
        for stream in self.streams:
            self("cuStreamCreate", byref(stream), 1)

    def __call__(self, name: str, *arguments: Any) -> int:
        code: int = getattr(self.cu, name)(*arguments)
        self.answers.append([name, code])
        return code

    def place(self) -> c_uint64:
        """Mostly one of the words."""
        odd = self.chance.choice((0,) * 25 + (2, 4, 8 * WORDS, 1 << 40))
        return c_uint64(self.memory.value + 8 * self.chance.randrange(WORDS) + odd)

    def stream(self) -> c_void_p:
        """One that only waits: behind a wait, a write could be less than what others wait for."""
        return self.chance.choice((*self.streams[1:], c_void_p(2)))

    def wait(self) -> None:
        """For what the word has or gets in :meth:`finish`."""
        self.round += 1
        bits, version = self.chance.choice((32, 64)), self.chance.choice(("", "_v2"))
        kind = c_uint32 if bits == 32 else c_uint64
        flags = self.chance.choice((0, 0, 0, 0, 4, 1 << 30))
        value = kind(self.chance.randrange(self.round))
        self(f"cuStreamWaitValue{bits}{version}", self.stream(), self.place(), value, flags)

    def write(self) -> None:
        self.round += 1
        bits, version = self.chance.choice((32, 64)), self.chance.choice(("", "_v2"))
        kind = c_uint32 if bits == 32 else c_uint64
        flags = self.chance.choice((0, 0, 0, 0, 0, 1, 3))
        value = kind(self.round)
        # in one stream, which never waits, so that words only rise
        self(f"cuStreamWriteValue{bits}{version}", self.streams[0], self.place(), value, flags)

    def batch(self) -> None:
        count = self.chance.choice((1, 2, 3, 5, 200, 0, 256))
        words = (c_uint64 * (6 * max(1, count)))()
        for i in range(count):
            self.fill(words, 6 * i)
        name = self.chance.choice(("cuStreamBatchMemOp", "cuStreamBatchMemOp_v2"))
        self(name, self.streams[0], count, words, self.chance.choice((0,) * 9 + (1,)))

    def fill(self, words: Any, at: int) -> None:
        self.round += 1
        kind = self.chance.choice((WRITE_32, WRITE_64) * 30 + (BARRIER, REDUCTION, 3, 7))
        words[at] = kind
        if kind == REDUCTION:
            words[at] |= self.chance.choice((0, 0, 0, 1)) << 32
            size = self.chance.choice((UNSIGNED_32, UNSIGNED_64, UNSIGNED_64))
            words[at + 1] = self.chance.choice((0, 0, 6, 9)) | size << 32
            words[at + 2], words[at + 3] = self.place().value, 1
        elif kind != BARRIER:
            words[at + 1], words[at + 2] = self.place().value, self.round

    def query(self) -> None:
        self.cu.cuStreamQuery(self.stream())

    def raise_all(self, stream: c_void_p) -> None:
        """All words get more than any wait is for."""
        for word in range(2 * WORDS):
            at = c_uint64(self.memory.value + 4 * word)
            self("cuStreamWriteValue32_v2", stream, at, c_uint(1 << 30), 0)

    def finish(self) -> list[Any]:
        """Nothing is written after that."""
        back = ctypes.create_string_buffer(8 * WORDS)
        self("cuMemcpyDtoHAsync_v2", back, self.memory, c_size_t(8 * WORDS), self.streams[0])
        self("cuStreamSynchronize", self.streams[0])
        self.answers.append(zlib.crc32(back.raw))  # what all writes and reductions have made of it
        self.raise_all(self.streams[0])
        for stream in (*self.streams, c_void_p(2)):
            self("cuStreamSynchronize", stream)
        self("cuMemsetD8_v2", self.memory, self.chance.randrange(256), c_size_t(8 * WORDS))
        self("cuMemcpyDtoH_v2", back, self.memory, c_size_t(8 * WORDS))
        self.answers.append(zlib.crc32(back.raw))
        for stream in self.streams:
            self("cuStreamDestroy_v2", stream)
        self("cuMemFree_v2", self.memory)
        return self.answers


def run_waits(cu: ctypes.CDLL, seed: int) -> list[Any]:
    made = WaitProgram(cu, seed)
    for _ in range(STEPS):
        made.chance.choice((made.wait, made.wait, made.write, made.write, made.batch, made.query))()
    return made.finish()
