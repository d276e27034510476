# SPDX-License-Identifier: Apache-2.0
"""The simulated cuRAND through ctypes, and what its numbers are to be.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_double, c_float, c_size_t, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_client import LIB, Gpu

# curandStatus_t
OK, NOT_INITIALIZED, ALLOCATION_FAILED, TYPE_ERROR, OUT_OF_RANGE = 0, 101, 102, 103, 104
LENGTH_NOT_MULTIPLE, INITIALIZATION_FAILED, ARCH_MISMATCH = 105, 203, 204
# curandRngType
DEFAULT, XORWOW, MRG32K3A, MTGP32, MT19937, PHILOX, QUASI, SOBOL32, SOBOL64 = (
    100, 101, 121, 141, 142, 161, 200, 201, 203,
)  # fmt: skip
TYPES = (XORWOW, MRG32K3A, MT19937, PHILOX)
# curandOrdering
BEST, ORDINARY, SEEDED, LEGACY, DYNAMIC = range(100, 105)
#: by the function: the type of its numbers for numpy, and of what it takes beside them
OUTPUTS: dict[str, tuple[str, type | None, int]] = {
    "Generate": ("u4", None, 0), "GenerateLongLong": ("u8", None, 0), "GenerateUniform": ("f4", None, 0),
    "GenerateUniformDouble": ("f8", None, 0), "GenerateNormal": ("f4", c_float, 2),
    "GenerateNormalDouble": ("f8", c_double, 2), "GenerateLogNormal": ("f4", c_float, 2),
    "GenerateLogNormalDouble": ("f8", c_double, 2), "GeneratePoisson": ("u4", c_double, 1),
}  # fmt: skip
WORD = 0xFFFFFFFF


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """A block of Philox4x32-10, by its authors' definition."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k[0], right & WORD, left >> 32 ^ c[3] ^ k[1], left & WORD]
        k = [k[0] + 0x9E3779B9 & WORD, k[1] + 0xBB67AE85 & WORD]
    return c


def philox_at(seed: int, place: int) -> int:
    """The number at a place of the library's sequence: 65536 lanes, which take turns to make four."""
    group, lane = divmod(place // 4, 65536)
    return philox((group, 0, lane, 0), (seed & WORD, seed >> 32))[place % 4]


class Rand(Gpu):
    """The driver and the library."""

    def __init__(self) -> None:
        super().__init__()
        self.open(str(LIB / "libcurand.so.10"))

    def open(self, path: str) -> None:
        """The library."""
        self.rand = ctypes.CDLL(path)

    def good(self, status: int) -> None:
        """Nothing but success."""
        assert status == OK, status

    def create(
        self,
        type_: int,
        seed: int | None = None,
        offset: int | None = None,
        order: int | None = None,
    ) -> c_void_p:
        """A generator that is set to these."""
        generator = c_void_p()
        self.good(self.rand.curandCreateGenerator(byref(generator), type_))
        if order is not None:
            self.good(self.rand.curandSetGeneratorOrdering(generator, order))
        if seed is not None:
            self.seed(generator, seed)
        if offset is not None:
            self.good(self.rand.curandSetGeneratorOffset(generator, c_uint64(offset)))
        return generator

    def seed(self, generator: c_void_p, seed: int) -> None:
        """Another one."""
        self.good(self.rand.curandSetPseudoRandomGeneratorSeed(generator, c_uint64(seed)))

    def destroy(self, generator: c_void_p) -> None:
        """Ends it."""
        self.good(self.rand.curandDestroyGenerator(generator))

    def post(
        self, generator: c_void_p, output: str, address: int, count: int, *parameters: float
    ) -> int:
        """Numbers into memory; the status."""
        _, kind, number = OUTPUTS[output]
        assert len(parameters) == number
        more = [kind(p) for p in parameters] if kind else []
        function = getattr(self.rand, f"curand{output}")
        return int(function(generator, c_void_p(address), c_size_t(count), *more))

    def numbers(
        self, generator: c_void_p, output: str, count: int, *parameters: float
    ) -> np.ndarray:
        """The next ones."""
        out = np.zeros(count, OUTPUTS[output][0])
        address = self.upload(out)
        self.good(self.post(generator, output, address, count, *parameters))
        self.ok(self.wait())
        self.download(address, out)
        self.free(address)
        return out
