# SPDX-License-Identifier: Apache-2.0
"""cuSPARSE of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

import pytest

from tests.sim.forwarded import MATH, begin, channel, list_complaints_without_library
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import LIB, Rig
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.codegen.blas import SPARSE, parse_blas
from vgpumgr.virtio.codegen.coverage import SPARSES

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = """
from ctypes import *
from tests.sim.blas_client import R32, R64
""" + begin("sparse")


def test_sizes_are_asked_once_and_work_waits_for_nothing(rig: Rig) -> None:
    """As PyTorch does it: descriptors, a size, an area of the program's own, and the work, each time anew; on several
    streams."""
    code = """
a, streams, buffer = 2 * np.eye(16), [sparse.stream(), sparse.stream()], sparse.alloc(1 << 16)
m, (b, _), (c, at) = sparse.store(a, R64), sparse.dense(a, R64), sparse.dense(a, R64)
def work(times, nnz=16):
    for i in range(times):
        sparse.set_stream(streams[i % 2])
        arrays = [c_void_p(p) for p in m.arrays]
        mine = sparse.made("CreateCsr", c_int64(16), c_int64(16), c_int64(nnz), *arrays, NARROW, NARROW, 0, R64)
        words = (N, N, sparse.scalar(1 + i, R64), mine, b, sparse.scalar(0, R64), c, R64, 0)
        assert sparse.size("SpMM_bufferSize", *words)
        sparse.do("SpMM", *words, buffer)
        sparse.good(sparse.sparse.cusparseDestroySpMat(mine))
before = waits()
work(1)
assert waits() == before + 2, waits() - before        # a size, and a status
before = waits()
work(20)
assert waits() == before, waits() - before
sparse.good(sparse.wait())
assert sparse.read_dense(at, (16, 16), R64)[3, 3] in (76, 80)     # whichever stream came last
before = waits()
# another count is another question
work(1, 17)
assert waits() == before + 2, waits() - before
sparse.good(sparse.wait())
"""
    assert run_python(rig, BEGIN + code) == ""


def test_solutions_wait_for_the_analysis_alone(ring: Rig) -> None:
    """An object is made once, and what it holds is used by any number of calls."""
    code = """
m, (x, _), (y, at) = sparse.store(np.eye(8) / 2, R64), sparse.vector(np.ones(8), R64), sparse.vector(np.ones(8), R64)
def solve(times):
    o = sparse.made("SpSV_createDescr")
    words = (N, sparse.scalar(1, R64), m.descriptor, x, y, R64, 0, o)
    sparse.do("SpSV_analysis", *words, sparse.area("SpSV_bufferSize", *words))
    for _ in range(times):
        sparse.do("SpSV_solve", *words)
    sparse.good(sparse.sparse.cusparseSpSV_destroyDescr(o))
solve(1)
before = waits()
solve(1)
few = waits() - before
before = waits()
solve(20)
assert waits() - before == few <= 4, (waits() - before, few)   # the object, a size, its memory, and the analysis
assert sparse.read(at, 1, R64)[0] == 2
"""
    assert run_python(ring, BEGIN + code) == ""


def test_objects_serve_other_handles_and_outlive_theirs(ring: Rig) -> None:
    """More of them, each with a handle of its own, than there are places in the guest; and one that two handles use."""
    code = """
lib = sparse.sparse
m, (x, _), (y, at) = sparse.store(np.eye(4) / 2, R64), sparse.vector(np.ones(4), R64), sparse.vector(np.ones(4), R64)
buffer, one, found = sparse.alloc(1 << 12), np.ones(1), c_size_t()
scalar = c_void_p(one.ctypes.data)
words = [c_int(N), scalar, m.descriptor, x, y, c_int(R64), c_int(0)]
for number in range(PLACES + 100):
    handle, made = c_void_p(), c_void_p()
    assert lib.cusparseCreate(byref(handle)) == lib.cusparseSpSV_createDescr(byref(made)) == OK, number
    assert lib.cusparseSpSV_analysis(handle, *words, made, c_void_p(buffer)) == OK, number
    assert lib.cusparseDestroy(handle) == lib.cusparseSpSV_destroyDescr(made) == OK, number
