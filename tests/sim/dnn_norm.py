# SPDX-License-Identifier: Apache-2.0
"""The simulated cuDNN's batch normalisation: ``python -m tests.sim.dnn_norm CASE ...``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np

from tests.sim.dnn_client import (
    BAD_PARAM,
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    NOT_SUPPORTED,
    OK,
    Dnn,
    Values,
    assert_close,
)

RNG = np.random.default_rng(5)
PER_ACTIVATION, SPATIAL, PERSISTENT = 0, 1, 2
ONLY, ACTIVATE, ADD_ACTIVATE = 0, 1, 2
RELU, TANH = 1, 2
EPSILON, FACTOR = 1e-3, 0.25


def describe(dnn: Dnn, values: Values) -> c_void_p:
    """A tensor descriptor."""
    descriptor = c_void_p()
    dnn.good(dnn.dnn.cudnnCreateTensorDescriptor(byref(descriptor)))
    nd = len(values.shape)
    dnn.good(
        dnn.dnn.cudnnSetTensorNdDescriptor(
            descriptor, values.type, nd, (c_int * nd)(*values.shape), (c_int * nd)(*values.strides)
        )
    )
    return descriptor


class Layer:
    """A layer: its tensors on the host and on the device, with what numpy makes of them."""

    def __init__(
        self, dnn: Dnn, shape: Sequence[int], type_: int, mode: int, ops: int, last: bool
    ) -> None:
        self.dnn, self.type, self.mode, self.ops, self.last = dnn, type_, mode, ops, last
        self.shape = tuple(shape)
        self.axes = (0,) if mode == PER_ACTIVATION else (0, *range(2, len(shape)))
        self.wide = DOUBLE if type_ == DOUBLE else FLOAT
        some = [1 if i in self.axes else n for i, n in enumerate(shape)]
        self.x, self.z, self.dy = (self.draw(shape) for _ in range(3))
        self.y, self.dx, self.dz = (self.draw(shape) for _ in range(3))
        self.scale, self.bias, self.running_mean = (self.parameter(some) for _ in range(3))
        self.running_variance = Values(1 + RNG.random(some), self.wide)
        self.mean, self.deviation, self.d_scale, self.d_bias = (
            self.parameter(some) for _ in range(4)
        )
        self.descriptor = c_void_p()
        dnn.good(dnn.dnn.cudnnCreateTensorDescriptor(byref(self.descriptor)))
        dnn.good(
            dnn.dnn.cudnnDeriveBNTensorDescriptor(self.descriptor, describe(dnn, self.x), mode)
        )
        self.activation = c_void_p()
        dnn.good(dnn.dnn.cudnnCreateActivationDescriptor(byref(self.activation)))
        dnn.good(dnn.dnn.cudnnSetActivationDescriptor(self.activation, RELU, 0, c_double(0)))
        self.sizes = [self.ask(name) for name in ("ForwardTrainingExWorkspaceSize", "Backward", "")]
        self.workspace = dnn.alloc(max(self.sizes[:2]))
        self.reserve = dnn.alloc(self.sizes[2])
        self.places: dict[int, int] = {}

    def draw(self, shape: Sequence[int]) -> Values:
        return Values(RNG.standard_normal(shape) + 0.3, self.type, self.last)

    def parameter(self, shape: Sequence[int]) -> Values:
        return Values(RNG.standard_normal(shape), self.wide)

    def ask(self, name: str) -> int:
        """A size by the function's name."""
        size, lib = c_size_t(77), self.dnn.dnn
        x = describe(self.dnn, self.x)
        if name == "Backward":
            status = lib.cudnnGetBatchNormalizationBackwardExWorkspaceSize(
                self.dnn.dnn_handle, self.mode, self.ops, x, x, x, x, x, self.descriptor,
                self.activation, byref(size),
            )  # fmt: skip
        elif name:
            status = lib.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
                self.dnn.dnn_handle, self.mode, self.ops, x, x, x, self.descriptor,
                self.activation, byref(size),
            )  # fmt: skip
        else:
            status = lib.cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
                self.dnn.dnn_handle, self.mode, self.ops, self.activation, x, byref(size)
            )
        self.dnn.good(status)
        return size.value

    def at(self, values: Values) -> c_void_p:
        """The address of a tensor's copy on the device, which is made the first time."""
        if id(values) not in self.places:
            self.places[id(values)] = self.dnn.upload(values.raw)
        return c_void_p(self.places[id(values)])

    def fetch(self, values: Values) -> np.ndarray:
        """What the device has."""
        self.dnn.download(self.places[id(values)], values.raw)
        assert values.fillers_are_left()
        return values.get()

    def scalar(self, value: float) -> Any:
        return byref(c_double(value) if self.wide == DOUBLE else c_float(value))

    def forward(self, saved: bool = True, beta: float = 0.0, reserve: int = -1) -> int:
        x = describe(self.dnn, self.x)
        return int(
            self.dnn.dnn.cudnnBatchNormalizationForwardTrainingEx(
                self.dnn.dnn_handle, self.mode, self.ops, self.scalar(1), self.scalar(beta),
                x, self.at(self.x), x, self.at(self.z), x, self.at(self.y), self.descriptor,
                self.at(self.scale), self.at(self.bias), c_double(FACTOR),
                self.at(self.running_mean), self.at(self.running_variance), c_double(EPSILON),
                self.at(self.mean) if saved else None, self.at(self.deviation) if saved else None,
                self.activation, c_void_p(self.workspace), c_size_t(self.sizes[0]),
                c_void_p(self.reserve), c_size_t(self.sizes[2] if reserve < 0 else reserve),
            )
        )  # fmt: skip

    def backward(self, saved: bool = True, beta: float = 0.0) -> int:
        x = describe(self.dnn, self.x)
        return int(
            self.dnn.dnn.cudnnBatchNormalizationBackwardEx(
                self.dnn.dnn_handle, self.mode, self.ops, self.scalar(1), self.scalar(beta),
                self.scalar(1), self.scalar(beta), x, self.at(self.x), x, self.at(self.y),
                x, self.at(self.dy), x, self.at(self.dz), x, self.at(self.dx), self.descriptor,
                self.at(self.scale), self.at(self.bias), self.at(self.d_scale),
                self.at(self.d_bias), c_double(EPSILON), self.at(self.mean) if saved else None,
                self.at(self.deviation) if saved else None, self.activation,
                c_void_p(self.workspace), c_size_t(self.sizes[1]), c_void_p(self.reserve),
                c_size_t(self.sizes[2]),
            )
        )  # fmt: skip

    def expect(self, beta: float) -> dict[str, np.ndarray]:
        """All results, from the tensors as they are now."""
        x, scale = self.x.get(), self.scale.get()
        count = np.prod([self.shape[i] for i in self.axes])
        mean, variance = x.mean(self.axes, keepdims=True), x.var(self.axes, keepdims=True)
        deviation = 1 / np.sqrt(variance + EPSILON)
        normal = (x - mean) * deviation
        before = normal * scale + self.bias.get()
        if self.ops == ADD_ACTIVATE:
            before = before + self.z.get()
        passed = before > 0 if self.ops != ONLY else np.ones_like(before)
        dz = self.dy.get() * passed
        d_bias = dz.sum(self.axes, keepdims=True)
        d_scale = (dz * normal).sum(self.axes, keepdims=True)
        dx = scale * deviation * (dz - (d_bias + normal * d_scale) / count)
        old = (1 - FACTOR) * self.running_variance.get()
        return {
            "y": before * passed + beta * self.y.get(), "mean": mean, "deviation": deviation,
            "running_mean": (1 - FACTOR) * self.running_mean.get() + FACTOR * mean,
            "running_variance": old + FACTOR * variance * count / (count - 1),
            "dx": dx + beta * self.dx.get(), "d_bias": d_bias + beta * self.d_bias.get(),
            "d_scale": d_scale + beta * self.d_scale.get(),
            **({"dz": dz + beta * self.dz.get()} if self.ops == ADD_ACTIVATE else {}),
        }  # fmt: skip


