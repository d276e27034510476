# SPDX-License-Identifier: Apache-2.0
"""Layouts, descriptions and calls of cuBLASLt through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from tests.sim.blas_client import PRECISION, Gpu, decode, encode

COL, ROW = 0, 1
TYPE, ORDER, ROWS, COLS, LD, BATCH, STRIDE = range(7)
POINTER_MODE, TRANSA, TRANSB, EPILOGUE, BIAS, BIAS_STRIDE, AUX, AUX_LD, AUX_STRIDE = (
    2,
    3,
    4,
    7,
    8,
    10,
    11,
    12,
    13,
)
AUX_TYPE, BIAS_TYPE = 22, 26
DEFAULT, RELU, ADD_BIAS, GELU, WITH_AUX, DRELU, DGELU, BGRAD, BGRADA, BGRADB = (
    1,
    2,
    4,
    32,
    128,
    136,
    192,
    16,
    256,
    512,
)


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class Operand:
    """A batch of matrices in device memory, in either order."""

    def __init__(
        self, gpu: Gpu, values: np.ndarray, code: int, order: int = COL, room: int = 3
    ) -> None:
        self.gpu, self.code, self.order, self.shape = gpu, code, order, values.shape
        batch, rows, cols = values.shape
        lines, length = (rows, cols) if order == ROW else (cols, rows)
        self.ld = length + room
        self.raw = encode(np.full((batch, lines, self.ld), 55), code)
        self.raw[:, :, :length] = encode(values if order == ROW else values.swapaxes(1, 2), code)
        self.length, self.room = length, self.raw[:, :, length:].copy()
        self.address = gpu.upload(self.raw)
        self.layout = c_void_p()
        create = gpu.lt.cublasLtMatrixLayoutCreate
        gpu.ok(create(byref(self.layout), code, c_uint64(rows), c_uint64(cols), c_int64(self.ld)))
        self.set(ORDER, c_int32(order))
        self.set(BATCH, c_int32(batch))
        self.set(STRIDE, c_int64(lines * self.ld))

    def set(self, attribute: int, value: Any) -> None:
        """Change the layout."""
        size = c_size_t(ctypes.sizeof(value))
        self.gpu.ok(
            self.gpu.lt.cublasLtMatrixLayoutSetAttribute(self.layout, attribute, byref(value), size)
        )

    def get(self) -> np.ndarray:
        """What the device has now; the room between lines is as it was."""
        self.gpu.download(self.address, self.raw)
        assert np.array_equal(self.raw[:, :, self.length :], self.room)
        values = decode(self.raw[:, :, : self.length], self.code)
        return values if self.order == ROW else values.swapaxes(1, 2)


class Product:
    """A description, and a call with it."""

    def __init__(self, gpu: Gpu, compute: int, scale: int) -> None:
        self.gpu, self.scale = gpu, scale
        self.desc = c_void_p()
        gpu.ok(gpu.lt.cublasLtMatmulDescCreate(byref(self.desc), compute, scale))

    def set(self, attribute: int, value: Any) -> Product:
        """Change the description."""
        size = c_size_t(ctypes.sizeof(value))
        self.gpu.ok(
            self.gpu.lt.cublasLtMatmulDescSetAttribute(self.desc, attribute, byref(value), size)
        )
        return self

    def scalar(self, value: Any) -> np.ndarray:
        """In the scale type."""
        return encode(np.array([value]), self.scale)

    def run(
        self,
        a: Operand,
        b: Operand,
        c: Operand,
        d: Operand,
        alpha: Any = 1,
        beta: Any = 0,
        algo: Any = None,
        workspace: tuple[int, int] = (0, 0),
        stream: Any = None,
        handle: Any = None,
        device: bool = False,
    ) -> int:
        """cublasLtMatmul"""
        alphas, betas = self.scalar(alpha), self.scalar(beta)
        places = [self.gpu.upload(s) if device else s.ctypes.data for s in (alphas, betas)]
        return int(
            self.gpu.lt.cublasLtMatmul(
                self.gpu.handle if handle is None else handle,
                self.desc,
                c_void_p(places[0]),
                c_void_p(a.address),
                a.layout,
                c_void_p(b.address),
                b.layout,
                c_void_p(places[1]),
                c_void_p(c.address),
                c.layout,
                c_void_p(d.address),
                d.layout,
                byref(algo) if algo is not None else None,
                c_void_p(workspace[0]),
                c_size_t(workspace[1]),
                stream,
            )
        )


def same(got: np.ndarray, want: np.ndarray, code: int) -> None:
    allowed = PRECISION[code] * 8 * (1 + np.abs(want))
    assert np.all(np.abs(got - want) <= allowed), f"type {code}:\n{got}\nis not\n{want}"


def turn(values: np.ndarray, op: int) -> np.ndarray:
    return values if op == 0 else values.swapaxes(1, 2) if op == 1 else values.swapaxes(1, 2).conj()