handle, made = c_void_p(), c_void_p()
assert lib.cusparseCreate(byref(handle)) == lib.cusparseSpSV_createDescr(byref(made)) == OK
assert lib.cusparseSpSV_analysis(handle, *words, made, c_void_p(buffer)) == OK
assert lib.cusparseDestroy(handle) == OK
sparse.good(lib.cusparseSpSV_solve(sparse.handle, *words, made))
assert sparse.read(at, 1, R64)[0] == 2
sparse.good(lib.cusparseSpSV_destroyDescr(made))
sparse.good(sparse.wait())
"""
    places = load().handle("math").cap
    assert run_python(ring, f"{BEGIN}PLACES = {places}\n{code}") == ""


def test_threads_share_an_object(ring: Rig) -> None:
    """Two handles solve with one object at once; each ends with what it asked for."""
    code = """
import threading
lib, one, buffer = sparse.sparse, np.ones(1), sparse.alloc(1 << 12)
m, made, wrong = sparse.store(np.eye(4) / 2, R64), sparse.made("SpSV_createDescr"), []
scalar = c_void_p(one.ctypes.data)
def work(number):
    sparse.ok(sparse.cuda.cuCtxSetCurrent(sparse.context))
    handle, (x, _), (y, at) = c_void_p(), sparse.vector(np.full(4, number), R64), sparse.vector(np.ones(4), R64)
    lib.cusparseCreate(byref(handle))
    words = [c_int(N), scalar, m.descriptor, x, y, c_int(R64), c_int(0), made]
    for _ in range(100):
        wrong.extend(s for s in (lib.cusparseSpSV_analysis(handle, *words, c_void_p(buffer)),
                                 lib.cusparseSpSV_solve(handle, *words)) if s)
    if sparse.read(at, 1, R64)[0] != 2 * number:
        wrong.append(number)
    lib.cusparseDestroy(handle)
running = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5)]
[t.start() for t in running], [t.join() for t in running]
assert not wrong, wrong
"""
    assert run_python(ring, BEGIN + code) == ""


def test_a_busy_object_holds_up_its_callers_only(ring: Rig) -> None:
    """A question about it waits for a stream; a solution with it, which is posted, for that; and nothing else does."""
    code = """
import threading, time
from tests.sim.blas_behaviour import Gate
lib, stream, info, other = sparse.sparse, sparse.stream(), sparse.made("CreateBsrsv2Info"), c_void_p()
offsets, columns = sparse.put([0, 1], NARROW), sparse.put([0], NARROW)
values, f, x = (sparse.upload(np.full(2, n)) for n in (2.0, 6.0, 0.0))
matrix = (sparse.descr(), values, offsets, columns, 1, info)
area = sparse.alloc(max(128, sparse.size("Dbsrsv2_bufferSize", 0, N, 1, 1, *matrix)))
sparse.do("Dbsrsv2_analysis", 0, N, 1, 1, *matrix, 0, area)
sparse.good(lib.cusparseCreate(byref(other)))
first, sparse.handle = sparse.handle, other
solve = ("Dbsrsv2_solve", 0, N, 1, 1, np.ones(1), *matrix, f, x, 0, area)
sparse.do(*solve)                                     # its kind is known: the next is posted
assert sparse.read(x, 1, R64)[0] == 3
sparse.good(lib.cusparseSetStream(first, stream))
gate, at, answers = Gate(sparse, stream), c_int(), []
def ask():
    sparse.ok(sparse.cuda.cuCtxSetCurrent(sparse.context))
    answers.append(lib.cusparseXbsrsv2_zeroPivot(first, info, byref(at)))
def post():
    sparse.ok(sparse.cuda.cuCtxSetCurrent(sparse.context))
    answers.append(sparse.status(*solve))
