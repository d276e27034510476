# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuRAND makes, and what it refuses: ``python -m tests.sim.rand_cases CASE...``."""

from __future__ import annotations

import sys
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p
from math import exp, sqrt

import numpy as np

from tests.sim.rand_client import (
    ARCH_MISMATCH,
    BEST,
    DEFAULT,
    DYNAMIC,
    LEGACY,
    LENGTH_NOT_MULTIPLE,
    MRG32K3A,
    MT19937,
    MTGP32,
    NOT_INITIALIZED,
    OK,
    ORDINARY,
    OUT_OF_RANGE,
    OUTPUTS,
    PHILOX,
    QUASI,
    SEEDED,
    SOBOL32,
    SOBOL64,
    TYPE_ERROR,
    TYPES,
    XORWOW,
    Rand,
    philox,
    philox_at,
)  # fmt: skip

SEED = 0x123456789ABCDEF
#: of Random123's file kat_vectors: counter, key, block
PUBLISHED = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)  # fmt: skip
#: what NVIDIA's libcurand 10.4.5 makes on the CPU (curandCreateGeneratorHost) of SEED: the first numbers of
#: curandGenerate, numbers 100000 to 100002, and three from offset 2^33 + 77 on
BITS = {
    XORWOW: (
        (0x1A444210, 0x6D3C9475, 0x137196EA, 0x296CA177), (0x5A772840, 0xB20BC3E5, 0x5AAA352C),
        (0x67645B02, 0x0F62B860, 0xD0871DD1),
    ),
    MRG32K3A: (
        (0x892CE141, 0x1234526D, 0xF433254A, 0x2A432364), (0xFC0302AF, 0x45467BEC, 0x40605AD6),
        (0x01601A16, 0xAFA2BB70, 0x7170D6AD),
    ),
    PHILOX: (
        (0xB850222E, 0xC58CB04B, 0x14A7A020, 0x7A84FFF9), (0xE5CBDC44, 0xAFE7125C, 0xFC7FC63D),
        (0xA25F67D1, 0x59132A3C, 0x1FA240A8),
    ),
}  # fmt: skip
#: its first three floats and doubles between 0 and 1, and doubles 299999 and 300000
UNIFORM = {
    XORWOW: (
        (0.10260403156280518, 0.42670562863349915, 0.07595198601484299),
        (0.24921667066706915, 0.26400457110561487, 0.7649464703979139),
        (0.49226100584604976, 0.5727193459071649),
    ),
    MRG32K3A: (
        (0.5358410477638245, 0.07111086696386337, 0.9539054036140442),
        (0.5358410631285008, 0.07111087019140178, 0.9539054209287822),
        (0.4036820373426997, 0.8413829069698759),
    ),
    PHILOX: (
        (0.7199727296829224, 0.7716779708862305, 0.08068276196718216),
        (0.7716783009246393, 0.4785918808165697, 0.32125907654757385),
        (0.6038226251222365, 0.32108239642951514),
    ),
}  # fmt: skip
#: its first four and the last two of 300002 floats, then doubles, of mean 1 and deviation 2
NORMAL = {
    XORWOW: (
        (5.267854690551758, 1.021006464958191, 3.600128650665283, 0.7706124782562256),
        (1.6001455783843994, 1.801955223083496),
        (-0.6862543162120693, 3.8761097269756717, 4.222910812265178, 0.48312788262665285),
        (-0.6872395096322195, 3.1359465873068038),
    ),
    MRG32K3A: (
        (0.8732196092605591, -1.2305309772491455, -3.026402473449707, -1.221757173538208),
        (0.4898700714111328, 2.199005126953125),
        (0.8732197739689456, -1.230530937123632, -3.0264020797094497, -1.2217576005815176),
        (0.48986979292886346, 2.1990047575184835),
    ),
    PHILOX: (
        (-0.606198787689209, 1.2201379537582397, 1.601801872253418, -3.4469852447509766),
        (-1.305403470993042, 2.777933359146118),
        (1.1931078809488682, -0.4269581430183762, -1.8524600167095282, 0.02658797639874322),
        (3.0580367376480595, 3.2029400362344362),
    ),
}  # fmt: skip


