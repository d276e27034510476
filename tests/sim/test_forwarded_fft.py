"""cuFFT of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

import pytest

from tests.sim.forwarded import MATH, begin, channel, list_complaints_without_library
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = begin("fft")


def test_making_a_plan_waits_once_and_executing_it_never(rig: Rig) -> None:
    """As PyTorch does it: with a work area of the program's, on a stream of its own."""
    code = """
from ctypes import c_void_p
lib, stream, x, area = fft.fft, fft.stream(), fft.alloc(1 << 16), fft.alloc(1 << 16)
fft.create()                                          # the first one of a context finds the library
before = waits()
plan = fft.create()
fft.good(lib.cufftSetAutoAllocation(plan, 0))
assert waits() == before
fft.good(fft.make("XtMakePlanMany", plan, C2C, (30, 7), packed((30, 7)), packed((30, 7)), batch=3))
assert waits() == before + 1, waits() - before
for _ in range(20):
    fft.good(lib.cufftSetWorkArea(plan, c_void_p(area)))
    fft.good(lib.cufftSetStream(plan, stream))
    fft.good(fft.execute(plan, C2C, x, x, xt=True))
    fft.good(fft.execute(plan, C2C, x, x, INVERSE))
fft.good(lib.cufftDestroy(plan))
assert waits() == before + 1, waits() - before
fft.ok(fft.cuda.cuStreamSynchronize(stream))
plan = fft.plan(R2C, 64)                              # it needs no work area
before = waits()
for _ in range(5):
    fft.good(fft.execute(plan, R2C, x, x))
assert waits() == before
fft.good(fft.wait())
"""
    assert run_python(rig, BEGIN + code) == ""


def test_what_the_library_may_refuse_waits_once(ring: Rig) -> None:
    code = """
plan, x = fft.plan(C2C, 64), fft.alloc(4096)
fft.good(fft.execute(plan, C2C, x + 8, x))
before = waits()
for _ in range(5):
    fft.good(fft.execute(plan, C2C, x + 8, x))
assert waits() == before
for _ in range(2):
    assert fft.execute(plan, R2C, x, x) == INVALID_VALUE
assert waits() == before + 2
fft.good(fft.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_plans_of_both_releases_work(ring: Rig) -> None:
    code = """
import os
values = np.random.default_rng(1).standard_normal(45).astype("c8")
for release in ("11", "12"):
    os.environ["FFT_RELEASE"] = release
    fft = Guest()
    plan = fft.plan(C2C, 45)
    assert np.allclose(fft.transform(plan, C2C, values, (45,)), np.fft.fft(values), atol=1e-4)
"""
    assert run_python(ring, BEGIN + code) == ""


def test_work_areas_count_in_the_quota(tmp_path_factory: pytest.TempPathFactory) -> None:
    """That of a plan is the guest's own memory: with too little of it there is no plan, and nothing is left of one."""
    code = """
from ctypes import c_int, byref
plan = c_int(-1)
for _ in range(50):
    assert fft.fft.cufftPlan2d(byref(plan), 1 << 12, 1 << 12, C2C) == ALLOC_FAILED
kept = [fft.plan(C2C, 1 << 10, 1 << 10) for _ in range(4)]
for _ in range(20):
    fft.good(fft.fft.cufftDestroy(fft.plan(C2C, 1 << 10, 1 << 10)))
plans = []
while not fft.fft.cufftPlan2d(byref(plan), 1 << 10, 1 << 10, C2C):
    plans.append(plan.value)
assert 0 < len(plans) < 8, len(plans)
for one in plans + kept:
    fft.good(fft.fft.cufftDestroy(one))
fft.good(fft.fft.cufftDestroy(fft.plan(C2C, 1 << 11, 1 << 11)))
"""
    limit = f"--limits=device-memory:{208 << 20}"
    with channel("ring", tmp_path_factory.mktemp("machine"), MATH, limit) as rig:
        assert run_python(rig, BEGIN + code) == ""


