# SPDX-License-Identifier: Apache-2.0
"""The simulated cuBLASLt, one case for each process: ``python -m tests.sim.blas_lt CASE``."""

from __future__ import annotations

import ctypes
import sys
from ctypes import (
    byref,
    c_byte,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

import numpy as np

from tests.sim.blas_client import (
    BF16,
    C32,
    C64,
    CI8,
    INVALID_VALUE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OK,
    R16,
    R32,
    R64,
    RI8,
    RI32,
    Gpu,
    draw,
    encode,
)
from tests.sim.blas_lt_objects import (
    ADD_BIAS,
    AUX,
    AUX_LD,
    AUX_STRIDE,
    AUX_TYPE,
    BATCH,
    BGRAD,
    BGRADA,
    BGRADB,
    BIAS,
    BIAS_STRIDE,
    BIAS_TYPE,
    DGELU,
    DRELU,
    EPILOGUE,
    GELU,
    LD,
    ORDER,
    POINTER_MODE,
    RELU,
    ROWS,
    STRIDE,
    TRANSA,
    TRANSB,
    TYPE,
    WITH_AUX,
    Operand,
    Product,
    Result,
    same,
    turn,
)

ILLEGAL_ADDRESS = 700
TYPES = [
    (64, R16, R16, R16),
    (68, R32, R16, R16),
    (68, R32, BF16, BF16),
    (68, R32, R16, R32),
    (68, R32, BF16, R32),
    (68, R32, R32, R32),
    (77, R32, R32, R32),
    (68, C32, C32, C32),
    (70, R64, R64, R64),
    (70, C64, C64, C64),
    (72, RI32, RI8, RI32),
    (72, R32, RI8, RI8),
    (68, C32, CI8, C32),
]


def products(gpu: Gpu) -> None:
    """All types, orders, transposes, batches, places of scalars; with and without an algorithm."""
    rng = np.random.default_rng(5)
    for compute, scale, ab, cd in TYPES:
        for variant in range(8):
            m, n, k, batch = (int(x) for x in rng.integers(1, 7, 4))
            ops = [int(x) for x in rng.integers(0, 3, 2)]
            orders = [int(x) for x in rng.integers(0, 2, 3)]
            alpha, beta = (1, variant % 2) if cd in (RI32, RI8) else (1.5, -0.5 * (variant % 2))
            a = Operand(
                gpu, draw(rng, (batch, k, m) if ops[0] else (batch, m, k), ab), ab, orders[0]
            )
            b = Operand(
                gpu, draw(rng, (batch, n, k) if ops[1] else (batch, k, n), ab), ab, orders[1]
            )
            c = Operand(gpu, draw(rng, (batch, m, n), cd), cd, orders[2])
            d = c if variant & 4 else Operand(gpu, draw(rng, (batch, m, n), cd), cd, orders[2])
            want = alpha * turn(a.get(), ops[0]) @ turn(b.get(), ops[1]) + beta * c.get()
            if cd == RI8:
                want = np.clip(want, -128, 127)
            product = (
                Product(gpu, compute, scale)
                .set(TRANSA, c_int32(ops[0]))
                .set(TRANSB, c_int32(ops[1]))
            )
            device = variant % 4 >= 2
            product.set(POINTER_MODE, c_int32(device))
            gpu.ok(product.run(a, b, c, d, alpha, beta, device=device))
            gpu.ok(gpu.wait())
            same(d.get(), want, cd)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: np.ndarray) -> np.ndarray:
    return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6


def bits(mask: np.ndarray, ld: int) -> np.ndarray:
    """The mask of a result, as cuBLASLt packs it."""
    batch, m, n = mask.shape
    whole = np.zeros((batch, n, ld), "u1")
    whole[:, :, :m] = mask.swapaxes(1, 2)
    return np.packbits(whole.reshape(-1), bitorder="little")