def published(rand: Rand) -> None:
    """Philox of its authors' vectors, and the library's by the same definition, in the library's order."""
    for counter, key, block in PUBLISHED:
        assert philox(counter, key) == list(block)
    assert tuple(rand.numbers(rand.create(PHILOX), "Generate", 4)) == PUBLISHED[0][2]
    for seed, offset in ((0, 0), (SEED, 3), ((1 << 64) - 1, 4 * 65536 - 2), (7, (1 << 40) + 1)):
        got = rand.numbers(rand.create(PHILOX, seed, offset), "Generate", 37)
        assert list(got) == [philox_at(seed, offset + i) for i in range(37)], (seed, offset)
    # MT19937 of seed 5489, by its authors' program: the first, and the 10000th
    got = rand.numbers(rand.create(MT19937, 5489), "Generate", 10000)
    assert (got[0], got[-1]) == (3499211612, 4123659995)


def genuine(rand: Rand) -> None:
    """Numbers of NVIDIA's library on the CPU, by its default order, normal ones within some roundings."""
    for type_, (first, far, moved) in BITS.items():
        got = rand.numbers(rand.create(type_, SEED), "Generate", 100003)
        assert (tuple(got[:4]), tuple(got[-3:])) == (first, far), type_
        got = rand.numbers(rand.create(type_, SEED, (1 << 33) + 77), "Generate", 3)
        assert tuple(got) == moved, type_
    for type_, (floats, doubles, late) in UNIFORM.items():
        assert tuple(rand.numbers(rand.create(type_, SEED), "GenerateUniform", 3)) == floats, type_
        got = rand.numbers(rand.create(type_, SEED), "GenerateUniformDouble", 300001)
        assert np.allclose(got[:3], doubles, rtol=1e-15, atol=0), type_
        assert np.allclose(got[-2:], late, rtol=1e-15, atol=0), type_
    for type_, known in NORMAL.items():
        for output, precision, (begin, end) in (
            ("GenerateNormal", 2e-6, known[:2]),
            ("GenerateNormalDouble", 1e-13, known[2:]),
        ):
            got = rand.numbers(rand.create(type_, SEED), output, 300002, 1, 2)
            assert np.allclose(got[:4], begin, rtol=0, atol=precision), (type_, got[:4])
            assert np.allclose(got[-2:], end, rtol=0, atol=precision), (type_, got[-2:])
    legacy = rand.numbers(rand.create(MRG32K3A, SEED, order=LEGACY), "Generate", 5000)
    assert tuple(legacy[4097:4099]) == (0xAB74C60D, 0x4D90CABD)


def moments(rand: Rand) -> None:
    """Means and variances of all distributions, and where their numbers lie."""
    n = 100000
    for type_ in TYPES:
        for output in ("GenerateUniform", "GenerateUniformDouble"):
            got = rand.numbers(rand.create(type_, 5), output, n).astype("f8")
            assert got.min() > 0
            assert got.max() <= 1
            assert abs(got.mean() - 0.5) < 0.005, type_
            assert abs(got.var() - 1 / 12) < 0.002, type_
            assert np.abs(np.histogram(got, 20, (0, 1))[0] - n / 20).max() < 5 * sqrt(n / 20)
        bits = rand.numbers(rand.create(type_, 5), "Generate", n)
        ones = (bits[:, None] >> np.arange(32, dtype="u4") & 1).mean(axis=0)
        assert np.abs(ones - 0.5).max() < 0.01, type_
        for output in ("GenerateNormal", "GenerateNormalDouble"):
            got = (rand.numbers(rand.create(type_, 5), output, n, 3, 2).astype("f8") - 3) / 2
            assert abs(got.mean()) < 0.02, type_
            assert abs(got.var() - 1) < 0.03, type_
            assert abs((got**3).mean()) < 0.06, type_
            assert abs((got**4).mean() - 3) < 0.2, type_
            assert abs(np.corrcoef(got[0::2], got[1::2])[0, 1]) < 0.02, type_
        for output in ("GenerateLogNormal", "GenerateLogNormalDouble"):
            got = rand.numbers(rand.create(type_, 5), output, n, 0.5, 0.25).astype("f8")
            assert got.min() > 0, type_
            assert abs(got.mean() - exp(0.5 + 0.25**2 / 2)) < 0.01, type_
            assert abs(np.log(got).std() - 0.25) < 0.01, type_
        for mean in (0.01, 3, 64, 4000, 400000):
            got = rand.numbers(rand.create(type_, 5), "GeneratePoisson", n, mean).astype("f8")
            assert abs(got.mean() - mean) < 6 * sqrt(mean / n), (type_, mean)
            assert abs(got.var() / mean - 1) < 0.1, (type_, mean)


