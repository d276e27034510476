"""cuSOLVER of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

import pytest

from tests.sim.forwarded import MATH, begin, channel, list_complaints_without_library
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import Rig
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.codegen.blas import SOLVER, parse_blas
from vgpumgr.virtio.codegen.coverage import SOLVERS

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = begin("solver")


def test_sizes_are_asked_once_and_work_waits_for_nothing(rig: Rig) -> None:
    """As PyTorch does it: a size, an area of the program's own, and the work, each time anew; on several streams."""
    code = """
x, info, params = solver.upload(4 * np.eye(32)), solver.info(), solver.made("Params")
area, size, host = solver.alloc(1 << 20), np.zeros(1, "i4"), np.zeros(1 << 12, "u1")
streams = [solver.stream(), solver.stream()]
def work(times):
    for i in range(times):
        solver.set_stream(streams[i % 2])
        solver.good(solver.solver.cusolverDnSetDeterministicMode(solver.dn, 1))
        elements, = solver.ask("Dpotrf_bufferSize", LOWER, 32, x, 32)
        solver.do("Dpotrf", LOWER, 32, x, 32, area, elements, info)
        solver.do("Dpotrs", LOWER, 32, 32, x, 32, x, 32, info)
        mine = solver.made("Params")
        sizes = solver.ask("Xgeqrf_bufferSize", mine, 32, 32, 1, x, 32, 1, area, 1)
        solver.do("Xgeqrf", mine, 32, 32, 1, x, 32, 1, x, 1, area, sizes[0], host, sizes[1], info)
        solver.ended("Params", mine)
before = waits()
work(1)
assert waits() == before + 5, waits() - before        # two sizes, and a status of three kinds
before = waits()
work(20)
assert waits() == before, waits() - before
# another shape is another question
assert solver.ask("Dpotrf_bufferSize", LOWER, 64, x, 64) != solver.ask("Dpotrf_bufferSize", LOWER, 32, x, 32)
assert waits() == before + 1
solver.good(solver.wait())
"""
    assert run_python(rig, BEGIN + code) == ""


def test_objects_of_jacobi_methods_are_made_once(ring: Rig) -> None:
    """A program makes one for each call; its results are waited for."""
    code = """
x, w, area, info = solver.upload(np.eye(8)), solver.alloc(64), solver.alloc(1 << 20), solver.info()
def work(ask):
    made = solver.made("SyevjInfo")
    solver.tune("syevj", made, 1e-7, 15, 1)
    elements, = solver.ask("Dsyevj_bufferSize", VECTORS, LOWER, 8, x, 8, w, made)
    solver.do("Dsyevj", VECTORS, LOWER, 8, x, 8, w, area, elements, info, made)
    if ask:
        assert solver.ask("XsyevjGetSweeps", made) == [1]
    solver.ended("SyevjInfo", made)
before = waits()
work(False)
assert waits() == before + 3, waits() - before        # the object, a size, and a status
before = waits()
for _ in range(10):
    work(False)
assert waits() == before, waits() - before
work(True)
assert waits() == before + 1, waits() - before
solver.good(solver.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_objects_that_end_after_their_handle_leave_nothing(ring: Rig) -> None:
    """A handle for each call, as in C++ with handles in scopes: more of them than there are places in the guest."""
    code = """
x, w, area, info = solver.upload(np.eye(1)), solver.alloc(64), solver.alloc(1 << 16), solver.info()
lib, arguments = solver.solver, [c_int(VECTORS), c_int(LOWER), c_int(1), c_void_p(x), c_int(1), c_void_p(w)]
arguments += [c_void_p(area), c_int(4096), c_void_p(info)]
for number in range(PLACES + 100):
    handle, made = c_void_p(), c_void_p()
    assert lib.cusolverDnCreate(byref(handle)) == lib.cusolverDnCreateSyevjInfo(byref(made)) == OK, number
    assert lib.cusolverDnDsyevj(handle, *arguments, made) == OK, number
    assert lib.cusolverDnDestroy(handle) == lib.cusolverDnDestroySyevjInfo(made) == OK, number
