# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuSOLVER behaves beside computing: ``python -m tests.sim.solver_behaviour CASE``, each in a
process."""

from __future__ import annotations

import sys
import time
from ctypes import byref, c_double, c_int, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, Gate
from tests.sim.blas_client import run_threads
from tests.sim.solver_client import (
    INVALID_VALUE,
    LOWER,
    NOT_INITIALIZED,
    OK,
    VECTORS,
    N,
    Solver,
    definite,
)
from tests.sim.solver_refusals import refused_reductions

SIDE = 8


def prepared(s: Solver) -> tuple[tuple[object, ...], int]:
    """Arguments of a factorisation of a diagonal of fours, and where the matrix is."""
    x = s.upload(4 * np.eye(SIDE))
    return (LOWER, SIDE, x, SIDE, *s.area("D", "Dpotrf", LOWER, SIDE, x, SIDE), s.info()), x


def first(s: Solver, x: int) -> float:
    return float(s.vector(x, 1, "f8")[0])


def streams(s: Solver) -> None:
    """Work waits for what is before it on its stream, the caller for neither; the handle may be gone."""
    stream, (arguments, x) = s.stream(), prepared(s)
    s.set_stream(stream)
    found = c_void_p()
    s.good(s.solver.cusolverDnGetStream(s.dn, byref(found)))
    assert found.value == stream.value
    gate = Gate(s, stream)
    for _ in range(2):
        s.do("Dpotrf", *arguments)
    s.good(s.solver.cusolverDnDestroy(s.dn))
    time.sleep(0.05)
    assert s.cuda.cuStreamQuery(stream) == 600
    gate.open()
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert np.isclose(first(s, x), 2**0.5)


def capture(s: Solver) -> None:
    """Captured work runs with each replay, and after its handle is gone."""
    stream, graph, runnable, (arguments, x) = s.stream(), c_void_p(), c_void_p(), prepared(s)
    s.set_stream(stream)
    s.do("Dpotrf", *arguments)  # its kind is known
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert first(s, x) == 2
    s.ok(s.cuda.cuStreamBeginCapture_v2(stream, 0))
    s.do("Dpotrf", *arguments)
    s.ok(s.cuda.cuStreamEndCapture(stream, byref(graph)))
    assert first(s, x) == 2, "nothing runs while it is captured"
    s.ok(s.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    s.ok(s.cuda.cuGraphDestroy(graph))
    s.good(s.solver.cusolverDnDestroy(s.dn))
    for _ in range(2):
        s.ok(s.cuda.cuGraphLaunch(runnable, stream))
    s.ok(s.cuda.cuStreamSynchronize(stream))
    assert np.isclose(first(s, x), 2**0.25)
    s.ok(s.cuda.cuGraphExecDestroy(runnable))


def wild_address(s: Solver) -> None:
    """An address that is none of the device's makes the context fail, as a kernel would."""
    arguments, _ = prepared(s)
    assert s.status("Dpotrf", *arguments[:2], 0x1000, *arguments[3:]) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def few_bytes(s: Solver) -> None:
    """So does a work area that is shorter than is said."""
    x, big = s.alloc(8 << 20), 1 << 10
    _, elements = s.area("D", "Dpotrf", LOWER, big, x, big)
    assert s.status("Dpotrf", LOWER, big, x, big, s.alloc(1), elements << 8, s.info()) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def wild_batch(s: Solver) -> None:
    """So does a matrix of a batch."""
    x, info = s.array([s.upload(np.eye(4)), 0x1000]), s.info(2)
    assert s.status("DpotrfBatched", LOWER, 4, x, 4, info, 2) == OK
    assert s.wait() == ILLEGAL_ADDRESS


def refusals(s: Solver) -> None:
    """What is no shape, no side, too small an area or no handle is refused at once."""
    (uplo, n, x, lda, area, elements, info), _ = prepared(s)
    size = np.zeros(1, "i4")
    for wrong in ((2, n, x, lda), (uplo, -1, x, lda), (uplo, n, x, n - 1)):
        assert s.status("Dpotrf", *wrong, area, elements, info) == INVALID_VALUE, wrong
    for wrong in ((uplo, -1, x, lda), (uplo, n, x, n - 1)):
        assert s.status("Dpotrf_bufferSize", *wrong, size) == INVALID_VALUE, wrong
    assert s.status("Dpotrf_bufferSize", uplo, n, x, lda, None) == INVALID_VALUE
    assert s.status("Dpotrf", uplo, n, x, lda, area, 1, info) == INVALID_VALUE
    assert s.status("Dgetrs", 3, n, 1, x, lda, None, x, lda, info) == INVALID_VALUE
    assert (
        s.status("Dgesvd", "A", "A", 3, 4, x, 3, x, x, 3, x, 4, area, elements, None, info)
        == INVALID_VALUE
    )
    assert s.status("DpotrsBatched", uplo, n, 2, x, lda, x, lda, info, 1) == INVALID_VALUE  # fmt: skip
    kept, s.dn = s.dn, c_void_p()
    assert s.status("Dpotrf", uplo, n, x, lda, area, elements, info) == NOT_INITIALIZED
    assert s.status("Dpotrf_bufferSize", uplo, n, x, lda, size) == NOT_INITIALIZED
    s.dn = kept
    for mode, status in ((2, OK), (1, OK), (0, INVALID_VALUE), (3, INVALID_VALUE)):
        assert s.solver.cusolverDnSetDeterministicMode(s.dn, mode) == status
        s.do("Dpotrf", uplo, n, x, lda, area, elements, info)
    found = c_int()
    s.good(s.solver.cusolverDnGetDeterministicMode(s.dn, byref(found)))
    assert found.value == 1
    s.good(s.wait())


