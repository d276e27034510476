# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuSPARSE behaves beside computing: ``python -m tests.sim.sparse_behaviour CASE``, each in a
process."""

from __future__ import annotations

import sys
import time
from ctypes import byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, Gate
from tests.sim.blas_client import R32, R64, run_threads
from tests.sim.sparse_client import (
    COO,
    CSR,
    FILL,
    INVALID_VALUE,
    NARROW,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OK,
    N,
    Sparse,
)

SIDE = 8


def prepared(s: Sparse) -> tuple[tuple[Any, ...], int]:
    """Arguments of y = 2 y with a matrix of twos on its diagonal, and where y is."""
    m, (d, at) = s.store(2 * np.eye(SIDE), R64), s.vector(np.ones(SIDE), R64)
    words = (N, s.scalar(1, R64), m.descriptor, d, s.scalar(0, R64), d, R64, 0)
    return (*words, s.area("SpMV_bufferSize", *words)), at


def first(s: Sparse, at: int) -> float:
    return float(s.read(at, 1, R64)[0])


def streams(s: Sparse) -> None:
    """Work waits for what is before it on its stream, the caller for neither; handle and descriptors may be gone."""
    stream, (arguments, at) = s.stream(), prepared(s)
    s.set_stream(stream)
    found = c_void_p()
    s.good(s.sparse.cusparseGetStream(s.handle, byref(found)))
    assert found.value == stream.value
    gate = Gate(s, stream)
    for _ in range(2):
        s.do("SpMV", *arguments)
    s.good(s.sparse.cusparseDestroySpMat(arguments[2]))
    s.good(s.sparse.cusparseDestroyDnVec(arguments[3]))
    s.good(s.sparse.cusparseDestroy(s.handle))
    time.sleep(0.05)
    assert s.cuda.cuStreamQuery(stream) == 600
    gate.open()
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert first(s, at) == 4


def captured(s: Sparse, stream: c_void_p, work: Any) -> c_void_p:
    """A graph of that."""
    graph, runnable = c_void_p(), c_void_p()
    s.ok(s.cuda.cuStreamBeginCapture_v2(stream, 0))
    work()
    s.ok(s.cuda.cuStreamEndCapture(stream, byref(graph)))
    s.ok(s.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    s.ok(s.cuda.cuGraphDestroy(graph))
    return runnable


def capture(s: Sparse) -> None:
    """Captured work runs with each replay, and after its handle and descriptors are gone."""
    stream, (arguments, at) = s.stream(), prepared(s)
    s.set_stream(stream)
    s.do("SpMV", *arguments)  # its kind is known
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert first(s, at) == 2
    runnable = captured(s, stream, lambda: s.do("SpMV", *arguments))
    assert first(s, at) == 2, "nothing runs while it is captured"
    s.good(s.sparse.cusparseDestroySpMat(arguments[2]))
    s.good(s.sparse.cusparseDestroy(s.handle))
    for _ in range(2):
        s.ok(s.cuda.cuGraphLaunch(runnable, stream))
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert first(s, at) == 8
    s.ok(s.cuda.cuGraphExecDestroy(runnable))


def capture_solutions(s: Sparse) -> None:
    """So does what is solved with an object, which the program may end."""
    stream, m = s.stream(), s.store(np.eye(SIDE) / 2, R64)
    s.set_stream(stream)
    s.set_attribute(m, FILL, 0)
    (x, _), (y, at) = s.vector(np.ones(SIDE), R64), s.vector(np.zeros(SIDE), R64)
    o = s.made("SpSV_createDescr")
    words = (N, s.scalar(1, R64), m.descriptor, x, y, R64, 0, o)
    s.do("SpSV_analysis", *words, s.area("SpSV_bufferSize", *words))
    s.do("SpSV_solve", *words)
    runnable = captured(s, stream, lambda: s.do("SpSV_solve", *words))
    s.good(s.sparse.cusparseSpSV_destroyDescr(o))
    s.ok(s.cuda.cuMemsetD8_v2(c_uint64(at), 0, c_size_t(8 * SIDE)))
    s.good(s.wait())  # the stream does not wait for it
    s.ok(s.cuda.cuGraphLaunch(runnable, stream))
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert first(s, at) == 2
    s.ok(s.cuda.cuGraphExecDestroy(runnable))


def wild_address(s: Sparse) -> None:
    """An address that is none of the device's makes the context fail, as a kernel would."""
    arguments, _ = prepared(s)
    far = s.made("CreateDnVec", c_int64(SIDE), c_void_p(0x1000), R64)
    assert s.status("SpMV", *arguments[:3], far, *arguments[4:]) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def wild_column(s: Sparse) -> None:
    """So does an entry that lies outside of the matrix."""
    arguments, _ = prepared(s)
    m = s.store(np.eye(SIDE), R64)
    at = (c_void_p(m.arrays[0]), c_void_p(s.put([0, 1, 2, 3, 4, 5, 6, 1 << 20], NARROW)))
    s.good(s.sparse.cusparseCsrSetPointers(m.descriptor, *at, c_void_p(m.arrays[2])))
    assert s.status("SpMV", *arguments[:2], m.descriptor, *arguments[3:]) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def wild_offsets(s: Sparse) -> None:
    """And rows of more entries than there are."""
    arguments, _ = prepared(s)
    m = s.store(np.eye(SIDE), R64)
    at = (c_void_p(s.put([0, 1, 2, 3, 4, 5, 6, 7, 1 << 30], NARROW)), c_void_p(m.arrays[1]))
    s.good(s.sparse.cusparseCsrSetPointers(m.descriptor, *at, c_void_p(m.arrays[2])))
    assert s.status("SpMV", *arguments[:2], m.descriptor, *arguments[3:]) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def refusals(s: Sparse) -> None:
    """What is no shape, no operation, no descriptor or no handle is refused at once."""
    (op, alpha, m, x, beta, y, code, alg, buffer), _ = prepared(s)
    short = s.vector(np.ones(SIDE - 1), R64)[0]
    for wrong in (
        (3, alpha, m, x, beta, y, code, alg),
        (op, None, m, x, beta, y, code, alg),
        (op, alpha, None, x, beta, y, code, alg),
        (op, alpha, x, m, beta, y, code, alg),
        (op, alpha, m, short, beta, y, code, alg),
        (op, alpha, m, x, None, y, code, alg),
        (op, alpha, m, x, beta, short, code, alg),
    ):
        assert s.status("SpMV", *wrong, buffer) == INVALID_VALUE, wrong
        assert s.status("SpMV_bufferSize", *wrong, np.zeros(1, "u8")) == INVALID_VALUE, wrong
    assert s.status("SpMV", op, alpha, m, x, beta, y, 99, alg, buffer) == NOT_SUPPORTED
    assert s.status("SpMV", op, alpha, m, x, beta, y, code, alg, None) == INVALID_VALUE
    assert s.status("SpMV_bufferSize", op, alpha, m, x, beta, y, code, alg, None) == INVALID_VALUE
    # a solve without an analysis is refused
    o = s.made("SpSV_createDescr")
    assert s.status("SpSV_solve", op, alpha, m, x, y, code, alg, o) == INVALID_VALUE
    for wrong in (None, s.made("SpSM_createDescr"), m):
        assert s.status("SpSV_solve", op, alpha, m, x, y, code, alg, wrong) == INVALID_VALUE
        assert s.status("Xbsrsv2_zeroPivot", wrong, np.zeros(1, "i4")) == INVALID_VALUE
    assert s.status("Xcsrsort", 1, 1, 1, x, buffer, buffer, None, buffer) == INVALID_VALUE
    assert s.status("Xcoo2csr", buffer, -1, 1, buffer, 0) == INVALID_VALUE
    kept, s.handle = s.handle, c_void_p()
    assert s.status("SpMV", op, alpha, m, x, beta, y, code, alg, buffer) == NOT_INITIALIZED
    assert s.sparse.cusparseSetPointerMode(s.handle, 0) == NOT_INITIALIZED
    s.handle = kept
    assert s.sparse.cusparseSetPointerMode(s.handle, 2) == INVALID_VALUE
    s.good(s.wait())


