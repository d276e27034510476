# SPDX-License-Identifier: Apache-2.0
"""Calls of the simulated cuDNN that come without a graph: ``python -m tests.sim.dnn_layers CASE ...``."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from tests.sim.dnn_client import (
    BAD_PARAM,
    DOUBLE,
    FLOAT,
    HALF,
    NOT_SUPPORTED,
    OK,
    Dnn,
    Shape,
    Values,
    assert_close,
)
from tests.sim.dnn_norm import describe

RNG = np.random.default_rng(8)
FORWARD, DATA, FILTER = "Forward", "BackwardData", "BackwardFilter"
RELU, IDENTITY = 1, 5


class Performance(ctypes.Structure):
    """What is known of an algorithm."""

    _fields_ = (
        ("algorithm", c_int), ("status", c_int), ("time", c_float), ("memory", c_size_t),
        ("determinism", c_int), ("math", c_int), ("reserved", c_int * 3),
    )  # fmt: skip


def ints(values: Any) -> Any:
    return (c_int * len(values))(*values)


def draw(shape: Any, type_: int = FLOAT, last: bool = False) -> Values:
    return Values(RNG.standard_normal(shape), type_, last)


def scale(value: float, type_: int = FLOAT) -> Any:
    return byref(c_double(value) if type_ == DOUBLE else c_float(value))


class Memory:
    """Tensors on the device: uploaded as they are used, and fetched at the end."""

    def __init__(self, dnn: Dnn, *tensors: Values) -> None:
        self.dnn, self.tensors = dnn, tensors
        self.at = [c_void_p(dnn.upload(t.raw)) for t in tensors]
        self.descriptors = [describe(dnn, t) for t in tensors]

    def fetch(self) -> None:
        """Wait, and read all of them."""
        self.dnn.ok(self.dnn.wait())
        for address, tensor in zip(self.at, self.tensors, strict=True):
            assert address.value
            self.dnn.download(address.value, tensor.raw)
            self.dnn.free(address.value)
            assert tensor.fillers_are_left()


class Legacy:
    """A convolution with its descriptors; the calls of its three directions differ in the order of arguments."""

    def __init__(self, dnn: Dnn, shape: Shape, type_: int, last: bool) -> None:
        self.dnn, self.shape, self.type = dnn, shape, type_
        self.values = [draw(s, type_, last) for s in (shape.x, shape.w, shape.y)]
        self.memory = Memory(dnn, *self.values)
        lib, nd = dnn.dnn, len(shape.stride)
        self.filter, self.convolution = c_void_p(), c_void_p()
        dnn.good(lib.cudnnCreateFilterDescriptor(byref(self.filter)))
        dnn.good(
            lib.cudnnSetFilterNdDescriptor(self.filter, type_, int(last), nd + 2, ints(shape.w))
        )
        dnn.good(lib.cudnnCreateConvolutionDescriptor(byref(self.convolution)))
        compute = DOUBLE if type_ == DOUBLE else FLOAT
        dnn.good(
            lib.cudnnSetConvolutionNdDescriptor(
                self.convolution, nd, ints(shape.pre), ints(shape.stride), ints(shape.dilation),
                int(shape.cross), compute,
            )
        )  # fmt: skip
        dnn.good(lib.cudnnSetConvolutionGroupCount(self.convolution, shape.groups))

    def order(self, direction: str, x: Any, w: Any, y: Any) -> list[Any]:
        """Operands as a direction has them, with the convolution before the last."""
        first, second, last = {FORWARD: (x, w, y), DATA: (w, y, x), FILTER: (x, y, w)}[direction]
        return [first, second, self.convolution, last]

    def descriptors(self, direction: str) -> list[Any]:
        x, _, y = self.memory.descriptors
        return self.order(direction, x, self.filter, y)

    def workspace(self, direction: str, algorithm: int) -> tuple[int, int]:
        size = c_size_t()
        get = getattr(self.dnn.dnn, f"cudnnGetConvolution{direction}WorkspaceSize")
        status = get(self.dnn.dnn_handle, *self.descriptors(direction), algorithm, byref(size))
        return int(status), size.value

    def run(self, direction: str, algorithm: int, beta: float, lacking: int = 0) -> int:
        _, size = self.workspace(direction, algorithm)
        workspace = self.dnn.alloc(size)
        descriptors = self.descriptors(direction)
        places = self.order(direction, *self.memory.at)
        first, second, convolution, last = zip(descriptors, places, strict=True)
        return int(
            getattr(self.dnn.dnn, f"cudnnConvolution{direction}")(
                self.dnn.dnn_handle, scale(0.5, self.type), *first, *second, convolution[0],
                algorithm, c_void_p(workspace), c_size_t(size - lacking), scale(beta, self.type),
                *last,
            )
        )  # fmt: skip

    def expect(self, direction: str, beta: float) -> tuple[Values, np.ndarray]:
        x, w, y = (v.get() for v in self.values)
        at, made = {
            FORWARD: lambda: (2, self.shape.forward(x, w)),
            DATA: lambda: (0, self.shape.backward_data(w, y)),
            FILTER: lambda: (1, self.shape.backward_filter(x, y)),
        }[direction]()
        return self.values[at], 0.5 * made + beta * self.values[at].get()


SHAPES = (
    Shape(2, 1, 3, 4, (6, 5), (3, 3), pre=(1, 1), stride=(2, 1)),
    Shape(2, 3, 2, 2, (5, 5), (3, 2), dilation=(2, 1), cross=False),
    Shape(1, 1, 2, 3, (4, 5, 3), (2, 3, 2), pre=(1, 0, 1)),
)
#: algorithms that are simulated, in the order in which they are recommended
ALGORITHMS = {FORWARD: (2, 1, 0), DATA: (1, 0), FILTER: (3, 1, 0)}


def convolutions(dnn: Dnn) -> None:
    """All directions and algorithms, channels first and last, single, half and double precision."""
    for shape, direction in itertools.product(SHAPES, ALGORITHMS):
        for number, algorithm in enumerate(ALGORITHMS[direction]):
            type_ = (FLOAT, HALF, DOUBLE)[number]
            legacy, beta = Legacy(dnn, shape, type_, number == 1), float(number)
            result, wanted = legacy.expect(direction, beta)
            dnn.good(legacy.run(direction, algorithm, beta))
            legacy.memory.fetch()
            assert_close(result.get(), wanted, type_, f"{direction} {algorithm} {shape.x}")


def algorithms(dnn: Dnn) -> None:
    """Which algorithms there are and what they need; those that need too much are left out."""
    lib, legacy, found, n = (
        dnn.dnn,
        Legacy(dnn, SHAPES[0], FLOAT, False),
        (Performance * 9)(),
        c_int(),
    )
    for direction, known in ALGORITHMS.items():
        ask = getattr(lib, f"cudnnGetConvolution{direction}Algorithm_v7")
        for wanted in (9, 1):
            arguments = (*legacy.descriptors(direction), wanted, byref(n), found)
            dnn.good(ask(dnn.dnn_handle, *arguments))
            assert tuple(p.algorithm for p in found[: n.value]) == known[:wanted]
        dnn.good(ask(dnn.dnn_handle, *legacy.descriptors(direction), 9, byref(n), found))
        for one in found[: n.value]:
            assert legacy.workspace(direction, one.algorithm) == (OK, one.memory)
            assert (one.algorithm == 0) == (one.memory == 0)
        assert legacy.workspace(direction, 4)[0] == NOT_SUPPORTED
        assert legacy.workspace(direction, 8)[0] == legacy.workspace(direction, -1)[0] == BAD_PARAM
        assert legacy.run(direction, known[0], 0, 1) == BAD_PARAM, "a byte is missing"
        assert ask(None, *arguments) == BAD_PARAM
        count = getattr(lib, f"cudnnGetConvolution{direction}AlgorithmMaxCount")
        dnn.good(count(dnn.dnn_handle, byref(n)))
        assert n.value == {FORWARD: 8, DATA: 6, FILTER: 7}[direction]
    x, w, y = legacy.memory.at
    place, (dx, dw, convolution, dy) = c_void_p(dnn.alloc(16)), legacy.descriptors(FORWARD)
    find = lib.cudnnFindConvolutionForwardAlgorithmEx
    limits = (9, byref(n), found, place, c_size_t(16))
    dnn.good(find(dnn.dnn_handle, dx, x, dw, w, convolution, dy, y, *limits))
    assert [p.algorithm for p in found[: n.value]] == [0]
    sizes = ints([0] * 4)
    dnn.good(lib.cudnnGetConvolutionNdForwardOutputDim(convolution, dx, dw, 4, sizes))
    assert tuple(sizes) == SHAPES[0].y
    dnn.good(lib.cudnnSetConvolutionGroupCount(convolution, 3))
    assert legacy.workspace(FORWARD, 0)[0] == BAD_PARAM, "other groups than the tensors have"


def biases(dnn: Dnn) -> None:
    """The gradient of a bias; a convolution with a residue, a bias and an activation."""
    dy, db = draw((2, 3, 4, 5), FLOAT, True), draw((1, 3, 1, 1))
    wanted = 2 * dy.get().sum((0, 2, 3), keepdims=True) + 3 * db.get()
    memory = Memory(dnn, dy, db)
    (from_, to), (at, result) = memory.descriptors, memory.at
    dnn.good(
        dnn.dnn.cudnnConvolutionBackwardBias(
            dnn.dnn_handle, scale(2), from_, at, scale(3), to, result
        )
    )
    memory.fetch()
    assert_close(db.get(), wanted, FLOAT, "bias")
    for mode, in_place in ((RELU, True), (IDENTITY, False)):
        legacy, lib = Legacy(dnn, SHAPES[0], FLOAT, False), dnn.dnn
        z, bias = draw(SHAPES[0].y), draw((1, 4, 1, 1))
        x, w, y = legacy.values
        made = 0.5 * SHAPES[0].forward(x.get(), w.get())
        wanted = made + 2 * (y if in_place else z).get() + bias.get()
        extra, activation = Memory(dnn, z, bias), c_void_p()
        dnn.good(lib.cudnnCreateActivationDescriptor(byref(activation)))
        dnn.good(lib.cudnnSetActivationDescriptor(activation, mode, 0, c_double(0)))
        x_desc, w_desc, convolution, y_desc = legacy.descriptors(FORWARD)
        residue = legacy.memory.at[2] if in_place else extra.at[0]
        arguments = (
            dnn.dnn_handle, scale(0.5), x_desc, legacy.memory.at[0], w_desc, legacy.memory.at[1],
            convolution, 0, None, c_size_t(0), scale(2), extra.descriptors[0], residue,
        )  # fmt: skip
        rest = (extra.descriptors[1], extra.at[1], activation, y_desc, legacy.memory.at[2])
        dnn.good(lib.cudnnConvolutionBiasActivationForward(*arguments, *rest))
        legacy.memory.fetch()
        assert_close(y.get(), np.maximum(wanted, 0) if mode == RELU else wanted, FLOAT, "fused")
        dnn.good(lib.cudnnSetActivationDescriptor(activation, 0, 0, c_double(0)))
        assert lib.cudnnConvolutionBiasActivationForward(*arguments, *rest) == NOT_SUPPORTED


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[int, Callable[[Any], Any]] = {
    0: sigmoid, 1: lambda x: np.maximum(x, 0), 2: np.tanh, 3: lambda x: np.clip(x, 0, 0.7),
    4: lambda x: np.where(x < 0, 0.7 * np.expm1(x), x), 6: lambda x: x * sigmoid(1.5 * x),
}  # fmt: skip


def activations(dnn: Dnn) -> None:
    """Activations with their coefficients, forward and back."""
    lib, descriptor, step = dnn.dnn, c_void_p(), 1e-6
    dnn.good(lib.cudnnCreateActivationDescriptor(byref(descriptor)))
    dnn.good(lib.cudnnSetActivationDescriptorSwishBeta(descriptor, c_double(1.5)))
    for mode, function in ACTIVATIONS.items():
        dnn.good(lib.cudnnSetActivationDescriptor(descriptor, mode, 0, c_double(0.7)))
        x, y, dy, dx = (draw((2, 3, 4, 5), FLOAT, last) for last in (False, True, False, True))
        wanted = 2 * function(x.get()) + 3 * y.get()
        slope = (function(x.get() + step) - function(x.get() - step)) / (2 * step)
        gradient = 2 * dy.get() * slope + 3 * dx.get()
        memory = Memory(dnn, x, y, dy, dx)
        (x_, y_, dy_, dx_), at = memory.descriptors, memory.at
        factors = scale(2), scale(3)
        arguments = (x_, at[0], factors[1], y_, at[1])
        dnn.good(lib.cudnnActivationForward(dnn.dnn_handle, descriptor, factors[0], *arguments))
        back = (y_, at[1], dy_, at[2], x_, at[0], factors[1], dx_, at[3])
        dnn.good(lib.cudnnActivationBackward(dnn.dnn_handle, descriptor, factors[0], *back))
        memory.fetch()
        assert_close(y.get(), wanted, FLOAT, f"activation {mode}")
        assert_close(dx.get(), gradient, FLOAT, f"gradient {mode}")


def simple(dnn: Dnn) -> None:
    """A tensor is set, scaled, and another is added."""
    x, y = draw((1, 3, 1, 1), HALF), draw((2, 3, 4, 5), HALF, True)
    memory, lib = Memory(dnn, x, y), dnn.dnn
    (x_, y_), at, value = memory.descriptors, memory.at, np.array([1.5], "f2")
    dnn.good(lib.cudnnSetTensor(dnn.dnn_handle, y_, at[1], c_void_p(value.ctypes.data)))
    value[0] = 99  # it was read at the call
    dnn.good(lib.cudnnScaleTensor(dnn.dnn_handle, y_, at[1], scale(2)))
    dnn.good(lib.cudnnAddTensor(dnn.dnn_handle, scale(3), x_, at[0], scale(0.5), y_, at[1]))
    assert lib.cudnnAddTensor(dnn.dnn_handle, scale(3), y_, at[1], scale(1), x_, at[0]) == BAD_PARAM
    memory.fetch()
    assert_close(y.get(), 1.5 + 3 * x.get() + np.zeros(y.shape), HALF, "sums")


def operations(dnn: Dnn) -> None:
    """Binary and unary tensor operations with beta; a copy into another layout."""
    lib, descriptor = dnn.dnn, c_void_p()
    dnn.good(lib.cudnnCreateOpTensorDescriptor(byref(descriptor)))
    for kind, function in enumerate(
        (
            np.add, np.multiply, np.minimum, np.maximum, lambda a, _: np.sqrt(a),
            lambda a, _: 1 - a,
        )
    ):  # fmt: skip
        dnn.good(lib.cudnnSetOpTensorDescriptor(descriptor, kind, FLOAT, 0))
        a, b, c = (
            Values(RNG.random((2, 3, 4, 5))),
            draw((1, 3, 1, 1)),
            draw((2, 3, 4, 5), FLOAT, True),
        )
        wanted = function(2 * a.get(), 3 * b.get()) + 4 * c.get()
        memory = Memory(dnn, a, b, c)
        (a_, b_, c_), at = memory.descriptors, memory.at
        operands = (scale(2), a_, at[0], scale(3), b_, at[1], scale(4), c_, at[2])
        dnn.good(lib.cudnnOpTensor(dnn.dnn_handle, descriptor, *operands))
        swapped = (scale(2), b_, at[1], scale(3), a_, at[0], scale(4), c_, at[2])
        assert lib.cudnnOpTensor(dnn.dnn_handle, descriptor, *swapped) == BAD_PARAM
        memory.fetch()
        assert_close(c.get(), wanted, FLOAT, f"operation {kind}")
    assert lib.cudnnSetOpTensorDescriptor(descriptor, 6, FLOAT, 0) == BAD_PARAM
    x, y = draw((2, 3, 4, 5)), draw((2, 3, 4, 5), HALF, True)
    memory = Memory(dnn, x, y)
    (x_, y_), at = memory.descriptors, memory.at
    dnn.good(lib.cudnnTransformTensor(dnn.dnn_handle, scale(2), x_, at[0], scale(0), y_, at[1]))
    memory.fetch()
    assert_close(y.get(), 2 * x.get(), HALF, "a copy")


REDUCTIONS: tuple[Callable[..., Any], ...] = (
    np.sum, np.prod, np.min, np.max, lambda x, **how: np.abs(x).max(**how), np.mean,
    lambda x, **how: np.abs(x).sum(**how), lambda x, **how: np.sqrt((x * x).sum(**how)),
    lambda x, **how: np.where(x == 0, 1, x).prod(**how),
)  # fmt: skip


def reductions(dnn: Dnn) -> None:
    """All reductions, over some dimensions."""
    lib, descriptor, size = dnn.dnn, c_void_p(), c_size_t(77)
    dnn.good(lib.cudnnCreateReduceTensorDescriptor(byref(descriptor)))
    for kind, function in enumerate(REDUCTIONS):
        dnn.good(lib.cudnnSetReduceTensorDescriptor(descriptor, kind, FLOAT, 0, 0, 0))
        x, y = Values(RNG.integers(-2, 3, (2, 3, 4, 5)) * 0.75, FLOAT, True), draw((1, 3, 1, 5))
        wanted = 2 * function(x.get(), axis=(0, 2), keepdims=True) + 3 * y.get()
        memory = Memory(dnn, x, y)
        (x_, y_), at = memory.descriptors, memory.at
        begin = (dnn.dnn_handle, descriptor)
        dnn.good(lib.cudnnGetReductionWorkspaceSize(*begin, x_, y_, byref(size)))
        begin = (*begin, None, c_size_t(0), None, size, scale(2))
        dnn.good(lib.cudnnReduceTensor(*begin, x_, at[0], scale(3), y_, at[1]))
        assert lib.cudnnReduceTensor(*begin, y_, at[1], scale(3), x_, at[0]) == BAD_PARAM
        memory.fetch()
        assert_close(y.get(), wanted, FLOAT, f"reduction {kind}")
    dnn.good(lib.cudnnSetReduceTensorDescriptor(descriptor, 3, FLOAT, 0, 1, 0))
    assert lib.cudnnReduceTensor(*begin, x_, at[0], scale(3), y_, at[1]) == NOT_SUPPORTED
    assert lib.cudnnSetReduceTensorDescriptor(descriptor, 9, FLOAT, 0, 0, 0) == BAD_PARAM


def softmax(dnn: Dnn) -> None:
    """Softmax and its logarithm over channels and over whole images, forward and back."""
    for algorithm, mode in itertools.product(range(3), range(2)):
        x, y, dy, dx = (draw((2, 3, 4, 5), FLOAT, last) for last in (False, True, False, True))
        axes = (1,) if mode else (1, 2, 3)
        parts = np.exp(x.get()) / np.exp(x.get()).sum(axes, keepdims=True)
        wanted = np.log(parts) if algorithm == 2 else parts
        total = (dy.get() * (1 if algorithm == 2 else parts)).sum(axes, keepdims=True)
        back = dy.get() - parts * total if algorithm == 2 else parts * (dy.get() - total)
        memory, lib = Memory(dnn, x, y, dy, dx), dnn.dnn
        (x_, y_, dy_, dx_), at = memory.descriptors, memory.at
        how = (dnn.dnn_handle, algorithm, mode, scale(1))
        dnn.good(lib.cudnnSoftmaxForward(*how, x_, at[0], scale(0), y_, at[1]))
        dnn.good(lib.cudnnSoftmaxBackward(*how, y_, at[1], dy_, at[2], scale(0), dx_, at[3]))
        assert (
            lib.cudnnSoftmaxForward(*how[:1], 3, *how[2:], x_, at[0], scale(0), y_, at[1])
            == BAD_PARAM
        )
        memory.fetch()
        assert_close(y.get(), wanted, FLOAT, f"softmax {algorithm} {mode}")
        assert_close(dx.get(), back, FLOAT, f"gradient {algorithm} {mode}")


def pool(
    x: np.ndarray, dy: np.ndarray, mode: int, window: Any, pad: Any, stride: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Pooling and its gradient, window by window."""
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for place in np.ndindex(*dy.shape[2:]):
        slices = tuple(
            slice(max(i * s - p, 0), i * s - p + w)
            for i, s, p, w in zip(place, stride, pad, window, strict=True)
        )
        at, to = (slice(None), slice(None), *slices), (slice(None), slice(None), *place)
        flat = x[at].reshape(*x.shape[:2], -1)
        if mode in (0, 3):
            y[to] = flat.max(-1)
            share = np.eye(flat.shape[-1])[flat.argmax(-1)]
        else:
            count = np.prod(window) if mode == 1 else flat.shape[-1]
            y[to] = flat.sum(-1) / count
            share = np.full(flat.shape, 1 / count)
        dx[at] += (share * dy[to][..., None]).reshape(x[at].shape)
    return y, dx