def objects(s: Solver) -> None:
    """Objects are of their kind, live until they end, and parameters have functions and algorithms."""
    x, area, info = s.upload(np.eye(4)), s.alloc(1 << 16), s.info()
    one, other, params = s.made("SyevjInfo"), s.made("GesvdjInfo"), s.made("Params")
    shapes = (VECTORS, LOWER, 4, x, 4, s.alloc(64))
    for wrong in (None, other, params):
        assert s.status("Dsyevj", *shapes, area, 4096, info, wrong) == INVALID_VALUE
        sweeps = np.zeros(1, "i4")
        assert s.status("XsyevjGetSweeps", wrong, sweeps) == INVALID_VALUE
    assert s.solver.cusolverDnXsyevjSetTolerance(other, c_double(1)) == INVALID_VALUE
    svd = (VECTORS, 0, 4, 4, x, 4, s.alloc(64), s.alloc(256), 4, s.alloc(256), 4)
    for kind, call in (("syevj", ("Dsyevj", *shapes)), ("gesvdj", ("Dgesvdj", *svd))) * 2:
        # the second of each is not what the first was set to
        for tuned in ((1e-3, 0), (1e-4, 7), None, (1e-5, 1)):
            made = s.made(f"{kind.capitalize()}Info")
            if tuned:
                s.tune(kind, made, *tuned, 0)
            s.do(*call, area, 4096, info, made)
            tolerance, sweeps = tuned or (0, 100)
            assert s.ask(f"X{kind}GetSweeps", made) == [min(sweeps, 1)]
            assert s.ask(f"X{kind}GetResidual", made) == [tolerance]
            s.ended(f"{kind.capitalize()}Info", made)
    for function, algorithm, status in (
        (0, 1, OK),
        (6, 2, OK),
        (7, 0, INVALID_VALUE),
        (0, 3, INVALID_VALUE),
    ):
        assert s.solver.cusolverDnSetAdvOptions(params, function, algorithm) == status
        s.do("Xpotrs", params, LOWER, 4, 1, 1, x, 4, 1, x, 4, info)
    assert s.status("Xpotrs", one, LOWER, 4, 1, 1, x, 4, 1, x, 4, info) == INVALID_VALUE
    s.good(s.wait())  # fmt: skip


def handles(s: Solver) -> None:
    """Handles have streams of their own; an object serves several, and outlives them."""
    made, x, info = s.made("SyevjInfo"), s.upload(np.eye(4)), s.info()
    area, w = s.alloc(1 << 16), s.alloc(64)
    for number in range(4):
        s.good(s.solver.cusolverDnCreate(byref(s.dn)))
        s.set_stream(s.stream())
        s.tune("syevj", made, number, 9, 1)
        s.do("Dsyevj", VECTORS, LOWER, 4, x, 4, w, area, 4096, info, made)
        assert s.ask("XsyevjGetSweeps", made) == [1]
        # another handle finds the same results
        kept, s.dn = s.dn, c_void_p()
        s.good(s.solver.cusolverDnCreate(byref(s.dn)))
        assert s.ask("XsyevjGetResidual", made) == [number]
        s.good(s.solver.cusolverDnDestroy(s.dn))
        s.dn = kept
        s.good(s.solver.cusolverDnDestroy(s.dn))
    s.ended("SyevjInfo", made)
    s.good(s.wait())


def threads(s: Solver) -> None:
    """Threads solve with handles of their own at once."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        s.cuda.cuCtxSetCurrent(s.context)
        a, handle = definite(np.random.default_rng(seed), "D", SIDE), c_void_p()
        s.good(s.solver.cusolverDnCreate(byref(handle)))
        x, y, info = s.upload(a), s.upload(np.ones(SIDE)), s.info()
        pivots, area = s.alloc(64), s.alloc(1 << 16)
        for call, arguments in (
            ("getrf", (SIDE, SIDE, c_void_p(x), SIDE, c_void_p(area), c_void_p(pivots))),
            ("getrs", (N, SIDE, 1, c_void_p(x), SIDE, c_void_p(pivots), c_void_p(y), SIDE)),
        ):
            function = getattr(s.solver, f"cusolverDnD{call}")
            s.good(function(handle, *arguments, c_void_p(info)))
        if not np.allclose(a.T @ s.vector(y, SIDE, "f8"), 1):
            wrong.append(seed)
        s.good(s.solver.cusolverDnDestroy(handle))

    run_threads(work, 4)
    assert not wrong


def without_context(s: Solver) -> None:
    """Without a current context the device's primary one is used."""
    s.ok(s.cuda.cuCtxSetCurrent(None))
    s.good(s.solver.cusolverDnCreate(byref(s.dn)))
    arguments, x = prepared(s)
    s.do("Dpotrf", *arguments)
    assert first(s, x) == 2


CASES = {
    case.__name__: case
    for case in (
        streams, capture, wild_address, few_bytes, wild_batch, refusals, objects, handles, threads, without_context,
        refused_reductions,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]](Solver())
