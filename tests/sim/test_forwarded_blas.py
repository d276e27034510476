"""cuBLAS and cuBLASLt of the guest over a channel, with the libraries that compute on the CPU on the host's side."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.sim.forwarded import MATH, channel, list_complaints_without_library
from tests.unit.calls_rig import (
    NULL_DRIVER,
    PROGRAM_S,
    WORKER,
    run_python,
    start_python,
)
from tests.unit.transport_rig import Rig
from vgpumgr.virtio.codegen.blas import parse_blas
from vgpumgr.virtio.codegen.coverage import MATHEMATICS

pytestmark = [pytest.mark.native, pytest.mark.cuda]

NUMBERS = Path(__file__).parents[2] / "vgpumgr/virtio/native/codec/math_channel.h"
#: the number of the last library that there is
LAST = max(map(int, re.findall(r"VG_MATH_\w+ = (\d+)", NUMBERS.read_text())))
#: what the programs below begin with
BEGIN = """
import numpy as np
lib, lt = ctypes.CDLL("libcublas.so.13"), ctypes.CDLL("libcublasLt.so.13")
random = np.random.default_rng(7)
F, ONE, ZERO = np.float32, c_float(1), c_float(0)
INVALID_VALUE, NOT_SUPPORTED, NOT_INITIALIZED = 7, 15, 1
def array(*shape, dtype=F):
    return np.asfortranarray(random.uniform(-1, 1, shape).astype(dtype))
def up(x):
    at = memory(x.nbytes)
    ok(cu.cuMemcpyHtoD_v2(at, x.ctypes.data_as(c_void_p), c_size_t(x.nbytes)))
    return at
def down(at, like):
    ok(cu.cuCtxSynchronize())
    x = np.empty_like(like)
    ok(cu.cuMemcpyDtoH_v2(x.ctypes.data_as(c_void_p), at, c_size_t(x.nbytes)))
    return x
def new_stream():
    made = c_void_p()
    ok(cu.cuStreamCreate(byref(made), 1))
    return made
def new_handle(of=None):
    made = c_void_p()
    ok(of.cublasLtCreate(byref(made)) if of else lib.cublasCreate_v2(byref(made)))
    return made
context()
"""
#: and, for most, with matrices, their product, and a handle
PRODUCT = """
n = 24
a, b = array(n, n), array(n, n)
A, B, C = up(a), up(b), up(np.zeros((n, n), F, order="F"))
h = new_handle()
def gemm(handle=None, at=None, n=n, ld=n):
    return lib.cublasSgemm_v2(
        handle or h, 0, 0, n, n, n, byref(ONE), A, ld, B, n, byref(ZERO), at or C, n
    )
"""


def test_products_wait_for_nothing_but_the_first_of_their_kind(rig: Rig) -> None:
    code = """
assert gemm() == 0
before = waits()
for _ in range(50):
    assert gemm() == 0
assert waits() == before
assert np.allclose(down(C, a), a @ b, atol=1e-5)
before = waits()
assert gemm(n=n - 1, ld=n) == 0   # another size: its first call waits for the library's word
assert waits() == before + 1
assert gemm(n=n - 1, ld=n) == 0
assert waits() == before + 1
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_a_trace_names_the_function_that_waits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_TRACE", "waits")
    code = """
assert gemm(n=n - 2, ld=n) == 0
at = c_int()
assert lib.cublasIsamax_v2(h, n, A, 1, byref(at)) == 0
ok(cu.cuCtxSynchronize())
"""
    program = start_python(rig, BEGIN + PRODUCT + code)
    _, errors = program.communicate(timeout=PROGRAM_S)
    assert program.returncode == 0, errors
    waits = re.findall(r"^vgpumgr: wait \d+: ([\w ]+), [\d.]+ ms$", errors, re.MULTILINE)
    assert len(waits) == len(errors.splitlines())
    assert "math_try of cublasSgemm_v2" in waits
    assert "math_ask of cublasIsamax_v2" in waits
    assert "memory_allocate" in waits, "what is no part of a library has its own name alone"