def train(
    dnn: Dnn, shape: Sequence[int], type_: int, mode: int, ops: int, last: bool, beta: float = 0.0,
    saved: bool = True,
) -> None:  # fmt: skip
    """One step forward and back, compared with numpy."""
    layer = Layer(dnn, shape, type_, mode, ops, last)
    wanted = layer.expect(beta)
    dnn.good(layer.forward(saved, beta))
    dnn.good(layer.backward(saved, beta))
    dnn.ok(dnn.wait())
    for name, value in wanted.items():
        values: Values = getattr(layer, name)
        if not saved and name in ("mean", "deviation"):
            continue
        what = f"{name} {shape} {type_} {mode} {ops} {last} {beta}"
        found = layer.fetch(values)
        assert_close(found, value, values.type, what)


def modes(dnn: Dnn) -> None:
    """Modes and fused operations, images and volumes, channels first and last."""
    for shape in ((4, 3, 5, 2), (2, 4, 3, 2, 3)):
        for last in (False, True):
            train(dnn, shape, FLOAT, PER_ACTIVATION, ONLY, last)
            for mode in (SPATIAL, PERSISTENT):
                for ops in (ONLY, ACTIVATE, ADD_ACTIVATE):
                    train(dnn, shape, FLOAT, mode, ops, last)


