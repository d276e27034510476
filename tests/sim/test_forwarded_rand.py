"""cuRAND of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

import pytest

from tests.sim.forwarded import MATH, begin, channel, list_complaints_without_library
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = """
from ctypes import byref, c_void_p
""" + begin("rand")


def test_numbers_wait_for_nothing_but_a_generators_first_ones(rig: Rig) -> None:
    code = """
lib, stream, x = rand.rand, rand.stream(), rand.alloc(1 << 16)
rand.destroy(rand.create(PHILOX))                     # the first one of a context finds the library
before = waits()
generator = rand.create(PHILOX)
assert waits() == before + 1
rand.seed(generator, 7)
rand.good(lib.curandSetStream(generator, stream))
rand.good(lib.curandSetGeneratorOrdering(generator, LEGACY))
assert waits() == before + 1
assert rand.post(generator, "GenerateUniform", x, 1000) == OK
assert waits() == before + 2, waits() - before
for i in range(20):
    rand.seed(generator, i)
    rand.good(lib.curandSetGeneratorOffset(generator, c_uint64(i)))
    assert rand.post(generator, "GenerateUniform", x, 999) == OK
    assert rand.post(generator, "GenerateNormalDouble", x, 100, 0, 1) == OK
    assert rand.post(generator, "GeneratePoisson", x, 99, 3) == OK
    rand.good(lib.curandGenerateSeeds(generator))
rand.destroy(generator)
assert waits() == before + 2, waits() - before
rand.ok(rand.cuda.cuStreamSynchronize(stream))
"""
    assert run_python(rig, BEGIN + code) == ""


def test_what_the_library_may_refuse_waits(ring: Rig) -> None:
    """An address that is no multiple of 16 once, what is wrong each time; the generator goes on where it was."""
    code = """
generator, x = rand.create(PHILOX, 3), rand.alloc(4096)
first = rand.numbers(generator, "Generate", 8)
before = waits()
for _ in range(5):
    assert rand.post(generator, "GenerateUniform", x + 4, 10) == OK
assert waits() == before + 1
for _ in range(2):
    assert rand.post(generator, "GenerateNormal", x, 3, 0, 1) == LENGTH_NOT_MULTIPLE
    assert rand.post(generator, "GeneratePoisson", x, 3, -1) == OUT_OF_RANGE
assert waits() == before + 5
assert np.array_equal(rand.numbers(generator, "Generate", 8), rand.numbers(rand.create(PHILOX, 3, 58), "Generate", 8))
"""
    assert run_python(ring, BEGIN + code) == ""


def test_generators_count_in_the_quota(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each as what the guide says of its type; one that could not be made leaves nothing."""
    code = """
def fill(type_):
    made, one = [], c_void_p()
    while not (status := rand.rand.curandCreateGenerator(byref(one), type_)):
        made.append(c_void_p(one.value))
    assert status == ALLOCATION_FAILED, status
    for generator in made:
        rand.destroy(generator)
    rand.ok(rand.wait())
    return len(made)
sizes = {XORWOW: 1, PHILOX: 4, MRG32K3A: 6, MT19937: 20}
counts = {type_: fill(type_) for type_ in sizes}
room = counts[XORWOW]
assert 40 < room < 208, room
assert all(room - size < counts[type_] * size <= room for type_, size in sizes.items()), counts
assert fill(MT19937) == counts[MT19937]
one = c_void_p()
for _ in range(200):
    assert rand.rand.curandCreateGenerator(byref(one), MTGP32) == ARCH_MISMATCH
assert fill(MT19937) == counts[MT19937]
"""
    limit = f"--limits=device-memory:{208 << 20}"
    with channel("ring", tmp_path_factory.mktemp("machine"), MATH, limit) as rig:
        assert run_python(rig, BEGIN + code) == ""