def descriptors(s: Sparse) -> None:
    """They give back what they were set to, and refuse what is none."""
    lib, (a, b, c) = s.sparse, (c_int64() for _ in range(3))
    pointers, numbers = [c_void_p() for _ in range(3)], [c_int() for _ in range(4)]
    for form, name in ((CSR, "Csr"), (COO, "Coo")):
        m = s.store(np.eye(3), R32, form, NARROW, 1)
        got = [byref(v) for v in (a, b, c, *pointers, *numbers[: 4 if form == CSR else 3])]
        s.good(getattr(lib, f"cusparse{name}Get")(m.descriptor, *got))
        assert (a.value, b.value, c.value) == (3, 3, 3)
        assert [p.value for p in pointers] == m.arrays
        assert [n.value for n in numbers[: 4 if form == CSR else 3]] == (
            [2] if form == COO else [2, 2]
        ) + [1, 0]
        other = "Coo" if form == CSR else "Csr"
        assert getattr(lib, f"cusparse{other}SetPointers")(m.descriptor, *pointers) == INVALID_VALUE
        s.good(lib.cusparseSpMatGetFormat(m.descriptor, byref(numbers[0])))
        s.good(lib.cusparseSpMatGetIndexBase(m.descriptor, byref(numbers[1])))
        assert (numbers[0].value, numbers[1].value) == (form, 1)
        value = c_int(1)
        for number in (0, 1):
            s.good(lib.cusparseSpMatSetAttribute(m.descriptor, number, byref(value), c_size_t(4)))
            found = c_int()
            s.good(lib.cusparseSpMatGetAttribute(m.descriptor, number, byref(found), c_size_t(4)))
            assert found.value == 1
        assert (
            lib.cusparseSpMatSetAttribute(m.descriptor, 2, byref(value), c_size_t(4))
            == INVALID_VALUE
        )
        assert (
            lib.cusparseSpMatSetAttribute(m.descriptor, 0, byref(value), c_size_t(8))
            == INVALID_VALUE
        )
        s.good(lib.cusparseDestroySpMat(m.descriptor))
    wrong = c_void_p()
    for rows, nnz, width, base in ((-1, 0, 2, 0), (1, -1, 2, 0), (1, 1, 9, 0), (1, 1, 2, 2)):
        sizes = (c_int64(rows), c_int64(1), c_int64(nnz))
        assert (
            lib.cusparseCreateCsr(byref(wrong), *sizes, None, None, None, width, 2, base, 0)
            == INVALID_VALUE
        )
    assert (
        lib.cusparseCreateDnMat(byref(wrong), c_int64(3), c_int64(1), c_int64(2), None, 0, 1)
        == INVALID_VALUE
    )
    descr = s.descr(1, 1, 1)
    for name in ("FillMode", "DiagType", "IndexBase"):
        assert getattr(lib, f"cusparseGetMat{name}")(descr) == 1
        assert getattr(lib, f"cusparseSetMat{name}")(descr, 2) == INVALID_VALUE
    s.good(lib.cusparseSetMatType(descr, 3))
    assert lib.cusparseGetMatType(descr) == 3
    s.good(lib.cusparseDestroyMatDescr(descr))


def threads(s: Sparse) -> None:
    """Handles of several threads on one device."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        s.ok(s.cuda.cuCtxSetCurrent(s.context))
        mine = Sparse.__new__(Sparse)
        mine.__dict__.update(s.__dict__)
        mine.handle = c_void_p()
        mine.good(mine.sparse.cusparseCreate(byref(mine.handle)))
        for _ in range(20):
            arguments, at = prepared(mine)
            mine.do("SpMV", *arguments)
            if first(mine, at) != 2:
                wrong.append(seed)
        mine.good(mine.sparse.cusparseDestroy(mine.handle))

    run_threads(work, 4)
    assert not wrong


CASES = {
    case.__name__: case
    for case in (
        streams, capture, capture_solutions, wild_address, wild_column, wild_offsets, refusals, descriptors, threads,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]](Sparse())