def pooling(dnn: Dnn) -> None:
    """Maxima and means, with padding, of images and volumes, forward and back."""
    lib, descriptor = dnn.dnn, c_void_p()
    dnn.good(lib.cudnnCreatePoolingDescriptor(byref(descriptor)))
    cases = (((6, 5), (3, 2), (1, 0), (2, 1)), ((4, 5, 3), (2, 2, 2), (0, 1, 1), (1, 2, 1)))
    for mode, (size, window, pad, stride) in itertools.product(range(4), cases):
        how = (len(window), ints(window), ints(pad), ints(stride))
        dnn.good(lib.cudnnSetPoolingNdDescriptor(descriptor, mode, 0, *how))
        x, sizes = draw((2, 3, *size)), ints([0] * (2 + len(size)))
        dnn.good(
            lib.cudnnGetPoolingNdForwardOutputDim(descriptor, describe(dnn, x), len(sizes), sizes)
        )
        y, dy, dx = draw(tuple(sizes), FLOAT, True), draw(tuple(sizes)), draw(x.shape, FLOAT, True)
        wanted, back = pool(x.get(), dy.get(), mode, window, pad, stride)
        memory = Memory(dnn, x, y, dy, dx)
        (x_, y_, dy_, dx_), at = memory.descriptors, memory.at
        begin = (dnn.dnn_handle, descriptor, scale(1))
        dnn.good(lib.cudnnPoolingForward(*begin, x_, at[0], scale(0), y_, at[1]))
        gradients = (y_, at[1], dy_, at[2], x_, at[0], scale(0), dx_, at[3])
        dnn.good(lib.cudnnPoolingBackward(*begin, *gradients))
        assert lib.cudnnPoolingForward(*begin, x_, at[0], scale(0), x_, at[0]) == BAD_PARAM
        memory.fetch()
        assert_close(y.get(), wanted, FLOAT, f"pooling {mode} {size}")
        assert_close(dx.get(), back, FLOAT, f"gradient {mode} {size}")
    bad = (ints((0, 2)), ints((0, 0)), ints((1, 1)))
    assert lib.cudnnSetPoolingNdDescriptor(descriptor, 0, 0, 2, *bad) == BAD_PARAM
    assert lib.cudnnSetPoolingNdDescriptor(descriptor, 4, 0, 2, *[ints((1, 1))] * 3) == BAD_PARAM


