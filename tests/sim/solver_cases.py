# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuSOLVER computes: ``python -m tests.sim.solver_cases CASE...``; a guest's passes the same."""

from __future__ import annotations

import sys

import numpy as np

from tests.sim.solver_client import (
    LEFT,
    LETTERS,
    LOWER,
    RIGHT,
    UPPER,
    VALUES,
    VECTORS,
    C,
    N,
    Solver,
    T,
    close,
    definite,
    draw,
    part,
)
from tests.sim.solver_reductions import bidiagonal, generalised, of_factors, tridiagonal

SIDES = (1, 2, 5, 17)


def whole(a: np.ndarray, uplo: int) -> np.ndarray:
    """A Hermitian matrix by one half of it."""
    half = part(a, uplo)
    return half + half.conj().T - np.diag(np.diag(half))


def cholesky(s: Solver) -> None:
    """Factors, solutions and inverses; a matrix that is not definite is named by its column."""
    random = np.random.default_rng(1)
    for letter, (dtype, *_) in LETTERS.items():
        for n in SIDES:
            for uplo in (LOWER, UPPER):
                a, b, info = definite(random, letter, n), draw(random, letter, n, 3), s.info()
                x, lda = s.matrix(a)
                y, ldb = s.matrix(b)
                s.do(
                    f"{letter}potrf",
                    uplo,
                    n,
                    x,
                    lda,
                    *s.area(letter, f"{letter}potrf", uplo, n, x, lda),
                    info,
                )
                factor = part(s.read(x, n, n, dtype), uplo)
                close(
                    factor @ factor.conj().T if uplo == LOWER else factor.conj().T @ factor,
                    a,
                    letter,
                )
                s.do(f"{letter}potrs", uplo, n, 3, x, lda, y, ldb, info)
                close(a @ s.read(y, n, 3, dtype), b, letter)
                s.do(
                    f"{letter}potri",
                    uplo,
                    n,
                    x,
                    lda,
                    *s.area(letter, f"{letter}potri", uplo, n, x, lda),
                    info,
                )
                close(whole(s.read(x, n, n, dtype), uplo) @ a, np.eye(n), letter)
                assert s.infos(info) == [0]
        bad = np.diag([4.0, 1.0, -1.0, 1.0]).astype(dtype)
        x, lda = s.matrix(bad)
        s.do(
            f"{letter}potrf",
            LOWER,
            4,
            x,
            lda,
            *s.area(letter, f"{letter}potrf", LOWER, 4, x, lda),
            info,
        )
        assert s.infos(info) == [3]  # fmt: skip


def batches(s: Solver) -> None:
    """Cholesky of many, by arrays of addresses on the device."""
    random = np.random.default_rng(2)
    for letter, (dtype, *_) in LETTERS.items():
        a = [definite(random, letter, 6) for _ in range(3)]
        b = [draw(random, letter, 6, 1) for _ in range(3)]
        x, y, info = [s.matrix(one) for one in a], [s.matrix(one) for one in b], s.info(3)
        xs, ys = s.array([one for one, _ in x]), s.array([one for one, _ in y])
        s.do(f"{letter}potrfBatched", LOWER, 6, xs, x[0][1], info, 3)
        assert s.infos(info, 3) == [0, 0, 0]
        s.do(f"{letter}potrsBatched", LOWER, 6, 1, xs, x[0][1], ys, y[0][1], info, 3)
        for matrix, right, (address, _) in zip(a, b, y, strict=True):
            close(matrix @ s.read(address, 6, 1, dtype), right, letter)


