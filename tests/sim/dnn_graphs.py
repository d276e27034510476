# SPDX-License-Identifier: Apache-2.0
"""Graphs of the simulated cuDNN beside convolutions, and its engines: ``python -m tests.sim.dnn_graphs CASE ...``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

import numpy as np

from tests.sim.dnn_client import (
    BOOLEAN,
    CONFIG,
    DOUBLE,
    ENGINE,
    FLOAT,
    FORWARD,
    HALF,
    INT8,
    INT32,
    KNOB_CHOICE,
    KNOB_INFO,
    LAYOUT_INFO,
    MATMUL,
    MATMUL_OP,
    NOT_SUPPORTED,
    OK,
    REDUCTION,
    REDUCTION_OP,
    T_BEHAVIOR,
    T_DESCRIPTOR,
    T_INT64,
    T_KNOB,
    T_NUMERICAL,
    T_REDUCTION,
    T_TYPE,
    Dnn,
    Shape,
    Values,
    assert_close,
    spread,
)

RNG = np.random.default_rng(6)
erf = np.vectorize(math.erf)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ONE: dict[int, Callable[[Any], Any]] = {
    4: np.sqrt, 10: np.abs, 11: np.ceil, 12: np.cos, 13: np.exp, 14: np.floor, 15: np.log,
    16: np.negative, 17: lambda x: 1 / np.sqrt(x), 18: np.sin, 19: np.tan, 20: erf,
    21: lambda x: x, 22: lambda x: 1 / x, 100: lambda x: np.clip(x, 0, None), 101: np.tanh,
    102: sigmoid, 103: lambda x: np.where(x < 0, np.expm1(x), x),
    104: lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), 105: lambda x: np.log1p(np.exp(x)),
    106: lambda x: x * sigmoid(x), 107: gelu_tanh, 402: lambda x: (x == 0) * 1.0,
}  # fmt: skip
TWO: dict[int, Callable[[Any, Any], Any]] = {
    0: np.add, 1: np.multiply, 2: np.minimum, 3: np.maximum, 5: lambda x, b: x + b * b,
    6: np.divide, 7: np.fmod, 8: np.power, 9: np.subtract, 23: np.arctan2, 300: np.equal,
    301: np.not_equal, 302: np.greater, 303: np.greater_equal, 304: np.less, 305: np.less_equal,
    400: np.logical_and, 401: np.logical_or,
}  # fmt: skip


def run_pointwise(dnn: Dnn, mode: int, *inputs: Values, **settings: Any) -> np.ndarray:
    """One operation on tensors that may be broadcast; the result."""
    shape = np.broadcast_shapes(*[v.shape for v in inputs])
    result = Values(np.zeros(shape), FLOAT, True)
    names = ("dy", "x") if 200 <= mode < 300 else ("x", "b", "t")
    operands = {
        name: dnn.tensor_of(uid, value)
        for uid, (name, value) in enumerate(zip(names, inputs, strict=False))
    }
    operands["dx" if 200 <= mode < 300 else "y"] = dnn.tensor_of(9, result)
    operation = dnn.pointwise(mode, **operands, **settings)
    dnn.run_graph(dnn.graph(operation), {**dict(enumerate(inputs)), 9: result})
    assert result.fillers_are_left()
    return result.get()


def pointwise(dnn: Dnn) -> None:
    """Each mode of one and of two operands, with the second one broadcast."""
    for mode, function in ONE.items():
        x = Values(RNG.standard_normal((2, 3, 4)), FLOAT, False, 1)
        if mode in (4, 15, 17):
            x = Values(RNG.random((2, 3, 4)) + 0.1)
        if mode == 402:
            x = Values(RNG.integers(0, 2, (2, 3, 4)))
        assert_close(run_pointwise(dnn, mode, x), function(x.get()), FLOAT, f"mode {mode}")
    for mode, pair in TWO.items():
        x, b = Values(RNG.integers(1, 4, (2, 3, 4)) * 0.5), Values(RNG.integers(1, 4, (1, 3, 1)))
        found = run_pointwise(dnn, mode, x, b)
        assert_close(found, pair(x.get(), b.get()) * 1.0, FLOAT, f"mode {mode}")


def gradients(dnn: Dnn) -> None:
    """Gradients of activations: the slope between two close points."""
    x, dy, step = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((3, 4, 5)), 1e-5
    x = Values(x + 0.01 * np.sign(x))  # not where a function has an edge
    for mode in range(100, 108):
        slope = (ONE[mode](x.get() + step) - ONE[mode](x.get() - step)) / (2 * step)
        found = run_pointwise(dnn, mode + 100, Values(dy), x)
        assert_close(found, Values(dy).get() * slope, FLOAT, f"gradient of {mode}")


def settings(dnn: Dnn) -> None:
    """Scales, limits and other settings of modes; a mask that selects; indices."""
    x, b = Values(RNG.standard_normal((2, 3, 4))), Values(RNG.standard_normal((2, 3, 4)))
    found = run_pointwise(dnn, 0, x, b, scales=(2.0, -3.0))
    assert_close(found, 2 * x.get() - 3 * b.get(), FLOAT, "scales")
    found = run_pointwise(dnn, 100, x, settings={3: -0.5, 4: 0.5, 5: 0.1})
    leaky = np.where(x.get() < -0.5, -0.5 + 0.1 * (x.get() + 0.5), x.get())
    assert_close(found, np.minimum(leaky, 0.5), FLOAT, "limits")
    found = run_pointwise(dnn, 103, x, settings={6: 2.0})
    assert_close(found, np.where(x.get() < 0, 2 * np.expm1(x.get()), x.get()), FLOAT, "ELU")
    found = run_pointwise(dnn, 105, x, settings={7: 2.0})
    assert_close(found, np.log1p(np.exp(2 * x.get())) / 2, FLOAT, "softplus")
    found = run_pointwise(dnn, 106, x, settings={8: 3.0})
    assert_close(found, x.get() * sigmoid(3 * x.get()), FLOAT, "swish")
    found = run_pointwise(dnn, 203, b, x, settings={6: 2.0})
    slope = np.where(x.get() < 0, 2 * np.exp(x.get()), 1)
    assert_close(found, b.get() * slope, FLOAT, "gradient of ELU")
    found = run_pointwise(dnn, 200, b, x, settings={3: -0.5, 4: 0.5, 5: 0.1})
    slope = np.where(x.get() <= -0.5, 0.1, x.get() < 0.5)
    assert_close(found, b.get() * slope, FLOAT, "gradient within limits")
    mask = Values(RNG.integers(0, 2, (2, 3, 4)))
    found = run_pointwise(dnn, 601, x, b, mask)
    assert_close(found, np.where(mask.get() != 0, x.get(), b.get()), FLOAT, "selection")
    found = run_pointwise(dnn, 501, x, settings={9: 2})
    assert_close(found, np.indices(x.shape)[2] * 1.0, FLOAT, "indices")


def products(dnn: Dnn) -> None:
    """Products of matrices with batches that are broadcast, transposed by strides, of several types."""
    for type_, shapes in (
        (FLOAT, ((2, 3, 4), (2, 4, 5), (2, 3, 5))),
        (HALF, ((1, 3, 4), (6, 4, 5), (6, 3, 5))),
        (DOUBLE, ((2, 1, 3, 4), (1, 3, 4, 2), (2, 3, 3, 2))),
        (FLOAT, ((3, 4), (4, 5), (3, 5))),
    ):
        a, b = (
            Values(RNG.standard_normal(s), type_, last, 2)
            for s, last in ((shapes[0], True), (shapes[1], False))
        )
        c = Values(np.zeros(shapes[2]), type_)
        described = dnn.make(MATMUL, (1500, T_TYPE, DOUBLE if type_ == DOUBLE else FLOAT))
        operation = dnn.make(
            MATMUL_OP,
            *[(1519 + i, T_DESCRIPTOR, dnn.tensor_of(i, v)) for i, v in enumerate((a, b, c), 1)],
            (1523, T_DESCRIPTOR, described),
        )
        dnn.run_graph(dnn.graph(operation), {1: a, 2: b, 3: c})
        assert_close(c.get(), a.get() @ b.get(), type_, f"product {shapes}")


def reductions(dnn: Dnn) -> None:
    """Each reduction over some dimensions."""
    for kind, function in enumerate((np.sum, np.prod, np.min, np.max)):
        for axes in ((0,), (1, 3), (0, 1, 2, 3)):
            x = Values(RNG.standard_normal((2, 3, 2, 4)), FLOAT, True)
            wanted = function(x.get(), axis=axes, keepdims=True)
            reduce(dnn, kind, x, wanted)
    x = Values(RNG.standard_normal((2, 3, 2, 4)))
    reduce(dnn, 4, x, np.abs(x.get()).max(axis=(2, 3), keepdims=True))


def reduce(dnn: Dnn, kind: int, x: Values, wanted: np.ndarray) -> None:
    y = Values(np.full(wanted.shape, 5.0))
    described = dnn.make(REDUCTION, (1600, T_REDUCTION, kind), (1601, T_TYPE, FLOAT))
    operation = dnn.make(
        REDUCTION_OP,
        (1610, T_DESCRIPTOR, dnn.tensor_of(1, x)),
        (1611, T_DESCRIPTOR, dnn.tensor_of(2, y)),
        (1612, T_DESCRIPTOR, described),
    )
    dnn.run_graph(dnn.graph(operation), {1: x, 2: y})
    assert_close(y.get(), wanted, FLOAT, f"reduction {kind}")


def fused(dnn: Dnn, shape: Shape, values: dict[str, Values], reverse: bool = False) -> c_void_p:
    """A graph: convolution, bias, residue times a number of the host, rectified."""
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation)
    x, w, bias, z = (dnn.tensor_of(i, values[k]) for i, k in enumerate(("x", "w", "bias", "z"), 1))
    y = dnn.tensor_of(5, values["y"])
    between = [dnn.tensor(i, shape.y, spread(shape.y, True), virtual=True) for i in range(10, 14)]
    factor = dnn.tensor(6, [1] * len(shape.y), by_value=True)
    operations = [
        dnn.convolution(FORWARD, operator, (x, w, between[0])),
        dnn.pointwise(0, x=between[0], b=bias, y=between[1]),
        dnn.pointwise(1, x=z, b=factor, y=between[2]),
        dnn.pointwise(0, x=between[1], b=between[2], y=between[3]),
        dnn.pointwise(100, x=between[3], y=y),
    ]
    return dnn.graph(*(operations[::-1] if reverse else operations))


def fusion(dnn: Dnn) -> None:
    """Operations with virtual tensors between them, in any order, with each engine."""
    shape = Shape(2, 1, 3, 4, (5, 6), (3, 3), pre=(1, 1))
    for reverse in (False, True):
        for engine in range(3):
            values = {
                name: Values(RNG.standard_normal(size))
                for name, size in {
                    "x": shape.x, "w": shape.w, "bias": (1, 4, 1, 1), "z": shape.y, "y": shape.y,
                }.items()
            }  # fmt: skip
            graph, factor = fused(dnn, shape, values, reverse), np.array([0.5], "f4")
            tensors = dict(enumerate(values.values(), 1)) | {6: factor}
            sums = shape.forward(values["x"].get(), values["w"].get()) + values["bias"].get()
            dnn.run_graph(graph, tensors, engine)
            wanted = np.maximum(sums + 0.5 * values["z"].get(), 0)
            assert_close(values["y"].get(), wanted, FLOAT, f"engine {engine}")


def integers(dnn: Dnn) -> None:
    """8-bit integers into 32-bit ones, exactly; truth values."""
    shape = Shape(1, 1, 40, 3, (4, 4), (3, 3))
    x, w = (Values(RNG.integers(-128, 128, s), INT8) for s in (shape.x, shape.w))
    y = Values(np.zeros(shape.y), INT32)
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation, compute=INT32)
    tensors = [dnn.tensor_of(i, v) for i, v in enumerate((x, w, y), 1)]
    graph = dnn.graph(dnn.convolution(FORWARD, operator, tensors))
    dnn.run_graph(graph, {1: x, 2: w, 3: y})
    assert np.array_equal(y.get(), shape.forward(x.get(), w.get()))
    a, b = Values(RNG.integers(0, 3, (5,))), Values(RNG.integers(0, 3, (5,)))
    less, out = dnn.tensor(8, (5,), type_=BOOLEAN, virtual=True), Values(np.zeros(5))
    compare = dnn.pointwise(304, x=dnn.tensor_of(1, a), b=dnn.tensor_of(2, b), y=less)
    copy = dnn.pointwise(21, x=less, y=dnn.tensor_of(3, out))
    dnn.run_graph(dnn.graph(compare, copy), {1: a, 2: b, 3: out})
    assert np.array_equal(out.get(), a.get() < b.get())


def engines(dnn: Dnn) -> None:
    """What heuristics, engines and configurations say, and that each configuration computes."""
    shape = Shape(3, 1, 4, 2, (8, 8), (3, 3))
    values = [Values(RNG.standard_normal(s)) for s in (shape.x, shape.w, shape.y)]
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation)
    tensors = [dnn.tensor_of(uid, v) for uid, v in enumerate(values, 1)]
    graph = dnn.graph(dnn.convolution(FORWARD, operator, tensors))
    assert dnn.get(graph, 802, T_INT64) == [3]
    wanted, sizes = shape.forward(values[0].get(), values[1].get()), []
    for mode, count in ((0, 3), (1, 3), (2, 1), (3, 4)):
        configs = dnn.configs(graph, mode)
        assert len(configs) == count
        for config in configs:
            (engine,) = dnn.get_all(config, 300, ENGINE)
            (index,) = dnn.get(engine, 1301, T_INT64)
            knobs = [
                (dnn.get(k, 600, T_KNOB)[0], dnn.get(k, 601, T_INT64)[0])
                for k in dnn.get_all(config, 302, KNOB_CHOICE)
            ]
            plan = dnn.plan(config)
            size = dnn.get(plan, 402, T_INT64)[0]
            assert dnn.get(config, 303, T_INT64) == [size]
            sizes.append((index, knobs, size))
            values[2] = Values(np.zeros(shape.y))
            dnn.run_plan(plan, {1: values[0], 2: values[1], 3: values[2]})
            assert_close(values[2].get(), wanted, FLOAT, f"{index} {knobs}")
    patches = 4 * 36 * 4 * 9
    assert sizes[-4:] == [
        (0, [(2, 0)], 5376), (0, [(2, 2)], 1536), (2, [], 15616), (1, [], 0),
    ]  # fmt: skip
    assert patches <= 5376
    notes = {}
    for index in range(3):
        engine = dnn.make(ENGINE, (1300, T_DESCRIPTOR, graph), (1301, T_INT64, index))
        notes[index] = (dnn.get(engine, 1303, T_NUMERICAL), dnn.get(engine, 1305, T_BEHAVIOR))
        layouts = dnn.get_all(engine, 1304, LAYOUT_INFO)
        assert [dnn.get(one, 1100, T_INT64) for one in layouts] == [[1], [2], [3]]
        infos = [
            [
                dnn.get(k, a, t)[0]
                for a, t in ((1200, T_KNOB), *((a, T_INT64) for a in range(1201, 1204)))
            ]
            for k in dnn.get_all(engine, 1302, KNOB_INFO)
        ]
        assert infos == ([[2, 3, 0, 1]] if index == 0 else [])
    assert notes == {0: ([], [4]), 1: ([9], []), 2: ([4], [4])}
    choices(dnn, graph)


def choices(dnn: Dnn, graph: c_void_p) -> None:
    """Choices of knobs that an engine has or has not."""
    for index, kind, value, status in (
        (0, 2, 3, OK), (0, 2, 4, NOT_SUPPORTED), (0, 3, 0, NOT_SUPPORTED), (1, 2, 0, NOT_SUPPORTED),
    ):  # fmt: skip
        engine = dnn.make(ENGINE, (1300, T_DESCRIPTOR, graph), (1301, T_INT64, index))
        choice = dnn.make(KNOB_CHOICE, (600, T_KNOB, kind), (601, T_INT64, value))
        config = dnn.create(CONFIG)
        dnn.good(dnn.set(config, 300, T_DESCRIPTOR, engine))
        dnn.good(dnn.set(config, 302, T_DESCRIPTOR, choice))
        assert dnn.finalize(config) == status
    engine = dnn.create(ENGINE)
    dnn.good(dnn.set(engine, 1300, T_DESCRIPTOR, graph))
    dnn.good(dnn.set(engine, 1301, T_INT64, 3))
    assert dnn.finalize(engine) == NOT_SUPPORTED


CASES = {
    case.__name__: case
    for case in (
        pointwise, gradients, settings, products, reductions, fusion, integers, engines,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Dnn())
