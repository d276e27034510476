# SPDX-License-Identifier: Apache-2.0
"""What the simulated cuDNN refuses, and with which status: ``python -m tests.sim.dnn_errors CASE ...``.

The statuses are those of NVIDIA's library, whose descriptors can be tried without a GPU, except where that one crashes.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from typing import Any

from tests.sim.dnn_client import (
    ATTRIBUTE_TYPE,
    BACKWARD_DATA,
    BACKWARD_FILTER,
    BAD_PARAM,
    CONFIG,
    CONVOLUTION,
    DATA_TYPE,
    DESCRIPTOR_TYPE,
    DOUBLE,
    ENGINE,
    FLOAT,
    FORWARD,
    FP8,
    GRAPH,
    HALF,
    HEURISTICS,
    KNOB_CHOICE,
    KNOB_INFO,
    LAYOUT,
    LAYOUT_INFO,
    MATMUL,
    MATMUL_OP,
    NOT_FINALIZED,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    NULL_POINTER,
    OK,
    PACK,
    PLAN,
    POINTWISE_OP,
    REDUCTION,
    REDUCTION_OP,
    T_BOOL,
    T_CONV_MODE,
    T_DESCRIPTOR,
    T_DOUBLE,
    T_FLOAT,
    T_HANDLE,
    T_HEUR,
    T_INT64,
    T_POINTER,
    T_REDUCTION,
    T_TYPE,
    TENSOR,
    Dnn,
)

NO_MEMORY, SHAPE = 4003, 3002
Attributes = tuple[tuple[Any, ...], ...]


def finish(dnn: Dnn, type_: int, *attributes: tuple[Any, ...]) -> int:
    """Set attributes and finalise; the last status."""
    descriptor = dnn.create(type_)
    for attribute, kind, *values in attributes:
        dnn.good(dnn.set(descriptor, attribute, kind, *values))
    return dnn.finalize(descriptor)


def creation(dnn: Dnn) -> None:
    """Types of descriptors that there are not, null pointers, and pointers to nothing."""
    lib, descriptor = dnn.dnn, c_void_p(1)
    for type_, status in (
        (-1, NO_MEMORY),
        (77, NO_MEMORY),
        (6, NOT_SUPPORTED),
        (41, NOT_SUPPORTED),
    ):
        assert lib.cudnnBackendCreateDescriptor(type_, byref(descriptor)) == status
        assert descriptor.value is None
    assert lib.cudnnBackendCreateDescriptor(TENSOR, None) == NULL_POINTER
    for pointer, status in ((None, NULL_POINTER), (c_void_p(0x4711), BAD_PARAM)):
        count = c_int64()
        assert lib.cudnnBackendFinalize(pointer) == status
        assert lib.cudnnBackendDestroyDescriptor(pointer) == status
        assert lib.cudnnBackendInitialize(pointer) == status
        assert (
            lib.cudnnBackendSetAttribute(pointer, 902, T_INT64, c_int64(1), byref(count)) == status
        )
        assert (
            lib.cudnnBackendGetAttribute(pointer, 902, T_INT64, c_int64(1), byref(count), None)
            == status
        )
        assert lib.cudnnBackendExecute(dnn.dnn_handle, pointer, pointer) == status
    assert lib.cudnnBackendFinalize(dnn.dnn_handle) == BAD_PARAM, "a handle is no descriptor"
    assert lib.cudnnSetStream(dnn.create(TENSOR), None) == BAD_PARAM, "nor the other way round"


def setting(dnn: Dnn) -> None:
    """Attributes of another descriptor, of another type, too many or too few, after finalisation."""
    tensor, lib = dnn.create(TENSOR), dnn.dnn
    assert dnn.set(tensor, 100, T_INT64, 1) == BAD_PARAM
    assert dnn.set(tensor, 901, T_INT64, 0) == ATTRIBUTE_TYPE
    assert dnn.set(tensor, 902, T_INT64) == BAD_PARAM
    assert dnn.set(tensor, 906, T_INT64, 1, 2) == BAD_PARAM
    assert lib.cudnnBackendSetAttribute(tensor, 902, T_INT64, c_int64(2), None) == BAD_PARAM
    assert (
        lib.cudnnBackendSetAttribute(tensor, 902, T_INT64, c_int64(-1), byref(c_int64()))
        == BAD_PARAM
    )
    huge = c_int64(1 << 62)
    assert (
        lib.cudnnBackendSetAttribute(dnn.create(PACK), 1000, T_INT64, huge, byref(huge))
        == BAD_PARAM
    )
    good = dnn.tensor(1, (1, 2, 3))
    assert dnn.set(good, 906, T_INT64, 2) == BAD_PARAM
    assert dnn.finalize(good) == BAD_PARAM
    dnn.good(lib.cudnnBackendInitialize(good))
    dnn.good(dnn.set(good, 906, T_INT64, 2))
    operation = dnn.create(FORWARD)
    assert dnn.set(operation, 700, T_DOUBLE, 1) == OK
    assert dnn.set(operation, 703, T_DESCRIPTOR, tensor) == NOT_FINALIZED
    assert dnn.set(operation, 703, T_DESCRIPTOR, dnn.create(CONVOLUTION)) == BAD_PARAM
    assert dnn.set(operation, 703, T_DESCRIPTOR, c_void_p(0x4711)) == BAD_PARAM
    assert dnn.set(operation, 703, T_DESCRIPTOR, c_void_p()) == NULL_POINTER
    assert dnn.set(dnn.create(GRAPH), 802, T_INT64, 3) == BAD_PARAM, "it is only read"
    assert dnn.set(dnn.create(GRAPH), 800, T_HANDLE, c_void_p()) == NULL_POINTER
    assert dnn.set(dnn.create(GRAPH), 800, T_HANDLE, c_void_p(0x4711)) == BAD_PARAM
    assert dnn.set(dnn.create(GRAPH), 801, T_DESCRIPTOR, dnn.tensor(1, (1, 2))) == BAD_PARAM


def reading(dnn: Dnn) -> None:
    """Attributes of a descriptor that is not finalised, of another type, fewer than there are."""
    lib, count, values = dnn.dnn, c_int64(-7), (c_int64 * 8)()
    tensor = dnn.tensor(7, (1, 2, 3, 4))
    get = lib.cudnnBackendGetAttribute
    assert (
        get(dnn.create(TENSOR), 902, T_INT64, c_int64(1), byref(count), values) == NOT_INITIALIZED
    )
    assert get(tensor, 902, T_INT64, c_int64(8), byref(count), values) == OK
    assert (count.value, list(values)[:4]) == (4, [1, 2, 3, 4])
    assert get(tensor, 902, T_INT64, c_int64(2), byref(count), values) == OK
    assert count.value == 2
    for wanted in (0, 8):
        assert get(tensor, 902, T_INT64, c_int64(wanted), byref(count), None) == OK
        assert count.value == 4
    assert get(tensor, 902, T_INT64, c_int64(8), None, values) == OK
    assert get(tensor, 902, T_INT64, c_int64(-1), byref(count), values) == BAD_PARAM
    assert get(tensor, 902, T_TYPE, c_int64(8), byref(count), values) == ATTRIBUTE_TYPE
    assert get(tensor, 100, T_TYPE, c_int64(8), byref(count), values) == BAD_PARAM
    assert dnn.get(tensor, 904, T_INT64) == [1], "the default"
    assert dnn.get(tensor, 905, T_INT64) == [-1]
    assert dnn.get(tensor, 907, T_BOOL) == [False]
    operation = make_convolution(dnn)
    assert dnn.get(operation, 700, T_FLOAT) == [1]
    assert get(operation, 700, T_DOUBLE, c_int64(1), byref(count), values) == BAD_PARAM
    place = (c_void_p * 1)(dnn.create(CONVOLUTION).value)
    assert get(operation, 704, T_DESCRIPTOR, c_int64(1), byref(count), place) == BAD_PARAM
    place[0] = None
    assert get(operation, 704, T_DESCRIPTOR, c_int64(1), byref(count), place) == BAD_PARAM
    (x,) = dnn.get_all(operation, 704, TENSOR)
    assert dnn.get(x, 902, T_INT64) == [1, 2, 5, 5]


def single_values(dnn: Dnn) -> None:
    """Attributes of one element are read one at a time."""
    count, value, get = c_int64(-7), (c_int64 * 2)(), dnn.dnn.cudnnBackendGetAttribute
    tensor, operator = dnn.tensor(7, (1, 2)), dnn.operator((1,), (0,), (0,), (1,))
    for descriptor, attribute in ((tensor, 906), (operator, 106)):
        for wanted, status in ((1, OK), (0, BAD_PARAM), (2, BAD_PARAM)):
            arguments = (descriptor, attribute, T_INT64, c_int64(wanted), byref(count), value)
            assert get(*arguments) == status, (attribute, wanted)


def tensor_attributes(**changes: Any) -> Attributes:
    """A tensor's attributes; None: left out."""
    values = {
        "type": FLOAT, "dims": (1, 2, 3, 3), "strides": (18, 9, 3, 1), "uid": 1, "alignment": 16,
        "vector": None, "dim": None,
    } | changes  # fmt: skip
    ids = {
        "type": (901, T_TYPE), "dims": (902, T_INT64), "strides": (903, T_INT64),
        "uid": (906, T_INT64), "alignment": (900, T_INT64), "vector": (904, T_INT64),
        "dim": (905, T_INT64),
    }  # fmt: skip
    return tuple(
        (*ids[k], *(v if isinstance(v, tuple) else (v,)))
        for k, v in values.items()
        if v is not None
    )