def lu(s: Solver) -> None:
    """Factors of any shape, with and without exchanges, and solutions with the matrix and its transposes."""
    random = np.random.default_rng(3)
    for letter, (dtype, *_) in LETTERS.items():
        for m, n in ((1, 1), (5, 5), (7, 4), (4, 7)):
            a, k = draw(random, letter, m, n), min(m, n)
            x, lda = s.matrix(a)
            pivots, info = s.alloc(4 * k), s.info()
            area, _ = s.area(letter, f"{letter}getrf", m, n, x, lda)
            s.do(f"{letter}getrf", m, n, x, lda, area, pivots, info)
            factors = s.read(x, m, n, dtype)
            product = (np.tril(factors[:, :k], -1) + np.eye(m, k)) @ np.triu(factors[:k])
            for i, pivot in reversed(list(enumerate(s.vector(pivots, k, "i4")))):
                product[[i, pivot - 1]] = product[[pivot - 1, i]]
            close(product, a, letter)
            for op, turned in ((N, a), (T, a.T), (C, a.conj().T)):
                if m == n:
                    b = draw(random, letter, n, 2)
                    y, ldb = s.matrix(b)
                    s.do(f"{letter}getrs", op, n, 2, x, lda, pivots, y, ldb, info)
                    close(turned @ s.read(y, n, 2, dtype), b, letter)
        a = definite(random, letter, 6)
        x, lda = s.matrix(a)
        area, _ = s.area(letter, f"{letter}getrf", 6, 6, x, lda)
        s.do(f"{letter}getrf", 6, 6, x, lda, area, None, info)
        factors = s.read(x, 6, 6, dtype)
        close((np.tril(factors, -1) + np.eye(6)) @ np.triu(factors), a, letter)
        y, ldb = s.matrix(np.eye(6, dtype=dtype))
        s.do(f"{letter}getrs", N, 6, 6, x, lda, None, y, ldb, info)
        close(s.read(y, 6, 6, dtype) @ a, np.eye(6), letter)
        x, lda = s.matrix(np.zeros((3, 3), dtype))
        s.do(f"{letter}getrf", 3, 3, x, lda, area, pivots, info)
        assert s.infos(info) == [1]


def qr(s: Solver) -> None:
    """Reflectors, the matrix that they are, and its products from both sides."""
    random = np.random.default_rng(4)
    for letter, (dtype, *_, word) in LETTERS.items():
        gqr, mqr = f"{letter}{word}gqr", f"{letter}{word}mqr"
        for m, n in ((1, 1), (6, 6), (9, 4)):
            a, info = draw(random, letter, m, n), s.info()
            x, lda = s.matrix(a)
            tau = s.alloc(16 * n)
            s.do(
                f"{letter}geqrf",
                m,
                n,
                x,
                lda,
                tau,
                *s.area(letter, f"{letter}geqrf", m, n, x, lda),
                info,
            )
            r = np.triu(s.read(x, m, n, dtype)[:n])
            for side, shape in ((LEFT, (m, 3)), (RIGHT, (3, m))):
                c = draw(random, letter, *shape)
                y, ldc = s.matrix(c)
                shapes = (*shape, n, x, lda, tau, y, ldc)
                for op in (C if letter in "CZ" else T, N):  # there and back
                    area = s.area(letter, mqr, side, op, *shapes)
                    s.do(mqr, side, op, *shapes, *area, info)
                close(s.read(y, *shape, dtype), c, letter)
            s.do(gqr, m, n, n, x, lda, tau, *s.area(letter, gqr, m, n, n, x, lda, tau), info)
            q = s.read(x, m, n, dtype)
            close(q @ r, a, letter)
            close(q.conj().T @ q, np.eye(n), letter)
            assert s.infos(info) == [0]


def indefinite(s: Solver) -> None:
    """LDL of symmetric matrices, complex ones too, and what is solved with it."""
    random = np.random.default_rng(5)
    for letter, (dtype, _, code, *_) in LETTERS.items():
        for uplo in (LOWER, UPPER):
            a, b, info = draw(random, letter, 7, 7), draw(random, letter, 7, 2), s.info()
            a = a + a.T
            x, lda = s.matrix(a)
            y, ldb = s.matrix(b)
            pivots = s.alloc(28)
            s.do(
                f"{letter}sytrf",
                uplo,
                7,
                x,
                lda,
                pivots,
                *s.area(letter, f"{letter}sytrf", 7, x, lda),
                info,
            )
            wide = s.upload(s.vector(pivots, 7, "i4").astype("i8"))
            shapes = (uplo, 7, 2, code, x, lda, wide, code, y, ldb)
            s.do("Xsytrs", *shapes, *s.areas("Xsytrs", *shapes), info)
            close(a @ s.read(y, 7, 2, dtype), b, letter)
            assert s.infos(info) == [0]