solver.good(solver.wait())
"""
    places = load().handle("math").cap
    assert run_python(ring, f"{BEGIN}from ctypes import *\nPLACES = {places}\n{code}") == ""


def test_a_work_area_on_the_host_is_in_no_graph(ring: Rig) -> None:
    """It is the session's, and gone when the graph is launched."""
    code = """
x, area, host, info = solver.upload(np.eye(8)), solver.alloc(1 << 20), np.zeros(1 << 12, "u1"), solver.info()
stream, graph, params = solver.stream(), c_void_p(), solver.made("Params")
solver.set_stream(stream)
shapes = (params, LOWER, 8, 1, x, 8, 1, area)
sizes = solver.ask("Xpotrf_bufferSize", *shapes, 1)
solver.do("Xpotrf", *shapes, sizes[0], host, sizes[1], info)
solver.ok(solver.cuda.cuStreamBeginCapture_v2(stream, 0))
status = solver.status("Xpotrf", *shapes, sizes[0], host, sizes[1], info)
assert (status, solver.cuda.cuStreamEndCapture(stream, byref(graph))) != (OK, 0)
assert not graph.value
solver.do("Xpotrf", *shapes, sizes[0], host, sizes[1], info)
solver.good(solver.wait())
"""
    assert run_python(ring, f"{BEGIN}from ctypes import *\n{code}") == ""


def test_sizes_are_told_within_a_capture(ring: Rig) -> None:
    """The library uses no stream for them, also where an object or parameters are asked about."""
    code = """
from ctypes import byref, c_void_p
x, w, area, info = solver.upload(4 * np.eye(8)), solver.alloc(64), solver.alloc(1 << 20), solver.info()
stream, graph, params, made = solver.stream(), c_void_p(), solver.made("Params"), solver.made("SyevjInfo")
solver.set_stream(stream)
solver.do("Dpotrf", LOWER, 8, x, 8, area, 4096, info)  # its kind is known
solver.ok(solver.cuda.cuStreamBeginCapture_v2(stream, 0))
assert solver.ask("Dpotrf_bufferSize", LOWER, 8, x, 8)
assert solver.ask("Xpotrf_bufferSize", params, LOWER, 8, 1, x, 8, 1)
assert solver.ask("Dsyevj_bufferSize", VECTORS, LOWER, 8, x, 8, w, made)
solver.do("Dpotrf", LOWER, 8, x, 8, area, 4096, info)
solver.ok(solver.cuda.cuStreamEndCapture(stream, byref(graph)))
assert graph.value
"""
    assert run_python(ring, BEGIN + code) == ""


def test_threads_share_an_object(ring: Rig) -> None:
    """Two handles use one object at once, which is one of the host's for each: neither call gets the other's."""
    code = """
import threading
from ctypes import byref, c_int, c_void_p
x, w, area, info = solver.upload(np.eye(8)), solver.alloc(64), solver.alloc(1 << 20), solver.info()
made, first, other, wrong = solver.made("SyevjInfo"), solver.dn, c_void_p(), []
solver.good(solver.solver.cusolverDnCreate(byref(other)))
words = [c_int(VECTORS), c_int(LOWER), c_int(8), c_void_p(x), c_int(8), c_void_p(w)]
words += [c_void_p(area), c_int(4096), c_void_p(info)]
def work(handle):
    solver.ok(solver.cuda.cuCtxSetCurrent(solver.context))
    for _ in range(100):
        found = c_int()
        wrong.extend(s for s in (solver.solver.cusolverDnDsyevj(handle, *words, made),
                                 solver.solver.cusolverDnXsyevjGetSweeps(handle, made, byref(found))) if s)
running = [threading.Thread(target=work, args=(handle,)) for handle in (first, other)]
[t.start() for t in running], [t.join() for t in running]
assert not wrong, wrong
solver.good(solver.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_what_the_library_refuses_waits_for_its_status(ring: Rig) -> None:
    code = """
x, area, info = solver.upload(np.eye(8)), solver.alloc(1 << 20), solver.info()
before = waits()
for _ in range(3):
    assert solver.status("Dpotrf", LOWER, 8, x, 7, area, 4096, info) == INVALID_VALUE
    assert solver.status("Dpotrf_bufferSize", LOWER, 8, x, 7, np.zeros(1, "i4")) == INVALID_VALUE