def tensors(dnn: Dnn) -> None:
    """Tensors that are finalised, and those that are not."""
    for changes, status in (
        ({}, OK), ({"type": None}, OK), ({"dims": (1, 0, 3, 3)}, OK), ({"strides": (0, 9, 3, 1)}, OK),
        ({"strides": (1, 1, 1, 1)}, OK), ({"dims": None}, BAD_PARAM), ({"strides": None}, BAD_PARAM),
        ({"dims": (1, -2, 3, 3)}, BAD_PARAM), ({"strides": (18, 9, -3, 1)}, BAD_PARAM),
        ({"strides": (9, 3, 1)}, BAD_PARAM), ({"alignment": 3}, BAD_PARAM),
        ({"alignment": 0}, BAD_PARAM), ({"alignment": None}, BAD_PARAM), ({"type": 99}, BAD_PARAM),
        ({"type": 14}, BAD_PARAM), ({"type": 5}, NOT_SUPPORTED), ({"type": 8}, NOT_SUPPORTED),
        ({"type": 3, "vector": 4, "dim": 1}, OK), ({"vector": 4, "dim": 1}, OK),
        ({"type": 3, "vector": 3, "dim": 1}, NOT_SUPPORTED),
        ({"type": 6, "vector": 32, "dim": 1}, NOT_SUPPORTED), ({"vector": 0}, OK),
        ({"dim": 4}, BAD_PARAM), ({"type": 5, "dim": 4}, BAD_PARAM), ({"dim": -2}, OK),
        ({"type": 5, "alignment": 3}, NOT_SUPPORTED),
    ):  # fmt: skip
        assert finish(dnn, TENSOR, *tensor_attributes(**changes)) == status, changes


