# SPDX-License-Identifier: Apache-2.0
"""What the functions of vectors compute, by numpy. A maker returns operands, and what changes them as is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.blas_client import BF16, C32, C64, R16, R32, R64, REAL, Place, Scalar, draw
from tests.sim.blas_draw import Draw, Values


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