assert waits() == before + 6, waits() - before
solver.good(solver.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_both_releases_work_and_tell_the_hosts_version(ring: Rig) -> None:
    code = """
import os
found = c_int()
for release in ("11", "12"):
    os.environ["SOLVER_RELEASE"] = release
    solver = Guest()
    x = solver.upload(4 * np.eye(4))
    solver.do("Dpotrf", LOWER, 4, x, 4, *solver.area("D", "Dpotrf", LOWER, 4, x, 4), solver.info())
    assert solver.vector(x, 1, "f8")[0] == 2
    solver.good(solver.solver.cusolverGetVersion(byref(found)))
    assert found.value == 12401
    for type_, value in enumerate((12, 4, 1)):
        solver.good(solver.solver.cusolverGetProperty(type_, byref(found)))
        assert found.value == value
"""
    assert run_python(ring, BEGIN + code) == ""


def test_areas_and_objects_count_in_the_quota(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Work areas are the program's own memory; handles and objects are counted, and given back."""
    code = """
from ctypes import c_uint64
x, w, area, info = solver.upload(np.eye(8)), solver.alloc(64), solver.alloc(1 << 16), solver.info()
def use(made):
    return solver.status("Dsyevj", VECTORS, LOWER, 8, x, 8, w, area, 8192, info, made)
for _ in range(300):                                  # more than there is room for at once
    made = solver.made("SyevjInfo")
    assert use(made) == OK
    solver.ended("SyevjInfo", made)
kept = []
while True:
    kept.append(solver.made("SyevjInfo"))
    if use(kept[-1]):
        break
assert 8 < len(kept) < 200, len(kept)
assert use(kept[-1]) == ALLOC_FAILED
for made in kept:
    solver.ended("SyevjInfo", made)
assert solver.good(use(solver.made("SyevjInfo"))) is None
for _ in range(100):
    other = c_void_p()
    solver.good(solver.solver.cusolverDnCreate(byref(other)))
    solver.good(solver.solver.cusolverDnDestroy(other))
solver.good(solver.wait())
"""
    limit = f"--limits=device-memory:{208 << 20}"
    with channel("ring", tmp_path_factory.mktemp("machine"), MATH, limit) as rig:
        assert run_python(rig, BEGIN + code) == ""


#: the numbers of functions on the wire
FUNCTIONS = {f.name.removeprefix(SOLVER.prefix): f.id for f in parse_blas(SOLVERS, SOLVER)}
#: calls made by hand, as a guest with another library could
BY_HAND = """
import struct
from tests.unit.guest_cuda import addressof, c_uint, c_uint64, ctypes, cu
from tests.sim.math_by_hand import ASK, POST, TRY, ask, create
mine = create(5)
def call(name, words, handle=mine, wait=TRY, make=0, mode=0):
    function = make or (FUNCTIONS[name] if isinstance(name, str) else name)
    return ask(handle, function, words, wait, make=bool(make), mode=mode)
"""


def test_calls_that_no_library_of_ours_would_make(ring: Rig) -> None:
    code = """
x, area, info = solver.upload(np.eye(8)), solver.alloc(1 << 16), solver.info()
right = [LOWER, 8, x, 8, area, 4096, info]
for wait in (TRY, POST):
    assert call("Dpotrf", right, wait=wait) == OK
for words in (right[:-1], [*right, 0], []):
    assert call("Dpotrf", words) == INVALID_VALUE
for function in (0, 1, 2, 3, 1 << 63, FUNCTIONS["Dpotrf"] + 1):
    assert call(function, right) == NOT_SUPPORTED
# what is written on the host comes back, and goes nowhere else
question = [LOWER, 8, x, 8, 1]
assert call("Dpotrf_bufferSize", question, wait=ASK) == OK
assert call("Dpotrf_bufferSize", [*question[:-1], 0], wait=ASK) == INVALID_VALUE
assert call("Dpotrf_bufferSize", [*question[:-1], 0x1000], wait=ASK) == OK
assert call("Dpotrf_bufferSize", question, wait=TRY) == INVALID_VALUE
# objects
syevj, gesvdj = call("", [], make=1), call("", [], make=2)
assert min(syevj, gesvdj) > 100, (syevj, gesvdj)
settings = [7, struct.unpack("Q", struct.pack("d", 1e-7))[0], 15, 1]
def use(made, more=settings):
    return call("Dsyevj", [VECTORS, LOWER, 8, x, 8, area, area + 4096, 4096, info, made, *more])
assert use(syevj) == OK and use(syevj, [0] * 4) == OK and use(syevj, [1 << 40, *settings[1:]]) == OK
assert use(syevj, [2, 0, -5, 0]) == INVALID_VALUE and use(syevj) == OK
assert use(gesvdj) == INVALID_VALUE and use(mine) == INVALID_VALUE
for wrong in (0, syevj ^ 1 << 40, syevj + 1000, x):
    assert use(wrong) == 400, wrong
for more in ([], settings[:3], [*settings, 0]):
    assert use(syevj, more) == INVALID_VALUE
assert call("XsyevjGetSweeps", [syevj, 1], wait=ASK) == OK
assert call("XsyevjGetSweeps", [gesvdj, 1], wait=ASK) == INVALID_VALUE
assert call("XsyevjGetSweeps", [syevj, 0], wait=ASK) == INVALID_VALUE
assert call("XsyevjGetSweeps", [0, 1], wait=ASK) == 400
assert call("Dpotrf", right, syevj) not in (OK, 0)
for function in (0, 3, 1 << 40):
    assert call("", [], make=function or 1 << 50) == 801
assert call("", [], syevj, make=1) == 801
# parameters
generic = [1 << 63, LOWER, 8, 1, x, 8, 1, area, 1 << 15, 1, 4096, info]
assert call("Xpotrf", generic) == OK
for word in (1, x, 1 << 62, (1 << 63) | 3, 0):
    assert call("Xpotrf", [word, *generic[1:]]) == INVALID_VALUE, word
assert call("Xpotrf", [(1 << 63) | 2 << 8, *generic[1:]]) == OK
# the area on the host is the session's
assert call("Xpotrf", [*generic[:9], 0, 4096, info]) == OK
assert call("Xpotrf", [*generic[:9], 0xdead, 4096, info]) == OK
assert call("Xpotrf", [*generic[:9], 1, 0, info]) == INVALID_VALUE
for size in (1 << 30, 1 << 63, (1 << 64) - 1):
    assert call("Xpotrf", [*generic[:10], size, info]) == ALLOC_FAILED
for other in (1, 2, 3, 4):
    handle = create(other)
    assert call("Dpotrf", right, handle) != OK
    assert call("", [], handle, make=1 << 50) != OK
assert cu.vgpumgr_math_destroy(c_uint64(syevj)) == 0
assert use(syevj) == 400
assert cu.vgpumgr_math_destroy(c_uint64(mine)) == 0
assert call("Dpotrf", right) == 400
solver.good(solver.wait())
"""
    assert run_python(ring, f"{BEGIN}FUNCTIONS = {FUNCTIONS}\n{BY_HAND}{code}") == ""
    assert ring.status().violations.count == 0


def test_a_host_without_the_library_is_named() -> None:
    code = """
import ctypes
lib, handle, version = ctypes.CDLL("libcusolver.so.12"), ctypes.c_void_p(), ctypes.c_int()
assert lib.cusolverDnCreate(ctypes.byref(handle)) == 9 and not handle.value
assert lib.cusolverDnDpotrf(handle, 0, 1, None, 1, None, 0, None) == 1
assert lib.cusolverSpCreate() == 9 and lib.cusolverDnSsygvdx() == 9
assert lib.cusolverGetVersion(ctypes.byref(version)) == 0 and version.value == 12401
"""
    assert list_complaints_without_library(code) == [
        "vgpumgr: cuSOLVER, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cusolverDnSsygvdx is not supported over a forwarded GPU",
        "vgpumgr: cusolverSpCreate is not supported over a forwarded GPU",
    ]
