# SPDX-License-Identifier: Apache-2.0
"""The simulated cuSOLVER through ctypes: calls as cusolver.yaml describes them, of matrices with columns first.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_byte, c_double, c_int, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np
import yaml

from tests.sim.blas_client import LIB, ROOT, Gpu

# cusolverStatus_t
OK, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 1, 2, 3, 6, 9
LOWER, UPPER = 0, 1
N, T, C = 0, 1, 2
LEFT, RIGHT = 0, 1
VALUES, VECTORS = 0, 1
#: by a function's letter: the type, that of its eigenvalues, as cudaDataType, and the words in its functions' names
LETTERS = {
    "S": ("f4", "f4", 0, 0, "sy", "or"), "D": ("f8", "f8", 1, 1, "sy", "or"),
    "C": ("c8", "f4", 4, 0, "he", "un"), "Z": ("c16", "f8", 5, 1, "he", "un"),
}  # fmt: skip
PRECISION = {"S": 2e-4, "C": 2e-4, "D": 1e-10, "Z": 1e-10}
SPEC = ROOT / "vgpumgr/virtio/spec/cusolver.yaml"
NUMBERS = {"long": c_longlong, "size": c_size_t}
#: what lies below a matrix's columns, and must stay
FILLER, ROOM = 77, 2


def read_specification() -> dict[str, list[tuple[str, str]]]:
    """Each function with its arguments: kind, and the type of a value on the host."""
    functions = {}
    document = yaml.safe_load(SPEC.read_text())
    for part in ("sizes", "plain", "results"):
        for family in document[part]:
            words = [text.split() for text in family["args"].split(",")]
            for name in family["names"].split():
                functions[name] = [(w[0], w[1] if len(w) > 2 else "") for w in words]
    return functions


def draw(random: np.random.Generator, letter: str, *shape: int) -> np.ndarray:
    """Numbers of a type."""
    values = random.standard_normal(shape)
    if letter in "CZ":
        values = values + 1j * random.standard_normal(shape)
    return values.astype(LETTERS[letter][0])


def definite(random: np.random.Generator, letter: str, n: int) -> np.ndarray:
    """A matrix that has a Cholesky factor."""
    a = draw(random, letter, n, n)
    return np.asarray(a @ a.conj().T + n * np.eye(n), LETTERS[letter][0])


def part(a: np.ndarray, uplo: int) -> np.ndarray:
    """The half that a function reads or writes."""
    return np.tril(a) if uplo == LOWER else np.triu(a)


def close(got: np.ndarray, want: np.ndarray, letter: str) -> None:
    """The same within the type's precision."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.allclose(got, want, rtol=0, atol=PRECISION[letter] * scale), np.abs(got - want).max()