def sequences(rand: Rand) -> None:
    """Numbers in chunks of odd sizes are those of one; seeds and offsets; settings in any order."""
    for type_ in TYPES:
        whole = rand.numbers(rand.create(type_, SEED), "Generate", 9000)
        generator = rand.create(type_, SEED)
        chunks = [rand.numbers(generator, "Generate", n) for n in (1, 2, 3, 5, 4095, 4097, 0, 797)]
        assert np.array_equal(np.concatenate(chunks), whole), type_
        generator = rand.create(type_, SEED)
        normal = rand.numbers(generator, "GenerateNormal", 9000, 0, 1)
        generator = rand.create(type_, SEED)
        parts = [rand.numbers(generator, "GenerateNormal", n, 0, 1) for n in (2, 4, 8994)]
        assert np.array_equal(np.concatenate(parts), normal), type_
        assert not np.array_equal(
            rand.numbers(rand.create(type_, SEED + 1), "Generate", 99), whole[:99]
        )
        if type_ == MT19937:
            continue
        # a seed leaves the position as it is, an offset is absolute
        generator = rand.create(type_, 1)
        rand.numbers(generator, "Generate", 7)
        rand.seed(generator, SEED)
        assert np.array_equal(rand.numbers(generator, "Generate", 9), whole[7:16]), type_
        for offset in (0, 1, 4095, 4096, 8191, 5):
            rand.good(rand.rand.curandSetGeneratorOffset(generator, c_uint64(offset)))
            rand.seed(generator, 3)
            rand.seed(generator, SEED)
            got = rand.numbers(generator, "Generate", 9)
            assert np.array_equal(got, whole[offset : offset + 9]), (type_, offset)
        rand.good(rand.rand.curandGenerateSeeds(generator))
        assert np.array_equal(rand.numbers(generator, "Generate", 9), whole[5:14]), type_
    mixed = rand.create(XORWOW, SEED)
    assert len({rand.numbers(mixed, "GenerateUniformDouble", 1)[0] for _ in range(50)}) == 50


def orderings(rand: Rand) -> None:
    """Which there are for each type; an ordering begins anew."""
    for type_ in TYPES:
        whole = rand.numbers(rand.create(type_, SEED), "Generate", 9000)
        generator = rand.create(type_, SEED)
        for order in (BEST, ORDINARY, LEGACY):
            rand.good(rand.rand.curandSetGeneratorOrdering(generator, order))
            got = rand.numbers(generator, "Generate", 9000)
            assert np.array_equal(got, whole) == (type_ != MRG32K3A or order != LEGACY), type_
        status = rand.rand.curandSetGeneratorOrdering(generator, SEEDED)
        assert status == (OK if type_ == XORWOW else OUT_OF_RANGE), (type_, status)
        for order in (0, 99, DYNAMIC, 105, 201, -1, 1 << 30):
            assert rand.rand.curandSetGeneratorOrdering(generator, order) == OUT_OF_RANGE
        assert len(set(rand.numbers(generator, "Generate", 9))) == 9
    seeded = rand.numbers(rand.create(XORWOW, SEED, order=SEEDED), "GenerateUniform", 50000)
    assert not np.array_equal(
        seeded, rand.numbers(rand.create(XORWOW, SEED), "GenerateUniform", 50000)
    )
    assert abs(seeded.mean() - 0.5) < 0.01