def test_values_on_the_host_and_on_the_device(rig: Rig) -> None:
    code = """
x, y = array(100), array(100)
X, Y = up(x), up(y)
result = c_float()
assert lib.cublasSdot_v2(h, 100, X, 1, Y, 1, byref(result)) == 0
assert abs(result.value - x @ y) < 1e-4
at = c_int()
assert lib.cublasIsamax_v2(h, 100, X, 1, byref(at)) == 0 and at.value == 1 + abs(x).argmax()
wide = ctypes.c_int64(-1)
assert lib.cublasIsamax_v2_64(h, c_uint64(100), X, c_uint64(1), byref(wide)) == 0
assert wide.value == at.value
c, s = c_float(3), c_float(4)
r, z = c_float(3), c_float(4)
assert lib.cublasSrotg_v2(h, byref(r), byref(z), byref(c), byref(s)) == 0
assert abs(r.value - 5) < 1e-6 and abs(c.value - 0.6) < 1e-6 and abs(s.value - 0.8) < 1e-6
assert lib.cublasSetPointerMode_v2(h, 1) == 0
alpha, got = up(np.array([2], F)), memory(4)
assert lib.cublasSaxpy_v2(h, 100, alpha, X, 1, Y, 1) == 0
assert lib.cublasSdot_v2(h, 100, X, 1, Y, 1, got) == 0
assert np.allclose(down(Y, y), y + 2 * x, atol=1e-6)
assert abs(down(got, np.zeros(1, F))[0] - x @ (y + 2 * x)) < 1e-4
mode = c_int()
assert lib.cublasGetPointerMode_v2(h, byref(mode)) == 0 and mode.value == 1
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_types_strides_batches_and_wide_integers(rig: Rig) -> None:
    code = """
half = [array(n, n, dtype=np.float16) for _ in range(2)]
P, Q = map(up, half)
R = up(np.zeros((n, n), np.float16, order="F"))
assert lib.cublasGemmEx(h, 0, 1, n, n, n, byref(ONE), P, 2, n, Q, 2, n, byref(ZERO), R, 2, n, 68, -1) == 0
assert np.allclose(down(R, half[0]), half[0].astype(F) @ half[1].astype(F).T, atol=2e-2)
k = 5
batch = [np.asfortranarray(random.uniform(-1, 1, (n, n, k)).astype(np.float64)) for _ in range(2)]
S, T = map(up, batch)
U = up(np.zeros((n, n, k), order="F"))
one, zero, step = c_double(1), c_double(0), c_uint64(n * n)
w = [c_uint64(n)] * 3
assert lib.cublasDgemmStridedBatched_64(
    h, 0, 0, *w, byref(one), S, w[0], step, T, w[0], step, byref(zero), U, w[0], step, c_uint64(k)
) == 0
expected = np.stack([batch[0][..., i] @ batch[1][..., i] for i in range(k)], axis=2)
assert np.allclose(down(U, batch[0]), expected)
places = np.array([[at.value + i * n * n * 8 for i in range(k)] for at in (S, T, U)], np.uint64)
L = up(places)
rows = [c_uint64(L.value + i * k * 8) for i in range(3)]
assert lib.cublasDgemmBatched(
    h, 1, 0, n, n, n, byref(one), rows[0], n, rows[1], n, byref(zero), rows[2], n, k
) == 0
expected = np.stack([batch[0][..., i].T @ batch[1][..., i] for i in range(k)], axis=2)
assert np.allclose(down(U, batch[0]), expected)
V = [up(np.asfortranarray(np.eye(n, dtype=F) * 4 + a)), up(np.asfortranarray(b))]
assert lib.cublasStrsm_v2(h, 0, 1, 0, 0, n, n, byref(ONE), V[0], n, V[1], n) == 0
upper = np.triu(np.eye(n, dtype=F) * 4 + a)
assert np.allclose(upper @ down(V[1], b), b, atol=1e-4)
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_streams_workspaces_and_modes_of_a_handle(rig: Rig) -> None:
    code = """
first, second = new_stream(), new_stream()
space = memory(1 << 20)
for stream in (first, second, first, None, second):
    assert lib.cublasSetStream_v2(h, stream) == 0
    assert lib.cublasSetWorkspace_v2(h, space, c_size_t(1 << 20)) == 0
    ok(cu.cuMemsetD32_v2(C, 0, c_size_t(n * n)))
    ok(cu.cuCtxSynchronize())
    assert gemm() == 0
    ok(cu.cuStreamSynchronize(stream))
    assert np.allclose(down(C, a), a @ b, atol=1e-5)
got = c_void_p()
assert lib.cublasGetStream_v2(h, byref(got)) == 0 and got.value == second.value
assert lib.cublasSetWorkspace_v2(h, c_uint64(space.value + 8), c_size_t(64)) == INVALID_VALUE
assert lib.cublasSetMathMode(h, 3) == 0 and gemm() == 0
assert lib.cublasGetMathMode(h, byref(mode := c_int())) == 0 and mode.value == 3
assert lib.cublasSetMathMode(h, 1 << 20) == INVALID_VALUE
assert lib.cublasSetAtomicsMode(h, 1) == 0 and lib.cublasSetSmCountTarget(h, 4) == 0 and gemm() == 0
assert np.allclose(down(C, a), a @ b, atol=1e-5)
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_a_captured_product_is_replayed(rig: Rig) -> None:
    code = """