def epilogues(gpu: Gpu) -> None:
    """Each of them, in two types and a batch."""
    rng = np.random.default_rng(6)
    known = [
        RELU,
        RELU | WITH_AUX,
        ADD_BIAS,
        RELU | ADD_BIAS,
        RELU | WITH_AUX | ADD_BIAS,
        DRELU,
        DRELU | BGRAD,
        GELU,
    ]
    known += [
        GELU | WITH_AUX,
        GELU | ADD_BIAS,
        GELU | WITH_AUX | ADD_BIAS,
        DGELU,
        DGELU | BGRAD,
        BGRADA,
        BGRADB,
    ]
    for code in (R32, R16):
        for epilogue in known:
            check_epilogue(gpu, rng, code, epilogue)


def check_epilogue(gpu: Gpu, rng: np.random.Generator, code: int, epilogue: int) -> None:
    batch, m, n, k = 2, 5, 4, 3
    a = Operand(gpu, draw(rng, (batch, m, k), code), code)
    b = Operand(gpu, draw(rng, (batch, k, n), code), code)
    d = Operand(gpu, draw(rng, (batch, m, n), code), code)
    length = n if epilogue == BGRADB else m
    bias = draw(rng, (batch, length), R32)
    bias_at = gpu.upload(encode(bias, R32))
    is_gelu = epilogue & GELU or epilogue & 64
    ld = 8 if is_gelu else 128
    before = draw(rng, (batch, n, ld), R32) if is_gelu else rng.integers(0, 2, (batch, m, n))
    aux_at = gpu.upload(encode(before, R32) if is_gelu else bits(before, ld))
    product = (
        Product(gpu, 68, R32)
        .set(EPILOGUE, c_uint32(epilogue))
        .set(BIAS, c_uint64(bias_at))
        .set(BIAS_TYPE, c_int32(R32))
    )
    product.set(BIAS_STRIDE, c_int64(length)).set(AUX, c_uint64(aux_at)).set(AUX_LD, c_int64(ld))
    product.set(AUX_STRIDE, c_int64(n * ld))
    if is_gelu:
        product.set(AUX_TYPE, c_int32(R32))
    gpu.ok(product.run(a, b, d, d, 2))
    gpu.ok(gpu.wait())
    x = 2 * a.get() @ b.get()
    if epilogue & ADD_BIAS:
        x = x + bias[:, :, None]
    want = np.maximum(x, 0) if epilogue & RELU else gelu(x) if epilogue & GELU else x
    if epilogue & DRELU == DRELU:
        want = x * before
    if epilogue & DGELU == DGELU:
        want = x * gelu_slope(before[:, :, :m].swapaxes(1, 2))
    same(d.get(), want, code)
    if epilogue & WITH_AUX and epilogue & RELU:
        got = np.zeros(batch * n * ld // 8, "u1")
        gpu.download(aux_at, got)
        kept = np.unpackbits(got, bitorder="little").reshape(batch, n, ld)[:, :, :m].swapaxes(1, 2)
        assert np.array_equal(kept, x > 0)
    if epilogue & WITH_AUX and epilogue & GELU:
        got = np.zeros((batch, n, ld), "f4")
        gpu.download(aux_at, got)
        same(got[:, :, :m].swapaxes(1, 2), x, R32)
    sums = {BGRADA: a.get().sum(2), BGRADB: b.get().sum(1)}.get(
        epilogue, want.sum(2) if epilogue & BGRAD else bias
    )
    got = np.zeros((batch, length), "f4")
    gpu.download(bias_at, got)
    same(got, sums, code)


def square(gpu: Gpu, code: int = R32, size: int = 4) -> list[Operand]:
    """A, B, C and D of ones."""
    return [Operand(gpu, np.ones((1, size, size)), code) for _ in range(4)]


def heuristics(gpu: Gpu) -> None:
    """Algorithms are found, fit the workspace that is allowed, are checked, described, and work."""
    lt, some, product, preference, found = (
        gpu.lt,
        square(gpu),
        Product(gpu, 68, R32),
        c_void_p(),
        c_int(),
    )
    layouts = [o.layout for o in some]
    gpu.ok(lt.cublasLtMatmulPreferenceCreate(byref(preference)))
    results = (Result * 8)()
    arguments = (gpu.handle, product.desc, *layouts, preference)
    assert lt.cublasLtMatmulAlgoGetHeuristic(*arguments, 8, results, byref(found)) == OK
    least = found.value
    assert least >= 1
    assert all(r.workspace == 0 and r.state == OK for r in results[:least])
    gpu.ok(
        lt.cublasLtMatmulPreferenceSetAttribute(
            preference, 1, byref(c_uint64(32 << 20)), c_size_t(8)
        )
    )
    assert lt.cublasLtMatmulAlgoGetHeuristic(*arguments, 8, results, byref(found)) == OK
    assert found.value > least
    assert lt.cublasLtMatmulAlgoGetHeuristic(*arguments, 0, results, byref(found)) == INVALID_VALUE
    assert lt.cublasLtMatmulAlgoGetHeuristic(*arguments, 1, results, byref(found)) == OK
    assert found.value == 1
    assert lt.cublasLtMatmulAlgoGetHeuristic(*arguments, 8, results, byref(found)) == OK
    for result in results[: found.value]:
        place = gpu.alloc(result.workspace)
        gpu.ok(product.run(*some, algo=result.algo, workspace=(place, result.workspace)))
        if result.workspace:
            assert (
                product.run(*some, algo=result.algo, workspace=(place, result.workspace - 1))
                == INVALID_VALUE
            )
        checked = Result()
        assert (
            lt.cublasLtMatmulAlgoCheck(
                gpu.handle, product.desc, *layouts, byref(result.algo), byref(checked)
            )
            == OK
        )
        assert checked.workspace == result.workspace
    gpu.ok(gpu.wait())
    assert np.all(some[3].get() == 4)
    check_ids(gpu, results[0])
    wrong = Product(gpu, 64, R16)
    status = lt.cublasLtMatmulAlgoGetHeuristic(
        gpu.handle, wrong.desc, *layouts, preference, 8, results, byref(found)
    )
    assert status == NOT_SUPPORTED
    assert found.value == 0


def check_ids(gpu: Gpu, result: Result) -> None:
    lt, ids, found, written = gpu.lt, (c_int * 8)(), c_int(), c_size_t()
    types = (68, R32, R32, R32, R32, R32)
    assert lt.cublasLtMatmulAlgoGetIds(gpu.handle, *types, 8, ids, byref(found)) == OK
    assert found.value
    algo = (c_uint64 * 8)()
    for number in ids[: found.value]:
        assert lt.cublasLtMatmulAlgoInit(gpu.handle, *types, number, byref(algo)) == OK
        value = c_int32(-1)
        assert (
            lt.cublasLtMatmulAlgoConfigGetAttribute(
                byref(algo), 0, byref(value), c_size_t(4), byref(written)
            )
            == OK
        )
        assert value.value == number
    assert lt.cublasLtMatmulAlgoInit(gpu.handle, *types, 99, byref(algo)) == INVALID_VALUE
    assert (
        lt.cublasLtMatmulAlgoInit(gpu.handle, 68, R32, R64, R64, R64, R64, 0, byref(algo))
        == NOT_SUPPORTED
    )
    assert (
        lt.cublasLtMatmulAlgoConfigSetAttribute(byref(algo), 1, byref(c_uint32(18)), c_size_t(4))
        == OK
    )
    assert (
        lt.cublasLtMatmulAlgoConfigSetAttribute(byref(algo), 0, byref(c_uint32(1)), c_size_t(4))
        == INVALID_VALUE
    )
    for attribute, size in ((0, 4), (6, 4), (11, 4), (12, 4), (15, 8), (16, 4)):
        needed, value8 = c_size_t(), c_uint64()
        capability = lt.cublasLtMatmulAlgoCapGetAttribute
        assert capability(byref(result.algo), attribute, None, c_size_t(0), byref(needed)) == OK
        assert needed.value == size
        assert (
            capability(byref(result.algo), attribute, byref(value8), needed, byref(written)) == OK
        )


def descriptors(gpu: Gpu) -> None:
    """Attributes come back; wrong sizes, numbers and room are refused."""
    lt, written = gpu.lt, c_size_t()
    operand, product = square(gpu)[0], Product(gpu, 68, R32)
    for attribute, kind, value in (
        (TYPE, c_uint32, R32),
        (ROWS, c_uint64, 4),
        (LD, c_int64, 7),
        (BATCH, c_int32, 1),
    ):
        got = kind()
        size = c_size_t(ctypes.sizeof(got))
        assert (
            lt.cublasLtMatrixLayoutGetAttribute(
                operand.layout, attribute, byref(got), size, byref(written)
            )
            == OK
        )
        assert got.value == value
        assert written.value == size.value
    setter = lt.cublasLtMatmulDescSetAttribute
    assert setter(product.desc, TRANSA, byref(c_int32(1)), c_size_t(8)) == INVALID_VALUE
    assert setter(product.desc, 77, byref(c_int32(1)), c_size_t(4)) == INVALID_VALUE
    assert setter(product.desc, TRANSA, None, c_size_t(4)) == INVALID_VALUE
    assert setter(None, TRANSA, byref(c_int32(1)), c_size_t(4)) == INVALID_VALUE
    needed = c_size_t()
    assert (
        lt.cublasLtMatmulDescGetAttribute(product.desc, BIAS, None, c_size_t(0), byref(needed))
        == OK
    )
    assert needed.value == 8
    room = (c_byte * 256)()
    assert lt.cublasLtMatmulDescInit_internal(byref(room), c_size_t(16), 68, R32) == 3
    assert lt.cublasLtMatmulDescInit_internal(byref(room), c_size_t(256), 68, R32) == OK
    small = (c_byte * 64)()
    sizes = (c_size_t(64), R32, c_uint64(4), c_uint64(4), c_int64(4))
    assert lt.cublasLtMatrixLayoutInit_internal(byref(small), *sizes) == OK
    assert lt.cublasLtMatmulPreferenceInit_internal(byref(small), c_size_t(64)) == OK
    assert lt.cublasLtMatrixTransformDescInit_internal(byref(small), c_size_t(64), R32) == OK
    for destroy, thing in (
        (lt.cublasLtMatrixLayoutDestroy, operand.layout),
        (lt.cublasLtMatmulDescDestroy, product.desc),
    ):
        assert destroy(thing) == OK


def handles(gpu: Gpu) -> None:
    """A handle of its own, one of cuBLAS, and none."""
    handle, some, product = c_void_p(), square(gpu), Product(gpu, 68, R32)
    assert gpu.lt.cublasLtCreate(byref(handle)) == OK
    for one in (handle, gpu.handle):
        gpu.ok(product.run(*some, handle=one))
    assert product.run(*some, handle=c_void_p()) == NOT_INITIALIZED
    gpu.ok(gpu.wait())
    assert np.all(some[3].get() == 4)
    assert gpu.lt.cublasLtDestroy(handle) == OK
    gpu.lt.cublasLtGetVersion.restype = c_size_t
    assert gpu.lt.cublasLtGetVersion() // 10000 in (12, 13)


def arguments(gpu: Gpu) -> None:
    """What is refused at the call."""
    some = square(gpu)

    def status(**attributes: Any) -> int:
        product = Product(gpu, 68, R32)
        for name, value in attributes.items():
            product.set(globals()[name], value)
        return product.run(*some)

    assert status() == OK
    assert status(EPILOGUE=c_uint32(3)) == INVALID_VALUE
    assert status(EPILOGUE=c_uint32(RELU | WITH_AUX)) == INVALID_VALUE
    assert (
        status(EPILOGUE=c_uint32(GELU | WITH_AUX), AUX=c_uint64(some[0].address), AUX_LD=c_int64(5))
        == INVALID_VALUE
    )
    assert status(TRANSA=c_int32(7)) == INVALID_VALUE
    assert status(POINTER_MODE=c_int32(2)) == NOT_SUPPORTED
    for attribute, value, want in (
        (LD, c_int64(3), INVALID_VALUE),
        (ROWS, c_uint64(3), INVALID_VALUE),
        (BATCH, c_int32(2), INVALID_VALUE),
        (ORDER, c_int32(2), NOT_SUPPORTED),
        (TYPE, c_int32(R64), NOT_SUPPORTED),
        (TYPE, c_int32(28), NOT_SUPPORTED),
        (BATCH, c_int32(0), INVALID_VALUE),
    ):
        some = square(gpu)
        some[0].set(attribute, value)
        assert status() == want, (attribute, value)
    some = square(gpu)
    some[2].address = 0
    assert status() == OK, "C is not read"
    assert Product(gpu, 68, R32).run(*some, beta=1) == INVALID_VALUE
    some[3].address = 0
    assert status() == INVALID_VALUE


def wild(gpu: Gpu) -> None:
    """A batch that ends outside of all memory."""
    some = square(gpu)
    for operand in some:
        operand.set(BATCH, c_int32(2))
    some[1].set(STRIDE, c_int64(1 << 40))
    assert Product(gpu, 68, R32).run(*some) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


def wild_bias(gpu: Gpu) -> None:
    """A bias that is not there."""
    product = Product(gpu, 68, R32).set(EPILOGUE, c_uint32(ADD_BIAS)).set(BIAS, c_uint64(0x1000))
    assert product.run(*square(gpu)) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


def capture(gpu: Gpu) -> None:
    """Captured, and replayed after descriptors and handle are gone."""
    some, product, stream = square(gpu), Product(gpu, 68, R32), gpu.stream()
    graph, runnable = c_void_p(), c_void_p()
    gpu.ok(gpu.cuda.cuStreamBeginCapture_v2(stream, 0))
    gpu.ok(product.run(some[0], some[1], some[3], some[3], 1, 1, stream=stream))
    gpu.ok(gpu.cuda.cuStreamEndCapture(stream, byref(graph)))
    gpu.ok(gpu.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    gpu.ok(gpu.lt.cublasLtMatmulDescDestroy(product.desc))
    gpu.ok(gpu.blas.cublasDestroy_v2(gpu.handle))
    for _ in range(3):
        gpu.ok(gpu.cuda.cuGraphLaunch(runnable, stream))
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    assert np.all(some[3].get() == 13)


def transforms(gpu: Gpu) -> None:
    """From one order and type to another, with and without a second matrix."""
    rng = np.random.default_rng(7)
    for variant in range(16):
        batch, m, n = (int(x) for x in rng.integers(1, 6, 3))
        ops, orders = rng.integers(0, 2, 2), [int(x) for x in rng.integers(0, 2, 3)]
        codes = (R32, R16, R32) if variant % 2 else (BF16, R32, R16)
        a = Operand(
            gpu,
            draw(rng, (batch, n, m) if ops[0] else (batch, m, n), codes[0]),
            codes[0],
            orders[0],
        )
        b = Operand(
            gpu,
            draw(rng, (batch, n, m) if ops[1] else (batch, m, n), codes[1]),
            codes[1],
            orders[1],
        )
        c = Operand(gpu, draw(rng, (batch, m, n), codes[2]), codes[2], orders[2])
        desc, second = c_void_p(), variant % 3 > 0
        gpu.ok(gpu.lt.cublasLtMatrixTransformDescCreate(byref(desc), R32))
        for attribute, op in ((2, ops[0]), (3, ops[1])):
            setter = gpu.lt.cublasLtMatrixTransformDescSetAttribute
            gpu.ok(setter(desc, attribute, byref(c_int32(int(op))), c_size_t(4)))
        status = gpu.lt.cublasLtMatrixTransform(
            gpu.handle,
            desc,
            byref(c_float(2)),
            c_void_p(a.address),
            a.layout,
            byref(c_float(-1)) if second else None,
            c_void_p(b.address) if second else None,
            b.layout if second else None,
            c_void_p(c.address),
            c.layout,
            None,
        )
        gpu.ok(status)
        gpu.ok(gpu.wait())
        same(
            c.get(), 2 * turn(a.get(), ops[0]) - (turn(b.get(), ops[1]) if second else 0), codes[2]
        )


CASES = {
    case.__name__: case
    for case in (
        products,
        epilogues,
        heuristics,
        descriptors,
        handles,
        arguments,
        wild,
        wild_bias,
        capture,
        transforms,
    )
}

if __name__ == "__main__":
    CASES[sys.argv[1]](Gpu())