def convolutions(dnn: Dnn) -> None:
    """Operators, and operations whose tensors do not belong together."""
    whole = {
        100: (T_TYPE, FLOAT), 101: (T_CONV_MODE, 1), 106: (T_INT64, 2), 102: (T_INT64, 1, 1),
        103: (T_INT64, 1, 1), 105: (T_INT64, 0, 0), 104: (T_INT64, 0, 0),
    }  # fmt: skip
    for attribute, value, status in (
        (100, None, OK), (101, None, OK), (104, None, OK), (105, None, OK), (106, None, BAD_PARAM),
        (102, None, BAD_PARAM), (103, None, BAD_PARAM), (102, (T_INT64, 1), BAD_PARAM),
        (102, (T_INT64, 0, 1), BAD_PARAM), (103, (T_INT64, 0, 1), BAD_PARAM),
        (105, (T_INT64, -1, 0), BAD_PARAM), (106, (T_INT64, 0), BAD_PARAM),
        (106, (T_INT64, 1 << 40), BAD_PARAM),
    ):  # fmt: skip
        changed = {k: v for k, v in (whole | {attribute: value}).items() if v}
        assert finish(dnn, CONVOLUTION, *((k, *v) for k, v in changed.items())) == status, attribute
    fits: Any = ((1, 2, 5, 5), (3, 2, 3, 3), (1, 3, 3, 3))
    for shapes, status in (
        (fits, OK), (((1, 4, 5, 5), (6, 2, 3, 3), (1, 6, 3, 3)), OK),
        (((1, 2, 2, 5, 5), (2, 3, 2, 3, 3), (1, 2, 3, 3, 3)), OK),
        ((fits[0], fits[1], (1, 3, 4, 3)), BAD_PARAM), ((fits[0], fits[1], (2, 3, 3, 3)), BAD_PARAM),
        ((fits[0], (3, 5, 3, 3), fits[2]), BAD_PARAM), ((fits[0], (4, 2, 3, 3), fits[2]), BAD_PARAM),
        (((1, 2, 5), fits[1], fits[2]), BAD_PARAM), ((fits[0], (3, 2, 7, 7), fits[2]), BAD_PARAM),
        (((1, 4, 5, 5), (3, 2, 3, 3), (1, 3, 3, 3)), BAD_PARAM),
    ):  # fmt: skip
        for kind, first in ((FORWARD, 700), (BACKWARD_DATA, 706), (BACKWARD_FILTER, 712)):
            assert finish(dnn, kind, *operation_attributes(dnn, first, shapes)) == status, shapes
    for left_out in range(2, 6):
        attributes = operation_attributes(dnn, 700, fits)
        attributes = tuple(a for a in attributes if a[0] != 700 + left_out)
        assert finish(dnn, FORWARD, *attributes) == BAD_PARAM


