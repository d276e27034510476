# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuSPARSE computes, beside numpy: ``python -m tests.sim.sparse_cases CASE...``; a guest's passes
the same."""

from __future__ import annotations

import sys
from ctypes import byref, c_int, c_int64, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np

from tests.sim.blas_client import BF16, C32, C64, R16, R32, R64
from tests.sim.sparse_client import (
    BLOCK,
    BSR,
    COLUMNS,
    COO,
    CSC,
    CSR,
    DEVICE,
    DIAG,
    FILL,
    HOST,
    LETTERS,
    LOWER,
    NARROW,
    OK,
    ROWS,
    UPPER,
    WIDE,
    ZERO_PIVOT,
    C,
    N,
    Sparse,
    T,
    close,
    draw,
    turn,
)

#: with the type in which is computed, and what may differ
TYPES = {
    R32: (R32, 1e-4), R64: (R64, 1e-11), C32: (C32, 1e-4), C64: (C64, 1e-11), R16: (R32, 4e-3), BF16: (R32, 3e-2),
}  # fmt: skip
FORMS = [
    (form, width, base)
    for form in (CSR, CSC, COO, BSR)
    for width in (NARROW, WIDE)
    for base in (0, 1)
]
ALPHA, BETA = 1.5, -0.5


def scalars(s: Sparse, code: int) -> tuple[Any, Any]:
    """Of a product."""
    return s.scalar(ALPHA, code), s.scalar(BETA, code)


def vectors(s: Sparse) -> None:
    """A matrix in each format, with a vector of each type."""
    random = np.random.default_rng(1)
    for number, (code, (compute, precision)) in enumerate(TYPES.items()):
        s.set_mode(number % 2)
        for form, width, base in FORMS:
            for op in (N, T, C):
                a = draw(random, code, 6, 8, share=0.4)
                x = draw(random, code, turn(a, op).shape[1])
                y = draw(random, code, turn(a, op).shape[0])
                m, (dx, _), (dy, at) = (
                    s.store(a, code, form, width, base),
                    s.vector(x, code),
                    s.vector(y, code),
                )
                alpha, beta = scalars(s, compute)
                words = (op, alpha, m.descriptor, dx, beta, dy, compute, 0)
                s.do("SpMV", *words, s.area("SpMV_bufferSize", *words))
                close(s.read(at, len(y), code), ALPHA * turn(a, op) @ x + BETA * y, precision)
    s.set_mode(HOST)


def matrices(s: Sparse) -> None:
    """The same with dense matrices, in both orders."""
    random = np.random.default_rng(2)
    for number, (code, (compute, precision)) in enumerate(TYPES.items()):
        s.set_mode(number % 2)
        for form, width, base in FORMS:
            for op_a, op_b in ((N, N), (T, N), (N, T), (C, C)):
                a = draw(random, code, 4, 6, share=0.4)
                b = draw(random, code, turn(a, op_a).shape[1], 3)
                c = draw(random, code, turn(a, op_a).shape[0], 3)
                order = (COLUMNS, ROWS)[(base + op_b) % 2]
                m = s.store(a, code, form, width, base)
                db, _ = s.dense(turn(b, op_b), code, order)
                dc, at = s.dense(c, code, ROWS)
                alpha, beta = scalars(s, compute)
                words = (op_a, op_b, alpha, m.descriptor, db, beta, dc, compute, 0)
                s.do("SpMM", *words, s.area("SpMM_bufferSize", *words))
                want = ALPHA * turn(a, op_a) @ b + BETA * c
                close(s.read_dense(at, c.shape, code, ROWS), want, precision)
    s.set_mode(HOST)


def refused_batches(s: Sparse) -> None:
    """What is refused leaves the descriptor as it was."""
    m, count = s.store(np.eye(2 * BLOCK), R64, BSR), c_int()
    strides = (c_int64(1), c_int64(-1), c_int64(1))
    assert s.sparse.cusparseBsrSetStridedBatch(m.descriptor, 2, *strides) != 0
    s.good(s.sparse.cusparseSpMatGetStridedBatch(m.descriptor, byref(count)))
    assert count.value == 1


def batches(s: Sparse) -> None:
    """One matrix for a batch of dense ones, and one for each."""
    random = np.random.default_rng(3)
    a = draw(random, R64, 4, 5, share=0.5)
    two = np.stack([a, 2 * a])
    b, c = draw(random, R64, 2, 5, 3), np.zeros((2, 4, 3))
    for each in (False, True):
        m = s.store(a, R64)
        if each:
            rows = np.tile(np.searchsorted(np.nonzero(a)[0], np.arange(5)), 2)
            cols, values = np.tile(np.nonzero(a)[1], 2), np.concatenate([a[a != 0], 2 * a[a != 0]])
            at = [c_void_p(p) for p in (s.put(rows, NARROW), s.put(cols, NARROW), s.upload(values))]
            s.good(s.sparse.cusparseCsrSetPointers(m.descriptor, *at))
            strides = (c_int64(5), c_int64(int((a != 0).sum())))
            s.good(s.sparse.cusparseCsrSetStridedBatch(m.descriptor, 2, *strides))
        dc = s.upload(c)
        db = s.made(
            "CreateDnMat", c_int64(5), c_int64(3), c_int64(3), c_void_p(s.upload(b)), R64, ROWS
        )
        to = s.made("CreateDnMat", c_int64(4), c_int64(3), c_int64(3), c_void_p(dc), R64, ROWS)
        s.good(s.sparse.cusparseDnMatSetStridedBatch(db, 2, c_int64(15)))
        s.good(s.sparse.cusparseDnMatSetStridedBatch(to, 2, c_int64(12)))
        one, nothing = s.scalar(1, R64), s.scalar(0, R64)
        words = (N, N, one, m.descriptor, db, nothing, to, R64, 0)
        s.do("SpMM", *words, s.area("SpMM_bufferSize", *words))
        want = (two if each else np.stack([a, a])) @ b
        close(s.read(dc, 24, R64).reshape(2, 4, 3), want, 1e-11)


def samples(s: Sparse) -> None:
    """A dense product where a matrix has entries."""
    random = np.random.default_rng(4)
    for code in (R32, R64, C32, C64):
        for form, width, base in FORMS:
            for op_a, op_b in ((N, N), (T, N), (N, T)):
                c = draw(random, code, 4, 6, share=0.4)
                a, b = draw(random, code, 4, 3), draw(random, code, 3, 6)
                m = s.store(c, code, form, width, base)
                da, db = (
                    s.dense(turn(a, op_a), code)[0],
                    s.dense(turn(b, op_b), code, ROWS)[0],
                )
                alpha, beta = scalars(s, code)
                words = (op_a, op_b, alpha, da, db, beta, m.descriptor, code, 0)
                buffer = s.area("SDDMM_bufferSize", *words)
                s.do("SDDMM_preprocess", *words, buffer)
                s.do("SDDMM", *words, buffer)
                there = np.zeros(c.shape)
                there[m.places] = 1
                want = (ALPHA * a @ b) * there + BETA * c
                close(s.entries(m, c.shape), want, TYPES[code][1])


def product(
    s: Sparse, a: np.ndarray, b: np.ndarray, code: int, width: int, base: int
) -> np.ndarray:
    """Of two sparse matrices, as programs make it: estimated, computed, copied."""
    left, right = (
        s.store(a, code, CSR, width, base),
        s.store(b, code, CSR, width, base),
    )
    rows, cols, none = a.shape[0], b.shape[1], c_void_p()
    offsets = s.put(np.zeros(rows + 1, int), width)
    sizes = (c_int64(rows), c_int64(cols), c_int64(0))
    c = s.made("CreateCsr", *sizes, c_void_p(offsets), none, none, width, width, base, code)
    o = s.made("SpGEMM_createDescr")
    alpha, beta = s.scalar(ALPHA, code), s.scalar(0, code)
    words = (N, N, alpha, left.descriptor, right.descriptor, beta, c, code, 0, o)
    for name in ("SpGEMM_workEstimation", "SpGEMM_compute"):
        size = np.zeros(1, "u8")
        s.do(name, *words, size, None)
        assert size[0]
        s.do(name, *words, size, s.alloc(int(size[0])))
    found = [c_int64() for _ in range(3)]
    s.good(s.sparse.cusparseSpMatGetSize(c, *map(byref, found)))
    nnz = found[2].value
    assert (found[0].value, found[1].value) == (rows, cols)
    indices = s.put(np.zeros(nnz, int), width)
    values = s.alloc(16 * nnz + 16)
    s.good(s.sparse.cusparseCsrSetPointers(c, *map(c_void_p, (offsets, indices, values))))
    s.do("SpGEMM_copy", *words)
    s.good(s.sparse.cusparseSpGEMM_destroyDescr(o))
    at, where = s.indices(offsets, rows + 1, width) - base, s.indices(indices, nnz, width) - base
    assert at[0] == 0
    assert at[-1] == nnz
    got = np.zeros((rows, cols), "c16" if code in (C32, C64) else "f8")
    numbers = s.read(values, nnz, code)
    for row in range(rows):
        got[row, where[at[row] : at[row + 1]]] = numbers[at[row] : at[row + 1]]
        assert np.all(np.diff(where[at[row] : at[row + 1]]) > 0)
    assert nnz == int(((a != 0).astype(int) @ (b != 0).astype(int) != 0).sum())
    return got


def sparse_products(s: Sparse) -> None:
    """Products of two sparse matrices, also of empty ones."""
    random = np.random.default_rng(5)
    for code in LETTERS.values():
        for width, base, share in ((NARROW, 0, 0.4), (WIDE, 1, 0.4), (NARROW, 1, 0), (WIDE, 0, 1)):
            a, b = draw(random, code, 5, 7, share=share), draw(random, code, 7, 4, share=share)
            close(product(s, a, b, code, width, base), ALPHA * a @ b, TYPES[code][1])


def triangle(random: np.random.Generator, code: int, n: int, fill: int, unit: bool) -> Any:
    """A matrix whose other half must be ignored, and the matrix that it represents."""
    a = draw(random, code, n, n, share=0.5) * 0.5
    a[np.diag_indices(n)] = 2 + np.arange(n)
    half = np.tril(a) if fill == LOWER else np.triu(a)
    if unit:
        half = half - np.diag(np.diag(half)) + np.eye(n)
    return a, half


def triangles(s: Sparse) -> None:
    """Triangular systems with one right side and with several."""
    random = np.random.default_rng(6)
    for number, code in enumerate(LETTERS.values()):
        s.set_mode(number % 2)
        for form in (CSR, COO):
            for fill, unit, op in ((LOWER, 0, N), (UPPER, 1, N), (LOWER, 1, T), (UPPER, 0, C)):
                a, half = triangle(random, code, 6, fill, bool(unit))
                m = s.store(a, code, form, (NARROW, WIDE)[number % 2], number % 2)
                s.set_attribute(m, FILL, fill)
                s.set_attribute(m, DIAG, unit)
                b = draw(random, code, 6, 3)
                want = np.linalg.solve(turn(half, op), ALPHA * b)
                alpha = s.scalar(ALPHA, code)
                (x, _), (y, at) = s.vector(b[:, 0], code), s.vector(0 * b[:, 0], code)
                o = s.made("SpSV_createDescr")
                words = (op, alpha, m.descriptor, x, y, code, 0, o)
                s.do("SpSV_analysis", *words, s.area("SpSV_bufferSize", *words))
                s.do("SpSV_solve", *words)
                close(s.read(at, 6, code), want[:, 0], 10 * TYPES[code][1])
                s.good(s.sparse.cusparseSpSV_destroyDescr(o))
                for op_b in (N, T):
                    (d, _), (e, at) = s.dense(turn(b, op_b), code), s.dense(0 * b, code, ROWS)
                    o = s.made("SpSM_createDescr")
                    words = (op, op_b, alpha, m.descriptor, d, e, code, 0, o)
                    s.do("SpSM_analysis", *words, s.area("SpSM_bufferSize", *words))
                    s.do("SpSM_solve", *words)
                    close(s.read_dense(at, b.shape, code, ROWS), want, 10 * TYPES[code][1])
                    s.good(s.sparse.cusparseSpSM_destroyDescr(o))
    s.set_mode(HOST)


def blocks(s: Sparse) -> None:
    """The interface of types: products with blocks, and systems."""
    random = np.random.default_rng(7)
    for number, (letter, code) in enumerate(LETTERS.items()):
        base, precision = number % 2, TYPES[code][1]
        a = draw(random, code, 6, 8, share=0.3)
        m = s.store(a, code, BSR, NARROW, base)
        descr, nnzb = s.descr(base), m.count // BLOCK**2
        shape = (m.arrays[2], m.arrays[0], m.arrays[1], BLOCK)
        x, y = draw(random, code, 8), draw(random, code, 6)
        alpha, beta = scalars(s, code)
        (_, dx), (_, dy) = s.vector(x, code), s.vector(y, code)
        s.do(f"{letter}bsrmv", 0, N, 3, 4, nnzb, alpha, descr, *shape, dx, beta, dy)
        close(s.read(dy, 6, code), ALPHA * a @ x + BETA * y, precision)
        for op_b in (N, T):
            b, c = draw(random, code, 8, 3), draw(random, code, 6, 3)
            (_, db), (_, dc) = s.dense(turn(b, op_b), code), s.dense(c, code)
            more = (alpha, descr, *shape, db, turn(b, op_b).shape[0], beta, dc, 6)
            s.do(f"{letter}bsrmm", 0, N, op_b, 3, 3, 4, nnzb, *more)
            close(s.read_dense(dc, c.shape, code), ALPHA * a @ b + BETA * c, precision)
        for fill, unit, op in ((LOWER, 0, N), (UPPER, 1, T)):
            solve_blocks(s, random, letter, (fill, unit, op), base)


def solve_blocks(
    s: Sparse, random: np.random.Generator, letter: str, how: tuple[int, int, int], base: int
) -> None:
    """A triangular system of blocks, with one right side and with several; and one without a pivot."""
    code, (fill, unit, op) = LETTERS[letter], how
    a, half = triangle(random, code, 6, fill, bool(unit))
    m = s.store(a, code, BSR, NARROW, base)
    descr, nnzb, alpha = s.descr(base, fill, unit), m.count // BLOCK**2, s.scalar(ALPHA, code)
    shape = (descr, m.arrays[2], m.arrays[0], m.arrays[1], BLOCK)
    b = draw(random, code, 6, 3)
    want, place = np.linalg.solve(turn(half, op), ALPHA * b), np.full(1, -7, "i4")
    o, (_, f), (_, x) = (
        s.made("CreateBsrsv2Info"),
        s.vector(b[:, 0], code),
        s.vector(0 * b[:, 0], code),
    )
    buffer = s.area(f"{letter}bsrsv2_bufferSize", 0, op, 3, nnzb, *shape, o)
    s.do(f"{letter}bsrsv2_analysis", 0, op, 3, nnzb, *shape, o, 1, buffer)
    s.do(f"{letter}bsrsv2_solve", 0, op, 3, nnzb, alpha, *shape, o, f, x, 1, buffer)
    close(s.read(x, 6, code), want[:, 0], 10 * TYPES[code][1])
    assert s.status("Xbsrsv2_zeroPivot", o, place) == OK
    assert place[0] == -1
    if not unit:
        a[2, 2] = a[3, 2] = a[2, 3] = a[3, 3] = 0
        a[3, 3] = 1
        gone = s.store(a, code, BSR, NARROW, base)
        less = (descr, gone.arrays[2], gone.arrays[0], gone.arrays[1], BLOCK)
        count = gone.count // BLOCK**2
        s.do(f"{letter}bsrsv2_analysis", 0, op, 3, count, *less, o, 1, buffer)
        s.do(f"{letter}bsrsv2_solve", 0, op, 3, count, alpha, *less, o, f, x, 1, buffer)
        assert s.status("Xbsrsv2_zeroPivot", o, place) == ZERO_PIVOT
        assert place[0] == 1 + base
        s.set_mode(DEVICE)
        on_device = s.upload(np.full(1, -7, "i4"))
        for _ in range(2):
            assert s.status("Xbsrsv2_zeroPivot", o, on_device) == ZERO_PIVOT
        assert s.indices(on_device, 1)[0] == 1 + base
        s.set_mode(HOST)
    s.good(s.sparse.cusparseDestroyBsrsv2Info(o))
    for op_b in (N, T):
        o, (_, d), (_, e) = (
            s.made("CreateBsrsm2Info"),
            s.dense(turn(b, op_b), code),
            s.dense(turn(0 * b, op_b), code),
        )
        ld = turn(b, op_b).shape[0]
        words = (0, op, op_b, 3, 3, nnzb)
        buffer = s.area(f"{letter}bsrsm2_bufferSize", *words, *shape, o)
        s.do(f"{letter}bsrsm2_analysis", *words, *shape, o, 1, buffer)
        s.do(f"{letter}bsrsm2_solve", *words, alpha, *shape, o, d, ld, e, ld, 1, buffer)
        got = s.read_dense(e, turn(b, op_b).shape, code)
        close(turn(got, op_b), want, 10 * TYPES[code][1])
        assert s.status("Xbsrsm2_zeroPivot", o, place) == OK
        assert place[0] == -1
        s.good(s.sparse.cusparseDestroyBsrsm2Info(o))


def sums(s: Sparse) -> None:
    """Sums of two matrices, counted on the host and on the device."""
    random = np.random.default_rng(8)
    for number, (letter, code) in enumerate(LETTERS.items()):
        base, mode = number % 2, number // 2
        s.set_mode(mode)
        a, b = draw(random, code, 5, 7, share=0.3), draw(random, code, 5, 7, share=0.3)
        left, right, descr = s.store(a, code, base=base), s.store(b, code, base=base), s.descr(base)
        offsets, (alpha, beta) = s.put(np.zeros(6, int), NARROW), scalars(s, code)
        first = (descr, left.count, left.arrays[2], *left.arrays[:2])
        second = (descr, right.count, right.arrays[2], *right.arrays[:2])
        words = (5, 7, alpha, *first, beta, *second, descr, None, offsets, None)
        buffer = s.area(f"{letter}csrgeam2_bufferSizeExt", *words)
        count = s.upload(np.zeros(1, "i4")) if mode == DEVICE else np.zeros(1, "i4")
        places = (descr, left.count, *left.arrays[:2], descr, right.count, *right.arrays[:2])
        s.do("Xcsrgeam2Nnz", 5, 7, *places, descr, offsets, count, buffer)
        nnz = int(s.indices(count, 1)[0]) if isinstance(count, int) else int(count[0])
        assert nnz == int(((a != 0) | (b != 0)).sum())
        values, cols = s.alloc(16 * nnz), s.put(np.zeros(nnz, int), NARROW)
        words = (5, 7, alpha, *first, beta, *second, descr, values, offsets, cols)
        s.do(f"{letter}csrgeam2", *words, buffer)
        at, where = s.indices(offsets, 6) - base, s.indices(cols, nnz) - base
        got = np.zeros(a.shape, a.dtype)
        got[np.repeat(np.arange(5), np.diff(at)), where] = s.read(values, nnz, code)
        close(got, ALPHA * a + BETA * b, TYPES[code][1])
    s.set_mode(HOST)


def lists(s: Sparse) -> None:
    """Rows and columns in another form, and in order."""
    random = np.random.default_rng(9)
    rows, cols = np.nonzero(random.random((6, 9)) < 0.5)
    nnz, offsets = len(rows), np.searchsorted(rows, np.arange(7))
    for base in (0, 1):
        to = s.put(np.zeros(7, int), NARROW)
        s.do("Xcoo2csr", s.put(rows + base, NARROW), nnz, 6, to, base)
        assert np.array_equal(s.indices(to, 7), offsets + base)
        back = s.put(np.zeros(nnz, int), NARROW)
        s.do("Xcsr2coo", to, nnz, 6, back, base)
        assert np.array_equal(s.indices(back, nnz), rows + base)
    mixed = random.permutation(nnz)
    for name, order in (
        ("XcoosortByRow", np.lexsort((cols[mixed], rows[mixed]))),
        ("XcoosortByColumn", np.lexsort((rows[mixed], cols[mixed]))),
    ):
        r, c = s.put(rows[mixed], NARROW), s.put(cols[mixed], NARROW)
        p = s.put(np.zeros(nnz, int), NARROW)
        s.do("CreateIdentityPermutation", nnz, p)
        s.do(name, 6, 9, nnz, r, c, p, s.area("Xcoosort_bufferSizeExt", 6, 9, nnz, r, c))
        assert np.array_equal(s.indices(p, nnz), order)
        assert np.array_equal(s.indices(r, nnz), rows[mixed][order])
        assert np.array_equal(s.indices(c, nnz), cols[mixed][order])
    turned = np.concatenate([cols[i:j][::-1] for i, j in pairwise(offsets)])
    at, c, p = s.put(offsets, NARROW), s.put(turned, NARROW), s.put(np.arange(nnz), NARROW)
    s.do(
        "Xcsrsort",
        6,
        9,
        nnz,
        s.descr(),
        at,
        c,
        p,
        s.area("Xcsrsort_bufferSizeExt", 6, 9, nnz, at, c),
    )
    assert np.array_equal(s.indices(c, nnz), cols)
    assert np.array_equal(turned[s.indices(p, nnz)], cols)


def copies(s: Sparse) -> None:
    """Entries to a dense matrix, and entries of vectors there and back."""
    random = np.random.default_rng(10)
    for code in TYPES:
        for form, width, base in FORMS:
            a = draw(random, code, 4, 6, share=0.4)
            m, (d, at) = s.store(a, code, form, width, base), s.dense(np.ones((4, 6)), code, ROWS)
            buffer = s.area("SparseToDense_bufferSize", m.descriptor, d, 0)
            s.do("SparseToDense", m.descriptor, d, 0, buffer)
            close(s.read_dense(at, a.shape, code, ROWS), a, 0)
        for width, base in ((NARROW, 1), (WIDE, 0)):
            y, places = draw(random, code, 9), np.array([1, 4, 8])
            (d, at), indices = s.vector(y, code), s.put(places + base, width)
            values = s.alloc(64)
            sizes = (c_int64(9), c_int64(3), c_void_p(indices), c_void_p(values))
            x = s.made("CreateSpVec", *sizes, width, base, code)
            s.do("Gather", d, x)
            close(s.read(values, 3, code), y[places], 0)
            (other, at) = s.vector(0 * y, code)
            s.do("Scatter", x, other)
            want = 0 * y
            want[places] = y[places]
            close(s.read(at, 9, code), want, 0)
            s.good(s.sparse.cusparseDestroySpVec(x))


def nothing(s: Sparse) -> None:
    """Matrices without rows, columns or entries."""
    one, none = s.scalar(1, R64), s.scalar(0, R64)
    for rows, cols in ((0, 0), (3, 0), (0, 3), (3, 3)):
        m = s.store(np.zeros((rows, cols)), R64)
        (d, _), (e, at) = s.dense(np.ones((cols, 2)), R64), s.dense(np.ones((rows, 2)), R64)
        words = (N, N, one, m.descriptor, d, none, e, R64, 0)
        s.do("SpMM", *words, s.area("SpMM_bufferSize", *words))
        assert not s.read(at, 2 * rows, R64).any()


CASES = {
    case.__name__: case
    for case in (
        vectors, matrices, batches, samples, sparse_products, triangles, blocks, sums, lists, copies, nothing,
    )
}  # fmt: skip


def all_called(s: Sparse) -> None:
    """Every function of the description is called by the cases."""
    assert set(s.specification) <= s.called, set(s.specification) - s.called


if __name__ == "__main__":
    sparse = Sparse()
    for one in sys.argv[1:]:
        CASES[one](sparse)
    if set(sys.argv[1:]) == set(CASES):
        all_called(sparse)
