# SPDX-License-Identifier: Apache-2.0
"""The simulated cuBLAS through ctypes: device memory, handles, and calls as cublas.yaml describes them.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parent.parent.parent
LIB = ROOT / "vgpumgr/_lib/sim"
SPEC = ROOT / "vgpumgr/virtio/spec/cublas.yaml"
HOST, DEVICE = 0, 1
OK, NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 1, 7, 13, 15
# cudaDataType_t
R32, R64, R16, RI8, C32, C64, CI8, RI32, BF16 = 0, 1, 2, 3, 4, 5, 7, 10, 14
DTYPES = {
    R32: np.dtype("f4"), R64: np.dtype("f8"), R16: np.dtype("f2"), RI8: np.dtype("i1"), C32: np.dtype("c8"),
    C64: np.dtype("c16"), CI8: np.dtype("2i1"), RI32: np.dtype("i4"), BF16: np.dtype("u2"),
}  # fmt: skip
SIZES = {code: dtype.itemsize for code, dtype in DTYPES.items()}
PRECISION = {
    R32: 2e-5,
    C32: 2e-5,
    R64: 1e-11,
    C64: 1e-11,
    R16: 2e-3,
    BF16: 1.6e-2,
    RI8: 0,
    RI32: 0,
    CI8: 0,
}
LETTERS = {"S": R32, "D": R64, "C": C32, "Z": C64, "H": R16, "T": BF16}
REAL = {C32: R32, C64: R64}


def run_threads(work: Callable[[int], None], count: int) -> None:
    """``work`` of 0, 1, ... at once, each in a thread of its own; raises what one of them has raised."""
    errors: list[Exception] = []

    def run(number: int) -> None:
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for error in errors:
        raise error


def encode(values: Any, code: int) -> np.ndarray:
    """Values as elements of a type, each rounded to the nearest."""
    values = np.asarray(values)
    if code == CI8:
        return np.stack([values.real, values.imag], axis=-1).astype("i1")
    if code == BF16:
        bits = values.real.astype("f4").view("u4").astype("u8")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")
    if code not in (C32, C64):
        values = values.real
    return values.astype(DTYPES[code])


def decode(raw: np.ndarray, code: int) -> np.ndarray:
    """Elements as doubles, or as pairs of them."""
    if code == CI8:
        return raw[..., 0].astype("f8") + 1j * raw[..., 1]
    if code == BF16:
        return (raw.astype("u4") << 16).view("f4").astype("f8")
    return raw.astype("c16" if code in (C32, C64) else "f8")


def draw(rng: np.random.Generator, shape: Any, code: int) -> np.ndarray:
    """Random values that the type can hold."""
    if code in (RI8, CI8, RI32):
        values = rng.integers(-9, 10, shape)
        return values + 1j * rng.integers(-9, 10, shape) if code == CI8 else values
    values = rng.standard_normal(shape)
    if code in (C32, C64):
        values = values + 1j * rng.standard_normal(shape)
    return decode(encode(values, code), code)


class Matrix:
    """A matrix with columns first; what lies between them must not change."""

    def __init__(self, values: Any, code: int, room: int = 2) -> None:
        values = np.atleast_2d(np.asarray(values))
        self.code, (self.rows, self.cols) = code, values.shape
        self.ld = max(1, self.rows) + room
        self.raw = encode(np.full((max(self.cols, 1), self.ld), 77), code)
        self.set(values)

    def get(self) -> np.ndarray:
        """The values."""
        return decode(self.raw[: self.cols, : self.rows].swapaxes(0, 1).copy(), self.code)

    def set(self, values: Any) -> None:
        """Other values."""
        self.raw[: self.cols, : self.rows] = encode(values, self.code).swapaxes(0, 1)


class Vector:
    """A vector whose elements lie apart; with a negative distance the last one comes first."""

    def __init__(self, values: Any, code: int, inc: int = 1) -> None:
        values = np.asarray(values)
        self.code, self.inc, self.n = code, inc, len(values)
        self.raw = encode(np.full(1 + max(self.n - 1, 0) * abs(inc), 77), code)
        self.set(values)

    def _places(self) -> np.ndarray:
        return (np.arange(self.n) if self.inc > 0 else np.arange(self.n)[::-1]) * abs(self.inc)

    def get(self) -> np.ndarray:
        """The values."""
        return decode(self.raw[self._places()].copy(), self.code)

    def set(self, values: Any) -> None:
        """Other values."""
        self.raw[self._places()] = encode(values, self.code)


class Scalar:
    """One or several values for an argument that the pointer mode places."""

    def __init__(self, values: Any, code: int) -> None:
        self.code = code
        self.raw = encode(np.atleast_1d(np.asarray(values)), code)

    def get(self) -> np.ndarray:
        """The values."""
        return decode(self.raw.copy(), self.code)


class Place(Scalar):
    """An integer result, as wide as the function's integers."""

    def __init__(self, wide: bool) -> None:
        self.code = RI32
        self.raw = np.zeros(1, "i8" if wide else "i4")