def operation_attributes(
    dnn: Dnn, first: int, shapes: Any, types: Any = (FLOAT,) * 3
) -> Attributes:
    """A convolution's attributes for tensors X, W and Y of some shapes."""
    x, w, y = (
        dnn.tensor(uid, s, type_=t) for uid, (s, t) in enumerate(zip(shapes, types, strict=True), 1)
    )
    operator = dnn.operator((1, 1), (0, 0), (0, 0), (1, 1))
    return (
        (first, T_FLOAT, 1.0), (first + 1, T_FLOAT, 0.0), (first + 2, T_DESCRIPTOR, operator),
        (first + 3, T_DESCRIPTOR, w), (first + 4, T_DESCRIPTOR, x), (first + 5, T_DESCRIPTOR, y),
    )  # fmt: skip


def make_convolution(dnn: Dnn, types: Any = (FLOAT,) * 3) -> c_void_p:
    shapes = ((1, 2, 5, 5), (3, 2, 3, 3), (1, 3, 3, 3))
    return dnn.make(FORWARD, *operation_attributes(dnn, 700, shapes, types))


def operations(dnn: Dnn) -> None:
    """Pointwise operations, products and reductions whose tensors do not fit."""
    a, b, c = dnn.tensor(1, (1, 2, 3, 3)), dnn.tensor(2, (1, 2, 1, 1)), dnn.tensor(3, (1, 2, 3, 3))
    flat, dy = dnn.tensor(4, (1, 1, 2)), dnn.tensor(5, (1, 2, 3, 3))
    for mode, operands, status in (
        (0, {751: a, 752: b, 753: c}, OK), (0, {751: a, 753: c}, BAD_PARAM),
        (0, {751: a, 752: b}, BAD_PARAM), (0, {751: a, 752: flat, 753: c}, BAD_PARAM),
        (100, {751: a, 752: b, 753: c}, OK), (100, {751: a, 753: c}, OK), (77, {751: a, 753: c}, BAD_PARAM),
        (200, {751: a, 756: c, 757: dy}, OK), (200, {751: a, 756: c}, BAD_PARAM),
        (200, {753: a, 756: c, 757: dy}, BAD_PARAM), (601, {751: a, 752: dy, 753: c}, BAD_PARAM),
        (501, {751: a, 753: c}, BAD_PARAM),
    ):  # fmt: skip
        mode_ = dnn.make(0, (0, 14, mode), (1, T_TYPE, FLOAT))
        values = [(k, T_DESCRIPTOR, v) for k, v in operands.items()]
        assert finish(dnn, POINTWISE_OP, (750, T_DESCRIPTOR, mode_), *values) == status, (
            mode,
            operands,
        )
    assert finish(dnn, POINTWISE_OP, (751, T_DESCRIPTOR, a), (753, T_DESCRIPTOR, c)) == BAD_PARAM
    matmul = dnn.make(MATMUL, (1500, T_TYPE, FLOAT))
    for shapes, status in (
        (((2, 3, 4), (2, 4, 5), (2, 3, 5)), OK), (((1, 3, 4), (2, 4, 5), (2, 3, 5)), OK),
        (((3, 4), (4, 5), (3, 5)), OK), (((2, 3, 4), (2, 3, 5), (2, 3, 5)), BAD_PARAM),
        (((3, 3, 4), (2, 4, 5), (2, 3, 5)), BAD_PARAM), (((4,), (4,), (1,)), BAD_PARAM),
        (((1, 3, 4), (1, 4, 5), (2, 3, 5)), BAD_PARAM),
    ):  # fmt: skip
        operands = [(1519 + i, T_DESCRIPTOR, dnn.tensor(i, s)) for i, s in enumerate(shapes, 1)]
        assert finish(dnn, MATMUL_OP, *operands, (1523, T_DESCRIPTOR, matmul)) == status, shapes
    for kind in range(10):
        expected = OK if kind <= 4 else NOT_SUPPORTED if kind <= 8 else BAD_PARAM
        assert finish(dnn, REDUCTION, (1600, T_REDUCTION, kind), (1601, T_TYPE, FLOAT)) == expected
    add = dnn.make(REDUCTION, (1600, T_REDUCTION, 0), (1601, T_TYPE, FLOAT))
    four, half = dnn.tensor(1, (4, 2)), dnn.tensor(2, (2, 1))
    for x, y, status in (
        (a, b, OK), (b, a, BAD_PARAM), (a, flat, BAD_PARAM), (four, half, OK), (half, four, BAD_PARAM),
    ):  # fmt: skip
        operands = [(1610, T_DESCRIPTOR, x), (1611, T_DESCRIPTOR, y), (1612, T_DESCRIPTOR, add)]
        assert finish(dnn, REDUCTION_OP, *operands) == status
    operands = [(1610, T_DESCRIPTOR, four), (1611, T_DESCRIPTOR, half), (1612, T_DESCRIPTOR, add)]
    in_part = dnn.make(REDUCTION_OP, *operands)
    assert finish(dnn, GRAPH, (801, T_DESCRIPTOR, in_part)) == SHAPE, "described, but not computed"