def types(dnn: Dnn) -> None:
    """Element types, accumulation (beta), and calls without running statistics."""
    for type_ in (DOUBLE, HALF, BFLOAT16):
        train(dnn, (4, 3, 5, 2), type_, SPATIAL, ONLY, True)
        train(dnn, (4, 3, 5, 2), type_, PERSISTENT, ACTIVATE, False)
    train(dnn, (4, 3, 5, 2), FLOAT, SPATIAL, ONLY, False, beta=2.0)
    for mode in (SPATIAL, PERSISTENT):
        train(dnn, (4, 3, 5, 2), FLOAT, mode, ONLY, False, saved=False)


def plain(dnn: Dnn) -> None:
    """The functions without extensions, and inference."""
    lib, layer = dnn.dnn, Layer(dnn, (3, 2, 4, 5), FLOAT, SPATIAL, ONLY, False)
    wanted, x = layer.expect(0.0), describe(dnn, layer.x)
    seen = (layer.running_mean.get(), layer.running_variance.get())
    infer = (x, layer.at(layer.x), x, layer.at(layer.z), layer.descriptor, layer.at(layer.scale))
    dnn.good(
        lib.cudnnBatchNormalizationForwardInference(
            dnn.dnn_handle, PERSISTENT, layer.scalar(1), layer.scalar(0), *infer,
            layer.at(layer.bias), layer.at(layer.running_mean), layer.at(layer.running_variance),
            c_double(EPSILON),
        )
    )  # fmt: skip
    inferred = (layer.x.get() - seen[0]) / np.sqrt(seen[1] + EPSILON) * layer.scale.get()
    inferred = inferred + layer.bias.get()
    dnn.good(
        lib.cudnnBatchNormalizationForwardTraining(
            dnn.dnn_handle, PERSISTENT, layer.scalar(1), layer.scalar(0), x, layer.at(layer.x), x,
            layer.at(layer.y), layer.descriptor, layer.at(layer.scale), layer.at(layer.bias),
            c_double(FACTOR), layer.at(layer.running_mean), layer.at(layer.running_variance),
            c_double(EPSILON), layer.at(layer.mean), layer.at(layer.deviation),
        )
    )  # fmt: skip
    dnn.good(
        lib.cudnnBatchNormalizationBackward(
            dnn.dnn_handle, PERSISTENT, layer.scalar(1), layer.scalar(0), layer.scalar(1),
            layer.scalar(0), x, layer.at(layer.x), x, layer.at(layer.dy), x, layer.at(layer.dx),
            layer.descriptor, layer.at(layer.scale), layer.at(layer.d_scale),
            layer.at(layer.d_bias), c_double(EPSILON), layer.at(layer.mean),
            layer.at(layer.deviation),
        )
    )  # fmt: skip
    dnn.ok(dnn.wait())
    assert_close(layer.fetch(layer.z), inferred, FLOAT, "inference")
    for name, value in wanted.items():
        assert_close(layer.fetch(getattr(layer, name)), value, FLOAT, name)


def refused(dnn: Dnn) -> None:
    """Arguments that do not fit."""
    layer = Layer(dnn, (4, 3, 5, 2), FLOAT, PERSISTENT, ACTIVATE, False)
    assert layer.sizes[0] > 0
    assert layer.sizes[2] > 0
    assert layer.forward(reserve=layer.sizes[2] - 1) == BAD_PARAM
    assert layer.forward() == OK
    handle, dnn.dnn_handle = dnn.dnn_handle, c_void_p(4711)
    assert layer.forward() == layer.backward() == BAD_PARAM
    dnn.dnn_handle = handle
    dnn.good(dnn.dnn.cudnnSetActivationDescriptor(layer.activation, TANH, 0, c_double(0)))
    assert layer.forward() == NOT_SUPPORTED
    layer.activation = c_void_p()
    assert layer.forward() == BAD_PARAM
    layer.ops = 3
    assert layer.forward() == BAD_PARAM
    layer.ops, layer.mode = ACTIVATE, PER_ACTIVATION
    assert layer.forward() == NOT_SUPPORTED
    layer.ops, layer.mode = ONLY, SPATIAL
    good, layer.descriptor = layer.descriptor, describe(dnn, layer.x)
    assert layer.forward() == layer.backward() == BAD_PARAM
    layer.descriptor = good
    assert layer.forward() == layer.backward() == OK
    size = c_size_t()
    lib, x = dnn.dnn, describe(dnn, Values(np.zeros((2, 3, 4)), FLOAT))
    asked = (dnn.dnn_handle, SPATIAL, ONLY, layer.activation, x)
    name = lib.cudnnGetBatchNormalizationTrainingExReserveSpaceSize
    assert name(*asked, byref(size)) == BAD_PARAM
    assert name(*asked[:4], None, byref(size)) == BAD_PARAM
    assert lib.cudnnDeriveBNTensorDescriptor(layer.descriptor, x, 3) == BAD_PARAM
    assert lib.cudnnDeriveBNTensorDescriptor(None, x, SPATIAL) == BAD_PARAM
    dnn.ok(dnn.wait())


CASES = {case.__name__: case for case in (modes, types, plain, refused)}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Dnn())
