# SPDX-License-Identifier: Apache-2.0
"""What the functions of batches of systems compute, by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.blas_client import RI32, Matrix, Scalar, Vector, draw
from tests.sim.blas_draw import Draw, Values, turn


def square_batch(d: Draw, n: int, count: int) -> list[Matrix]:
    return [Matrix(draw(d.rng, (n, n), d.code) + 3 * np.eye(n), d.code) for _ in range(count)]


def factor(values: np.ndarray, pivots: bool) -> tuple[np.ndarray, np.ndarray]:
    """L and U in one matrix, and the exchanges counted from 1."""
    a, n = values.copy(), len(values)
    exchanges = np.arange(1, n + 1)
    for k in range(n):
        if pivots:
            p = k + int(np.argmax(np.abs(a[k:, k].real) + np.abs(a[k:, k].imag)))
            exchanges[k] = p + 1
            a[[k, p]] = a[[p, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, exchanges


def ints(n: int) -> np.ndarray:
    return np.full(n, 55, "i4")


def info() -> Scalar:
    return Scalar(99, RI32)


def getrf(d: Draw) -> tuple[Values, Any]:
    n, count, pivots = d.size(), 3, d.variant % 2 == 0
    some = square_batch(d, n, count)

    def expect(v: Values) -> None:
        v["info"][:] = 0
        for i in range(count):
            lu, exchanges = factor(v["A"][i].get(), pivots)
            v["A"][i].set(lu)
            if pivots:
                v["P"][i * n : i * n + n] = exchanges

    return {
        "n": n,
        "A": some,
        "lda": some[0].ld,
        "P": ints(n * count) if pivots else None,
        "info": ints(count),
        "batchSize": count,
    }, expect


def factored(d: Draw) -> tuple[int, list[np.ndarray], Values]:
    n, count, pivots = d.size(), 3, d.variant % 2 == 0
    originals, exchanges, some = [], [], []
    for matrix in square_batch(d, n, count):
        lu, places = factor(matrix.get(), pivots)
        originals.append(matrix.get())
        exchanges.append(places)
        some.append(Matrix(lu, d.code))
    places = np.concatenate(exchanges).astype("i4") if pivots else None
    return (
        n,
        originals,
        {
            "n": n,
            "A": some,
            "Aarray": some,
            "lda": some[0].ld,
            "P": places,
            "devIpiv": places,
            "batchSize": count,
        },
    )


def getri(d: Draw) -> tuple[Values, Any]:
    n, originals, v = factored(d)
    inverses = [d.matrix(n, n) for _ in originals]
    for matrix in inverses:
        matrix.__init__(matrix.get(), d.code)  # type: ignore[misc]

    def expect(v: Values) -> None:
        v["info"][:] = 0
        for target, original in zip(v["C"], originals, strict=True):
            target.set(np.linalg.inv(original))

    return v | {"C": inverses, "ldc": inverses[0].ld, "info": ints(len(originals))}, expect


def getrs(d: Draw) -> tuple[Values, Any]:
    n, originals, v = factored(d)
    nrhs, op = d.size(), d.op()
    sides = [Matrix(draw(d.rng, (n, nrhs), d.code), d.code) for _ in originals]

    def expect(v: Values) -> None:
        v["info"].raw[:] = 0
        for target, original in zip(v["Barray"], originals, strict=True):
            target.set(np.linalg.solve(turn(original, op), target.get()))

    return v | {
        "trans": op,
        "nrhs": nrhs,
        "Barray": sides,
        "ldb": sides[0].ld,
        "info": info(),
    }, expect


def matinv(d: Draw) -> tuple[Values, Any]:
    n, count = d.size(), 3
    some = square_batch(d, n, count)
    inverses = [Matrix(draw(d.rng, (n, n), d.code), d.code) for _ in some]

    def expect(v: Values) -> None:
        v["info"][:] = 0
        for target, original in zip(v["Ainv"], v["A"], strict=True):
            target.set(np.linalg.inv(original.get()))

    return {
        "n": n,
        "A": some,
        "lda": some[0].ld,
        "Ainv": inverses,
        "lda_inv": inverses[0].ld,
        "info": ints(count),
        "batchSize": count,
    }, expect


def reflect(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QR as LAPACK stores it."""
    a = values.astype("c16" if np.iscomplexobj(values) else "f8")
    taus = np.zeros(min(a.shape), a.dtype)
    for k in range(len(taus)):
        alpha, rest = a[k, k], a[k + 1 :, k]
        norm = np.linalg.norm(a[k:, k])
        if not np.any(rest) and not np.imag(alpha):
            continue
        beta = -np.copysign(norm, alpha.real)
        taus[k] = (beta - alpha) / beta
        v = np.concatenate([[1], rest / (alpha - beta)])
        # LAPACK applies H' to the columns that follow
        a[k:, k + 1 :] -= np.conj(taus[k]) * np.outer(v, v.conj() @ a[k:, k + 1 :])
        a[k, k] = beta
        a[k + 1 :, k] = v[1:]
    return a, taus


def geqrf(d: Draw) -> tuple[Values, Any]:
    m, n, count = d.size(), d.size(), 3
    some = [Matrix(draw(d.rng, (m, n), d.code), d.code) for _ in range(count)]
    taus = [Vector(np.zeros(min(m, n)), d.code) for _ in range(count)]

    def expect(v: Values) -> None:
        v["info"].raw[:] = 0
        for a, tau in zip(v["Aarray"], v["TauArray"], strict=True):
            r, t = reflect(a.get())
            a.set(r)
            tau.set(t)

    return {
        "m": m,
        "n": n,
        "Aarray": some,
        "lda": some[0].ld,
        "TauArray": taus,
        "info": info(),
        "batchSize": count,
    }, expect


def gels(d: Draw) -> tuple[Values, Any]:
    n, nrhs, count = d.size(), d.size(), 3
    m = n + d.size()
    some = [Matrix(draw(d.rng, (m, n), d.code), d.code) for _ in range(count)]
    sides = [Matrix(draw(d.rng, (m, nrhs), d.code), d.code) for _ in range(count)]

    def expect(v: Values) -> None:
        v["info"].raw[:] = 0
        v["devInfoArray"][:] = 0
        for a, c in zip(v["Aarray"], v["Carray"], strict=True):
            _q, _ = np.linalg.qr(a.get(), mode="complete")
            solution = np.linalg.lstsq(a.get(), c.get(), rcond=None)[0]
            r, _ = reflect(a.get())
            rest = c.get()
            for k in range(n):  # what is below the solution: Q' applied to the right sides
                v_k = np.concatenate([[1], r[k + 1 :, k]])
                tau = reflect(a.get())[1][k]
                rest[k:] -= np.conj(tau) * np.outer(v_k, v_k.conj() @ rest[k:])
            rest[:n] = solution
            c.set(rest)
            a.set(r)

    return {
        "trans": 0,
        "m": m,
        "n": n,
        "nrhs": nrhs,
        "Aarray": some,
        "lda": some[0].ld,
        "Carray": sides,
        "ldc": sides[0].ld,
        "info": info(),
        "devInfoArray": ints(count),
        "batchSize": count,
    }, expect