def several_values(dnn: Dnn) -> None:
    """On the host is one number; over a channel the operation is refused already."""
    value, out = dnn.tensor(3, (2, 3), by_value=True), dnn.tensor(4, (2, 3))
    operation = dnn.pointwise(21, x=value, y=out)
    assert finish(dnn, GRAPH, (801, T_DESCRIPTOR, operation)) == SHAPE


def graphs(dnn: Dnn) -> None:
    """Graphs that are none, and what the library does not have."""
    good = make_convolution(dnn)
    ops = lambda *operations: (801, T_DESCRIPTOR, *operations)  # noqa: E731
    assert finish(dnn, GRAPH) == BAD_PARAM
    assert finish(dnn, GRAPH, ops(good)) == OK, "a handle is not needed"
    assert finish(dnn, GRAPH, ops(good, good)) == BAD_PARAM, "two make one tensor"
    x, y = (dnn.tensor(uid, (2, 3), virtual=True) for uid in (1, 2))
    there, back = dnn.pointwise(21, x=x, y=y), dnn.pointwise(21, x=y, y=x)
    assert finish(dnn, GRAPH, ops(there, back)) == BAD_PARAM, "a circle"
    assert finish(dnn, GRAPH, ops(there)) == BAD_PARAM, "nothing makes a virtual tensor"
    out = dnn.tensor(4, (2, 3))
    one, other = dnn.tensor(4, (1, 1), by_value=True), dnn.tensor(5, (1, 1))
    assert finish(dnn, GRAPH, ops(dnn.pointwise(21, x=other, y=one))) == BAD_PARAM, (
        "a value is written"
    )
    first = dnn.pointwise(21, x=dnn.tensor(1, (2, 3)), y=out)
    second = dnn.pointwise(21, x=dnn.tensor(1, (6, 1)), y=dnn.tensor(6, (6, 1)))
    assert finish(dnn, GRAPH, ops(first, second)) == BAD_PARAM, "one identity, two tensors"
    for types in ((HALF, FLOAT, FLOAT), (FP8, FP8, FLOAT), (DOUBLE,) * 3):
        assert finish(dnn, GRAPH, ops(make_convolution(dnn, types))) == DATA_TYPE, types
    vector = dnn.make(TENSOR, *tensor_attributes(dims=(2, 3), strides=(3, 1), vector=4, dim=1))
    assert finish(dnn, GRAPH, ops(dnn.pointwise(21, x=vector, y=out))) == LAYOUT
    far = (
        ((2, 3), (1 << 62, 1 << 61)),
        ((2, 1), ((1 << 63) - 1, 1)),
        ((1 << 20, 1 << 20), (0, 0)),
        ((0, 1 << 62), (1, 1)),
    )
    for sizes, strides in far:
        mode = (750, T_DESCRIPTOR, dnn.make(0, (0, 14, 21), (1, T_TYPE, FLOAT)))
        x, y = dnn.tensor(1, sizes, strides), dnn.tensor(4, sizes, strides)
        copy = (mode, (751, T_DESCRIPTOR, x), (753, T_DESCRIPTOR, y))
        assert finish(dnn, POINTWISE_OP, *copy) == SHAPE, sizes
    assert finish(dnn, GRAPH, ops(good), (803, T_BOOL, True)) == NOT_SUPPORTED