#: calls made by hand, as a guest with another library could
BY_HAND = """
import struct
from tests.unit.guest_cuda import addressof, c_int, c_uint, ctypes, cu
from tests.sim.math_by_hand import ASK, POST, TRY, ask, create
GENERATOR, GENERATE = 1, 2
SET, STATES, BITS, LONG_LONG, UNIFORM, UNIFORM_DOUBLE, NORMAL = range(7)
SEED, OFFSET, ORDERING, DIMENSIONS = range(1, 5)
mine = create(7)
def call(function, words, handle=None, wait=TRY, make=False):
    return ask(mine if handle is None else handle, function, words, wait, make=make)
def numbers(output=BITS, count=8, address=0, *settings):
    words = [output, count, address, 0, 0, *(w for pair in settings for w in pair)]
    return words + [0] * (13 - len(words))
"""


def test_calls_that_no_library_of_ours_would_make(ring: Rig) -> None:
    code = """
x = rand.alloc(4096)
generator = call(GENERATOR, [PHILOX], make=True)
assert generator > 204, generator
right = numbers(BITS, 8, x, (SEED, 5), (OFFSET, 2), (ORDERING, LEGACY))
for wait in (TRY, POST):
    assert call(GENERATE, right, generator, wait) == OK
assert rand.wait() == 0
for words in ([], [PHILOX, 0], ):
    assert call(GENERATOR, words, make=True) == TYPE_ERROR
for type_ in (0, 1 << 31, 1 << 32 | PHILOX, (1 << 64) - 1):
    assert call(GENERATOR, [type_], make=True) == TYPE_ERROR
for words in (right[:-1], [*right, 0], [], numbers(11), numbers(1 << 40), numbers(BITS, 8, x, (5, 1)),
              numbers(SET, 0, 0, (1 << 33, 1))):
    assert call(GENERATE, words, generator) == OUT_OF_RANGE
for pair in ((ORDERING, 1 << 31), (ORDERING, SEEDED), (ORDERING, 1 << 40 | LEGACY)):
    assert call(GENERATE, numbers(SET, 0, 0, pair), generator) == OUT_OF_RANGE
assert call(GENERATE, numbers(SET, 0, 0, (DIMENSIONS, 2)), generator) == TYPE_ERROR
assert call(GENERATE, numbers(LONG_LONG, 8, x), generator) == TYPE_ERROR
assert call(GENERATE, numbers(NORMAL, 3, x), generator) == LENGTH_NOT_MULTIPLE
assert call(GENERATE, right, generator, ASK) in (TYPE_ERROR, 801)
for function in (0, GENERATOR, 3, 1 << 63):
    assert call(function, right, generator) == TYPE_ERROR
assert call(GENERATE, right, None) != OK              # the library's handle is no generator
for other in (1, 3, 4, 6):
    handle = create(other)
    assert call(GENERATE, right, handle) != OK
    assert call(2, right, generator, make=True) == 801
for handle in (0, generator + 1, generator ^ 1 << 40):
    assert call(GENERATE, right, handle) == 400
assert cu.vgpumgr_math_destroy(c_uint64(generator)) == 0
assert call(GENERATE, right, generator) == 400
"""
    assert run_python(ring, BEGIN + BY_HAND + code) == ""
    assert ring.status().violations.count == 0


def test_a_posted_call_that_fails_is_the_error_of_the_next(ring: Rig) -> None:
    code = """
generator = call(GENERATOR, [PHILOX], make=True)
assert call(GENERATE, numbers(NORMAL, 3, rand.alloc(64)), generator, POST) == OK
assert rand.wait() == 1
"""
    assert run_python(ring, BEGIN + BY_HAND + code) == ""


def test_a_host_without_the_library_is_named() -> None:
    code = """
import ctypes
lib, one, version = ctypes.CDLL("libcurand.so.10"), ctypes.c_void_p(), ctypes.c_int()
for _ in range(2):
    assert lib.curandCreateGenerator(ctypes.byref(one), 161) == 203
    assert lib.curandCreateGeneratorHost(ctypes.byref(one), 161) == 203
assert lib.curandGetDirectionVectors32(ctypes.byref(one), 101) == 203
assert lib.curandGetVersion(ctypes.byref(version)) == 0 and version.value == 10400
"""
    assert list_complaints_without_library(code) == [
        "vgpumgr: cuRAND, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: curandCreateGeneratorHost is not supported over a forwarded GPU",
        "vgpumgr: curandGetDirectionVectors32 is not supported over a forwarded GPU",
    ]
