# SPDX-License-Identifier: Apache-2.0
"""What each family of cublas.yaml computes, by numpy: `CASES` has for a function's plain name who makes its operands.

A maker returns the call's values and a function that changes them to what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.blas_client import (
    BF16,
    C32,
    C64,
    CI8,
    DEVICE,
    HOST,
    R16,
    R32,
    R64,
    REAL,
    RI8,
    RI32,
    Matrix,
    Place,
    Scalar,
    Strided,
    Vector,
    draw,
    letter_of,
)  # fmt: skip

Values = dict[str, Any]
Maker = Callable[["Draw"], tuple[Values, Callable[[Values], None]]]


class Draw:
    """Random operands for one call of one function."""

    def __init__(self, rng: np.random.Generator, name: str, variant: int) -> None:
        self.rng, self.name = rng, name.removesuffix("_64")
        self.wide = name.endswith("_64")
        self.variant = variant
        self.code = letter_of(self.name)
        self.is_complex = self.code in (C32, C64)

    def size(self) -> int:
        """A small dimension."""
        return int(self.rng.integers(1, 9))

    def pick(self, *options: Any) -> Any:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def op(self) -> int:
        """Plain, transposed or adjoint."""
        return int(self.rng.integers(3))

    def matrix(self, rows: int, cols: int, code: int | None = None) -> Matrix:
        """A matrix."""
        code = self.code if code is None else code
        return Matrix(draw(self.rng, (rows, cols), code), code, int(self.rng.integers(3)))

    def vector(self, n: int, code: int | None = None, positive: bool = False) -> Vector:
        """A vector."""
        code = self.code if code is None else code
        inc = self.pick(1, 2, 3) if positive else self.pick(1, 2, -1, -3)
        return Vector(draw(self.rng, n, code), code, inc)

    def scalar(self, code: int | None = None) -> Scalar:
        """A factor."""
        code = self.code if code is None else code
        return Scalar(draw(self.rng, 1, code), code)


def turn(values: np.ndarray, op: int) -> np.ndarray:
    """op(A)."""
    return values if op == 0 else values.T if op == 1 else values.conj().T


def is_hermitian(name: str) -> bool:
    """One of the functions for Hermitian matrices?"""
    return bool(re.match(r"[CZ]h", name))


def symmetric(values: np.ndarray, uplo: int, hermitian: bool) -> np.ndarray:
    """The whole matrix that one triangle stands for."""
    part = np.tril(values) if uplo == 0 else np.triu(values)
    if not hermitian:
        return part + part.T - np.diag(np.diag(part))
    return part + part.conj().T - np.diag(np.diag(part).real)


def triangle(values: np.ndarray, uplo: int, unit: int) -> np.ndarray:
    """The triangular matrix."""
    part = np.tril(values) if uplo == 0 else np.triu(values)
    return part - np.diag(np.diag(part)) + np.eye(len(part)) if unit else part


def put_triangle(target: Matrix, values: np.ndarray, uplo: int) -> None:
    """Change one triangle."""
    old = target.get()
    keep = np.tril(np.ones(old.shape, bool)) if uplo == 0 else np.triu(np.ones(old.shape, bool))
    target.set(np.where(keep, values, old))


def order(n: int, uplo: int) -> list[tuple[int, int]]:
    """The packed form's places."""
    return [(i, j) for j in range(n) for i in (range(j, n) if uplo == 0 else range(j + 1))]


def pack(values: np.ndarray, uplo: int) -> np.ndarray:
    """A triangle, packed."""
    return np.array([values[place] for place in order(len(values), uplo)])


def band(values: np.ndarray, kl: int, ku: int) -> np.ndarray:
    """A band matrix as BLAS stores it."""
    m, n = values.shape
    out = np.zeros((kl + ku + 1, n), values.dtype)
    for j in range(n):
        for i in range(max(0, j - ku), min(m, j + kl + 1)):
            out[ku + i - j, j] = values[i, j]
    return out


def limit_band(values: np.ndarray, kl: int, ku: int) -> np.ndarray:
    """Zero outside of the band."""
    return np.triu(np.tril(values, ku), -kl)


# ---- vectors


