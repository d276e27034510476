# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuDNN's graphs compute: ``python -m tests.sim.dnn_backend CASE ...``."""

from __future__ import annotations

import sys

import numpy as np

from tests.sim.dnn_client import (
    BACKWARD_DATA,
    BACKWARD_FILTER,
    BFLOAT16,
    DOUBLE,
    FLOAT,
    FORWARD,
    HALF,
    T_DOUBLE,
    T_FLOAT,
    Dnn,
    Shape,
    Values,
    assert_close,
)

RNG = np.random.default_rng(4)
SHAPES = {
    "plain": Shape(2, 1, 3, 4, (6, 5), (3, 3)),
    "padded": Shape(2, 1, 2, 3, (5, 6), (3, 2), pre=(1, 1)),
    "asymmetric": Shape(1, 1, 2, 3, (5, 6), (3, 3), pre=(0, 2), post=(1, 0)),
    "strides": Shape(2, 1, 3, 2, (9, 8), (3, 3), stride=(2, 3), pre=(1, 0)),
    "dilated": Shape(1, 1, 2, 2, (9, 9), (3, 3), dilation=(2, 3), pre=(2, 3)),
    "groups": Shape(2, 3, 2, 2, (5, 5), (3, 3), pre=(1, 1)),
    "depthwise": Shape(2, 4, 1, 1, (6, 6), (3, 3), stride=(2, 2), pre=(1, 1)),
    "pointwise": Shape(3, 1, 5, 4, (3, 3), (1, 1)),
    "mathematical": Shape(2, 2, 2, 3, (6, 5), (3, 2), pre=(1, 0), cross=False),
    "one": Shape(2, 1, 3, 4, (9,), (4,), stride=(2,), pre=(1,)),
    "three": Shape(1, 2, 2, 3, (4, 5, 3), (2, 3, 2), stride=(1, 2, 1), pre=(1, 0, 1)),
}


def draw(shape: tuple[int, ...], type_: int, last: bool, room: int = 0) -> Values:
    return Values(RNG.standard_normal(shape), type_, last, room)


def convolve(
    dnn: Dnn, shape: Shape, kind: int, type_: int, last: bool, engine: int, beta: float = 0.0
) -> None:
    """One convolution in one direction, compared with numpy."""
    room = 0 if last else 3
    x, w, y = (draw(s, type_, last, room) for s in (shape.x, shape.w, shape.y))
    compute, scale = (DOUBLE, T_DOUBLE) if type_ == DOUBLE else (FLOAT, T_FLOAT)
    operator = dnn.operator(
        shape.stride, shape.pre, shape.post, shape.dilation, shape.cross, compute
    )
    tensors = [dnn.tensor_of(uid, v) for uid, v in enumerate((x, w, y), 1)]
    operation = dnn.convolution(kind, operator, tensors, 0.5, beta, scale)
    if kind == FORWARD:
        result, wanted = y, shape.forward(x.get(), w.get())
    elif kind == BACKWARD_DATA:
        result, wanted = x, shape.backward_data(w.get(), y.get())
    else:
        result, wanted = w, shape.backward_filter(x.get(), y.get())
    wanted = 0.5 * wanted + beta * result.get()
    dnn.run_graph(dnn.graph(operation), {1: x, 2: w, 3: y}, engine)
    assert_close(result.get(), wanted, type_, f"{kind} {shape.x} {shape.w} {type_} {last} {engine}")
    assert all(v.fillers_are_left() for v in (x, w, y))


def layouts(dnn: Dnn) -> None:
    """Each shape in each direction, channels first and last, with each engine."""
    for shape in SHAPES.values():
        for kind in (FORWARD, BACKWARD_DATA, BACKWARD_FILTER):
            for last in (False, True):
                for engine in range(3):
                    convolve(dnn, shape, kind, FLOAT, last, engine)


def types(dnn: Dnn) -> None:
    """Element types, and accumulation into the result (beta)."""
    for name in ("padded", "groups", "three"):
        for kind in (FORWARD, BACKWARD_DATA, BACKWARD_FILTER):
            for type_ in (DOUBLE, HALF, BFLOAT16):
                convolve(dnn, SHAPES[name], kind, type_, type_ == HALF, 0, 2.0)


CASES = {case.__name__: case for case in (layouts, types)}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Dnn())
