# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuBLAS behaves beside computing: ``python -m tests.sim.blas_behaviour CASE``, each in a process."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_client import (
    BF16,
    C32,
    DEVICE,
    EXECUTION_FAILED,
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
    Matrix,
    Scalar,
    Vector,
)

ILLEGAL_ADDRESS, INVALIDATED, UNSUPPORTED_IN_CAPTURE = 700, 901, 900
MIB = 1 << 20
N = 1000


def free_memory(gpu: Gpu) -> int:
    free, total = c_size_t(), c_size_t()
    gpu.ok(gpu.cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value


def scal(gpu: Gpu, factor: float, address: int, n: int = N, inc: int = 1) -> int:
    """x = factor * x on the handle's stream."""
    return int(
        gpu.blas.cublasSscal_v2(gpu.handle, n, byref(c_float(factor)), c_void_p(address), inc)
    )


def axpy(gpu: Gpu, factor: float, x: int, y: int, n: int = N) -> int:
    """y = factor * x + y"""
    return int(
        gpu.blas.cublasSaxpy_v2(
            gpu.handle, n, byref(c_float(factor)), c_void_p(x), 1, c_void_p(y), 1
        )
    )


def use(gpu: Gpu, stream: c_void_p) -> None:
    gpu.ok(gpu.blas.cublasSetStream_v2(gpu.handle, stream))


def read(gpu: Gpu, address: int, n: int = N) -> np.ndarray:
    out = np.zeros(n, "f4")
    gpu.download(address, out)
    return out


def settings(gpu: Gpu) -> None:
    """What a handle remembers, and its version."""
    value = c_int()
    for name, good, bad in (
        ("PointerMode_v2", 1, 7),
        ("AtomicsMode", 1, 2),
        ("MathMode", 3, -1),
        ("SmCountTarget", 20, -2),
    ):
        setter, getter = (getattr(gpu.blas, f"cublas{verb}{name}") for verb in ("Set", "Get"))
        assert getter(gpu.handle, byref(value)) == OK
        assert value.value == 0
        assert setter(gpu.handle, good) == OK
        assert getter(gpu.handle, byref(value)) == OK
        assert value.value == good
        assert setter(gpu.handle, bad) == INVALID_VALUE
        assert setter(None, good) == getter(None, byref(value)) == NOT_INITIALIZED
        assert getter(gpu.handle, None) == INVALID_VALUE
    assert gpu.blas.cublasGetVersion_v2(gpu.handle, byref(value)) == OK
    assert value.value // 10000 in (12, 13)
    numbers = [c_int() for _ in range(3)]
    for kind, number in enumerate(numbers):
        assert gpu.blas.cublasGetProperty(kind, byref(number)) == OK
    assert numbers[0].value * 10000 + numbers[1].value * 100 + numbers[2].value == value.value
    assert gpu.blas.cublasGetProperty(3, byref(value)) == INVALID_VALUE
    gpu.blas.cublasGetStatusName.restype = ctypes.c_char_p
    assert gpu.blas.cublasGetStatusName(13) == b"CUBLAS_STATUS_EXECUTION_FAILED"
    stream, seen = gpu.stream(), c_void_p()
    use(gpu, stream)
    assert gpu.blas.cublasGetStream_v2(gpu.handle, byref(seen)) == OK
    assert seen.value == stream.value


def handles(gpu: Gpu) -> None:
    """No handle, and one that is gone."""
    values = {"n": 1, "alpha": Scalar(1, R32), "x": Vector([1.0], R32), "incx": 1}
    good, gpu.handle = gpu.handle, c_void_p()
    assert (
        gpu.blas.cublasSscal_v2(
            None, 1, byref(c_float(1)), c_void_p(values["x"].raw.ctypes.data), 1
        )
        == NOT_INITIALIZED
    )
    gpu.handle = good
    assert gpu.blas.cublasDestroy_v2(None) == NOT_INITIALIZED
    assert gpu.blas.cublasCreate_v2(None) == INVALID_VALUE
    assert gpu.blas.cublasDestroy_v2(gpu.handle) == OK


def workspace(gpu: Gpu) -> None:
    """Memory is taken with the first work, and not where the program has given some; SetStream forgets what it gave."""
    x = gpu.alloc(4 * N)
    own = gpu.alloc(4 * MIB)
    before = free_memory(gpu)
    assert (
        gpu.blas.cublasSetWorkspace_v2(gpu.handle, c_void_p(own + 1), c_size_t(MIB))
        == INVALID_VALUE
    )
    assert gpu.blas.cublasSetWorkspace_v2(gpu.handle, c_void_p(own), c_size_t(4 * MIB)) == OK
    assert scal(gpu, 1, x) == OK
    assert free_memory(gpu) == before
    use(gpu, gpu.stream())
    assert scal(gpu, 1, x) == OK
    assert free_memory(gpu) == before - 4 * MIB
    assert scal(gpu, 1, x) == OK
    assert free_memory(gpu) == before - 4 * MIB
    assert gpu.blas.cublasDestroy_v2(gpu.handle) == OK
    assert free_memory(gpu) == before


def no_memory(gpu: Gpu) -> None:
    """A full device has no workspace."""
    x = gpu.alloc(4 * N)
    while free_memory(gpu) > 64 * MIB:
        gpu.alloc((free_memory(gpu) - 32 * MIB) // (2 * MIB) * 2 * MIB)
    while free_memory(gpu) >= 2 * MIB:
        gpu.alloc(2 * MIB)
    assert scal(gpu, 1, x) == 3


def streams(gpu: Gpu) -> None:
    """Work waits for what is before it on its stream, and the caller for neither."""
    stream = gpu.stream()
    x = gpu.upload(np.ones(N, "f4"))
    use(gpu, stream)
    assert scal(gpu, 1, x) == OK
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    gate = Gate(gpu, stream)
    factor = c_float(3)
    assert gpu.blas.cublasSscal_v2(gpu.handle, N, byref(factor), c_void_p(x), 1) == OK
    factor.value = 100  # read at the call
    assert axpy(gpu, 1, x, x) == OK
    time.sleep(0.05)
    assert gpu.cuda.cuStreamQuery(stream) == 600
    other = np.zeros(N, "f4")
    second = gpu.stream()
    data = c_void_p(other.ctypes.data)
    gpu.ok(gpu.cuda.cuMemcpyDtoHAsync_v2(data, c_uint64(x), c_size_t(4 * N), second))
    gpu.ok(gpu.cuda.cuStreamSynchronize(second))
    assert np.all(other == 1), "another stream does not wait"
    gate.open()
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    assert np.all(read(gpu, x) == 6)


def device_scalars(gpu: Gpu) -> None:
    """In device mode factors are read when the work runs, and results are not waited for."""
    x, factor = gpu.upload(np.ones(N, "f4")), gpu.upload(np.array([2], "f4"))
    stream = gpu.stream()
    use(gpu, stream)
    gpu.pointer_mode(DEVICE)
    gate = Gate(gpu, stream)
    assert gpu.blas.cublasSscal_v2(gpu.handle, N, c_void_p(factor), c_void_p(x), 1) == OK
    assert gpu.blas.cublasSasum_v2(gpu.handle, N, c_void_p(x), 1, c_void_p(factor)) == OK
    second = gpu.stream()
    five = np.array([5], "f4")
    gpu.ok(
        gpu.cuda.cuMemcpyHtoDAsync_v2(
            c_uint64(factor), c_void_p(five.ctypes.data), c_size_t(4), second
        )
    )
    gpu.ok(gpu.cuda.cuStreamSynchronize(second))
    gate.open()
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    assert np.all(read(gpu, x) == 5)
    assert read(gpu, factor, 1)[0] == 5 * N


class Gate:
    """Holds a stream until it is opened."""

    def __init__(self, gpu: Gpu, stream: c_void_p) -> None:
        self._open = threading.Event()
        self._function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: self._open.wait(30) and None)
        gpu.ok(gpu.cuda.cuLaunchHostFunc(stream, self._function, None))

    def open(self) -> None:
        """What waits may go on."""
        self._open.set()


def wild_vector(gpu: Gpu) -> None:
    """A vector that ends outside of all memory makes the context fail, as a kernel would; nothing is changed."""
    x = gpu.upload(np.ones(N, "f4"))
    assert scal(gpu, 2, x, inc=MIB) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS
    assert scal(gpu, 2, x) != OK
    stream = c_void_p()
    assert gpu.cuda.cuStreamCreate(byref(stream), 0) == ILLEGAL_ADDRESS


def wild_matrix(gpu: Gpu) -> None:
    """The same of a matrix of a batch with too large a stride; the result on the host is an error at once."""
    a = gpu.upload(np.ones(64, "f8"))
    one = c_double(1)
    status = gpu.blas.cublasDgemmStridedBatched(
        gpu.handle,
        0,
        0,
        8,
        8,
        8,
        byref(one),
        c_void_p(a),
        8,
        ctypes.c_longlong(0),
        c_void_p(a),
        8,
        ctypes.c_longlong(0),
        byref(one),
        c_void_p(a),
        8,
        ctypes.c_longlong(1 << 40),
        2,
    )
    assert status == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


def wild_result(gpu: Gpu) -> None:
    """A call that waits for its result says so itself."""
    status = gpu.blas.cublasSasum_v2(gpu.handle, N, c_void_p(0x1000), 1, byref(c_float()))
    assert status == EXECUTION_FAILED
    assert gpu.wait() == ILLEGAL_ADDRESS


def wild_array(gpu: Gpu) -> None:
    """An address in an array of addresses."""
    good = gpu.upload(np.ones(16, "f4"))
    array = gpu.upload(np.array([good, 0x1000], "u8"))
    one = c_float(1)
    status = gpu.blas.cublasSgemmBatched(
        gpu.handle,
        0,
        0,
        4,
        4,
        4,
        byref(one),
        c_void_p(array),
        4,
        c_void_p(array),
        4,
        byref(one),
        c_void_p(array),
        4,
        2,
    )
    assert status == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


def wild_scalar(gpu: Gpu) -> None:
    """A factor in device mode that is the host's."""
    x = gpu.upload(np.ones(N, "f4"))
    gpu.pointer_mode(DEVICE)
    assert scal(gpu, 2, x) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


def other_context(gpu: Gpu) -> None:
    """A fault takes the device from the process: nothing more is to be had there, in no context."""
    second = c_void_p()
    assert scal(gpu, 2, 0x1000) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS
    assert gpu.cuda.cuCtxCreate_v2(byref(second), 0, 0) == ILLEGAL_ADDRESS
    assert gpu.blas.cublasCreate_v2(byref(c_void_p())) != OK


def primary(gpu: Gpu) -> None:
    """Without a current context the device's primary one is taken."""
    gpu.ok(gpu.cuda.cuCtxPopCurrent_v2(byref(c_void_p())))
    handle, current, context = c_void_p(), c_void_p(), c_void_p()
    assert gpu.blas.cublasCreate_v2(byref(handle)) == OK
    gpu.ok(gpu.cuda.cuCtxGetCurrent(byref(current)))
    gpu.ok(gpu.cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
    assert current.value == context.value


def missing_operands(gpu: Gpu) -> None:
    """What a factor of 0 leaves out need not be there; nor what has no elements."""
    c = gpu.upload(np.ones(16, "f4"))
    zero, two = c_float(0), c_float(2)
    status = gpu.blas.cublasSgemm_v2(
        gpu.handle, 0, 0, 4, 4, 4, byref(zero), None, 4, None, 4, byref(two), c_void_p(c), 4
    )
    assert status == OK
    assert gpu.wait() == OK
    assert np.all(read(gpu, c, 16) == 2)
    nan = gpu.upload(np.full(16, np.nan, "f4"))
    status = gpu.blas.cublasSgemm_v2(
        gpu.handle, 0, 0, 4, 4, 4, byref(zero), c_void_p(nan), 4, c_void_p(nan), 4, byref(two), c_void_p(c), 4
    )  # fmt: skip
    assert status == OK
    assert gpu.wait() == OK
    assert np.all(read(gpu, c, 16) == 4), "not read, where it is there"
    status = gpu.blas.cublasSgemmStridedBatched(
        gpu.handle, 0, 0, 2, 2, 2, byref(zero), None, 2, c_int64(4), None, 2, c_int64(4), byref(two), c_void_p(c), 2,
        c_int64(4), 4,
    )  # fmt: skip
    assert status == OK
    assert gpu.wait() == OK
    assert np.all(read(gpu, c, 16) == 8)
    assert scal(gpu, 0.25, c, n=16) == OK
    assert scal(gpu, 2, 0, n=0) == OK
    assert scal(gpu, 2, 0, n=-1) == OK
    result = c_float(7)
    assert gpu.blas.cublasSnrm2_v2(gpu.handle, 0, None, 1, byref(result)) == OK
    assert result.value == 0
    status = gpu.blas.cublasSgemm_v2(
        gpu.handle,
        0,
        0,
        4,
        4,
        4,
        byref(two),
        c_void_p(c),
        4,
        c_void_p(c),
        4,
        byref(zero),
        c_void_p(nan),
        4,
    )
    assert status == OK
    assert np.all(read(gpu, nan, 16) == 32), "what is not added may be anything"


def gemm_values(**changes: object) -> dict[str, object]:
    matrix = [Matrix(np.ones((4, 4)), R32) for _ in range(3)]
    values: dict[str, object] = {
        "transa": 0,
        "transb": 0,
        "m": 4,
        "n": 4,
        "k": 4,
        "alpha": Scalar(1, R32),
        "beta": Scalar(1, R32),
        "A": matrix[0],
        "lda": matrix[0].ld,
        "B": matrix[1],
        "ldb": matrix[1].ld,
        "C": matrix[2],
        "ldc": matrix[2].ld,
        "Atype": R32,
        "Btype": R32,
        "Ctype": R32,
        "computeType": 68,
        "algo": -1,
    }
    return values | changes


def arguments(gpu: Gpu) -> None:
    """Wrong arguments are refused at the call, and change nothing."""
    for changes in (
        {"m": -1},
        {"n": -1},
        {"k": -1},
        {"lda": 3},
        {"ldb": 3},
        {"ldc": 3},
        {"transa": 4},
        {"transb": -1},
        {"alpha": None},
        {"beta": None},
        {"ldc": 0},
    ):
        for name in ("Sgemm_v2", "Sgemm_v2_64", "GemmEx"):
            assert gpu.call(name, gemm_values(**changes)) == INVALID_VALUE, (name, changes)
    vector = Vector(np.ones(4), R32)
    matrix = Matrix(np.ones((4, 4)), R32)
    values = {
        "uplo": 0,
        "trans": 0,
        "diag": 0,
        "n": 4,
        "A": matrix,
        "lda": matrix.ld,
        "x": vector,
        "incx": 1,
    }
    for changes in ({"uplo": 3}, {"diag": 2}, {"n": -1}, {"incx": 0}, {"lda": 2}):
        assert gpu.call("Strsv_v2", values | changes) == INVALID_VALUE, changes
    reduction = {"n": 4, "x": vector, "incx": 1, "result": None}
    assert gpu.call("Sasum_v2", reduction) == INVALID_VALUE
    herk = {
        "uplo": 0,
        "trans": 1,
        "n": 4,
        "k": 4,
        "alpha": Scalar(1, R32),
        "beta": Scalar(1, R32),
        "A": Matrix(np.ones((4, 4)), C32, 0),
    }
    herk |= {"lda": 4, "C": Matrix(np.ones((4, 4)), C32, 0), "ldc": 4}
    assert gpu.call("Cherk_v2", herk) == INVALID_VALUE


def types(gpu: Gpu) -> None:
    """Combinations of types that the documentation does not list."""
    for changes in (
        {"Atype": R64},
        {"Atype": R16, "Btype": BF16},
        {"Atype": R64, "Btype": R64},
        {"Ctype": R16},
        {"computeType": 70},
        {"computeType": 64},
        {"Atype": RI8, "Btype": RI8, "Ctype": RI32},
        {"Atype": 28, "Btype": 28},
        {"computeType": 77, "Atype": R16, "Btype": R16},
    ):
        assert gpu.call("GemmEx", gemm_values(**changes)) == NOT_SUPPORTED, changes
    assert gpu.call("GemmEx", gemm_values(computeType=5)) == INVALID_VALUE
    vector = Vector(np.ones(4), R32)
    values = {
        "n": 4,
        "x": vector,
        "xType": R32,
        "incx": 1,
        "result": Scalar(0, R32),
        "resultType": R64,
        "executionType": R32,
    }
    assert gpu.call("Nrm2Ex", values) == NOT_SUPPORTED
    assert gpu.call("Nrm2Ex", values | {"resultType": R32}) == OK


def large(gpu: Gpu) -> None:
    """A size beyond 32 bits is refused where the functions take 64."""
    assert (
        gpu.blas.cublasSscal_v2_64(
            gpu.handle, c_int64(1 << 33), byref(c_float(1)), None, c_int64(1)
        )
        == NOT_SUPPORTED
    )


def neighbours(gpu: Gpu) -> None:
    """Mapped memory reaches from one piece into the next."""

    class Location(ctypes.Structure):
        _fields_ = [("type", c_int), ("id", c_int)]

    class Properties(ctypes.Structure):
        _fields_ = [
            ("type", c_int),
            ("handles", c_int),
            ("location", Location),
            ("meta", c_void_p),
            ("flags", ctypes.c_ubyte * 32),
        ]

    class Access(ctypes.Structure):
        _fields_ = [("location", Location), ("flags", c_int)]

    piece, base = 2 * MIB, c_uint64()
    properties = Properties(type=1, location=Location(1, 0))
    gpu.ok(
        gpu.cuda.cuMemAddressReserve(
            byref(base), c_size_t(3 * piece), c_size_t(0), c_uint64(0), c_uint64(0)
        )
    )
    for i in range(2):
        handle = c_uint64()
        gpu.ok(gpu.cuda.cuMemCreate(byref(handle), c_size_t(piece), byref(properties), c_uint64(0)))
        gpu.ok(
            gpu.cuda.cuMemMap(
                c_uint64(base.value + i * piece), c_size_t(piece), c_size_t(0), handle, c_uint64(0)
            )
        )
    access = Access(Location(1, 0), 3)
    gpu.ok(gpu.cuda.cuMemSetAccess(base, c_size_t(2 * piece), byref(access), c_size_t(1)))
    gpu.ok(gpu.cuda.cuMemsetD32_v2(base, 0x3F800000, c_size_t(piece // 2)))
    assert scal(gpu, 4, base.value, n=piece // 2) == OK
    assert gpu.wait() == OK
    assert np.all(read(gpu, base.value, piece // 2) == 4)
    assert scal(gpu, 4, base.value, n=piece // 2 + 1) == OK
    assert gpu.wait() == ILLEGAL_ADDRESS


CASES = {
    case.__name__: case
    for case in (
        settings,
        handles,
        workspace,
        no_memory,
        streams,
        device_scalars,
        wild_vector,
        wild_matrix,
        wild_result,
        wild_array,
        wild_scalar,
        other_context,
        primary,
        missing_operands,
        arguments,
        types,
        large,
        neighbours,
    )
}


if __name__ == "__main__":
    CASES[sys.argv[1]](Gpu())