def make_reduction(d: Draw, code: int, result: int, extra: Values) -> tuple[Values, Any]:
    n = d.size()
    x = d.vector(n, code, positive=True)
    values = {"n": n, "x": x, "incx": x.inc, "result": Scalar(0, result)} | extra

    def expect(v: Values) -> None:
        e = v["x"].get()
        v["result"].raw[:] = Scalar(
            np.linalg.norm(e)
            if "nrm2" in d.name.lower()
            else np.sum(np.abs(e.real) + np.abs(e.imag)),
            result,
        ).raw

    return values, expect


def reduction(d: Draw) -> tuple[Values, Any]:
    return make_reduction(d, d.code, REAL.get(d.code, d.code), {})


EXECUTION = {R16: R32, BF16: R32, R32: R32, R64: R64, C32: C32, C64: C64}
VECTOR_TYPES = list(EXECUTION)


def reduction_ex(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6]
    result = REAL.get(code, code)
    execution = EXECUTION[code]
    extra = {"xType": code, "resultType": result, "executionType": REAL.get(execution, execution)}
    return make_reduction(d, code, result, extra | {"executiontype": extra["executionType"]})


def make_dot(d: Draw, code: int, extra: Values) -> tuple[Values, Any]:
    n = d.size()
    x, y = d.vector(n, code), d.vector(n, code)
    values = {
        "n": n,
        "x": x,
        "incx": x.inc,
        "y": y,
        "incy": y.inc,
        "result": Scalar(0, code),
    } | extra

    def expect(v: Values) -> None:
        e = v["x"].get().conj() if "dotc" in d.name.lower() else v["x"].get()
        v["result"].raw[:] = Scalar(e @ v["y"].get(), code).raw

    return values, expect


def dot(d: Draw) -> tuple[Values, Any]:
    return make_dot(d, d.code, {})


def dot_ex(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6]
    return make_dot(
        d,
        code,
        {"xType": code, "yType": code, "resultType": code, "executionType": EXECUTION[code]},
    )


def make_scal(d: Draw, code: int, alpha: int, extra: Values) -> tuple[Values, Any]:
    n = d.size()
    x = d.vector(n, code, positive=True)

    def expect(v: Values) -> None:
        v["x"].set(v["alpha"].get()[0] * v["x"].get())

    return {"n": n, "alpha": d.scalar(alpha), "x": x, "incx": x.inc} | extra, expect


def scal(d: Draw) -> tuple[Values, Any]:
    return make_scal(d, d.code, REAL[d.code] if d.name[1:3] in ("ss", "ds") else d.code, {})


def scal_ex(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6]
    return make_scal(
        d,
        code,
        EXECUTION[code],
        {"alphaType": EXECUTION[code], "xType": code, "executionType": EXECUTION[code]},
    )


def make_pair(
    d: Draw, code: int, change: Callable[[Values], None], extra: Values
) -> tuple[Values, Any]:
    n = d.size()
    x, y = d.vector(n, code), d.vector(n, code)
    types = {"xType": code, "yType": code}
    return {"n": n, "x": x, "incx": x.inc, "y": y, "incy": y.inc} | types | extra, change


def change_axpy(v: Values) -> None:
    v["y"].set(v["alpha"].get()[0] * v["x"].get() + v["y"].get())


def axpy(d: Draw) -> tuple[Values, Any]:
    return make_pair(d, d.code, change_axpy, {"alpha": d.scalar()})


def axpy_ex(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6]
    execution = EXECUTION[code]
    return make_pair(
        d,
        code,
        change_axpy,
        {"alpha": d.scalar(execution), "alphaType": execution, "executiontype": execution},
    )


def change_copy(v: Values) -> None:
    v["y"].set(v["x"].get())


def change_swap(v: Values) -> None:
    x, y = v["x"].get(), v["y"].get()
    v["x"].set(y)
    v["y"].set(x)


def copy(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6] if d.name.endswith("Ex") else d.code
    return make_pair(d, code, change_swap if "wap" in d.name else change_copy, {})