running = [threading.Thread(target=work, daemon=True) for work in (ask, post)]
for thread in running:
    thread.start()
    time.sleep(0.3)                                   # it is where it waits
assert not answers, answers
assert sparse.cuda.cuStreamQuery(stream) == 600       # the others go on
gate.open()
for thread in running:
    thread.join(20)
assert answers == [OK, OK], answers
"""
    assert run_python(ring, BEGIN + code) == ""


def test_what_the_library_refuses_waits_for_its_status(ring: Rig) -> None:
    code = """
m, (x, _), (y, at) = sparse.store(np.eye(8), R64), sparse.vector(np.ones(8), R64), sparse.vector(np.ones(7), R64)
one, before = sparse.scalar(1, R64), waits()
words = (N, one, m.descriptor, x, one, y, R64, 0)
for _ in range(3):
    assert sparse.status("SpMV", *words, 0x1000) == INVALID_VALUE
    assert sparse.status("SpMV_bufferSize", *words, np.zeros(1, "u8")) == INVALID_VALUE
assert waits() == before + 6, waits() - before
sparse.good(sparse.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_what_was_not_prepared_is_refused_at_once(ring: Rig) -> None:
    """Where the same call was right with another object; and where an object's last analysis has failed."""
    code = """
m, (x, _), (y, at) = sparse.store(np.eye(8) / 2, R64), sparse.vector(np.ones(8), R64), sparse.vector(np.ones(8), R64)
short, area = sparse.vector(np.ones(7), R64)[0], sparse.alloc(1 << 12)
def words(o, x=x):
    return (N, sparse.scalar(1, R64), m.descriptor, x, y, R64, 0, o)
right = sparse.made("SpSV_createDescr")
sparse.do("SpSV_analysis", *words(right), area)
for _ in range(2):
    sparse.do("SpSV_solve", *words(right))
for _ in range(2):
    fresh = sparse.made("SpSV_createDescr")
    assert sparse.status("SpSV_solve", *words(fresh)) == INVALID_VALUE
    assert sparse.status("SpSV_analysis", *words(fresh), None) == INVALID_VALUE
    assert sparse.status("SpSV_solve", *words(fresh)) == INVALID_VALUE
    assert sparse.status("SpSV_analysis", *words(fresh, short), area) == INVALID_VALUE
    sparse.do("SpSV_analysis", *words(fresh), area)
    sparse.do("SpSV_solve", *words(fresh))
    assert sparse.status("SpSV_analysis", *words(fresh), None) == INVALID_VALUE
    assert sparse.status("SpSV_solve", *words(fresh)) == INVALID_VALUE
sparse.good(sparse.wait())                            # none was left to a later call
# a product of sparse matrices
a, zero = sparse.store(np.eye(4), R64), sparse.scalar(0, R64)
offsets, columns, values = sparse.put(range(5), NARROW), sparse.put(range(4), NARROW), sparse.alloc(64)
def product(o, steps):
    c = sparse.made("CreateCsr", c_int64(4), c_int64(4), c_int64(0), None, None, None, NARROW, NARROW, 0, R64)
    head = (N, N, sparse.scalar(1, R64), a.descriptor, a.descriptor, zero, c, R64, 0, o)
    for name in ("SpGEMM_workEstimation", "SpGEMM_compute")[:steps]:
        size = np.zeros(1, "u8")
        sparse.do(name, *head, size, None)
        sparse.do(name, *head, size, sparse.alloc(int(size[0])))
    sparse.good(sparse.sparse.cusparseCsrSetPointers(c, c_void_p(offsets), c_void_p(columns), c_void_p(values)))
    return sparse.status("SpGEMM_copy", *head)
done = sparse.made("SpGEMM_createDescr")
assert [product(done, 2) for _ in range(3)] == [OK] * 3
assert product(sparse.made("SpGEMM_createDescr"), 0) == INVALID_VALUE
assert product(sparse.made("SpGEMM_createDescr"), 1) == INVALID_VALUE
sparse.good(sparse.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_buffers_that_are_not_aligned_are_refused_at_once(ring: Rig) -> None:
    """cuSPARSE wants multiples of 128: one of 64 is another question, though the same call was right before."""
    code = """
info, lists = sparse.made("CreateBsrsv2Info"), sparse.put([0, 1], NARROW)
values, f, x = (sparse.upload(np.full(2, n)) for n in (2.0, 6.0, 0.0))
matrix, area = (sparse.descr(), values, lists, sparse.put([0], NARROW), 1, info), sparse.alloc(1 << 12)
sparse.do("Dbsrsv2_analysis", 0, N, 1, 1, *matrix, 0, area)
solve = ("Dbsrsv2_solve", 0, N, 1, 1, np.ones(1), *matrix, f, x, 0)
for more, status in ((0, OK), (128, OK), (64, INVALID_VALUE), (0, OK)):
    assert sparse.status(*solve, area + more) == status, more
sparse.good(sparse.wait())
"""
    assert run_python(ring, BEGIN + code) == ""


def test_what_gives_a_value_back_is_in_no_graph(ring: Rig) -> None:
    code = """
info, stream, graph, at = sparse.made("CreateBsrsv2Info"), sparse.stream(), c_void_p(), np.zeros(1, "i4")
sparse.set_stream(stream)
sparse.ok(sparse.cuda.cuStreamBeginCapture_v2(stream, 0))
status = sparse.status("Xbsrsv2_zeroPivot", info, at)
assert (status, sparse.cuda.cuStreamEndCapture(stream, byref(graph))) != (OK, 0) and not graph.value
assert sparse.status("Xbsrsv2_zeroPivot", info, at) == OK
"""
    assert run_python(ring, BEGIN + code) == ""


def test_sizes_are_told_within_a_capture(ring: Rig) -> None:
    """The library uses no stream for them: of a product, and with objects of both interfaces."""
    code = """
m, (x, _), (y, at) = sparse.store(2 * np.eye(8), R64), sparse.vector(np.ones(8), R64), sparse.vector(np.ones(8), R64)
one, stream, graph, runnable = sparse.scalar(1, R64), sparse.stream(), c_void_p(), c_void_p()
o, info, lists = sparse.made("SpSV_createDescr"), sparse.made("CreateBsrsv2Info"), sparse.put([0, 1], NARROW)
words, area = (N, one, m.descriptor, x, one, y, R64, 0), sparse.alloc(1 << 16)
sparse.set_stream(stream)
sparse.do("SpMV", *words, area)                       # its kind is known
sparse.ok(sparse.cuda.cuStreamSynchronize(stream))
sparse.ok(sparse.cuda.cuStreamBeginCapture_v2(stream, 0))
assert sparse.size("SpMV_bufferSize", *words)
assert sparse.size("SpSV_bufferSize", N, one, m.descriptor, x, y, R64, 0, o)
sparse.size("Dbsrsv2_bufferSize", 0, N, 1, 1, sparse.descr(), area, lists, lists, 1, info)
sparse.do("SpMV", *words, area)
sparse.ok(sparse.cuda.cuStreamEndCapture(stream, byref(graph)))
sparse.ok(sparse.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
sparse.ok(sparse.cuda.cuGraphLaunch(runnable, stream))
sparse.ok(sparse.cuda.cuStreamSynchronize(stream))
assert sparse.read(at, 1, R64)[0] == 5
"""
    assert run_python(ring, BEGIN + code) == ""


def test_the_hosts_version_is_told(ring: Rig) -> None:
    code = """
found = c_int()
sparse.good(sparse.sparse.cusparseGetVersion(sparse.handle, byref(found)))
assert found.value == 12508
for number, value in enumerate((12, 5, 8)):
    sparse.good(sparse.sparse.cusparseGetProperty(number, byref(found)))
    assert found.value == value
sparse.sparse.cusparseGetErrorString.restype = sparse.sparse.cusparseGetErrorName.restype = c_char_p
assert sparse.sparse.cusparseGetErrorName(9) == b"CUSPARSE_STATUS_ZERO_PIVOT"
assert sparse.sparse.cusparseGetErrorString(0) == b"success" and sparse.sparse.cusparseGetErrorString(99)
"""
    assert run_python(ring, BEGIN + code) == ""


def test_objects_count_in_the_quota(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Handles and objects are counted, and given back."""
    code = """
info, lists = sparse.alloc(1 << 12), sparse.put([0, 1], NARROW)
def use(made):
    found = np.zeros(1, "i4")
    return sparse.status("Dbsrsv2_bufferSize", 0, N, 1, 1, sparse.descr(), info, lists, lists, 1, made, found)
for _ in range(300):                                  # more than there is room for at once
    made = sparse.made("CreateBsrsv2Info")
    assert use(made) == OK
    sparse.good(sparse.sparse.cusparseDestroyBsrsv2Info(made))
kept = []
while True:
    kept.append(sparse.made("CreateBsrsv2Info"))
    if use(kept[-1]):
        break
assert 8 < len(kept) < 200, len(kept)
assert use(kept[-1]) == ALLOC_FAILED
for made in kept:
    sparse.good(sparse.sparse.cusparseDestroyBsrsv2Info(made))
assert use(sparse.made("CreateBsrsv2Info")) == OK
sparse.good(sparse.wait())
"""
    limit = f"--limits=device-memory:{208 << 20}"
    with channel("ring", tmp_path_factory.mktemp("machine"), MATH, limit) as rig:
        assert run_python(rig, BEGIN + code) == ""


#: the numbers of functions on the wire
FUNCTIONS = {f.name.removeprefix(SPARSE.prefix): f.id for f in parse_blas(SPARSES, SPARSE)}
#: calls made by hand, as a guest with another library could
BY_HAND = """
import struct
from tests.unit.guest_cuda import addressof, c_uint, c_uint64, ctypes, cu
from tests.sim.math_by_hand import ASK, POST, TRY, ask, create
mine = create(6)
def call(name, words, handle=mine, wait=TRY, make=0, mode=0):
    function = make or (FUNCTIONS[name] if isinstance(name, str) else name)
    return ask(handle, function, words, wait, make=bool(make), mode=mode)
def matrix(*more, types=(CSR, NARROW, NARROW, 0, R64, 0, 0, 0), rows=8, cols=8, nnz=8, batch=1):
    return [int.from_bytes(bytes(types), "little"), rows, cols, nnz, *m.arrays, batch, 0, 0, 0, *(more or (0, 0))]
def vector(type_=R64, size=8, values=None):
    return [type_, size, x if values is None else values]
m, (_, x) = sparse.store(np.eye(8), R64), sparse.vector(np.ones(8), R64)
buffer, one = sparse.alloc(1 << 12), struct.unpack("Q", struct.pack("d", 1.0))[0]
"""


def test_calls_that_no_library_of_ours_would_make(ring: Rig) -> None:
    code = """
head = [N, 1, 1, 1, 1, 1, R64, 0, buffer]
def product(a, b=vector(), c=vector(), words=head):
    return call("SpMV", [*words, one, *a, *b, one, *c])
right = [*head, one, *matrix(), *vector(), one, *vector()]
for wait in (TRY, POST):
    assert call("SpMV", right, wait=wait) == OK
for words in (right[:-1], [*right, 0], [], right[:9]):
    assert call("SpMV", words) == INVALID_VALUE
for function in (0, 1, 5, 6, 1 << 63, FUNCTIONS["SpMV"] + 1):
    assert call(function, right) == NOT_SUPPORTED
# what is no descriptor, whatever the library would make of it
for types in ((0,) * 8, (5, 2, 2, 0, 1, 0, 0, 0), (7, 2, 2, 0, 1, 0, 0, 0), (255,) * 8, (CSR, 2, 2, 2, R64, 0, 0, 0),
              (CSR, 2, 2, 0, R64, 0, 3, 0), (CSR, 2, 2, 0, R64, 0, 0, 3), (CSR, 0, 2, 0, R64, 0, 0, 0)):
    assert product(matrix(types=types)) == INVALID_VALUE, types
for wrong in (dict(rows=-1), dict(cols=-1), dict(nnz=-1), dict(batch=0), dict(batch=-1), dict(batch=1 << 31),
              dict(rows=1 << 62), dict(nnz=1 << 62)):
    assert product(matrix(**wrong)) == INVALID_VALUE, wrong
assert product(matrix(), vector(size=-1)) == INVALID_VALUE
assert product(matrix(), vector(type_=200)) in (INVALID_VALUE, NOT_SUPPORTED)
assert product(matrix(-1, 1 << 62, types=(BSR, 2, 2, 0, R64, 1, 0, 0))) == INVALID_VALUE
assert product(matrix(1, 1, types=(BSR, 2, 2, 0, R64, 9, 0, 0))) == INVALID_VALUE
for place in (2, 3, 5):                                # null pointers of descriptors, and of a scalar
    assert product(matrix(), words=[*head[:place], 0, *head[place + 1:]]) == INVALID_VALUE, place
assert product(matrix(), words=[N, 0, *head[2:]]) == INVALID_VALUE
# what is written on the host comes back, and goes nowhere else
question = [N, 1, 1, 1, 1, 1, R64, 0, 1, one, *matrix(), *vector(), one, *vector()]
assert call("SpMV_bufferSize", question, wait=ASK) == OK
assert call("SpMV_bufferSize", [*question[:8], 0x1000, *question[9:]], wait=ASK) == OK
assert call("SpMV_bufferSize", [*question[:8], 0, *question[9:]], wait=ASK) == INVALID_VALUE
assert call("SpMV_bufferSize", question, wait=TRY) == INVALID_VALUE
# objects
made = [0, *(call("", [], make=kind) for kind in range(1, 6))]
assert min(made[1:]) > 100, made
def solve(o, name="SpSV_solve", tail=(), a=matrix()):
    return call(name, [N, 1, 1, 1, 1, R64, 0, o, *tail, one, *a, *vector(), *vector()])
assert solve(made[2]) == INVALID_VALUE                 # it was not analysed
assert solve(made[2], "SpSV_analysis", [buffer]) == OK and solve(made[2]) == OK
assert solve(made[2], a=matrix(types=(7,) * 8)) == INVALID_VALUE and solve(made[2]) == OK
for wrong in (made[1], made[3], made[4], mine, create(1), create(5)):
    assert solve(wrong) == INVALID_VALUE, wrong
for wrong in (0, made[2] ^ 1 << 40, made[2] + 1000, x):
    assert solve(wrong) == 400, wrong
pivot = lambda o, at=1, wait=ASK, mode=0: call("Xbsrsv2_zeroPivot", [o, at], wait=wait, mode=mode)
assert pivot(made[4]) == OK and pivot(made[5]) == INVALID_VALUE and pivot(made[4], 0) == INVALID_VALUE
assert pivot(made[4], wait=TRY) == INVALID_VALUE and pivot(made[4], x, TRY, 1) == OK
pair = [N, N, 1, 1, 1, 1, 1, R64, 0, made[1], 1, 0]
pair += [one, *matrix(), *matrix(), struct.unpack("Q", bytes(8))[0], *matrix(), 0]
assert call("SpGEMM_workEstimation", pair, wait=ASK) == OK
for wait, words in (
    (TRY, pair), (ASK, pair[:-1]), (ASK, [*pair[:6], 0, *pair[7:]]), (ASK, [*pair[:10], 0, *pair[11:]])
):
    assert call("SpGEMM_compute", words, wait=wait) == INVALID_VALUE
assert call("SpGEMM_copy", [*pair[:10], *pair[12:-1]]) == INVALID_VALUE     # nothing was computed
for function in (0, 6, 1 << 40):
    assert call("", [], make=function or 1 << 50) == 801
assert call("", [], made[1], make=1) == 801
# settings
rows = [8, 8, 8, 1 << 63, m.arrays[0], m.arrays[1], buffer + 256, buffer]
assert call("Xcsrsort", rows) == OK
for word in (0, 1, x, (1 << 63) | 9, (1 << 63) | 2 << 8, (1 << 63) | 2 << 24):
    assert call("Xcsrsort", [*rows[:3], word, *rows[4:]]) == INVALID_VALUE, word
for other in (1, 2, 3, 4, 5):
    handle = create(other)
    assert call("SpMV", right, handle) != OK
    assert call("", [], handle, make=1 << 50) != OK
assert cu.vgpumgr_math_destroy(c_uint64(made[2])) == 0
assert solve(made[2]) == 400
assert cu.vgpumgr_math_destroy(c_uint64(mine)) == 0
assert call("SpMV", right) == 400
sparse.good(sparse.wait())
"""
    assert run_python(ring, f"{BEGIN}FUNCTIONS = {FUNCTIONS}\n{BY_HAND}{code}") == ""
    assert ring.status().violations.count == 0


def test_descriptors_stay_where_only_addresses_change(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The library may know them from an object's last call: the null one tells how many it has made so far."""
    code = """
def moved(m, name):
    other = [c_void_p(sparse.alloc(256)) for _ in range(3)]
    sparse.good(getattr(sparse.sparse, f"cusparse{name}SetPointers")(m.descriptor, *other))
def set_values(kind, descriptor):
    sparse.good(getattr(sparse.sparse, f"cusparse{kind}SetValues")(descriptor, c_void_p(sparse.alloc(256))))
for form, name in ((CSR, "Csr"), (CSC, "Csc"), (COO, "Coo"), (BSR, None)):
    m, one = sparse.store(np.eye(4), R64, form), sparse.scalar(1, R64)
    (x, _), (y, _) = sparse.vector(np.ones(4), R64), sparse.vector(np.ones(4), R64)
    (b, _), (c, _) = sparse.dense(np.ones((4, 4)), R64), sparse.dense(np.ones((4, 4)), R64)
    v, o = sparse.made("SpSV_createDescr"), sparse.made("SpSM_createDescr")
    vectors = lambda: sparse.size("SpSV_bufferSize", N, one, m.descriptor, x, y, R64, 0, v)
    matrices = lambda: sparse.size("SpSM_bufferSize", N, N, one, m.descriptor, b, c, R64, 0, o)
    vectors(), matrices()
    before = vectors()
    for _ in range(3):
        set_values("SpMat", m.descriptor)
        if name:
            moved(m, name)
        for kind, descriptor in (("DnVec", x), ("DnVec", y), ("DnMat", b), ("DnMat", c)):
            set_values(kind, descriptor)
        assert (vectors(), matrices()) == (before, before), form
    x, _ = sparse.vector(np.ones(5), R64)              # another vector is made
    assert (vectors(), matrices()) == (before + 1, before + 1)
"""
    null = f"--math={LIB / 'bin' / 'null'}"
    with channel("ring", tmp_path_factory.mktemp("machine"), null) as rig:
        assert run_python(rig, BEGIN + code) == ""


def test_a_host_without_the_library_is_named() -> None:
    code = """
import ctypes
lib, handle, version = ctypes.CDLL("libcusparse.so.12"), ctypes.c_void_p(), ctypes.c_int()
assert lib.cusparseCreate(ctypes.byref(handle)) == 10 and not handle.value
assert lib.cusparseSpMV(handle, 0, None, None, None, None, None, 0, 0, None) == 1
assert lib.cusparseSgtsv2() == 10 and lib.cusparseAxpby() == 10
assert lib.cusparseGetProperty(0, ctypes.byref(version)) == 0 and version.value == 12
"""
    assert list_complaints_without_library(code) == [
        "vgpumgr: cuSPARSE, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cusparseAxpby is not supported over a forwarded GPU",
        "vgpumgr: cusparseSgtsv2 is not supported over a forwarded GPU",
    ]
