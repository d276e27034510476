# SPDX-License-Identifier: Apache-2.0
"""What the functions of several matrices compute, by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.blas_client import (
    BF16,
    C32,
    C64,
    CI8,
    R16,
    R32,
    R64,
    REAL,
    RI8,
    RI32,
    Matrix,
    Scalar,
    Strided,
    Vector,
    draw,
)
from tests.sim.blas_draw import (
    Draw,
    Values,
    is_hermitian,
    order,
    pack,
    put_triangle,
    symmetric,
    triangle,
    turn,
)
from tests.sim.blas_matrices import with_scalars

PRODUCT_TYPES = [
    (64, R16, R16, R16),
    (68, R32, R16, R16),
    (68, R32, BF16, BF16),
    (68, R32, R16, R32),
    (68, R32, BF16, R32),
    (68, R32, RI8, R32),
    (68, R32, R32, R32),
    (77, R32, R32, R32),
    (68, C32, C32, C32),
    (70, R64, R64, R64),
    (70, C64, C64, C64),
    (72, RI32, RI8, RI32),
    (68, C32, CI8, C32),
    (69, R32, R32, R32),
    (74, C32, C32, C32),
]
LETTER_TYPES = {
    "SgemmEx": [(R32, R32), (R16, R16), (BF16, BF16), (R16, R32), (BF16, R32), (RI8, R32)],
    "CgemmEx": [(C32, C32), (CI8, C32)],
    "Cgemm3mEx": [(C32, C32), (CI8, C32)],
}


def product_types(d: Draw) -> tuple[int, int, int, int]:
    """Compute type, scale type, types of A and B, and of C."""
    if d.name in LETTER_TYPES:
        ab, c = LETTER_TYPES[d.name][d.variant % len(LETTER_TYPES[d.name])]
        return 68, d.code, ab, c
    if d.name.startswith("Gemm"):
        return PRODUCT_TYPES[d.variant % len(PRODUCT_TYPES)]
    return 0, d.code, d.code, d.code


def change_gemm(v: Values) -> None:
    product = turn(v["A"].get(), v["transa"]) @ turn(v["B"].get(), v["transb"])
    result = v["alpha"].get()[0] * product
    v["C"].set(result + (v["beta"].get()[0] * v["C"].get() if v["beta"].get()[0] else 0))


def gemm(d: Draw) -> tuple[Values, Any]:
    compute, scale, ab, c = product_types(d)
    count = 3 if "Batched" in d.name else 1
    opa, opb, m, n, k, room = d.op(), d.op(), d.size(), d.size(), d.size(), d.size()

    def operand(rows: int, cols: int, code: int) -> Matrix:
        return Matrix(draw(d.rng, (rows, cols), code), code, room)

    parts = [
        {
            "A": operand(*((k, m) if opa else (m, k)), ab),
            "B": operand(*((n, k) if opb else (k, n)), ab),
            "C": operand(m, n, c),
        }
        for _ in range(count)
    ]
    v: Values = {
        "transa": opa,
        "transb": opb,
        "m": m,
        "n": n,
        "k": k,
        "computeType": compute,
        "algo": -1,
        "batchCount": count,
    }
    v |= {"Atype": ab, "Btype": ab, "Ctype": c, "alpha": d.scalar(scale), "beta": d.scalar(scale)}
    if scale == RI32:
        v |= {"alpha": Scalar(1, RI32), "beta": Scalar(d.pick(0, 1), RI32)}
    for name in "ABC":
        some = [part[name] for part in parts]
        v[f"ld{name.lower()}"] = some[0].ld
        if "Strided" in d.name:
            v[name] = Strided(some)
            v[f"stride{name}"] = v[name].stride
        elif count > 1:
            v[f"{name}array"] = some
        else:
            v[name] = some[0]

    def expect(v: Values) -> None:
        for i in range(count):
            some = (
                {n: (v[n].parts if "Strided" in d.name else v[f"{n}array"])[i] for n in "ABC"}
                if count > 1
                else {}
            )
            change_gemm(v | some)

    return v, expect


def rank_k(d: Draw) -> tuple[Values, Any]:
    """syrk, herk, syr2k, her2k, syrkx, herkx, and syrk and herk with types."""
    hermitian = is_hermitian(d.name)
    uplo, op, n, k = d.pick(0, 1), d.pick(0, 2) if hermitian else d.pick(0, 1), d.size(), d.size()
    if not d.is_complex:
        op = d.op()
    real_alpha, real_beta = hermitian and d.name[2:5] == "erk" and "kx" not in d.name, hermitian
    ab = (d.code, CI8)[d.variant % 2] if d.name.endswith("Ex") else d.code
    shape = (k, n) if op else (n, k)
    a, b, c = d.matrix(*shape, ab), d.matrix(*shape, ab), d.matrix(n, n)
    if hermitian:
        c.set(symmetric(c.get(), uplo, True))
    if "kx" in d.name and hermitian:
        b = a
    v: Values = {
        "uplo": uplo,
        "trans": op,
        "n": n,
        "k": k,
        "A": a,
        "lda": a.ld,
        "B": b,
        "ldb": b.ld,
        "C": c,
        "ldc": c.ld,
    }
    v |= {
        "alpha": d.scalar(REAL[d.code] if real_alpha else d.code),
        "beta": d.scalar(REAL[d.code] if real_beta else d.code),
    }
    v |= {"Atype": ab, "Ctype": d.code}
    if "kx" in d.name and hermitian:
        v["alpha"].raw[:] = v["alpha"].raw.real

    def expect(v: Values) -> None:
        def adjoint(matrix: np.ndarray) -> np.ndarray:
            return matrix.conj().T if hermitian else matrix.T

        two = "2k" in d.name
        left, alpha = (
            (turn(v[x].get(), op) if op != 1 else v[x].get().T for x in "A"),
            v["alpha"].get()[0],
        )
        (a,) = left
        b = turn(v["B"].get(), op) if two or "kx" in d.name else a
        product = alpha * a @ adjoint(b)
        if two:
            product = product + (np.conj(alpha) if hermitian else alpha) * b @ adjoint(a)
        put_triangle(v["C"], product + v["beta"].get()[0] * v["C"].get(), uplo)

    return v, expect


def symm(d: Draw) -> tuple[Values, Any]:
    side, uplo, m, n = d.pick(0, 1), d.pick(0, 1), d.size(), d.size()
    a, b, c = d.matrix(*((n, n) if side else (m, m))), d.matrix(m, n), d.matrix(m, n)
    v = {
        "side": side,
        "uplo": uplo,
        "m": m,
        "n": n,
        "A": a,
        "lda": a.ld,
        "B": b,
        "ldb": b.ld,
        "C": c,
        "ldc": c.ld,
    }

    def expect(v: Values) -> None:
        whole, b = symmetric(v["A"].get(), uplo, is_hermitian(d.name)), v["B"].get()
        v["C"].set(
            v["alpha"].get()[0] * (b @ whole if side else whole @ b)
            + v["beta"].get()[0] * v["C"].get()
        )

    return with_scalars(d, v), expect


def triangular_m(d: Draw) -> tuple[Values, Any]:
    """trsm, trmm, and trsm in batches."""
    side, uplo, op, unit, m, n = (
        d.pick(0, 1),
        d.pick(0, 1),
        d.op(),
        d.pick(0, 1),
        d.size(),
        d.size(),
    )
    size, count = n if side else m, 3 if "Batched" in d.name else 1
    some_a = [
        Matrix(draw(d.rng, (size, size), d.code) + 4 * np.eye(size), d.code) for _ in range(count)
    ]
    if unit:
        for matrix in some_a:
            matrix.set(matrix.get() / 8)
    some_b = [Matrix(draw(d.rng, (m, n), d.code), d.code) for _ in range(count)]
    c = d.matrix(m, n)
    v: Values = {
        "side": side,
        "uplo": uplo,
        "trans": op,
        "diag": unit,
        "m": m,
        "n": n,
        "alpha": d.scalar(),
        "C": c,
        "ldc": c.ld,
    }
    v |= {"lda": some_a[0].ld, "ldb": some_b[0].ld, "batchCount": count}
    v |= {"A": some_a, "B": some_b} if count > 1 else {"A": some_a[0], "B": some_b[0]}

    def expect(v: Values) -> None:
        for a, b in zip(*((v["A"], v["B"]) if count > 1 else ([v["A"]], [v["B"]])), strict=True):
            t, x = turn(triangle(a.get(), uplo, unit), op), v["alpha"].get()[0] * b.get()
            if "trmm" in d.name:
                v["C"].set(x @ t if side else t @ x)
            else:
                b.set(np.linalg.solve(t.T, x.T).T if side else np.linalg.solve(t, x))

    return v, expect


def geam(d: Draw) -> tuple[Values, Any]:
    opa, opb, m, n = d.op(), d.op(), d.size(), d.size()
    a, b, c = (
        d.matrix(*((n, m) if opa else (m, n))),
        d.matrix(*((n, m) if opb else (m, n))),
        d.matrix(m, n),
    )
    v = {
        "transa": opa,
        "transb": opb,
        "m": m,
        "n": n,
        "A": a,
        "lda": a.ld,
        "B": b,
        "ldb": b.ld,
        "C": c,
        "ldc": c.ld,
    }

    def expect(v: Values) -> None:
        v["C"].set(
            v["alpha"].get()[0] * turn(v["A"].get(), opa)
            + v["beta"].get()[0] * turn(v["B"].get(), opb)
        )

    return with_scalars(d, v), expect


def dgmm(d: Draw) -> tuple[Values, Any]:
    mode, m, n = d.pick(0, 1), d.size(), d.size()
    a, c, x = d.matrix(m, n), d.matrix(m, n), d.vector(n if mode else m)

    def expect(v: Values) -> None:
        v["C"].set(v["A"].get() * (v["x"].get() if mode else v["x"].get()[:, None]))

    return {
        "mode": mode,
        "m": m,
        "n": n,
        "A": a,
        "lda": a.ld,
        "x": x,
        "incx": x.inc,
        "C": c,
        "ldc": c.ld,
    }, expect


def packing(d: Draw) -> tuple[Values, Any]:
    uplo, n = d.pick(0, 1), d.size()
    a = d.matrix(n, n)
    ap = Vector(draw(d.rng, n * (n + 1) // 2, d.code), d.code)

    def expect(v: Values) -> None:
        if "trttp" in d.name:
            v["AP"].set(pack(v["A"].get(), uplo))
            return
        values = v["A"].get()
        for place, value in zip(order(n, uplo), v["AP"].get(), strict=True):
            values[place] = value
        v["A"].set(values)

    return {"uplo": uplo, "n": n, "AP": ap, "A": a, "lda": a.ld}, expect