def make_extreme(d: Draw, code: int) -> tuple[Values, Any]:
    n = d.size()
    x = d.vector(n, code, positive=True)

    def expect(v: Values) -> None:
        sizes = np.abs(v["x"].get().real) + np.abs(v["x"].get().imag)
        v["result"].raw[:] = 1 + (np.argmax(sizes) if "max" in d.name else np.argmin(sizes))

    return {"n": n, "x": x, "incx": x.inc, "xType": code, "result": Place(d.wide)}, expect


def extreme(d: Draw) -> tuple[Values, Any]:
    return make_extreme(d, VECTOR_TYPES[d.variant % 6] if d.name.endswith("Ex") else d.code)


def change_rot(v: Values) -> None:
    x, y, c, s = v["x"].get(), v["y"].get(), v["c"].get()[0].real, v["s"].get()[0]
    v["x"].set(c * x + s * y)
    v["y"].set(c * y - np.conj(s) * x)


def rot(d: Draw) -> tuple[Values, Any]:
    real = REAL.get(d.code, d.code)
    sine = real if d.name[1:3] in ("sr", "dr") else d.code
    return make_pair(d, d.code, change_rot, {"c": d.scalar(real), "s": d.scalar(sine)})


def rot_ex(d: Draw) -> tuple[Values, Any]:
    code = VECTOR_TYPES[d.variant % 6]
    execution = EXECUTION[code]
    extra = {
        "c": d.scalar(execution),
        "s": d.scalar(execution),
        "csType": execution,
        "executiontype": execution,
    }
    return make_pair(d, code, change_rot, extra)


def change_rotm(v: Values) -> None:
    flag, h11, h21, h12, h22 = v["param"].get()
    if flag == -2:
        return
    if flag == 0:
        h11, h22 = 1, 1
    if flag == 1:
        h12, h21 = 1, -1
    x, y = v["x"].get(), v["y"].get()
    v["x"].set(h11 * x + h12 * y)
    v["y"].set(h21 * x + h22 * y)


def rotm(d: Draw) -> tuple[Values, Any]:
    code = (R32, R64)[d.variant % 2] if d.name.endswith("Ex") else d.code
    param = Scalar([d.pick(-2, -1, 0, 1), *draw(d.rng, 4, code)], code)
    return make_pair(
        d, code, change_rotm, {"param": param, "paramType": code, "executiontype": code}
    )


def rotg(d: Draw) -> tuple[Values, Any]:
    values = {
        "a": d.scalar(),
        "b": d.scalar(),
        "c": Scalar(0, REAL.get(d.code, d.code)),
        "s": Scalar(0, d.code),
    }

    def expect(v: Values) -> None:
        a, b = v["a"].get()[0], v["b"].get()[0]
        if d.is_complex:
            r = a / abs(a) * np.hypot(abs(a), abs(b))
            v["c"].raw[:] = abs(a) / np.hypot(abs(a), abs(b))
            v["s"].raw[:] = a / abs(a) * np.conj(b) / np.hypot(abs(a), abs(b))
            v["a"].raw[:] = r
            return
        r = np.copysign(np.hypot(a, b), a if abs(a) > abs(b) else b)
        c, s = a / r, b / r
        z = s if abs(a) > abs(b) else 1 / c if c else 1
        v["a"].raw[:], v["b"].raw[:], v["c"].raw[:], v["s"].raw[:] = r, z, c, s

    return values, expect


def rotmg(d: Draw) -> tuple[Values, Any]:
    code = d.code
    values = {n: Scalar(x, code) for n, x in (("d1", 2.0), ("d2", 0.5), ("x1", 3.0), ("y1", 1.0))}
    values["param"] = Scalar([0, 7, 7, 7, 7], code)

    def expect(v: Values) -> None:
        # |d1 x1^2| is larger: H has ones on its diagonal, and what is not named stays
        d1, d2, x1, y1 = (v[n].get()[0] for n in ("d1", "d2", "x1", "y1"))
        h21, h12 = -y1 / x1, (d2 * y1) / (d1 * x1)
        u = 1 - h12 * h21
        v["d1"].raw[:], v["d2"].raw[:], v["x1"].raw[:] = d1 / u, d2 / u, x1 * u
        v["param"].raw[:] = [0, 7, h21, h12, 7]

    return values, expect