def refusals(rand: Rand) -> None:
    """Types, lengths, parameters and pointers that there are not; the generator goes on after each."""
    lib, x, generator = rand.rand, rand.alloc(4096), c_void_p()
    for type_ in (0, 1, 99, 102, 160, 205, -1, 1 << 30):
        assert lib.curandCreateGenerator(byref(generator), type_) == TYPE_ERROR, type_
    for type_ in (MTGP32, QUASI, SOBOL32, 202, SOBOL64, 204):
        assert lib.curandCreateGenerator(byref(generator), type_) == ARCH_MISMATCH, type_
    assert lib.curandCreateGenerator(None, PHILOX) == NOT_INITIALIZED
    assert lib.curandDestroyGenerator(None) == NOT_INITIALIZED
    assert lib.curandSetStream(None, None) == NOT_INITIALIZED
    assert lib.curandGenerateSeeds(None) == NOT_INITIALIZED
    for output, (_, kind, number) in OUTPUTS.items():
        assert rand.post(c_void_p(), output, x, 2, *[1.0] * number) == NOT_INITIALIZED, (
            output,
            kind,
        )
    for type_ in TYPES:
        generator = rand.create(type_, SEED)
        for count in (1, 3, 511):
            for output in ("Normal", "NormalDouble", "LogNormal", "LogNormalDouble"):
                status = rand.post(generator, f"Generate{output}", x, count, 0, 1)
                assert status == LENGTH_NOT_MULTIPLE, (type_, output)
        for mean in (0.0, -1.0, 400001.0, float("inf"), float("nan")):
            assert rand.post(generator, "GeneratePoisson", x, 4, mean) == OUT_OF_RANGE, mean
        assert rand.post(generator, "GenerateLongLong", x, 4) == TYPE_ERROR
        assert lib.curandSetQuasiRandomGeneratorDimensions(generator, c_uint(2)) == TYPE_ERROR
        expected = rand.numbers(rand.create(type_, SEED), "Generate", 20)
        assert np.array_equal(rand.numbers(generator, "Generate", 20), expected), type_
        rand.destroy(generator)
    default = rand.numbers(rand.create(DEFAULT, SEED), "Generate", 20)
    assert np.array_equal(default, rand.numbers(rand.create(XORWOW, SEED), "Generate", 20))


def offsets(rand: Rand) -> None:
    """MT19937 has none. Of the others they are of 64 bits."""
    generator = rand.create(MT19937)
    status = rand.rand.curandSetGeneratorOffset(generator, c_uint64(1))
    got = rand.numbers(generator, "Generate", 2) if status == OK else None
    assert status == TYPE_ERROR
    assert got is None
    for type_ in (XORWOW, MRG32K3A, PHILOX):
        far = (1 << 64) - 8192
        whole = rand.numbers(rand.create(type_, 9, far), "Generate", 4200)
        got = rand.numbers(rand.create(type_, 9, far + 4096), "Generate", 104)
        assert np.array_equal(got, whole[4096:]), type_


def versions(rand: Rand) -> None:
    """The same in one number and in three."""
    version, parts = c_int(), [c_int() for _ in range(3)]
    rand.good(rand.rand.curandGetVersion(byref(version)))
    for number, part in enumerate(parts):
        rand.good(rand.rand.curandGetProperty(number, byref(part)))
    major, minor, patch = (part.value for part in parts)
    assert version.value == major * 1000 + minor * 100 + patch
    assert major == 10
    for number in (-1, 3):
        assert rand.rand.curandGetProperty(number, byref(version)) == OUT_OF_RANGE


CASES = {
    case.__name__: case
    for case in (
        published, genuine, moments, sequences, orderings, refusals, offsets, versions,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Rand())