def plans(dnn: Dnn) -> None:
    """Engines, configurations, plans and variant packs that lack something."""
    graph = dnn.graph(make_convolution(dnn))
    assert finish(dnn, ENGINE) == NULL_POINTER
    assert finish(dnn, ENGINE, (1300, T_DESCRIPTOR, graph)) == BAD_PARAM
    for index in (-1, 3, 1 << 40):
        assert (
            finish(dnn, ENGINE, (1300, T_DESCRIPTOR, graph), (1301, T_INT64, index))
            == NOT_SUPPORTED
        )
    assert finish(dnn, CONFIG) == finish(dnn, PLAN) == finish(dnn, HEURISTICS) == BAD_PARAM
    assert finish(dnn, HEURISTICS, (201, T_DESCRIPTOR, graph), (200, T_HEUR, 4)) == BAD_PARAM
    assert finish(dnn, KNOB_CHOICE) == BAD_PARAM
    assert finish(dnn, KNOB_INFO) == finish(dnn, LAYOUT_INFO) == NOT_SUPPORTED
    assert finish(dnn, PACK) == OK
    assert finish(dnn, PACK, (1000, T_INT64, 1, 2), (1001, T_POINTER, 16)) == BAD_PARAM
    plan, memory = dnn.plan(dnn.configs(graph)[-1]), dnn.alloc(1 << 16)
    whole = dict.fromkeys((1, 2, 3), memory)
    assert dnn.execute(plan, dnn.pack(whole, 0)) == OK
    assert dnn.execute(plan, dnn.pack({1: memory, 2: memory}, 0)) == BAD_PARAM
    assert dnn.execute(plan, dnn.pack(whole | {2: 0}, 0)) == NULL_POINTER
    assert dnn.execute(plan, dnn.create(PACK)) == NOT_FINALIZED
    assert dnn.execute(plan, plan) == DESCRIPTOR_TYPE
    pack, size = dnn.pack(whole, 0), c_size_t(77)
    assert dnn.dnn.cudnnGetExecutionPlanWorkspaceSize(dnn.dnn_handle, plan, pack, byref(size)) == OK
    assert size.value == 0
    for handle in (None, c_void_p(0x4711), plan):
        assert dnn.dnn.cudnnBackendExecute(handle, plan, pack) == BAD_PARAM
    dnn.ok(dnn.wait())


