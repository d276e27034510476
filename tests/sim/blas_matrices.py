# SPDX-License-Identifier: Apache-2.0
"""What the functions of a matrix and vectors compute, by numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.sim.blas_client import LETTERS, R32, REAL, Matrix, Strided, Vector, draw
from tests.sim.blas_draw import (
    Draw,
    Values,
    band,
    is_hermitian,
    limit_band,
    pack,
    put_triangle,
    symmetric,
    triangle,
    turn,
)


def gemv_values(d: Draw, op: int, m: int, n: int) -> Values:
    x, y = d.vector(m if op else n), d.vector(n if op else m)
    return {"A": d.matrix(m, n), "x": x, "y": y}


def change_gemv(v: Values) -> None:
    product = turn(v["A"].get(), v["trans"]) @ v["x"].get()
    v["y"].set(v["alpha"].get()[0] * product + v["beta"].get()[0] * v["y"].get())


def with_scalars(d: Draw, v: Values) -> Values:
    return v | {"alpha": d.scalar(), "beta": d.scalar()}


def gemv(d: Draw) -> tuple[Values, Any]:
    op, m, n = d.op(), d.size(), d.size()
    v = gemv_values(d, op, m, n)
    v |= {"trans": op, "m": m, "n": n, "lda": v["A"].ld, "incx": v["x"].inc, "incy": v["y"].inc}
    return with_scalars(d, v), change_gemv


def gemv_batch(d: Draw) -> tuple[Values, Any]:
    op, m, n, count = d.op(), d.size(), d.size(), 3
    room, incx, incy = d.size(), d.pick(1, -2), d.pick(2, -1)
    mixed = re.match(r"([HT])S([HTS])", d.name)
    code, result = (LETTERS[mixed[1]], LETTERS[mixed[2]]) if mixed else (d.code, d.code)
    parts = [
        {
            "A": Matrix(draw(d.rng, (m, n), code), code, room),
            "x": Vector(draw(d.rng, m if op else n, code), code, incx),
            "y": Vector(draw(d.rng, n if op else m, result), result, incy),
        }
        for _ in range(count)
    ]
    lists = {name: [part[name] for part in parts] for name in ("A", "x", "y")}
    v: Values = {
        "trans": op,
        "m": m,
        "n": n,
        "lda": parts[0]["A"].ld,
        "incx": incx,
        "incy": incy,
        "batchCount": count,
    }
    if "Strided" in d.name:
        strided = {name: Strided(some) for name, some in lists.items()}
        v |= strided | {f"stride{name}": value.stride for name, value in strided.items()}
    else:
        v |= {f"{name}array": some for name, some in lists.items()}

    def expect(v: Values) -> None:
        for i in range(count):
            some = {
                name: (v[name].parts if name in v else v[f"{name}array"])[i]
                for name in ("A", "x", "y")
            }
            change_gemv(v | some)

    v |= {"alpha": d.scalar(R32), "beta": d.scalar(R32)} if mixed else with_scalars(d, {})
    return v, expect


def gbmv(d: Draw) -> tuple[Values, Any]:
    op, m, n, kl, ku = d.op(), d.size(), d.size(), int(d.rng.integers(3)), int(d.rng.integers(3))
    whole = limit_band(draw(d.rng, (m, n), d.code), kl, ku)
    stored = Matrix(band(whole, kl, ku), d.code)
    x, y = d.vector(m if op else n), d.vector(n if op else m)
    v = {
        "trans": op,
        "m": m,
        "n": n,
        "kl": kl,
        "ku": ku,
        "A": stored,
        "lda": stored.ld,
        "x": x,
        "incx": x.inc,
        "y": y,
        "incy": y.inc,
    }

    def expect(v: Values) -> None:
        product = turn(whole, op) @ v["x"].get()
        v["y"].set(v["alpha"].get()[0] * product + v["beta"].get()[0] * v["y"].get())

    return with_scalars(d, v), expect


def triangular(d: Draw) -> tuple[Values, Any]:
    """trmv, trsv, and the same with bands and packed."""
    uplo, op, unit, n = d.pick(0, 1), d.op(), d.pick(0, 1), d.size()
    k = int(d.rng.integers(n))
    whole = draw(d.rng, (n, n), d.code) + 4 * np.eye(n)
    if d.name[1:3] == "tb":
        whole = limit_band(whole, k, k)
    whole = triangle(whole, uplo, 0)
    x = d.vector(n)
    v = {"uplo": uplo, "trans": op, "diag": unit, "n": n, "k": k, "x": x, "incx": x.inc}
    if d.name[1:3] == "tp":
        v["AP"] = Vector(pack(whole, uplo), d.code)
    else:
        stored = whole if d.name[1:3] == "tr" else band(whole, *((k, 0) if uplo == 0 else (0, k)))
        v["A"] = Matrix(stored, d.code)
        v["lda"] = v["A"].ld

    def expect(v: Values) -> None:
        matrix = turn(triangle(whole, uplo, unit), op)
        x = v["x"].get()
        v["x"].set(matrix @ x if "mv" in d.name else np.linalg.solve(matrix, x))

    return v, expect


def symmetric_mv(d: Draw) -> tuple[Values, Any]:
    """symv, hemv, and the same with bands and packed."""
    uplo, n = d.pick(0, 1), d.size()
    k = int(d.rng.integers(n))
    shape = d.name[2]  # y or e: full; b: band; p: packed
    whole = draw(d.rng, (n, n), d.code)
    if shape == "b":
        whole = limit_band(whole, k, k)
    whole = symmetric(whole, uplo, is_hermitian(d.name))
    x, y = d.vector(n), d.vector(n)
    v = {"uplo": uplo, "n": n, "k": k, "x": x, "incx": x.inc, "y": y, "incy": y.inc}
    part = np.tril(whole) if uplo == 0 else np.triu(whole)
    if shape == "p":
        v["AP"] = Vector(pack(whole, uplo), d.code)
    else:
        v["A"] = Matrix(
            band(part, *((k, 0) if uplo == 0 else (0, k))) if shape == "b" else part, d.code
        )
        v["lda"] = v["A"].ld

    def expect(v: Values) -> None:
        v["y"].set(v["alpha"].get()[0] * (whole @ v["x"].get()) + v["beta"].get()[0] * v["y"].get())

    return with_scalars(d, v), expect


def ger(d: Draw) -> tuple[Values, Any]:
    m, n = d.size(), d.size()
    x, y, a = d.vector(m), d.vector(n), d.matrix(m, n)

    def expect(v: Values) -> None:
        y = v["y"].get().conj() if "gerc" in d.name else v["y"].get()
        v["A"].set(v["A"].get() + v["alpha"].get()[0] * np.outer(v["x"].get(), y))

    return {
        "m": m,
        "n": n,
        "alpha": d.scalar(),
        "x": x,
        "incx": x.inc,
        "y": y,
        "incy": y.inc,
        "A": a,
        "lda": a.ld,
    }, expect


def rank_update(d: Draw) -> tuple[Values, Any]:
    """syr, her, syr2, her2, and the same packed."""
    uplo, n, hermitian, two = d.pick(0, 1), d.size(), is_hermitian(d.name), "r2" in d.name
    whole = symmetric(draw(d.rng, (n, n), d.code), uplo, hermitian)
    x, y = d.vector(n), d.vector(n)
    v = {"uplo": uplo, "n": n, "alpha": d.scalar(REAL[d.code] if hermitian and not two else d.code)}
    v |= {"x": x, "incx": x.inc, "y": y, "incy": y.inc}
    packed = d.name[2] == "p"
    v |= {"AP": Vector(pack(whole, uplo), d.code)} if packed else {"A": Matrix(whole, d.code)}
    if not packed:
        v["lda"] = v["A"].ld

    def expect(v: Values) -> None:
        x, y, alpha = v["x"].get(), v["y"].get() if two else v["x"].get(), v["alpha"].get()[0]
        change = alpha * np.outer(x, y.conj() if hermitian else y)
        if two:
            change = change + (change.conj().T if hermitian else change.T)
        if packed:
            v["AP"].set(pack(whole + change, uplo))
        else:
            put_triangle(v["A"], whole + change, uplo)

    return v, expect
