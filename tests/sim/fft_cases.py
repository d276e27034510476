# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuFFT computes: ``python -m tests.sim.fft_cases CASE...``; a guest's passes the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import byref, c_int, c_longlong, c_size_t, c_void_p

import numpy as np

from tests.sim.fft_client import (
    C2C,
    C2R,
    D2Z,
    FILLER,
    FORWARD,
    INVALID_PLAN,
    INVALID_SIZE,
    INVALID_TYPE,
    INVALID_VALUE,
    INVERSE,
    NO_WORKSPACE,
    OK,
    R2C,
    TYPES,
    Z2D,
    Z2Z,
    Fft,
    Side,
    assert_close,
    draw,
    expect,
    packed,
)  # fmt: skip

WAYS = ("MakePlanMany", "MakePlanMany64", "XtMakePlanMany")


def lengths(fft: Fft) -> None:
    """One dimension: all small lengths, primes, and products of large primes."""
    random = np.random.default_rng(1)
    for n in (*range(1, 41), 97, 101, 128, 143, 169, 211, 256, 1000, 1009, 2048, 2 * 1013, 17 * 19):
        for type_ in (Z2Z, D2Z, C2C):
            values = draw(random, TYPES[type_][1], (1, n))
            plan = fft.plan(type_, n)
            want = expect(type_, FORWARD, (n,), values)
            assert_close(fft.transform(plan, type_, values, want.shape), want, TYPES[type_][2])
            fft.good(fft.fft.cufftDestroy(plan))