class Solver(Gpu):
    """The driver, the library, and a handle of it."""

    def __init__(self) -> None:
        super().__init__()
        self.open(str(LIB / f"libcusolver.so.{os.environ.get('SOLVER_RELEASE', '12')}"))

    def open(self, path: str) -> None:
        """The library, whose handle is the one that calls are for."""
        self.solver = ctypes.CDLL(path)
        self.specification = read_specification()
        self.called: set[str] = set()
        self.dn = c_void_p()
        self.good(self.solver.cusolverDnCreate(byref(self.dn)))

    def good(self, status: int) -> None:
        """Nothing but success."""
        assert status == OK, status

    def _argument(self, kind: str, value: Any) -> Any:
        if kind in ("device", "syevj", "gesvdj", "params"):
            return value if isinstance(value, c_void_p) else c_void_p(value)
        if kind in ("host", "scratch"):
            return c_void_p(None if value is None else value.ctypes.data)
        if kind == "char":
            return c_byte(ord(value))
        return NUMBERS.get(kind, c_int)(value)

    def status(self, name: str, *values: Any) -> int:
        """Call a function with all its arguments; its status."""
        kinds = self.specification[name]
        assert len(kinds) == len(values), (name, len(kinds), len(values))
        arguments = [self._argument(kind, v) for (kind, _), v in zip(kinds, values, strict=True)]
        self.called.add(name)
        return int(getattr(self.solver, f"cusolverDn{name}")(self.dn, *arguments))

    def do(self, name: str, *values: Any) -> None:
        """The same, which succeeds."""
        self.good(self.status(name, *values))

    def ask(self, name: str, *values: Any) -> list[Any]:
        """The same without what is written on the host, which is given back."""
        given, written, found = iter(values), [], {"int": "i4", "long": "i8", "f64": "f8"}
        arguments: list[Any] = []
        for kind, type_ in self.specification[name]:
            if kind == "host":
                written.append(np.full(1, -1, found[type_]))
                arguments.append(written[-1])
            else:
                arguments.append(next(given))
        self.do(name, *arguments)
        return [value[0].item() for value in written]

    def matrix(self, values: np.ndarray) -> tuple[int, int]:
        """A copy on the device with room below its columns: its address and leading dimension."""
        raw = np.full((max(values.shape[0], 1) + ROOM, values.shape[1]), FILLER, values.dtype, "F")
        raw[: values.shape[0]] = values
        return self.upload(raw), raw.shape[0]

    def read(self, address: int, rows: int, cols: int, dtype: str) -> np.ndarray:
        """A matrix of :meth:`matrix`; what lies below its columns has stayed."""
        self.good(self.wait())
        raw = np.zeros((max(rows, 1) + ROOM, cols), dtype, "F")
        self.download(address, raw)
        assert np.all(raw[rows:] == FILLER)
        return raw[:rows]

    def vector(self, address: int, n: int, dtype: str) -> np.ndarray:
        """Numbers one behind the other."""
        self.good(self.wait())
        raw = np.zeros(n, dtype)
        self.download(address, raw)
        return raw

    def infos(self, address: int, n: int = 1) -> list[int]:
        """What functions said of their success."""
        return [int(i) for i in self.vector(address, n, "i4")]

    def info(self, n: int = 1) -> int:
        """Room for that."""
        return self.upload(np.full(n, -99, "i4"))

    def area(self, letter: str, name: str, *values: Any) -> tuple[int, int]:
        """A work area for a function: its address and its elements."""
        (elements,) = self.ask(f"{name}_bufferSize", *values)
        return self.alloc(elements * np.dtype(LETTERS[letter][0]).itemsize), elements

    def areas(self, name: str, *values: Any) -> tuple[int, int, np.ndarray, int]:
        """The same of the 64-bit interface: on the device and on the host."""
        device, host = self.ask(f"{name}_bufferSize", *values)
        return self.alloc(device), device, np.zeros(max(host, 1), "u1"), host

    def made(self, name: str) -> c_void_p:
        """An object, or parameters."""
        found = c_void_p()
        self.good(getattr(self.solver, f"cusolverDnCreate{name}")(byref(found)))
        return found

    def ended(self, name: str, made: c_void_p) -> None:
        """Ends it."""
        self.good(getattr(self.solver, f"cusolverDnDestroy{name}")(made))

    def tune(self, prefix: str, made: c_void_p, tolerance: float, sweeps: int, order: int) -> None:
        """What an object of a Jacobi method can be set to."""
        self.good(
            getattr(self.solver, f"cusolverDnX{prefix}SetTolerance")(made, c_double(tolerance))
        )
        self.good(getattr(self.solver, f"cusolverDnX{prefix}SetMaxSweeps")(made, sweeps))
        self.good(getattr(self.solver, f"cusolverDnX{prefix}SetSortEig")(made, order))

    def array(self, addresses: Sequence[int]) -> int:
        """Addresses on the device."""
        return self.upload(np.array(addresses, "u8"))

    def set_stream(self, stream: c_void_p) -> None:
        """On which the handle's work is done."""
        self.good(self.solver.cusolverDnSetStream(self.dn, stream))
