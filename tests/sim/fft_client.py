# SPDX-License-Identifier: Apache-2.0
"""The simulated cuFFT through ctypes: plans with any layout, and what numpy makes of the same numbers.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_int, c_longlong, c_size_t, c_void_p
from dataclasses import dataclass

import numpy as np

from tests.sim.blas_client import LIB, Gpu

# cufftResult
OK, INVALID_PLAN, ALLOC_FAILED, INVALID_TYPE, INVALID_VALUE, EXEC_FAILED = 0, 1, 2, 3, 4, 6
INVALID_SIZE, NO_WORKSPACE, NOT_SUPPORTED = 8, 13, 16
# cufftType
R2C, C2R, C2C, D2Z, Z2D, Z2Z = 0x2A, 0x2C, 0x29, 0x6A, 0x6C, 0x69
FORWARD, INVERSE = -1, 1
#: by cufftType: the function's name, the types on each side for numpy and as cudaDataType
TYPES = {
    C2C: ("C2C", "c8", "c8", 4, 4), R2C: ("R2C", "f4", "c8", 0, 4), C2R: ("C2R", "c8", "f4", 4, 0),
    Z2Z: ("Z2Z", "c16", "c16", 5, 5), D2Z: ("D2Z", "f8", "c16", 1, 5), Z2D: ("Z2D", "c16", "f8", 5, 1),
}  # fmt: skip
PRECISION = {"c8": 2e-5, "f4": 2e-5, "c16": 1e-11, "f8": 1e-11}
#: what lies between elements, and must stay
FILLER = 77


def integers(values: Sequence[int] | None, wide: bool) -> ctypes.Array[c_int] | None:
    """An array of sizes, or a null pointer."""
    kind = c_longlong if wide else c_int
    return None if values is None else (kind * len(values))(*values)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Side:
    """Where the elements of one side are."""

    sizes: tuple[int, ...]
    embed: tuple[int, ...]
    stride: int
    distance: int

    def places(self, batch: int) -> np.ndarray:
        """Of each element, by batch and dimension."""
        grid = np.indices((batch, *self.sizes))
        at = grid[1]
        for d in range(1, len(self.sizes)):
            at = at * self.embed[d] + grid[d + 1]
        return np.asarray(grid[0] * self.distance + at * self.stride)


def packed(sizes: Sequence[int]) -> Side:
    """One element behind the other."""
    return Side(tuple(sizes), tuple(sizes), 1, int(np.prod(sizes)))


def expect(type_: int, direction: int, n: Sequence[int], values: np.ndarray) -> np.ndarray:
    """The same by numpy, of values by batch and dimension."""
    axes, wide = tuple(range(1, len(n) + 1)), values.astype("c16")
    if type_ in (R2C, D2Z):
        return np.fft.rfftn(values.astype("f8"), axes=axes)
    if type_ in (C2R, Z2D):
        return np.fft.irfftn(wide, s=tuple(n), axes=axes) * np.prod(n)
    if direction == FORWARD:
        return np.fft.fftn(wide, axes=axes)
    return np.fft.ifftn(wide, axes=axes) * np.prod(n)


def draw(random: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Numbers of a type."""
    real = random.standard_normal(shape)
    return (real + 1j * random.standard_normal(shape) if dtype[0] == "c" else real).astype(dtype)


def assert_close(got: np.ndarray, want: np.ndarray, dtype: str) -> None:
    """The same within the type's precision."""
    scale = max(1.0, float(np.abs(want).max()))
    assert np.allclose(got, want, rtol=0, atol=PRECISION[dtype] * scale), np.abs(got - want).max()


class Fft(Gpu):
    """The driver and the library."""

    def __init__(self) -> None:
        super().__init__()
        self.fft = ctypes.CDLL(str(LIB / f"libcufft.so.{os.environ.get('FFT_RELEASE', '12')}"))

    def good(self, status: int) -> None:
        """Nothing but success."""
        assert status == OK, status

    def create(self) -> int:
        """A plan that is not made yet."""
        plan = c_int(-1)
        self.good(self.fft.cufftCreate(byref(plan)))
        return plan.value

    def plan(self, type_: int, *n: int, batch: int = 1) -> int:
        """A plan of the simplest kind."""
        plan = c_int(-1)
        if len(n) == 1:
            self.good(self.fft.cufftPlan1d(byref(plan), n[0], type_, batch))
        else:
            self.good(getattr(self.fft, f"cufftPlan{len(n)}d")(byref(plan), *n, type_))
        return plan.value

    def size(self, plan: int) -> int:
        """Of its work area."""
        found = c_size_t(0)
        self.good(self.fft.cufftGetSize(plan, byref(found)))
        return found.value

    def make(
        self, way: str, plan: int, type_: int, n: Sequence[int], into: Side | None = None,
        out: Side | None = None, batch: int = 1,
    ) -> int:  # fmt: skip
        """MakePlanMany, MakePlanMany64 or XtMakePlanMany; the status."""
        wide, found = way != "MakePlanMany", c_size_t(0)
        number = c_longlong if wide else c_int
        sides = [
            (integers(s.embed, wide), number(s.stride), number(s.distance)) if s
            else (None, number(1), number(0))
            for s in (into, out)
        ]  # fmt: skip
        function = getattr(self.fft, f"cufft{way}")
        if way != "XtMakePlanMany":
            return int(
                function(
                    plan, len(n), integers(n, wide), *sides[0], *sides[1], type_, number(batch), byref(found)
                )
            )  # fmt: skip
        name, *_, in_type, out_type = TYPES[type_]
        execution = {"C": 4, "R": 4, "Z": 5, "D": 5}[name[0]]
        return int(
            function(
                plan, len(n), integers(n, True), *sides[0], in_type, *sides[1], out_type,
                number(batch), byref(found), execution,
            )
        )  # fmt: skip

    def execute(
        self, plan: int, type_: int, into: int, out: int, direction: int = FORWARD, xt: bool = False
    ) -> int:
        """The function of that type, or the one for all types; the status."""
        addresses = c_void_p(into), c_void_p(out)
        if xt:
            return int(self.fft.cufftXtExec(plan, *addresses, direction))
        function = getattr(self.fft, f"cufftExec{TYPES[type_][0]}")
        if type_ in (C2C, Z2Z):
            return int(function(plan, *addresses, direction))
        return int(function(plan, *addresses))

    def transform(
        self, plan: int, type_: int, values: np.ndarray, like: Sequence[int]
    ) -> np.ndarray:
        """Executed forward and out of place, of values one behind the other."""
        out = np.zeros(like, TYPES[type_][2])
        addresses = self.upload(values.astype(TYPES[type_][1])), self.upload(out)
        direction = INVERSE if type_ in (C2R, Z2D) else FORWARD
        self.good(self.execute(plan, type_, *addresses, direction))
        self.good(self.wait())
        self.download(addresses[1], out)
        for address in addresses:
            self.free(address)
        return out