#: calls made by hand, as a guest with another library could
BY_HAND = """
import struct
from tests.unit.guest_cuda import addressof, c_size_t, c_int, c_uint, c_uint64, c_void_p, byref, ctypes, cu
from tests.sim.math_by_hand import ASK, POST, TRY, ask, create
PLAN, SIZE, ESTIMATE, EXECUTE = range(1, 5)
mine = create(4)
def call(function, words, handle=None, wait=ASK, make=False):
    return ask(mine if handle is None else handle, function, words, wait, make=make)
def shape(way=1, rank=1, n=(8, 0, 0), batch=1, type_=C2C, set_=0, given=0):
    side = [given, 8, 8, 8, 1, 8, 0]
    return [way, rank, *n, batch, type_, *side, *side, set_, 0, 0, 0, 0]
"""


def test_calls_that_no_library_of_ours_would_make(ring: Rig) -> None:
    code = """
x = fft.alloc(4096)
plan = call(PLAN, shape(), make=True)
assert plan > 100, plan
right = [1, -1, x, x, 0]
for wait in (TRY, POST):
    assert call(EXECUTE, right, plan, wait) == OK
assert fft.wait() == 0
for words in (
    shape(way=0), shape(way=7), shape(way=1 << 60), shape(rank=0), shape(rank=4), shape(rank=1 << 32), shape(set_=16),
    shape()[:-1], [*shape(), 0], [],
):
    for function in (SIZE, ESTIMATE):
        assert call(function, words) == INVALID_VALUE
    assert call(PLAN, words, make=True) == INVALID_VALUE
for way in (5, 6):                                    # of these there is no estimate
    assert call(ESTIMATE, shape(way=way)) == NOT_SUPPORTED
assert call(SIZE, shape(way=4, n=(1 << 40, 0, 0))) == INVALID_SIZE
assert call(SIZE, shape(way=5, n=(1 << 62, 0, 0))) == INVALID_SIZE
assert call(SIZE, shape(way=6, n=(1 << 62, 0, 0), given=1)) in (INVALID_SIZE, INVALID_TYPE)
for words in (right[:-1], [*right, 0], [], [7, *right[1:]], [1 << 40, *right[1:]]):
    assert call(EXECUTE, words, plan, TRY) == INVALID_VALUE
assert call(EXECUTE, right, plan, ASK) in (NOT_SUPPORTED, 801)
for function in (0, PLAN, SIZE, 5, 1 << 63):
    assert call(function, right, plan, TRY) == NOT_SUPPORTED
    assert call(function if function > 3 else 0, shape(), None, TRY) == NOT_SUPPORTED
assert call(EXECUTE, right, None, TRY) == NOT_SUPPORTED  # the library's handle is no plan
for other in (1, 2, 3):
    handle = create(other)
    assert call(PLAN, shape(), handle, make=True) != OK
    assert call(EXECUTE, right, handle, TRY) != OK
assert call(PLAN, shape(), plan, make=True) == 801
for handle in (0, plan + 1, plan ^ 1 << 40):
    assert call(EXECUTE, right, handle, TRY) == 400
assert cu.vgpumgr_math_destroy(c_uint64(plan)) == 0
assert call(EXECUTE, right, plan, TRY) == 400
"""
    assert run_python(ring, BEGIN + BY_HAND + code) == ""
    assert ring.status().violations.count == 0


def test_a_host_without_the_library_is_named() -> None:
    code = """
import ctypes
lib, plan, version = ctypes.CDLL("libcufft.so.12"), ctypes.c_int(), ctypes.c_int()
assert lib.cufftCreate(ctypes.byref(plan)) == 16
assert lib.cufftPlan1d(ctypes.byref(plan), 8, 0x29, 1) == 16
assert lib.cufftXtSetCallback() == 16 and lib.cufftXtMalloc() == 16
assert lib.cufftGetVersion(ctypes.byref(version)) == 0 and version.value == 12500
"""
    assert list_complaints_without_library(code) == [
        "vgpumgr: cuFFT, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cufftXtMalloc is not supported over a forwarded GPU",
        "vgpumgr: cufftXtSetCallback is not supported over a forwarded GPU",
    ]