def library(dnn: Dnn) -> None:
    """Version, properties, statuses as text, handles."""
    lib, value, stream = dnn.dnn, c_int(), c_void_p()
    lib.cudnnGetVersion.restype = lib.cudnnGetCudartVersion.restype = c_size_t
    assert lib.cudnnGetVersion() == 92400
    assert lib.cudnnGetCudartVersion() == 13030
    for part in ("Graph", "Ops", "Cnn", "Adv"):
        dnn.good(getattr(lib, f"cudnn{part}VersionCheck")())
    for kind, status, number in ((0, OK, 9), (1, OK, 24), (2, OK, 0), (3, BAD_PARAM, 0)):
        assert lib.cudnnGetProperty(kind, byref(value)) == status
        assert value.value == number
    lib.cudnnGetErrorString.restype = c_char_p
    for status, text in (
        (0, b"CUDNN_STATUS_SUCCESS"), (2007, b"CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"),
        (5001, b"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"), (12, b"CUDNN_UNKNOWN_STATUS"),
    ):  # fmt: skip
        assert lib.cudnnGetErrorString(status) == text
    assert lib.cudnnCreate(None) == BAD_PARAM
    assert lib.cudnnDestroy(None) == OK
    assert lib.cudnnDestroy(c_void_p(0x4711)) == BAD_PARAM
    assert lib.cudnnSetStream(None, None) == lib.cudnnGetStream(None, byref(stream)) == BAD_PARAM
    chosen = dnn.stream()
    dnn.good(lib.cudnnSetStream(dnn.dnn_handle, chosen))
    dnn.good(lib.cudnnGetStream(dnn.dnn_handle, byref(stream)))
    assert stream.value == chosen.value
    dnn.good(lib.cudnnQueryRuntimeError(dnn.dnn_handle, byref(value), 0, None))
    assert value.value == 0
    assert lib.cudnnQueryRuntimeError(dnn.dnn_handle, byref(value), 3, None) == BAD_PARAM
    assert lib.cudnnRNNForward() == NOT_SUPPORTED
    assert "cudnnRNNForward" in dnn.why()
    text = ctypes.create_string_buffer(b"#" * 8, 8)
    lib.cudnnGetLastErrorString(text, c_size_t(4))
    assert text.raw == b"cud\0####"


def ints(*values: int) -> Any:
    return (c_int * max(len(values), 1))(*values)


def descriptors(dnn: Dnn) -> None:
    """Descriptors of the interface before graphs."""
    lib, tensor = dnn.dnn, c_void_p()
    dnn.good(lib.cudnnCreateTensorDescriptor(byref(tensor)))
    assert lib.cudnnCreateTensorDescriptor(None) == BAD_PARAM
    for format_, type_, c, status in (
        (0, 0, 3, OK), (1, 2, 3, OK), (2, 5, 8, OK), (0, 0, 0, BAD_PARAM), (0, 0, -1, BAD_PARAM),
        (0, 99, 3, BAD_PARAM), (7, 0, 3, BAD_PARAM), (2, 0, 3, BAD_PARAM),
    ):  # fmt: skip
        assert lib.cudnnSetTensor4dDescriptor(tensor, format_, type_, 2, c, 4, 5) == status
    assert lib.cudnnSetTensor4dDescriptor(None, 0, 0, 1, 1, 1, 1) == BAD_PARAM
    dnn.good(lib.cudnnSetTensor4dDescriptor(tensor, 1, 2, 2, 3, 4, 5))
    assert read_tensor(dnn, tensor) == (2, 4, [2, 3, 4, 5], [60, 1, 15, 3])
    found = [c_int() for _ in range(9)]
    dnn.good(lib.cudnnGetTensor4dDescriptor(tensor, *map(byref, found)))
    assert [v.value for v in found] == [2, 2, 3, 4, 5, 60, 1, 15, 3]
    assert lib.cudnnSetTensor4dDescriptorEx(tensor, 0, 2, 3, 4, 5, 60, 20, 5, 0) == BAD_PARAM
    for rank in range(10):
        status = BAD_PARAM if rank < 2 else OK if rank < 9 else NOT_SUPPORTED
        sizes = ints(*[2] * rank)
        assert lib.cudnnSetTensorNdDescriptor(tensor, 0, rank, sizes, sizes) == status
    big = (ints(1 << 16, 1 << 14, 2, 1), ints(1 << 15, 2, 1, 1))
    assert lib.cudnnSetTensorNdDescriptor(tensor, 0, 4, *big) == NOT_SUPPORTED
    assert lib.cudnnSetTensorNdDescriptor(tensor, 0, 4, None, None) == BAD_PARAM
    dnn.good(lib.cudnnSetTensorNdDescriptorEx(tensor, 1, 0, 5, ints(2, 3, 4, 5, 6)))
    assert read_tensor(dnn, tensor) == (0, 5, [2, 3, 4, 5, 6], [360, 1, 90, 18, 3])
    dnn.good(lib.cudnnSetTensorNdDescriptor(tensor, 0, 4, ints(2, 3, 4, 5), ints(100, 20, 5, 1)))
    size = c_size_t()
    dnn.good(lib.cudnnGetTensorSizeInBytes(tensor, byref(size)))
    assert size.value == 640
    dnn.good(lib.cudnnDestroyTensorDescriptor(tensor))
    dnn.good(lib.cudnnDestroyTensorDescriptor(None))
    assert lib.cudnnDestroyTensorDescriptor(tensor) == BAD_PARAM