# ---- matrices and vectors


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
    parts = [
        {
            "A": Matrix(draw(d.rng, (m, n), d.code), d.code, room),
            "x": Vector(draw(d.rng, m if op else n, d.code), d.code, incx),
            "y": Vector(draw(d.rng, n if op else m, d.code), d.code, incy),
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

    return with_scalars(d, v), expect


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


# ---- products of matrices

PRODUCT_TYPES = [
    (64, R16, R16, R16), (68, R32, R16, R16), (68, R32, BF16, BF16), (68, R32, R16, R32), (68, R32, BF16, R32),
    (68, R32, RI8, R32), (68, R32, R32, R32), (77, R32, R32, R32), (68, C32, C32, C32), (70, R64, R64, R64),
    (70, C64, C64, C64), (72, RI32, RI8, RI32), (68, C32, CI8, C32), (69, R32, R32, R32), (74, C32, C32, C32),
]  # fmt: skip
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


# ---- batches of systems


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
        "n": n, "A": some, "lda": some[0].ld, "Ainv": inverses, "lda_inv": inverses[0].ld, "info": ints(count), "batchSize": count,
    }, expect  # fmt: skip


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
            q, _ = np.linalg.qr(a.get(), mode="complete")
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
        "trans": 0, "m": m, "n": n, "nrhs": nrhs, "Aarray": some, "lda": some[0].ld, "Carray": sides, "ldc": sides[0].ld,
        "info": info(), "devInfoArray": ints(count), "batchSize": count,
    }, expect  # fmt: skip


#: by the function's name without the suffix of its version
MAKERS: list[tuple[str, Maker]] = [
    (r"(Nrm2|Asum)Ex", reduction_ex),
    (r"([SDCZ]|Sc|Dz)(nrm2|asum)", reduction),
    (r"Dotc?Ex", dot_ex),
    (r"[SDCZ]dot[uc]?", dot),
    (r"ScalEx", scal_ex),
    (r"([SDCZ]|Cs|Zd)scal", scal),
    (r"AxpyEx", axpy_ex),
    (r"[SDCZ]axpy", axpy),
    (r"(Copy|Swap)Ex|[SDCZ](copy|swap)", copy),
    (r"I.*am(ax|in)(Ex)?", extreme),
    (r"RotmEx|[SD]rotm", rotm),
    (r"RotEx", rot_ex),
    (r"([SDCZ]|Cs|Zd)rot", rot),
    (r"[SDCZ]rotg", rotg),
    (r"[SD]rotmg", rotmg),
    (r"[SDCZ]gemv", gemv),
    (r"[SDCZ]gemv(Strided)?Batched", gemv_batch),
    (r"[SDCZ]gbmv", gbmv),
    (r"[SDCZ]t[rbp][ms]v", triangular),
    (r"[SDCZ](sy|he|sb|hb|sp|hp)mv", symmetric_mv),
    (r"[SDCZ]ger[uc]?", ger),
    (r"[SDCZ](sy|he|sp|hp)r2?", rank_update),
    (r"([SDCZ]gemm|Cgemm3m|Zgemm3m|Gemm)(Strided)?(Batched)?(Ex)?", gemm),
    (r"[SDCZ](syr|her)(k|k3m|2k|kx)(Ex)?", rank_k),
    (r"[SDCZ](sy|he)mm", symm),
    (r"[SDCZ]tr[ms]m(Batched)?", triangular_m),
    (r"[SDCZ]geam", geam),
    (r"[SDCZ]dgmm", dgmm),
    (r"[SDCZ](tpttr|trttp)", packing),
    (r"[SDCZ]getrfBatched", getrf),
    (r"[SDCZ]getriBatched", getri),
    (r"[SDCZ]getrsBatched", getrs),
    (r"[SDCZ]matinvBatched", matinv),
    (r"[SDCZ]geqrfBatched", geqrf),
    (r"[SDCZ]gelsBatched", gels),
]


def find_maker(name: str) -> Maker | None:
    """Who makes the operands of a function."""
    plain = name.removesuffix("_64").removesuffix("_v2")
    return next((maker for pattern, maker in MAKERS if re.fullmatch(pattern, plain)), None)


MODES = (HOST, DEVICE)