def simple(fft: Fft) -> None:
    """Two and three dimensions, batches, all types."""
    random = np.random.default_rng(2)
    for n, batch in (
        ((6, 5), 1),
        ((4, 3, 7), 1),
        ((8,), 5),
        ((1, 9), 1),
        ((5, 1), 1),
        ((2, 2, 2), 1),
    ):
        for type_, (_, into, out, *_) in TYPES.items():
            plan = fft.plan(type_, *n, batch=batch)
            half = (*n[:-1], n[-1] // 2 + 1)
            values = draw(random, into, (batch, *(half if type_ in (C2R, Z2D) else n)))
            want = expect(type_, FORWARD, n, values)
            got = fft.transform(plan, type_, values, want.shape)
            assert_close(got, want, out)
            fft.good(fft.fft.cufftDestroy(plan))


def spread(random: np.random.Generator, sizes: tuple[int, ...], batch: int) -> Side:
    """A side with room between elements, rows and batches; or batches between elements."""
    embed = tuple(n + int(random.integers(0, 3)) for n in sizes)
    stride = int(random.integers(1, 4))
    if random.integers(0, 3) == 0:
        return Side(sizes, embed, stride * batch, stride)
    return Side(sizes, embed, stride, int(np.prod(embed)) * stride + int(random.integers(0, 3)))


def sides_of(
    random: np.random.Generator, type_: int, n: tuple[int, ...], batch: int, far: bool
) -> tuple[Side, Side]:
    """Of a plan; one whose other side is real has a half of each row."""
    half = (*n[:-1], n[-1] // 2 + 1)
    into, out = half if type_ in (C2R, Z2D) else n, half if type_ in (R2C, D2Z) else n
    if far:
        return spread(random, into, batch), spread(random, out, batch)
    return packed(into), packed(out)


def filled(side: Side, batch: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Memory with fillers, and where the elements are."""
    places = side.places(batch)
    return np.full(int(places.max()) + 3, FILLER, dtype), places


def one_random(fft: Fft, random: np.random.Generator) -> None:
    """A plan by chance, made in one of three ways and executed in one of two."""
    type_ = int(random.choice(list(TYPES)))
    n = tuple(int(v) for v in random.integers(1, 12, random.integers(1, 4)))
    batch, far = int(random.integers(1, 4)), bool(random.integers(0, 4))
    direction = int(random.choice((FORWARD, INVERSE)))
    in_place = bool(random.integers(0, 2)) and type_ in (C2C, Z2Z)
    into, out = sides_of(random, type_, n, batch, far)
    out = into if in_place else out
    _, in_type, out_type, *_ = TYPES[type_]
    source, at = filled(into, batch, in_type)
    values = draw(random, in_type, at.shape)
    source[at] = values
    target, to = filled(out, batch, out_type)
    plan = fft.create()
    shown = (into, out) if far else (None, None)
    fft.good(fft.make(str(random.choice(WAYS)), plan, type_, n, *shown, batch=batch))
    first = fft.upload(source)
    second = first if in_place else fft.upload(target)
    fft.good(fft.execute(plan, type_, first, second, direction, bool(random.integers(0, 2))))
    fft.good(fft.wait())
    fft.download(second, target)
    assert_close(target[to], expect(type_, direction, n, values), out_type)
    rest = np.delete(target, to.reshape(-1))
    assert np.all(rest == FILLER), "nothing else was written"
    for address in {first, second}:
        fft.free(address)
    fft.good(fft.fft.cufftDestroy(plan))


def layouts(fft: Fft) -> None:
    """Random shapes, strides, batches, types and directions."""
    random = np.random.default_rng(3)
    for _ in range(150):
        one_random(fft, random)


def in_place(fft: Fft) -> None:
    """Real numbers in the place of complex ones are padded, in each batch."""
    random = np.random.default_rng(4)
    for n in ((7,), (8,), (4, 6), (3, 5), (2, 3, 4)):
        batch = 3 if len(n) == 1 else 1
        half = (batch, *n[:-1], n[-1] // 2 + 1)
        for type_ in (R2C, D2Z):
            real = TYPES[type_][1]
            space = np.zeros((*half[:-1], 2 * half[-1]), real)
            values = draw(random, real, (batch, *n))
            space[..., : n[-1]] = values
            address = fft.upload(space)
            forward, back = fft.plan(type_, *n, batch=batch), fft.plan(type_ + 2, *n, batch=batch)
            fft.good(fft.execute(forward, type_, address, address))
            fft.good(fft.wait())
            got = np.zeros(half, TYPES[type_][2])
            fft.download(address, got)
            assert_close(got, expect(type_, FORWARD, n, values), TYPES[type_][2])
            fft.good(fft.execute(back, type_ + 2, address, address))
            fft.good(fft.wait())
            fft.download(address, space)
            assert_close(space[..., : n[-1]] / np.prod(n), values, real)


def halves(fft: Fft) -> None:
    """Half precision: powers of two only, and by cufftXtExec only."""
    values = draw(np.random.default_rng(5), "c8", (16,))
    pairs = np.stack([values.real, values.imag], -1).astype("f2")
    plan, found, n = fft.create(), c_size_t(), (c_longlong * 1)(16)
    make = fft.fft.cufftXtMakePlanMany
    rest = (c_longlong(1), c_longlong(0), 6)
    fft.good(make(plan, 1, n, None, *rest, None, *rest, c_longlong(1), byref(found), 6))
    address = fft.upload(pairs)
    fft.good(fft.execute(plan, C2C, address, address, xt=True))
    fft.good(fft.wait())
    fft.download(address, pairs)
    got = pairs[:, 0].astype("f4") + 1j * pairs[:, 1].astype("f4")
    assert np.allclose(got, np.fft.fft(values), atol=0.05)
    assert fft.execute(plan, C2C, address, address) == INVALID_VALUE
    n[0] = 15
    assert (
        make(fft.create(), 1, n, None, *rest, None, *rest, c_longlong(1), byref(found), 6)
        == INVALID_SIZE
    )


def make_1d(fft: Fft, plan: int, n: int, type_: int = C2C, batch: int = 1) -> int:
    """The status."""
    return int(fft.fft.cufftMakePlan1d(plan, n, type_, batch, byref(c_size_t())))


def plans(fft: Fft) -> None:
    """Numbers that are none, plans that are not made, made twice or have ended."""
    lib, x = fft.fft, fft.alloc(4096)
    plan = fft.create()
    assert lib.cufftCreate(None) == INVALID_VALUE
    assert fft.execute(plan, C2C, x, x) == INVALID_PLAN, "not made yet"
    assert lib.cufftGetSize(plan, byref(c_size_t())) == INVALID_PLAN
    assert make_1d(fft, plan, 8) == OK
    assert make_1d(fft, plan, 8) == INVALID_PLAN, "once"
    assert fft.execute(plan, C2C, x, x) == OK
    assert lib.cufftGetSize(plan, None) == INVALID_VALUE
    fft.good(lib.cufftDestroy(plan))
    for number in (plan, plan + 1, 0, -1, 1 << 30, -(1 << 31), 0x7FFFFFFF, plan + 12345):
        assert lib.cufftDestroy(number) == INVALID_PLAN
        assert fft.execute(number, C2C, x, x) == INVALID_PLAN
        assert fft.execute(number, C2C, x, x, xt=True) == INVALID_PLAN
        assert make_1d(fft, number, 8) == INVALID_PLAN
        assert lib.cufftSetStream(number, None) == INVALID_PLAN
        assert lib.cufftSetWorkArea(number, c_void_p(x)) == INVALID_PLAN
        assert lib.cufftSetAutoAllocation(number, 1) == INVALID_PLAN
        assert lib.cufftGetSize1d(number, 8, C2C, 1, byref(c_size_t())) == INVALID_PLAN
        assert lib.cufftSetPlanPropertyInt64(number, 1, c_longlong(1)) == INVALID_PLAN
    fft.good(fft.wait())


def sizes(fft: Fft) -> None:
    """Sizes, ranks, strides and types that there are not, and those that are no numbers any more."""
    plan, big = fft.create(), 1 << 62
    for n, batch in ((0, 1), (-5, 1), (8, 0), (8, -1)):
        assert make_1d(fft, plan, n, batch=batch) == INVALID_SIZE
    for type_ in (0, 0x28, 0x2B, 0x6B, -1):
        assert make_1d(fft, plan, 8, type_) == INVALID_TYPE
    for rank in (0, -1, 4, 1 << 30):
        status = fft.fft.cufftMakePlanMany(
            plan, rank, (c_int * 4)(4, 4, 4, 4), None, 1, 0, None, 1, 0, C2C, 1, byref(c_size_t())
        )
        assert status == INVALID_VALUE
    many = fft.fft.cufftMakePlanMany
    assert many(plan, 1, None, None, 1, 0, None, 1, 0, C2C, 1, byref(c_size_t())) == INVALID_VALUE
    assert many(plan, 1, (c_int * 1)(4), None, 1, 0, None, 1, 0, C2C, 1, None) == INVALID_VALUE
    plane: Sequence[tuple[int, ...]] = (
        (big,),
        (big, big),
        (1 << 31, 1 << 31, 4),
        (1 << 22, 1 << 22, 2),
    )
    for way in WAYS[1:]:
        for n_ in plane:
            assert fft.make(way, plan, Z2Z, n_) == INVALID_SIZE
        assert fft.make(way, plan, Z2Z, (8,), batch=big) == INVALID_SIZE
        good = packed((8, 8))
        for stride, embed, distance in (
            (0, (8, 8), 64),
            (-1, (8, 8), 64),
            (1, (8, 0), 64),
            (1, (8, -8), 64),
        ):
            side = Side((8, 8), embed, stride, distance)
            assert fft.make(way, plan, Z2Z, (8, 8), side, good) == INVALID_VALUE
            assert fft.make(way, plan, Z2Z, (8, 8), good, side) == INVALID_VALUE
        for side in (Side((8, 8), (8, 1 << 43), 1 << 20, 64), Side((8, 8), (8, 8), 1 << 43, 1)):
            assert fft.make(way, plan, Z2Z, (8, 8), side, good) == INVALID_SIZE
    assert make_1d(fft, plan, 8) == OK, "it can be made all the same"


def executions(fft: Fft) -> None:
    """Null pointers, directions, and functions of another type."""
    x = fft.alloc(4096)
    for type_ in TYPES:
        plan = fft.plan(type_, 8)
        for other in TYPES:
            status = fft.execute(plan, other, x, x)
            assert status == (OK if other == type_ else INVALID_VALUE), (type_, other)
        assert fft.execute(plan, type_, 0, x) == INVALID_VALUE
        assert fft.execute(plan, type_, x, 0) == INVALID_VALUE
        assert fft.execute(plan, type_, x, x, xt=True) == OK
    plan = fft.plan(C2C, 8)
    for direction in (0, 2, -2, 1 << 30):
        assert fft.execute(plan, C2C, x, x, direction) == INVALID_VALUE
        assert fft.execute(plan, C2C, x, x, direction, xt=True) == INVALID_VALUE
    fft.good(fft.wait())


def areas(fft: Fft) -> None:
    """Sizes of work areas, by each question; none, the library's own, and the program's."""
    lib, x, n = fft.fft, fft.alloc(1 << 16), (30, 7)
    asked = [c_size_t() for _ in range(4)]
    plan = fft.create()
    fft.good(lib.cufftEstimate2d(*n, C2C, byref(asked[0])))
    fft.good(lib.cufftGetSize2d(plan, *n, C2C, byref(asked[1])))
    fft.good(lib.cufftSetAutoAllocation(plan, 0))
    fft.good(lib.cufftMakePlan2d(plan, *n, C2C, byref(asked[2])))
    fft.good(lib.cufftGetSize(plan, byref(asked[3])))
    found = {size.value for size in asked}
    assert found == {30 * 7 * 8}, found
    assert fft.execute(plan, C2C, x, x) == NO_WORKSPACE
    area = fft.alloc(30 * 7 * 8)
    fft.good(lib.cufftSetWorkArea(plan, c_void_p(area)))
    assert fft.execute(plan, C2C, x, x) == OK
    assert fft.execute(fft.plan(C2C, *n), C2C, x, x) == OK
    fft.good(lib.cufftEstimate1d(30, R2C, 4, byref(asked[0])))
    fft.good(lib.cufftEstimate3d(3, 4, 5, Z2Z, byref(asked[0])))
    many = (2, (c_int * 2)(*n), None, 1, 0, None, 1, 0, C2C, 3, byref(asked[0]))
    fft.good(lib.cufftEstimateMany(*many))
    fft.good(lib.cufftGetSizeMany(plan, *many))
    assert asked[0].value == 30 * 7 * 8 * 3
    assert lib.cufftEstimate1d(0, C2C, 1, byref(asked[0])) == INVALID_SIZE
    assert lib.cufftEstimate1d(8, C2C, 1, None) == INVALID_VALUE
    fft.good(fft.wait())


def versions(fft: Fft) -> None:
    """The same in one number and in three; properties of plans."""
    version, parts = c_int(), [c_int() for _ in range(3)]
    fft.good(fft.fft.cufftGetVersion(byref(version)))
    for number, part in enumerate(parts):
        fft.good(fft.fft.cufftGetProperty(number, byref(part)))
    major, minor, patch = (part.value for part in parts)
    assert version.value == major * 1000 + minor * 100 + patch
    assert major in (11, 12)
    assert fft.fft.cufftGetProperty(3, byref(version)) == INVALID_VALUE
    plan, value = fft.create(), c_longlong(5)
    fft.good(fft.fft.cufftSetPlanPropertyInt64(plan, 1, c_longlong(1)))
    fft.good(fft.fft.cufftGetPlanPropertyInt64(plan, 1, byref(value)))
    assert value.value == 1
    fft.good(fft.fft.cufftResetPlanProperty(plan, 1))
    fft.good(fft.fft.cufftGetPlanPropertyInt64(plan, 1, byref(value)))
    assert value.value == 0
    for number in (0, 5, -1):
        assert fft.fft.cufftSetPlanPropertyInt64(plan, number, c_longlong(1)) == INVALID_VALUE
    assert make_1d(fft, plan, 8) == OK
    assert fft.fft.cufftSetPlanPropertyInt64(plan, 1, c_longlong(1)) == INVALID_PLAN


CASES = {
    case.__name__: case
    for case in (
        lengths, simple, layouts, in_place, halves, plans, sizes, executions, areas, versions,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Fft())