def check_eigen(a: np.ndarray, w: np.ndarray, v: np.ndarray, letter: str) -> None:
    close(w, np.linalg.eigvalsh(a), letter)
    close(a @ v, v * w, letter)
    close(v.conj().T @ v, np.eye(len(a)), letter)


def eigen(s: Solver) -> None:
    """Eigenvalues and vectors of Hermitian matrices by each method."""
    random = np.random.default_rng(6)
    for letter, (dtype, real, _, _, word, _) in LETTERS.items():
        made = s.made("SyevjInfo")
        s.tune("syevj", made, 1e-9, 30, 1)
        for n in SIDES:
            a, info = definite(random, letter, n), s.info()
            w = s.alloc(8 * n)
            for uplo in (LOWER, UPPER):
                for method, more in ((f"{letter}{word}evd", ()), (f"{letter}{word}evj", (made,))):
                    for vectors in (VALUES, VECTORS):
                        x, lda = s.matrix(part(a, uplo))
                        shapes = (vectors, uplo, n, x, lda, w)
                        s.do(method, *shapes, *s.area(letter, method, *shapes, *more), info, *more)
                        values = s.vector(w, n, real)
                        if vectors:
                            check_eigen(a, values, s.read(x, n, n, dtype), letter)
                        close(values, np.linalg.eigvalsh(a), letter)
        assert s.ask("XsyevjGetSweeps", made) == [1]
        assert s.ask("XsyevjGetResidual", made) == [1e-9], "what it was set to came along"
        s.ended("SyevjInfo", made)


def singular(s: Solver) -> None:
    """Singular values and vectors: of the whole, of what is needed, in place of the matrix, or none."""
    random = np.random.default_rng(7)
    for letter, (dtype, real, *_) in LETTERS.items():
        for m, n in ((1, 1), (5, 5), (8, 3)):
            a, info = draw(random, letter, m, n), s.info()
            want = np.linalg.svd(a, compute_uv=False)
            for left, right in (("A", "A"), ("S", "S"), ("N", "N"), ("O", "A"), ("N", "O")):
                x, lda = s.matrix(a)
                u, ldu = s.matrix(np.zeros((m, m), dtype))
                vt, ldvt = s.matrix(np.zeros((n, n), dtype))
                values, name = s.alloc(8 * n), f"{letter}gesvd"
                s.do(
                    name,
                    left,
                    right,
                    m,
                    n,
                    x,
                    lda,
                    values,
                    u,
                    ldu,
                    vt,
                    ldvt,
                    *s.area(letter, name, m, n),
                    None,
                    info,
                )
                got = s.vector(values, n, real)
                close(got, want, letter)
                if left != "N":
                    uu = s.read(x if left == "O" else u, m, n if left == "O" else m, dtype)[:, :n]
                    close(uu * got @ s.read(vt, n, n, dtype), a, letter)
            assert s.infos(info) == [0]


