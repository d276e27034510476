# SPDX-License-Identifier: Apache-2.0
"""Cases of generalised eigenproblems, of reductions to tridiagonal and bidiagonal matrices, and of uses of factors."""

from __future__ import annotations

import numpy as np

from tests.sim.solver_client import (
    INVALID_VALUE,
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
    close,
    definite,
    draw,
    part,
)


def generalised(s: Solver) -> None:
    """A x = w B x, and the two other problems, by both methods."""
    random = np.random.default_rng(21)
    for letter, (dtype, real, _, _, word, _) in LETTERS.items():
        made, n, info = s.made("SyevjInfo"), 9, s.info()
        s.tune("syevj", made, 1e-9, 30, 1)
        a, b, w = definite(random, letter, n), definite(random, letter, n), s.alloc(8 * n)
        wanted = {1: np.linalg.solve(b, a), 2: a @ b, 3: b @ a}
        for uplo in (LOWER, UPPER):
            for method, more in ((f"{letter}{word}gvd", ()), (f"{letter}{word}gvj", (made,))):
                for problem in (1, 2, 3):
                    x, lda = s.matrix(part(a, uplo))
                    y, ldb = s.matrix(part(b, uplo))
                    shapes = (problem, VECTORS, uplo, n, x, lda, y, ldb, w)
                    s.do(method, *shapes, *s.area(letter, method, *shapes, *more), info, *more)
                    assert s.infos(info) == [0]
                    values, vectors = s.vector(w, n, real), s.read(x, n, n, dtype)
                    close(wanted[problem] @ vectors, vectors * values, letter)
                    # B is left as its Cholesky factor
                    factor = (
                        np.tril(s.read(y, n, n, dtype))
                        if uplo == LOWER
                        else np.triu(s.read(y, n, n, dtype))
                    )
                    product = (
                        factor @ factor.conj().T if uplo == LOWER else factor.conj().T @ factor
                    )
                    close(product, b, letter)
        assert s.ask("XsyevjGetSweeps", made) == [1]
        # B is not definite: info names the minor, behind the n of A
        x, lda = s.matrix(a)
        y, ldb = s.matrix(-b)
        method = f"{letter}{word}gvd"
        shapes = (1, VALUES, LOWER, n, x, lda, y, ldb, w)
        s.do(method, *shapes, *s.area(letter, method, *shapes), info)
        assert s.infos(info) == [n + 1]
        assert (
            s.status(method, 4, *shapes[1:], *s.area(letter, method, *shapes), info)
            == INVALID_VALUE
        )
        # more work than LAPACK counts
        large = (1, VALUES, LOWER, 40000, x, 40000, y, 40000, w, x, 32 * 40001, info)
        assert s.status(method, *large) == INVALID_VALUE
        s.ended("SyevjInfo", made)


def tridiagonal(s: Solver) -> None:
    """To a tridiagonal matrix; its Q, and a product with it."""
    random = np.random.default_rng(22)
    for letter, (dtype, real, _, _, word, orth) in LETTERS.items():
        n, info = 8, s.info()
        a = definite(random, letter, n)
        for uplo in (LOWER, UPPER):
            x, lda = s.matrix(part(a, uplo))
            d, e, tau = s.alloc(8 * n), s.alloc(8 * n), s.alloc(16 * n)
            name, shapes = f"{letter}{word}trd", (uplo, n, x, lda, d, e, tau)
            s.do(name, *shapes, *s.area(letter, name, *shapes), info)
            off = s.vector(e, n - 1, real)
            t = np.diag(s.vector(d, n, real)) + np.diag(off, 1) + np.diag(off, -1)
            products = []
            for side, op in ((LEFT, N), (LEFT, C), (RIGHT, N), (RIGHT, C)):
                c = draw(random, letter, *((n, 3) if side == LEFT else (3, n)))
                y, ldc = s.matrix(c)
                name, shapes = f"{letter}{orth}mtr", (side, uplo, op, *c.shape, x, lda, tau, y, ldc)
                s.do(name, *shapes, *s.area(letter, name, *shapes), info)
                products.append((side, op, c, s.read(y, *c.shape, dtype)))
            name, shapes = f"{letter}{orth}gtr", (uplo, n, x, lda, tau)
            s.do(name, *shapes, *s.area(letter, name, *shapes), info)
            assert s.infos(info) == [0]
            q = s.read(x, n, n, dtype)
            close(q @ t @ q.conj().T, a, letter)
            close(q.conj().T @ q, np.eye(n), letter)
            for side, op, c, product in products:
                turned = q if op == N else q.conj().T
                close(product, turned @ c if side == LEFT else c @ turned, letter)