stream, graph, run = new_stream(), c_void_p(), c_void_p()
assert lib.cublasSetStream_v2(h, stream) == 0
ok(cu.cuStreamBeginCapture_v2(stream, 2))
for _ in range(3):
    assert gemm() == 0
ok(cu.cuStreamEndCapture(stream, byref(graph)))
assert not down(C, a).any()
ok(cu.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
for _ in range(3):
    a = array(n, n)
    ok(cu.cuMemcpyHtoD_v2(A, a.ctypes.data_as(c_void_p), c_size_t(a.nbytes)))
    ok(cu.cuGraphLaunch(run, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert np.allclose(down(C, a), a @ b, atol=1e-5)
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_light_products_with_epilogues_and_what_is_asked_once(rig: Rig) -> None:
    code = """
g = new_handle(lt)
def layout(rows, columns, type=0):
    made = c_void_p()
    ok(lt.cublasLtMatrixLayoutCreate(byref(made), type, c_uint64(rows), c_uint64(columns), c_uint64(rows)))
    return made
def set_word(function, object, number, value):
    ok(function(object, number, byref(value), c_size_t(ctypes.sizeof(value))))
m, k = 20, 12
x, w, bias = array(m, k), array(k, n), array(m)
X, W, Y, S = up(x), up(w), up(np.zeros((m, n), F, order="F")), up(bias)
desc, preference = c_void_p(), c_void_p()
ok(lt.cublasLtMatmulDescCreate(byref(desc), 68, 0))
set_word(lt.cublasLtMatmulDescSetAttribute, desc, 7, c_uint(6))  # RELU_BIAS
set_word(lt.cublasLtMatmulDescSetAttribute, desc, 8, S)
ok(lt.cublasLtMatmulPreferenceCreate(byref(preference)))
set_word(lt.cublasLtMatmulPreferenceSetAttribute, preference, 1, c_size_t(1 << 20))
places = layout(m, k), layout(k, n), layout(m, n), layout(m, n)
results, count = ctypes.create_string_buffer(4 * 96), c_int()
def find():
    return lt.cublasLtMatmulAlgoGetHeuristic(
        g, desc, *places, preference, 4, results, byref(count)
    )
assert find() == 0 and count.value >= 1
def multiply(handle=g):
    return lt.cublasLtMatmul(
        handle, desc, byref(ONE), X, places[0], W, places[1], byref(ZERO), Y, places[2], Y, places[3],
        results, None, c_size_t(0), None,
    )
assert multiply() == 0
assert np.allclose(down(Y, np.zeros((m, n), F, order="F")), np.maximum(x @ w + bias[:, None], 0), atol=1e-5)
before = waits()
assert find() == 0 and multiply() == 0 and multiply() == 0
assert waits() == before
assert multiply(h) == 0  # a handle of cuBLAS is one of cuBLASLt, too
assert lt.cublasLtMatmul(
    g, desc, byref(ONE), X, places[1], W, places[0], byref(ZERO), Y, places[2], Y, places[3], None, None,
    c_size_t(0), None,
) == INVALID_VALUE
value, written = c_int(), c_size_t()
ok(lt.cublasLtMatmulDescGetAttribute(desc, 7, byref(value), c_size_t(4), byref(written)))
assert (value.value, written.value) == (6, 4)
assert lt.cublasLtMatmulDescSetAttribute(desc, 7, byref(value), c_size_t(8)) == INVALID_VALUE
assert lt.cublasLtMatmulDescSetAttribute(places[0], 7, byref(value), c_size_t(4)) == INVALID_VALUE
for one in places:
    ok(lt.cublasLtMatrixLayoutDestroy(one))
ok(lt.cublasLtMatmulDescDestroy(desc)), ok(lt.cublasLtMatmulPreferenceDestroy(preference)), ok(lt.cublasLtDestroy(g))
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


@pytest.mark.parametrize("bytes_of_a_layout", [64, 112], ids=["12", "13"])
def test_descriptors_in_the_programs_own_memory(rig: Rig, bytes_of_a_layout: int) -> None:
    """As large as the headers of CUDA 12 and 13 have them, with all that a batch needs."""
    code = f"""
g = new_handle(lt)
k, size = 3, {bytes_of_a_layout}
x, y = (np.asfortranarray(random.uniform(-1, 1, (n, n, k)).astype(F)) for _ in range(2))
X, Y, Z = up(x), up(y), up(np.zeros((n, n, k), F, order="F"))
place = ctypes.create_string_buffer(size + 8)
place.raw = b"x" * (size + 8)
ok(lt.cublasLtMatrixLayoutInit_internal(place, c_size_t(size), 0, c_uint64(n), c_uint64(n), c_uint64(n)))
for number, value in ((1, c_int(0)), (5, c_int(k)), (6, c_uint64(n * n)), (4, c_uint64(n)), (5, c_int(k))):
    ok(lt.cublasLtMatrixLayoutSetAttribute(place, number, byref(value), c_size_t(ctypes.sizeof(value))))
assert place.raw[size : size + 8] == b"x" * 8
desc = ctypes.create_string_buffer(256)
ok(lt.cublasLtMatmulDescInit_internal(desc, c_size_t(256), 68, 0))
ok(lt.cublasLtMatmul(
    g, desc, byref(ONE), X, place, Y, place, byref(ZERO), Z, place, Z, place, None, None, c_size_t(0), None
))
expected = np.stack([x[..., i] @ y[..., i] for i in range(k)], axis=2)
assert np.allclose(down(Z, x), expected, atol=1e-5)
back, written = c_int(), c_size_t()
ok(lt.cublasLtMatrixLayoutGetAttribute(place, 5, byref(back), c_size_t(4), byref(written)))
assert back.value == k
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_what_would_fail_is_not_taken_for_known(rig: Rig) -> None:
    code = """
g = new_handle(lt)
places = []
for _ in range(4):
    made = c_void_p()
    ok(lt.cublasLtMatrixLayoutCreate(byref(made), 0, c_uint64(n), c_uint64(n), c_uint64(n)))
    places.append(made)
desc = c_void_p()
ok(lt.cublasLtMatmulDescCreate(byref(desc), 68, 0))
def multiply(alpha=byref(ONE), beta=byref(ZERO), third=C):
    return lt.cublasLtMatmul(
        g, desc, alpha, A, places[0], B, places[1], beta, third, places[2], C, places[3], None, None,
        c_size_t(0), None,
    )
assert multiply() == 0 and multiply() == 0
assert multiply(alpha=None) == INVALID_VALUE and multiply(beta=None) == INVALID_VALUE
assert multiply(third=None) == 0  # nothing is added
assert multiply(third=None, beta=byref(ONE)) != 0
ok(lt.cublasLtMatmulDescSetAttribute(desc, 7, byref(c_uint(4)), c_size_t(4)))  # BIAS
ok(lt.cublasLtMatmulDescSetAttribute(desc, 8, byref(up(a)), c_size_t(8)))
assert multiply() == 0
before = waits()
assert multiply() == 0 and waits() == before
ok(lt.cublasLtMatmulDescSetAttribute(desc, 8, byref(c_uint64(0)), c_size_t(8)))
multiply()  # without a bias after all: asked anew
assert waits() == before + 1
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_a_failed_call_is_an_error_of_that_call_alone(rig: Rig) -> None:
    code = """
stream = new_stream()
assert lib.cublasSetStream_v2(h, stream) == 0 and gemm() == 0
ok(cu.cuStreamBeginCapture_v2(stream, 2))
result = c_float()
assert lib.cublasSdot_v2(h, 4, A, 1, B, 1, byref(result)) != 0  # its value would be each launch's
graph = c_void_p()
assert cu.cuStreamEndCapture(stream, byref(graph)) != 0
assert gemm() == 0 and np.allclose(down(C, a), a @ b, atol=1e-5)
mode = c_int()
assert lib.cublasSetMathMode(h, 7) == INVALID_VALUE
assert lib.cublasGetMathMode(h, byref(mode)) == 0 and mode.value == 0 and gemm() == 0
space = memory(1 << 20)
assert lib.cublasSetWorkspace_v2(h, space, c_size_t(1 << 20)) == 0 and gemm() == 0
assert lib.cublasSetStream_v2(h, stream) == 0  # the library's own workspace again
ok(cu.cuMemFree_v2(space))
assert gemm() == 0 and np.allclose(down(C, a), a @ b, atol=1e-5)
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_a_question_makes_no_context(rig: Rig) -> None:
    code = """
version = c_int()
ok(lib.cublasGetVersion_v2(None, byref(version)))
current = c_void_p(1)
ok(cu.cuCtxGetCurrent(byref(current)))
assert not current.value and version.value > 130000
"""
    assert run_python(rig, BEGIN.replace("\ncontext()\n", "\n") + code) == ""


def test_wrong_arguments_have_the_librarys_own_errors(rig: Rig) -> None:
    code = """
assert gemm(ld=n - 1) == INVALID_VALUE and gemm(n=-1) == INVALID_VALUE
assert lib.cublasSgemm_v2(h, 9, 0, n, n, n, byref(ONE), A, n, B, n, byref(ZERO), C, n) == INVALID_VALUE
assert lib.cublasGemmEx(h, 0, 0, n, n, n, byref(ONE), A, 77, n, B, 0, n, byref(ZERO), C, 0, n, 68, -1) == NOT_SUPPORTED
assert lib.cublasGemmEx(h, 0, 0, n, n, n, byref(ONE), A, 0, n, B, 0, n, byref(ZERO), C, 0, n, 99, -1) == NOT_SUPPORTED
assert lib.cublasSgemm_v2(None, 0, 0, n, n, n, byref(ONE), A, n, B, n, byref(ZERO), C, n) == NOT_INITIALIZED
assert lib.cublasCreate_v2(None) == INVALID_VALUE
g = new_handle()
ok(lib.cublasDestroy_v2(g))
assert gemm() == 0 and np.allclose(down(C, a), a @ b, atol=1e-5)
lib.cublasGetStatusName.restype = ctypes.c_char_p
assert lib.cublasGetStatusName(7) == b"CUBLAS_STATUS_INVALID_VALUE"
version, major = c_int(), c_int()
ok(lib.cublasGetVersion_v2(h, byref(version))), ok(lib.cublasGetProperty(0, byref(major)))
assert version.value // 10000 == major.value == 13
x = array(8, 4)
X, back = memory(x.nbytes * 2), np.zeros_like(x)
ok(lib.cublasSetMatrix(8, 4, 4, x.ctypes.data_as(c_void_p), 8, X, 16))
ok(lib.cublasGetMatrix(8, 4, 4, X, 16, back.ctypes.data_as(c_void_p), 8))
assert (back == x).all()
ok(lib.cublasSetVector(4, 4, x.ctypes.data_as(c_void_p), 3, X, 2))
ok(lib.cublasGetVector(4, 4, X, 2, back.ctypes.data_as(c_void_p), 1))
assert (back.ravel("K")[:4] == x.ravel("K")[:12:3]).all()
assert lib.cublasSetMatrix(8, 4, 4, x.ctypes.data_as(c_void_p), 7, X, 16) == INVALID_VALUE
# what nothing computes with, and what is no memory at all: as for a kernel of the program's own
assert lib.cublasSgemm_v2(h, 0, 0, n, n, n, byref(ONE), c_uint64(4096), n, B, n, byref(ZERO), C, n) == 0
assert cu.cuCtxSynchronize() == 700
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_calls_that_no_library_of_ours_would_make(rig: Rig) -> None:
    """Made by hand, as a guest with other libraries could: of unknown functions, cut short, with handles of others."""
    code = """
from tests.sim.math_by_hand import ASK, POST, TRY, create, send
mine, light, status = create(1), create(2), c_int()
for library in (0, LAST + 1, 0x100, 0x101, 0x80000000):            # there is none of that number
    assert cu.vgpumgr_math_create(library, byref(c_uint64()), byref(status)) == 801, library
def call(function, words, handle=mine, wait=ASK, cut=0):
    return send(handle, function, words, wait, cut=cut)[:3]
ids = [int(line.split()[0], 16) for line in open(sys.argv[1])]
assert call(0x123456789abcdef0, [1, 2, 3])[:2] == (0, NOT_SUPPORTED)
assert call(0, [])[:2] == (0, NOT_SUPPORTED)
for one in ids:
    assert call(one, [])[:2] == (0, INVALID_VALUE)          # of none of its arguments
    assert call(one, [7] * 60)[:2] == (0, INVALID_VALUE)    # of more than it has
    assert call(one, [1] * 4, light)[:2] == (0, NOT_SUPPORTED)
for function in range(1, 10):                               # of cuBLASLt
    for n in (0, 1, 5, 200):
        error, found, back = call(function, [0xffffffffffffffff] * n)
        assert error == 0 and found in (INVALID_VALUE, NOT_SUPPORTED) and not back
for handle in (0, 1, mine ^ 1 << 40, light + 1, A.value):
    assert call(ids[0], [0] * 4, handle)[0] != 0
assert gemm() == 0 and np.allclose(down(C, a), a @ b, atol=1e-5)
"""
    functions = parse_blas(MATHEMATICS)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(f"{f.id:x} {f.name}\n" for f in functions if not f.state))
        file.flush()
        assert (
            run_python(rig, f"import sys\nLAST = {LAST}\n{BEGIN}{PRODUCT}{code}", file.name) == ""
        )
    assert rig.status().violations.count == 0


def test_threads_share_a_handle_and_have_their_own(rig: Rig) -> None:
    code = """
import threading
wrong = []
def work(mine):
    cu.cuCtxSetCurrent(current)
    handle = new_handle() if mine else h
    out = memory(n * n * 4)
    for _ in range(60):
        if gemm(handle, out):
            wrong.append("status")
    if not np.allclose(down(out, a), a @ b, atol=1e-5):
        wrong.append("value")
    if mine:
        ok(lib.cublasDestroy_v2(handle))
current = c_void_p()
ok(cu.cuCtxGetCurrent(byref(current)))
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(6)]
[t.start() for t in threads], [t.join() for t in threads]
assert not wrong, wrong
import os
import re
child = os.fork()
if not child:
    os._exit(gemm() or 100)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) not in (0, 100)
assert gemm() == 0
"""
    assert run_python(rig, BEGIN + PRODUCT + code) == ""


def test_handles_end_with_their_context(rig: Rig) -> None:
    code = """
other = c_void_p()
ok(cu.cuCtxCreate_v2(byref(other), 0, 0))
g = new_handle()
assert gemm(g) in (0, NOT_INITIALIZED, 13)  # addresses of the device are every context's
assert gemm(h) == 0  # another context's handle works in its own
ok(cu.cuCtxDestroy_v2(other))
assert gemm(g) == NOT_INITIALIZED
ok(lib.cublasDestroy_v2(g))
ok(cu.cuCtxSetCurrent(primary))
assert gemm() == 0 and np.allclose(down(C, a), a @ b, atol=1e-5)
"""
    begin = BEGIN.replace("\ncontext()\n", "\nprimary = context()\n")
    assert run_python(rig, begin + PRODUCT + code) == ""


def test_a_killed_session_is_an_error_and_nobody_elses(tmp_path: Path) -> None:
    loop = """
print("ready", flush=True)
for line in sys.stdin:
    print(gemm() or cu.cuCtxSynchronize(), flush=True)
"""
    with channel("ring", tmp_path) as rig:
        guests = [start_python(rig, f"import sys\n{BEGIN}{PRODUCT}{loop}") for _ in range(2)]
        for guest in guests:
            assert _answer(guest) == "ready"
        assert [_ask(guest) for guest in guests] == ["0", "0"]
        pids = {lane.session_pid for lane in rig.status().lanes if lane.session_pid}
        assert len(pids) == 2
        os.kill(min(pids), signal.SIGKILL)
        rig.wait_status(lambda s: s.sessions.lost == 1, "the end of a session")
        assert sorted(_ask(guest) == "0" for guest in guests) == [False, True]
        for guest in guests:
            guest.communicate(timeout=PROGRAM_S)


def _answer(guest: subprocess.Popen[str]) -> str:
    assert guest.stdout is not None
    line = guest.stdout.readline().strip()
    assert line or guest.poll() is None, guest.communicate()
    return line


def _ask(guest: subprocess.Popen[str]) -> str:
    assert guest.stdin is not None
    guest.stdin.write("\n")
    guest.stdin.flush()
    return _answer(guest)


def test_a_host_without_the_libraries_is_named() -> None:
    code = """
h = c_void_p()
assert lib.cublasCreate_v2(byref(h)) == NOT_SUPPORTED and lt.cublasLtCreate(byref(h)) == NOT_SUPPORTED
assert lib.cublasXtCreate(byref(h)) == NOT_SUPPORTED and lt.cublasLtGetVersion() == 0
"""
    assert list_complaints_without_library(BEGIN + code) == [
        "vgpumgr: cuBLAS, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cuBLASLt, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cublasXtCreate is not supported over a forwarded GPU",
    ]


def test_the_device_memory_of_handles_is_the_vms(tmp_path: Path) -> None:
    code = """
handles = []
while True:
    made = c_void_p()
    status = lib.cublasCreate_v2(byref(made))
    if status:
        break
    handles.append(made)
assert status == 3 and len(handles) == 4, (status, len(handles))  # 128 MiB of 256 are the context's
ok(lib.cublasDestroy_v2(handles.pop()))
ok(cu.cuCtxSynchronize())
ok(lib.cublasCreate_v2(byref(made)))
"""
    with channel("ring", tmp_path, MATH, f"--limits=device-memory:{256 << 20}") as rig:
        assert run_python(rig, BEGIN + code) == ""


def test_the_null_library_makes_the_way_without_arithmetic() -> None:
    """Fuzzers and benchmarks stand on it: handles, descriptors, and calls that succeed."""
    code = "assert gemm() == 0\nassert lib.cublasSdot_v2(h, 4, A, 1, B, 1, byref(c_float())) == 0\n"
    args = ("--cuda", str(NULL_DRIVER), f"--math={NULL_DRIVER.parent}")
    with Rig("ring", worker=WORKER, worker_args=args) as rig:
        assert run_python(rig, BEGIN + PRODUCT + code) == ""