def jacobi(s: Solver) -> None:
    """The same by the Jacobi method, which gives V, of wide matrices and of batches too."""
    random = np.random.default_rng(8)
    for letter, (dtype, real, *_) in LETTERS.items():
        made, name = s.made("GesvdjInfo"), f"{letter}gesvdj"
        for m, n in ((1, 1), (5, 5), (8, 3), (3, 8)):
            a, info, k = draw(random, letter, m, n), s.info(), min(m, n)
            for econ in (0, 1):
                x, lda = s.matrix(a)
                u, ldu = s.matrix(np.zeros((m, k if econ else m), dtype))
                v, ldv = s.matrix(np.zeros((n, k if econ else n), dtype))
                values = s.alloc(8 * k)
                shapes = (VECTORS, econ, m, n, x, lda, values, u, ldu, v, ldv)
                s.do(name, *shapes, *s.area(letter, name, *shapes, made), info, made)
                got, uu = s.vector(values, k, real), s.read(u, m, k, dtype)
                close(uu * got @ s.read(v, n, k, dtype).conj().T, a, letter)
        assert s.ask("XgesvdjGetSweeps", made) == [1]
        assert s.ask("XgesvdjGetResidual", made) == [0]
        many, infos = draw(random, letter, 5, 6, 4), s.info(5)
        x = s.upload(np.ascontiguousarray(many.transpose(0, 2, 1)))
        u, v, values = s.alloc(5 * 36 * 16), s.alloc(5 * 16 * 16), s.alloc(5 * 32)
        shapes, name = (VECTORS, 6, 4, x, 6, values, u, 6, v, 4), f"{letter}gesvdjBatched"
        s.do(name, *shapes, *s.area(letter, name, *shapes, made, 5), infos, made, 5)
        uu = s.vector(u, 5 * 36, dtype).reshape(5, 6, 6).transpose(0, 2, 1)[:, :, :4]
        vv = s.vector(v, 5 * 16, dtype).reshape(5, 4, 4).transpose(0, 2, 1)
        got = s.vector(values, 20, real).reshape(5, 1, 4)
        close(uu * got @ vv.conj().transpose(0, 2, 1), many, letter)
        assert s.infos(infos, 5) == [0] * 5
        s.ended("GesvdjInfo", made)


def many_eigen(s: Solver) -> None:
    """Batches of Hermitian matrices, by the Jacobi method and by the 64-bit interface."""
    random, params = np.random.default_rng(9), s.made("Params")
    for letter, (dtype, real, code, real_code, word, _) in LETTERS.items():
        made, many, infos = (
            s.made("SyevjInfo"),
            [definite(random, letter, 5) for _ in range(3)],
            s.info(3),
        )
        w, name = s.alloc(3 * 40), f"{letter}{word}evjBatched"
        for generic in (False, True):
            x = s.upload(np.ascontiguousarray([a.T for a in many]))
            if generic:
                shapes = (params, VECTORS, LOWER, 5, code, x, 5, real_code, w, code)
                s.do("XsyevBatched", *shapes, *s.areas("XsyevBatched", *shapes, 3), infos, 3)
            else:
                shapes = (VECTORS, LOWER, 5, x, 5, w)
                s.do(name, *shapes, *s.area(letter, name, *shapes, made, 3), infos, made, 3)
            vectors = s.vector(x, 75, dtype).reshape(3, 5, 5).transpose(0, 2, 1)
            for a, values, v in zip(
                many, s.vector(w, 15, real).reshape(3, 5), vectors, strict=True
            ):
                check_eigen(a, values, v, letter)
            assert s.infos(infos, 3) == [0] * 3
        s.ended("SyevjInfo", made)