def bidiagonal(s: Solver) -> None:
    """To a bidiagonal matrix; Q and the conjugate transpose of P."""
    random = np.random.default_rng(23)
    for letter, (dtype, real, _, _, _, orth) in LETTERS.items():
        m, n, info = 9, 6, s.info()
        a = draw(random, letter, m, n)
        x, lda = s.matrix(a)
        d, e, tauq, taup = s.alloc(8 * n), s.alloc(8 * n), s.alloc(16 * n), s.alloc(16 * n)
        name = f"{letter}gebrd"
        area, elements = s.area(letter, name, m, n)
        s.do(name, m, n, x, lda, d, e, tauq, taup, area, elements, info)
        middle = np.diag(s.vector(d, n, real)) + np.diag(s.vector(e, n - 1, real), 1)
        y, ldb = s.matrix(s.read(x, m, n, dtype)[:n])
        name = f"{letter}{orth}gbr"
        shapes = (LEFT, m, n, n, x, lda, tauq)
        s.do(name, *shapes, *s.area(letter, name, *shapes), info)
        shapes = (RIGHT, n, n, m, y, ldb, taup)
        s.do(name, *shapes, *s.area(letter, name, *shapes), info)
        assert s.infos(info) == [0]
        q, p = s.read(x, m, n, dtype), s.read(y, n, n, dtype)
        close(q @ middle @ p, a, letter)
        assert (
            s.status(f"{letter}gebrd", n, m, x, lda, d, e, tauq, taup, area, elements, info)
            == INVALID_VALUE
        )


def of_factors(s: Solver) -> None:
    """An inverse from LDL, a triangle times itself, its inverse, rows exchanged."""
    random = np.random.default_rng(24)
    for letter, (dtype, _, code, *_) in LETTERS.items():
        n, info = 7, s.info()
        for uplo in (LOWER, UPPER):
            keep = np.tril if uplo == LOWER else np.triu
            a = draw(random, letter, n, n)
            a = a + a.T
            x, lda = s.matrix(a)
            pivots = s.alloc(4 * n)
            name = f"{letter}sytrf"
            s.do(name, uplo, n, x, lda, pivots, *s.area(letter, name, n, x, lda), info)
            name, shapes = f"{letter}sytri", (uplo, n, x, lda, pivots)
            s.do(name, *shapes, *s.area(letter, name, *shapes), info)
            close(keep(s.read(x, n, n, dtype)), keep(np.linalg.inv(a)), letter)
            t = keep(draw(random, letter, n, n)) + np.asarray(4 * np.eye(n), dtype)
            # as a Cholesky factor has it
            np.fill_diagonal(t, np.diag(t).real)
            x, lda = s.matrix(t)
            name, shapes = f"{letter}lauum", (uplo, n, x, lda)
            s.do(name, *shapes, *s.area(letter, name, *shapes), info)
            product = t.conj().T @ t if uplo == LOWER else t @ t.conj().T
            close(keep(s.read(x, n, n, dtype)), keep(product), letter)
            for unit in (0, 1):
                triangle = t.copy()
                if unit:
                    np.fill_diagonal(triangle, 1)
                x, lda = s.matrix(t)
                shapes = (uplo, unit, n, code, x, lda)
                s.do("Xtrtri", *shapes, *s.areas("Xtrtri", *shapes), info)
                got = s.read(x, n, n, dtype)
                if unit:
                    np.fill_diagonal(got, 1)
                close(keep(got), np.linalg.inv(triangle), letter)
                assert s.infos(info) == [0]
        a = draw(random, letter, n, 4)
        order = np.array([3, 0, 2, 0, 7, 0], "i4")  # every second one, of the rows 1 to 3
        for step in (2, -2):
            x, lda = s.matrix(a)
            s.do(f"{letter}laswp", 4, x, lda, 1, 3, s.upload(order), step)
            want = a.copy()
            for row, pivot in zip(
                (1, 2, 3) if step > 0 else (3, 2, 1),
                order[::2] if step > 0 else order[4::-2],
                strict=True,
            ):
                want[[row - 1, pivot - 1]] = want[[pivot - 1, row - 1]]
            close(s.read(x, n, 4, dtype), want, letter)
        # the last column ends where the matrix does
        flat = np.arange(13).astype(dtype)
        x = s.upload(flat)
        s.do(f"{letter}laswp", 2, x, 8, 1, 2, s.upload(np.array([5, 2], "i4")), 1)
        s.good(s.wait())
        got = np.zeros(13, dtype)
        s.download(x, got)
        flat[[0, 4, 8, 12]] = flat[[4, 0, 12, 8]]
        assert np.array_equal(got, flat)
        assert s.status(f"{letter}laswp", 4, x, lda, 0, 3, s.upload(order), 1) == INVALID_VALUE
        assert (
            s.status(f"{letter}laswp", 4, x, lda, 1, lda + 1, s.upload(order), 1) == INVALID_VALUE
        )
