# SPDX-License-Identifier: Apache-2.0
"""The simulated cuDNN through ctypes: graphs, tensors in any layout, and convolutions in numpy.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from ctypes import byref, c_bool, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

from tests.sim.blas_client import BF16 as BLAS_BF16
from tests.sim.blas_client import LIB, R16, R32, R64, RI8, RI32, Gpu, decode, encode

# cudnnStatus_t
OK, NOT_INITIALIZED, BAD_PARAM, NULL_POINTER, NOT_FINALIZED = 0, 1001, 2000, 2002, 2004
ATTRIBUTE_TYPE, DESCRIPTOR_TYPE, NOT_SUPPORTED, DATA_TYPE, LAYOUT = 2010, 2012, 3000, 3003, 3004
# cudnnDataType_t
FLOAT, DOUBLE, HALF, INT8, INT32, BFLOAT16, BOOLEAN, FP8 = 0, 1, 2, 3, 4, 9, 11, 12
CODES = {FLOAT: R32, DOUBLE: R64, HALF: R16, INT8: RI8, INT32: RI32, BFLOAT16: BLAS_BF16}
PRECISION = {FLOAT: 3e-5, DOUBLE: 1e-11, HALF: 3e-3, BFLOAT16: 2e-2, INT8: 0, INT32: 0}
# cudnnBackendDescriptorType_t
POINTWISE, CONVOLUTION, ENGINE, CONFIG, HEURISTICS, PLAN = 0, 1, 2, 3, 4, 5
KNOB_CHOICE, KNOB_INFO, LAYOUT_INFO, FORWARD, BACKWARD_FILTER, BACKWARD_DATA = 7, 8, 9, 10, 11, 12
POINTWISE_OP, GRAPH, PACK, TENSOR, MATMUL, MATMUL_OP, REDUCTION, REDUCTION_OP = (
    13, 15, 16, 17, 18, 19, 21, 22,
)  # fmt: skip
# cudnnBackendAttributeType_t with the type of an element
T_HANDLE, T_TYPE, T_BOOL, T_INT64, T_FLOAT, T_DOUBLE, T_POINTER = 0, 1, 2, 3, 4, 5, 6
T_CONV_MODE, T_HEUR, T_KNOB, T_NUMERICAL, T_POINTWISE, T_DESCRIPTOR, T_REDUCTION, T_BEHAVIOR = (
    7, 8, 9, 11, 14, 15, 18, 19,
)  # fmt: skip
WIDE = {
    T_HANDLE: c_void_p, T_BOOL: c_bool, T_INT64: c_int64, T_FLOAT: c_float, T_DOUBLE: c_double,
    T_POINTER: c_void_p, T_DESCRIPTOR: c_void_p,
}  # fmt: skip


def spread(shape: Sequence[int], last: bool = False, room: int = 0) -> list[int]:
    """Strides: channels first, or last; with so many unused elements in each row."""
    order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for at in reversed(order):
        strides[at] = step
        step = step * shape[at] + (room if step == 1 else 0)
    return strides


class Values:
    """A tensor in memory: its elements at their strides, and fillers between them that must not change."""

    def __init__(self, values: Any, type_: int = FLOAT, last: bool = False, room: int = 0) -> None:
        values = np.asarray(values, "f8")
        self.type, self.shape = type_, values.shape
        self.strides = spread(self.shape, last, room)
        extent = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        self.raw = encode(np.full(max(extent, 0), 77.0), CODES[type_])
        grid = np.indices(self.shape).reshape(len(self.shape), -1)
        self.places = (np.array(self.strides)[:, None] * grid).sum(axis=0)
        self.raw[self.places] = encode(values.reshape(-1), CODES[type_])

    def get(self) -> np.ndarray:
        """The values, as the type has rounded them."""
        return decode(self.raw[self.places].copy(), CODES[self.type]).reshape(self.shape)

    def fillers_are_left(self) -> bool:
        """Nothing was written between the elements."""
        rest = np.delete(decode(self.raw.copy(), CODES[self.type]), self.places)
        return bool(np.all(rest == 77))


class Dnn(Gpu):
    """The driver, the library and a handle."""

    def __init__(self) -> None:
        super().__init__()
        self.dnn = ctypes.CDLL(str(LIB / "libcudnn.so.9"))
        self.dnn_handle = c_void_p()
        self.ok(self.dnn.cudnnCreate(byref(self.dnn_handle)))
        self.dnn.cudnnGetLastErrorString.restype = None

    def why(self) -> str:
        """The reason for the last failure."""
        text = ctypes.create_string_buffer(200)
        self.dnn.cudnnGetLastErrorString(text, c_size_t(200))
        return text.value.decode()

    def good(self, status: int) -> None:
        """Nothing but success."""
        assert status == OK, (status, self.why())

    def create(self, type_: int) -> c_void_p:
        """A descriptor."""
        descriptor = c_void_p()
        self.good(self.dnn.cudnnBackendCreateDescriptor(type_, byref(descriptor)))
        return descriptor

    def set(self, descriptor: c_void_p, attribute: int, type_: int, *values: Any) -> int:
        """Set an attribute; the status."""
        element = WIDE.get(type_, c_int)
        values = tuple(v.value if isinstance(v, c_void_p) else v for v in values)
        array = (element * max(len(values), 1))(*values)
        return int(
            self.dnn.cudnnBackendSetAttribute(
                descriptor, attribute, type_, c_int64(len(values)), array
            )
        )

    def get(self, descriptor: c_void_p, attribute: int, type_: int) -> list[Any]:
        """Read an attribute."""
        wanted = self.count(descriptor, attribute, type_)
        array, count = (WIDE.get(type_, c_int) * max(wanted, 1))(), c_int64(-1)
        self.good(
            self.dnn.cudnnBackendGetAttribute(
                descriptor, attribute, type_, c_int64(wanted), byref(count), array
            )
        )
        return list(array)[: count.value]

    def count(self, descriptor: c_void_p, attribute: int, type_: int) -> int:
        """How many elements an attribute has."""
        count = c_int64(-1)
        self.good(
            self.dnn.cudnnBackendGetAttribute(
                descriptor, attribute, type_, c_int64(0), byref(count), None
            )
        )
        return count.value

    def get_all(self, descriptor: c_void_p, attribute: int, type_: int) -> list[c_void_p]:
        """Read an attribute whose elements are descriptors, into new ones."""
        made = [self.create(type_) for _ in range(self.count(descriptor, attribute, T_DESCRIPTOR))]
        array, count = (c_void_p * max(len(made), 1))(*[one.value for one in made]), c_int64(-1)
        self.good(
            self.dnn.cudnnBackendGetAttribute(
                descriptor, attribute, T_DESCRIPTOR, c_int64(len(made)), byref(count), array
            )
        )
        assert count.value == len(made)
        return made

    def finalize(self, descriptor: c_void_p) -> int:
        """Finalise; the status."""
        return int(self.dnn.cudnnBackendFinalize(descriptor))

    def make(self, type_: int, *attributes: tuple[Any, ...]) -> c_void_p:
        """A finalised descriptor with attributes: name, type, values."""
        descriptor = self.create(type_)
        for attribute, kind, *values in attributes:
            self.good(self.set(descriptor, attribute, kind, *values))
        self.good(self.finalize(descriptor))
        return descriptor

    def tensor(
        self, uid: int, shape: Sequence[int], strides: Sequence[int] = (), type_: int = FLOAT,
        virtual: bool = False, by_value: bool = False,
    ) -> c_void_p:  # fmt: skip
        """A tensor's descriptor."""
        return self.make(
            TENSOR,
            (901, T_TYPE, type_),
            (902, T_INT64, *shape),
            (903, T_INT64, *(strides or spread(shape))),
            (906, T_INT64, uid),
            (900, T_INT64, 16),
            (907, T_BOOL, virtual),
            (908, T_BOOL, by_value),
        )

    def tensor_of(self, uid: int, values: Values) -> c_void_p:
        """The descriptor of a tensor in memory."""
        return self.tensor(uid, values.shape, values.strides, values.type)

    def graph(self, *operations: c_void_p) -> c_void_p:
        """A finalised graph."""
        return self.make(GRAPH, (800, T_HANDLE, self.dnn_handle), (801, T_DESCRIPTOR, *operations))

    def configs(self, graph: c_void_p, mode: int = 3) -> list[c_void_p]:
        """What the heuristics say."""
        heuristics = self.make(HEURISTICS, (201, T_DESCRIPTOR, graph), (200, T_HEUR, mode))
        return self.get_all(heuristics, 202, CONFIG)

    def plan(self, config: c_void_p) -> c_void_p:
        """A finalised plan."""
        return self.make(PLAN, (400, T_HANDLE, self.dnn_handle), (401, T_DESCRIPTOR, config))

    def pack(self, tensors: dict[int, int], workspace: int) -> c_void_p:
        """A variant pack: addresses by identity."""
        return self.make(
            PACK,
            (1000, T_INT64, *tensors),
            (1001, T_POINTER, *tensors.values()),
            (1003, T_POINTER, workspace),
        )

    def execute(self, plan: c_void_p, pack: c_void_p) -> int:
        """Execute; the status."""
        return int(self.dnn.cudnnBackendExecute(self.dnn_handle, plan, pack))

    def run_plan(self, plan: c_void_p, tensors: dict[int, Any]) -> None:
        """Execute with tensors that are copied to the device and back; single numbers stay on the host."""
        addresses = {}
        for uid, value in tensors.items():
            on_host = isinstance(value, np.ndarray)
            addresses[uid] = value.ctypes.data if on_host else self.upload(value.raw)
        (size,) = self.get(plan, 402, T_INT64)
        workspace = self.alloc(size) if size else 0
        self.good(self.execute(plan, self.pack(addresses, workspace)))
        self.ok(self.wait())
        for uid, value in tensors.items():
            if not isinstance(value, np.ndarray):
                self.download(addresses[uid], value.raw)
                self.free(addresses[uid])
        if workspace:
            self.free(workspace)

    def run_graph(self, graph: c_void_p, tensors: dict[int, Any], engine: int = 0) -> None:
        """Execute a graph with one of its engines."""
        one = self.make(ENGINE, (1300, T_DESCRIPTOR, graph), (1301, T_INT64, engine))
        self.run_plan(self.plan(self.make(CONFIG, (300, T_DESCRIPTOR, one))), tensors)

    def operator(
        self, stride: Sequence[int], pre: Sequence[int], post: Sequence[int],
        dilation: Sequence[int], cross: bool = True, compute: int = FLOAT,
    ) -> c_void_p:  # fmt: skip
        """A convolution's descriptor."""
        return self.make(
            CONVOLUTION,
            (100, T_TYPE, compute),
            (101, T_CONV_MODE, int(cross)),
            (106, T_INT64, len(stride)),
            (102, T_INT64, *dilation),
            (103, T_INT64, *stride),
            (105, T_INT64, *pre),
            (104, T_INT64, *post),
        )

    def convolution(
        self, kind: int, operator: c_void_p, tensors: Sequence[c_void_p], alpha: float = 1,
        beta: float = 0, scale: int = T_FLOAT,
    ) -> c_void_p:  # fmt: skip
        """A convolution's operation; tensors are X, W and Y, or their gradients."""
        first = {FORWARD: 700, BACKWARD_DATA: 706, BACKWARD_FILTER: 712}[kind]
        x, w, y = tensors
        return self.make(
            kind,
            (first, scale, alpha),
            (first + 1, scale, beta),
            (first + 2, T_DESCRIPTOR, operator),
            (first + 3, T_DESCRIPTOR, w),
            (first + 4, T_DESCRIPTOR, x),
            (first + 5, T_DESCRIPTOR, y),
        )

    def pointwise(self, mode: int, **operands: Any) -> c_void_p:
        """A pointwise operation; operands are x, b, y, dx, dy, t; `settings` are by attribute."""
        names = {"x": 751, "b": 752, "y": 753, "dx": 756, "dy": 757, "t": 758}
        settings = operands.pop("settings", {})
        scales = operands.pop("scales", ())
        described = self.make(
            POINTWISE,
            (0, T_POINTWISE, mode),
            (1, T_TYPE, FLOAT),
            *[(k, T_INT64 if k == 9 else T_DOUBLE, v) for k, v in settings.items()],
        )
        return self.make(
            POINTWISE_OP,
            (750, T_DESCRIPTOR, described),
            *[(names[name], T_DESCRIPTOR, value) for name, value in operands.items()],
            *[(754 + i, T_FLOAT, value) for i, value in enumerate(scales)],
        )