def dropout(dnn: Dnn) -> None:
    """What is dropped is dropped of the gradient, too; the seed decides, and the states go on."""
    lib, descriptor, size = dnn.dnn, c_void_p(), c_size_t()
    dnn.good(lib.cudnnCreateDropoutDescriptor(byref(descriptor)))
    dnn.good(lib.cudnnDropoutGetStatesSize(dnn.dnn_handle, byref(size)))
    states, seed, seen = dnn.alloc(size.value), c_uint64(7), []
    bytes_, rate = size.value, 0.25
    for again in (True, False, True):
        set_ = lib.cudnnSetDropoutDescriptor if again else lib.cudnnRestoreDropoutDescriptor
        arguments = (c_float(rate), c_void_p(states), c_size_t(bytes_), seed)
        dnn.good(set_(descriptor, dnn.dnn_handle, *arguments))
        x, y = Values(np.ones((4, 5, 50))), draw((4, 5, 50), FLOAT, True)
        dy, dx = Values(np.full((4, 5, 50), 3.0)), draw((4, 5, 50))
        memory = Memory(dnn, x, y, dy, dx)
        (x_, y_, dy_, dx_), at = memory.descriptors, memory.at
        dnn.good(lib.cudnnDropoutGetReserveSpaceSize(x_, byref(size)))
        reserve = (c_void_p(dnn.alloc(size.value)), size)
        begin = (dnn.dnn_handle, descriptor)
        dnn.good(lib.cudnnDropoutForward(*begin, x_, at[0], y_, at[1], *reserve))
        dnn.good(lib.cudnnDropoutBackward(*begin, dy_, at[2], dx_, at[3], *reserve))
        few = (reserve[0], c_size_t(size.value - 1))
        assert lib.cudnnDropoutForward(*begin, x_, at[0], y_, at[1], *few) == BAD_PARAM
        memory.fetch()
        kept = y.get() != 0
        assert 0.65 < kept.mean() < 0.85
        assert_close(y.get(), kept / (1 - rate), FLOAT, "dropout")
        assert_close(dx.get(), 3 * kept / (1 - rate), FLOAT, "gradient")
        seen.append(kept)
    assert np.array_equal(seen[0], seen[2]), "the same seed"
    assert not np.array_equal(seen[0], seen[1]), "the states went on"
    arguments = (c_float(1.5), c_void_p(states), c_size_t(bytes_), seed)
    assert lib.cudnnSetDropoutDescriptor(descriptor, dnn.dnn_handle, *arguments) == BAD_PARAM


CASES = {
    case.__name__: case
    for case in (
        convolutions, algorithms, biases, activations, simple, operations, reductions, softmax, pooling, dropout,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Dnn())