def read_tensor(dnn: Dnn, tensor: c_void_p) -> tuple[int, int, list[int], list[int]]:
    type_, rank, sizes, strides = c_int(), c_int(), ints(*[0] * 8), ints(*[0] * 8)
    dnn.good(
        dnn.dnn.cudnnGetTensorNdDescriptor(tensor, 8, byref(type_), byref(rank), sizes, strides)
    )
    return type_.value, rank.value, list(sizes)[: rank.value], list(strides)[: rank.value]


def other_descriptors(dnn: Dnn) -> None:
    """Activations, filters and convolutions."""
    lib, one = dnn.dnn, c_void_p()
    dnn.good(lib.cudnnCreateActivationDescriptor(byref(one)))
    for mode, nan, status in ((1, 0, OK), (7, 0, BAD_PARAM), (-1, 0, BAD_PARAM), (1, 2, BAD_PARAM)):
        assert lib.cudnnSetActivationDescriptor(one, mode, nan, c_double(2)) == status
    mode, nan, coefficient = c_int(), c_int(), c_double()
    dnn.good(lib.cudnnGetActivationDescriptor(one, byref(mode), byref(nan), byref(coefficient)))
    assert (mode.value, nan.value, coefficient.value) == (1, 0, 2)
    dnn.good(lib.cudnnDestroyActivationDescriptor(one))
    dnn.good(lib.cudnnCreateFilterDescriptor(byref(one)))
    for type_, format_, rank, status in (
        (2, 1, 4, OK), (0, 0, 2, BAD_PARAM), (0, 0, 3, OK), (0, 0, 9, NOT_SUPPORTED),
        (99, 0, 4, BAD_PARAM), (0, 7, 4, BAD_PARAM), (0, 0, 1, BAD_PARAM),
    ):  # fmt: skip
        sizes = ints(3, 2, 3, 3, 1, 1, 1, 1, 1)
        assert lib.cudnnSetFilterNdDescriptor(one, type_, format_, rank, sizes) == status
    found = [c_int() for _ in range(6)]
    dnn.good(lib.cudnnSetFilter4dDescriptor(one, 2, 1, 6, 5, 4, 3))
    dnn.good(lib.cudnnGetFilter4dDescriptor(one, *map(byref, found)))
    assert [v.value for v in found] == [2, 1, 6, 5, 4, 3]
    dnn.good(lib.cudnnDestroyFilterDescriptor(one))
    dnn.good(lib.cudnnCreateConvolutionDescriptor(byref(one)))
    zeros, ones, bad = ints(*[0] * 7), ints(*[1] * 7), ints(1, 0, 1, 1, 1, 1, 1)
    for rank, pads, strides, dilations, kind, compute, status in (
        (2, zeros, ones, ones, 1, 0, OK), (2, ints(-1, 0), ones, ones, 1, 0, BAD_PARAM),
        (2, zeros, bad, ones, 1, 0, BAD_PARAM), (2, zeros, ones, bad, 1, 0, BAD_PARAM),
        (2, zeros, ones, ones, 2, 0, BAD_PARAM), (2, zeros, ones, ones, 1, 99, BAD_PARAM),
        (6, zeros, ones, ones, 1, 0, OK), (7, zeros, ones, ones, 1, 0, NOT_SUPPORTED),
    ):  # fmt: skip
        set_ = lib.cudnnSetConvolutionNdDescriptor
        assert set_(one, rank, pads, strides, dilations, kind, compute) == status
    for groups in (2, 1, 0, -1):
        assert lib.cudnnSetConvolutionGroupCount(one, groups) == (OK if groups > 0 else BAD_PARAM)
    for math in range(-1, 5):
        assert lib.cudnnSetConvolutionMathType(one, math) == (OK if 0 <= math < 4 else BAD_PARAM)
    dnn.good(lib.cudnnDestroyConvolutionDescriptor(one))
    assert lib.cudnnSetActivationDescriptorSwishBeta(one, c_double(1)) == BAD_PARAM


CASES = {
    case.__name__: case
    for case in (
        creation, setting, reading, single_values, tensors, convolutions, operations, graphs, plans, library,
        descriptors, other_descriptors,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        CASES[name](Dnn())