class Shape:
    """A convolution's sizes, with what numpy makes of it."""

    def __init__(
        self, n: int, groups: int, c: int, k: int, size: Sequence[int], taps: Sequence[int],
        stride: Sequence[int] = (), pre: Sequence[int] = (), post: Sequence[int] = (),
        dilation: Sequence[int] = (), cross: bool = True,
    ) -> None:  # fmt: skip
        nd = len(size)
        self.groups, self.cross = groups, cross
        self.stride, self.dilation = list(stride or [1] * nd), list(dilation or [1] * nd)
        self.pre = list(pre or [0] * nd)
        self.post = list(post or self.pre)
        out = [
            (s + a + b - d * (t - 1) - 1) // step + 1
            for s, a, b, d, t, step in zip(
                size, self.pre, self.post, self.dilation, taps, self.stride, strict=True
            )
        ]
        self.x, self.w, self.y = (
            (n, groups * c, *size), (groups * k, c, *taps), (n, groups * k, *out),
        )  # fmt: skip

    def _windows(self, x: np.ndarray) -> Any:
        """For each tap: its index in the filter, and the view of a padded image that outputs have of it."""
        out = self.y[2:]
        for tap in itertools.product(*map(range, self.w[2:])):
            at = (
                tap
                if self.cross
                else tuple(t - 1 - i for t, i in zip(self.w[2:], tap, strict=True))
            )
            slices = [
                slice(i * d, i * d + (n - 1) * s + 1, s)
                for i, d, n, s in zip(tap, self.dilation, out, self.stride, strict=True)
            ]
            yield at, x[(slice(None), slice(None), *slices)]

    def _pad(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, [(0, 0), (0, 0), *zip(self.pre, self.post, strict=True)])

    def _grouped(self, x: np.ndarray, axis: int) -> np.ndarray:
        shape = list(x.shape)
        return x.reshape(
            [*shape[:axis], self.groups, shape[axis] // self.groups, *shape[axis + 1 :]]
        )

    def forward(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """y"""
        y = np.zeros(self._grouped(np.zeros(self.y), 1).shape)
        for tap, window in self._windows(self._pad(x)):
            weights = self._grouped(w[(slice(None), slice(None), *tap)], 0)
            y += np.einsum("gkc,ngc...->ngk...", weights, self._grouped(window, 1))
        return y.reshape(self.y)

    def backward_data(self, w: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """dx"""
        dx = self._pad(np.zeros(self.x))
        for tap, window in self._windows(dx):
            weights = self._grouped(w[(slice(None), slice(None), *tap)], 0)
            part = np.einsum("gkc,ngk...->ngc...", weights, self._grouped(dy, 1))
            window += part.reshape(window.shape)
        inner = [slice(a, a + n) for a, n in zip(self.pre, self.x[2:], strict=True)]
        return dx[(slice(None), slice(None), *inner)]

    def backward_filter(self, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """dw"""
        dw = np.zeros(self.w)
        flat = self._grouped(dy, 1).reshape(self.y[0], self.groups, -1, math.prod(self.y[2:]))
        for tap, window in self._windows(self._pad(x)):
            seen = self._grouped(window, 1).reshape(self.x[0], self.groups, -1, flat.shape[-1])
            part = np.einsum("ngko,ngco->gkc", flat, seen)
            dw[(slice(None), slice(None), *tap)] = part.reshape(self.w[:2])
        return dw


def assert_close(found: np.ndarray, wanted: np.ndarray, type_: int, what: str = "") -> None:
    """Equal within what the type holds, in relation to the largest value."""
    scale = float(np.max(np.abs(wanted), initial=1e-30))
    error = float(np.max(np.abs(found - wanted), initial=0.0)) / scale
    assert error <= PRECISION[type_], (what, error)