def generic(s: Solver) -> None:
    """The 64-bit interface in all types."""
    random, params = np.random.default_rng(10), s.made("Params")
    for letter, (dtype, real, code, real_code, *_) in LETTERS.items():
        a, b, info = definite(random, letter, 6), draw(random, letter, 6, 2), s.info()
        x, lda = s.matrix(a)
        y, ldb = s.matrix(b)
        shapes: tuple[object, ...] = (params, UPPER, 6, code, x, lda, code)
        s.do("Xpotrf", *shapes, *s.areas("Xpotrf", *shapes), info)
        s.do("Xpotrs", params, UPPER, 6, 2, code, x, lda, code, y, ldb, info)
        close(a @ s.read(y, 6, 2, dtype), b, letter)
        x, lda = s.matrix(a)
        y, ldb = s.matrix(b)
        pivots, shapes = s.alloc(48), (params, 6, 6, code, x, lda)
        s.do("Xgetrf", *shapes, pivots, code, *s.areas("Xgetrf", *shapes, code), info)
        s.do("Xgetrs", params, T, 6, 2, code, x, lda, pivots, code, y, ldb, info)
        close(a.T @ s.read(y, 6, 2, dtype), b, letter)
        x, lda = s.matrix(a)
        shapes = (params, 6, 6, code, x, lda, code, s.alloc(96), code)
        s.do("Xgeqrf", *shapes, *s.areas("Xgeqrf", *shapes), info)
        r = np.triu(s.read(x, 6, 6, dtype))
        close(r.conj().T @ r, a.conj().T @ a, letter)
        x, lda = s.matrix(a)
        w = s.alloc(96)
        shapes = (params, VECTORS, LOWER, 6, code, x, lda, real_code, w, code)
        s.do("Xsyevd", *shapes, *s.areas("Xsyevd", *shapes), info)
        check_eigen(a, s.vector(w, 6, real), s.read(x, 6, 6, dtype), letter)
        c = draw(random, letter, 7, 4)
        x, lda = s.matrix(c)
        u, ldu = s.matrix(np.zeros((7, 7), dtype))
        vt, ldvt = s.matrix(np.zeros((4, 4), dtype))
        shapes = (
            params,
            "A",
            "A",
            7,
            4,
            code,
            x,
            lda,
            real_code,
            w,
            code,
            u,
            ldu,
            code,
            vt,
            ldvt,
            code,
        )
        s.do("Xgesvd", *shapes, *s.areas("Xgesvd", *shapes), info)
        close(
            s.read(u, 7, 7, dtype)[:, :4] * s.vector(w, 4, real) @ s.read(vt, 4, 4, dtype),
            c,
            letter,
        )
        assert s.infos(info) == [0]
    s.ended("Params", params)


def unsymmetric(s: Solver) -> None:
    """Eigenvalues of any matrices; those of real ones are complex."""
    random, params = np.random.default_rng(11), s.made("Params")
    for letter, (dtype, _, code, *_) in LETTERS.items():
        a, info, complex_code = draw(random, letter, 6, 6), s.info(), 4 if letter in "SC" else 5
        complex_type = "c8" if letter in "SC" else "c16"
        x, lda = s.matrix(a)
        v, ldv = s.matrix(np.zeros((6, 6), dtype))
        w = s.alloc(96)
        shapes = (
            params,
            VALUES,
            VECTORS,
            6,
            code,
            x,
            lda,
            complex_code,
            w,
            code,
            None,
            1,
            code,
            v,
            ldv,
            code,
        )
        s.do("Xgeev", *shapes, *s.areas("Xgeev", *shapes), info)
        values, vectors = s.vector(w, 6, complex_type), s.read(v, 6, 6, dtype)
        close(np.sort_complex(values), np.sort_complex(np.linalg.eigvals(a)), letter)
        if letter in "CZ":
            close(a @ vectors, vectors * values, letter)
        assert s.infos(info) == [0]


def nothing(s: Solver) -> None:
    """Matrices without a row or column."""
    info = s.info()
    area, elements = s.area("D", "Dpotrf", LOWER, 0, None, 1)
    s.do("Dpotrf", LOWER, 0, None, 1, area, elements, info)
    assert s.infos(info) == [0]
    s.do("Dpotrs", LOWER, 3, 0, s.alloc(72), 3, None, 3, info)
    s.do("Dgetrf", 0, 0, None, 1, area, None, info)
    s.do("Dsyevd", VALUES, LOWER, 0, None, 1, None, area, elements, info)
    assert s.infos(info) == [0]


CASES = {
    case.__name__: case
    for case in (
        cholesky, batches, lu, qr, indefinite, eigen, singular, jacobi, many_eigen, generic, unsymmetric,
        generalised, tridiagonal, bidiagonal, of_factors, nothing,
    )
}  # fmt: skip


def all_called(s: Solver) -> None:
    """Every function of the description is called by the cases."""
    assert set(s.specification) <= s.called, set(s.specification) - s.called


if __name__ == "__main__":
    solver = Solver()
    for one in sys.argv[1:]:
        CASES[one](solver)
    if set(sys.argv[1:]) == set(CASES):
        all_called(solver)