class Strided:
    """Operands of one shape at one distance, in one piece of memory."""

    def __init__(self, parts: list[Any]) -> None:
        self.raw = np.stack([part.raw for part in parts])
        self.parts = parts
        self.stride = parts[0].raw.size // (2 if parts[0].code == CI8 else 1)
        for part, raw in zip(parts, self.raw, strict=True):
            part.raw = raw


def read_specification() -> dict[str, list[tuple[str, str, str]]]:
    """Each function with its arguments: kind, type, name. The twins have names of their own."""
    functions = {}
    document = yaml.safe_load(SPEC.read_text())
    for part in ("twins", "plain"):
        for family in document[part]:
            arguments = []
            for text in family["args"].split(","):
                kind, *middle, name = text.split()
                arguments.append((kind, middle[0] if middle else "", name))
            for name in family["names"].split():
                functions[name] = arguments
                if part == "twins":
                    functions[name + "_64"] = arguments
    return functions


class Gpu:
    """The driver and one release of the libraries."""

    def __init__(self, release: str = "") -> None:
        release = release or os.environ.get("BLAS_RELEASE", "13")
        self.cuda = ctypes.CDLL(str(LIB / "libcuda.so.1"))
        self.blas = ctypes.CDLL(str(LIB / f"libcublas.so.{release}"))
        self.lt = ctypes.CDLL(str(LIB / f"libcublasLt.so.{release}"))
        self.specification = read_specification()
        self.reached: set[str] = set()
        self.context = ctypes.c_void_p()
        self.ok(self.cuda.cuInit(0))
        self.ok(self.cuda.cuCtxCreate_v2(ctypes.byref(self.context), 0, 0))
        self.handle = ctypes.c_void_p()
        self.ok(self.blas.cublasCreate_v2(ctypes.byref(self.handle)))

    @staticmethod
    def ok(status: int) -> None:
        """Nothing but success."""
        assert status == 0, status

    def alloc(self, size: int) -> int:
        """Memory on the device."""
        address = ctypes.c_uint64()
        self.ok(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1))))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self.ok(self.cuda.cuMemFree_v2(ctypes.c_uint64(address)))

    def upload(self, raw: np.ndarray) -> int:
        """A copy on the device."""
        address = self.alloc(raw.nbytes)
        if raw.nbytes:
            data = ctypes.c_void_p(raw.ctypes.data)
            self.ok(
                self.cuda.cuMemcpyHtoD_v2(
                    ctypes.c_uint64(address), data, ctypes.c_size_t(raw.nbytes)
                )
            )
        return address

    def download(self, address: int, raw: np.ndarray) -> None:
        """Read it back."""
        if raw.nbytes:
            data = ctypes.c_void_p(raw.ctypes.data)
            self.ok(
                self.cuda.cuMemcpyDtoH_v2(
                    data, ctypes.c_uint64(address), ctypes.c_size_t(raw.nbytes)
                )
            )

    def stream(self) -> ctypes.c_void_p:
        """A new stream."""
        stream = ctypes.c_void_p()
        self.ok(self.cuda.cuStreamCreate(ctypes.byref(stream), 1))
        return stream

    def wait(self) -> int:
        """Wait for everything; the driver's answer."""
        return int(self.cuda.cuCtxSynchronize())

    def pointer_mode(self, mode: int) -> None:
        """Where scalars are."""
        self.ok(self.blas.cublasSetPointerMode_v2(self.handle, mode))

    def call(self, name: str, values: dict[str, Any], mode: int = HOST) -> int:
        """Call a function with operands that are copied to the device and back; its status."""
        self.pointer_mode(mode)
        copies: list[tuple[int, np.ndarray]] = []
        arguments: list[Any] = [self.handle]
        for kind, _, argument in self.specification[name]:
            value = values[argument]
            if kind == "device" or (
                kind in ("in", "inout", "out") and isinstance(value, Scalar) and mode == DEVICE
            ):
                arguments.append(ctypes.c_void_p(self.place(value, copies)))
            elif kind in ("in", "inout", "out", "host"):
                arguments.append(ctypes.c_void_p(None if value is None else value.raw.ctypes.data))
            elif kind == "long":
                arguments.append(ctypes.c_longlong(value))
            elif kind == "int" and name.endswith("_64"):
                arguments.append(ctypes.c_int64(value))
            else:
                arguments.append(ctypes.c_int(value))
        status = int(getattr(self.blas, "cublas" + name)(*arguments))
        self.reached.add(name)
        self.ok(self.wait())
        for address, raw in copies:
            self.download(address, raw)
            self.free(address)
        return status

    def place(self, value: Any, copies: list[tuple[int, np.ndarray]]) -> int:
        """The device address of an operand; what is to be read back goes to the list."""
        if value is None:
            return 0
        if isinstance(value, list):
            addresses = np.array([self.place(part, copies) for part in value], "u8")
            address = self.upload(addresses)
            copies.append((address, addresses))
            return address
        raw = value if isinstance(value, np.ndarray) else value.raw
        address = self.upload(raw)
        copies.append((address, raw))
        return address


def letter_of(name: str) -> int:
    """The element type by a function's name."""
    if match := re.match(r"I([sdcz])am|(?:S(c)|D(z))(?:nrm2|asum)", name):
        return LETTERS[(match[1] or match[2] or match[3]).upper()]
    return LETTERS.get(name[0], R32)
