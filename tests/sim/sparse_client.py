# SPDX-License-Identifier: Apache-2.0
"""The simulated cuSPARSE through ctypes: calls as cusparse.yaml describes them, and matrices in each format.

Programs that import it run in a process of their own, with a simulated machine in their environment.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml

from tests.sim.blas_client import C32, C64, DTYPES, LIB, R32, R64, ROOT, Gpu, decode, encode

# cusparseStatus_t
OK, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, EXECUTION_FAILED = 0, 1, 2, 3, 6
ZERO_PIVOT, NOT_SUPPORTED, INSUFFICIENT = 9, 10, 11
CSR, CSC, COO, BSR = 1, 2, 3, 6
COLUMNS, ROWS = 1, 2
NARROW, WIDE = 2, 3
N, T, C = 0, 1, 2
HOST, DEVICE = 0, 1
LOWER, UPPER = 0, 1
FILL, DIAG = 0, 1
#: cudaDataType by a function's letter
LETTERS = {"S": R32, "D": R64, "C": C32, "Z": C64}
INDICES = {NARROW: "i4", WIDE: "i8"}
SPEC = ROOT / "vgpumgr/virtio/spec/cusparse.yaml"
BLOCK = 2


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


def draw(random: np.random.Generator, code: int, *shape: int, share: float = 1) -> np.ndarray:
    """Numbers of a type, of which that share is not zero."""
    values = random.standard_normal(shape)
    if code in (C32, C64):
        values = values + 1j * random.standard_normal(shape)
    return decode(encode(values * (random.random(shape) < share), code), code)


def turn(a: np.ndarray, op: int) -> np.ndarray:
    """As an operation has it."""
    return a if op == N else a.T if op == T else a.conj().T


def close(got: np.ndarray, want: np.ndarray, precision: float) -> None:
    """The same within that."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.allclose(got, want, rtol=0, atol=precision * scale), (got, want)


@dataclass(slots=True)
class Stored:
    """A matrix on the device, with its descriptor. ``places``: rows and columns of its values, in their order."""

    descriptor: c_void_p
    code: int
    values: int
    count: int
    places: tuple[np.ndarray, np.ndarray]
    arrays: list[int] = field(default_factory=list)


def store_blocks(a: np.ndarray, by_rows: bool) -> tuple[Any, ...]:
    """Offsets, columns and values of blocks, and where each value stands."""
    offsets, columns, values, rows, cols = [0], [], [], [], []
    for i in range(0, a.shape[0], BLOCK):
        for j in range(0, a.shape[1], BLOCK):
            block = a[i : i + BLOCK, j : j + BLOCK]
            if not block.any():
                continue
            columns.append(j // BLOCK)
            order = "C" if by_rows else "F"
            values += [*block.ravel(order)]
            at = np.indices((BLOCK, BLOCK))
            rows += [*(at[0].ravel(order) + i)]
            cols += [*(at[1].ravel(order) + j)]
        offsets.append(len(columns))
    return offsets, columns, values, (np.array(rows, int), np.array(cols, int))


class Sparse(Gpu):
    """The driver, the library, and a handle of it."""

    def __init__(self) -> None:
        super().__init__()
        self.open(str(LIB / "libcusparse.so.12"))

    def open(self, path: str) -> None:
        """The library, whose handle is the one that calls are for."""
        self.sparse = ctypes.CDLL(path)
        self.specification: Any = read_specification()
        self.called: set[str] = set()
        self.handle = c_void_p()
        self.kept: list[Any] = []
        self.mode = HOST
        self.good(self.sparse.cusparseCreate(byref(self.handle)))

    def good(self, status: int) -> None:
        """Nothing but success."""
        assert status == OK, status

    def set_mode(self, mode: int) -> None:
        """Where scalars are."""
        self.mode = mode
        self.good(self.sparse.cusparseSetPointerMode(self.handle, mode))

    def set_stream(self, stream: c_void_p) -> None:
        """On which the handle's work is done."""
        self.good(self.sparse.cusparseSetStream(self.handle, stream))

    def scalar(self, value: complex, code: int) -> Any:
        """Where the mode has it."""
        raw = encode(np.array([value]), code)
        return self.upload(raw) if self.mode == DEVICE else raw

    def _argument(self, kind: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return c_void_p(value.ctypes.data)
        if kind in ("int", "type"):
            return c_int(value)
        return value if isinstance(value, c_void_p) else c_void_p(value)

    def status(self, name: str, *values: Any) -> int:
        """Call a function with all its arguments; its status."""
        kinds = self.specification[name]
        assert len(kinds) == len(values), (name, len(kinds), len(values))
        arguments = [self._argument(kind, v) for (kind, _), v in zip(kinds, values, strict=True)]
        self.called.add(name)
        return int(getattr(self.sparse, f"cusparse{name}")(self.handle, *arguments))

    def do(self, name: str, *values: Any) -> None:
        """The same, which succeeds."""
        self.good(self.status(name, *values))

    def size(self, name: str, *values: Any) -> int:
        """The last argument, a size that is asked for."""
        wide = self.specification[name][-1][1] == "size"
        found = np.full(1, 77, "u8" if wide else "i4")
        self.do(name, *values, found)
        return int(found[0])

    def area(self, name: str, *values: Any) -> int:
        """A work area for a function."""
        return self.alloc(max(1, self.size(name, *values)))

    def read(self, address: int, count: int, code: int) -> np.ndarray:
        """Values of a type."""
        self.good(self.wait())
        raw = np.zeros(count, DTYPES[code])
        self.download(address, raw)
        return decode(raw, code)

    def indices(self, address: int, count: int, width: int = NARROW) -> np.ndarray:
        """Indices."""
        self.good(self.wait())
        raw = np.zeros(count, INDICES[width])
        self.download(address, raw)
        return raw

    def made(self, name: str, *values: Any) -> c_void_p:
        """A descriptor or an object."""
        found = c_void_p()
        self.good(getattr(self.sparse, f"cusparse{name}")(byref(found), *values))
        return found

    def put(self, values: Any, width: int) -> int:
        """Indices on the device; there is room behind the last."""
        return self.upload(np.append(np.asarray(values, INDICES[width]), 0).astype(INDICES[width]))

    def store(
        self, a: np.ndarray, code: int, form: int = CSR, width: int = NARROW, base: int = 0
    ) -> Stored:
        """A matrix by its entries that are not zero."""
        rows, cols = np.nonzero(a)
        if form == CSC:
            cols, rows = np.nonzero(a.T)
        values = a[rows, cols]
        lines, size = (cols, a.shape[1]) if form == CSC else (rows, a.shape[0])
        offsets = np.searchsorted(lines, np.arange(size + 1))
        places, others = (rows, cols), rows if form == CSC else cols
        if form == BSR:
            offsets, others, values, places = store_blocks(a, by_rows=True)
        first = self.put((rows if form == COO else np.asarray(offsets)) + base, width)
        second = self.put(np.asarray(others, int) + base, width)
        third = self.upload(np.append(encode(np.array(values), code), encode(np.zeros(1), code)))
        sizes = (a.shape[0], a.shape[1], len(others))
        arrays = [c_void_p(first), c_void_p(second), c_void_p(third)]
        types = (width, base, code) if form == COO else (width, width, base, code)
        if form == BSR:
            sizes = (a.shape[0] // BLOCK, a.shape[1] // BLOCK, len(others), BLOCK, BLOCK)
            types = (*types, ROWS)
        name = {CSR: "CreateCsr", CSC: "CreateCsc", COO: "CreateCoo", BSR: "CreateBsr"}[form]
        made = self.made(name, *map(c_int64, sizes), *arrays, *types)
        return Stored(made, code, third, len(values), places, [first, second, third])

    def entries(self, m: Stored, shape: tuple[int, int]) -> np.ndarray:
        """A stored matrix as it is now, with zeros between."""
        found = np.zeros(shape, "c16" if m.code in (C32, C64) else "f8")
        found[m.places] = self.read(m.values, m.count, m.code)
        return found

    def dense(self, a: np.ndarray, code: int, order: int = COLUMNS) -> tuple[c_void_p, int]:
        """A dense matrix: its descriptor and its address."""
        rows, cols = a.shape
        raw = encode(a.ravel("F" if order == COLUMNS else "C"), code)
        address = self.upload(np.append(raw, encode(np.zeros(1), code)))
        ld = c_int64(max(1, rows if order == COLUMNS else cols))
        sizes = (c_int64(rows), c_int64(cols), ld)
        return self.made("CreateDnMat", *sizes, c_void_p(address), code, order), address

    def read_dense(
        self, address: int, shape: tuple[int, ...], code: int, order: int = COLUMNS
    ) -> np.ndarray:
        """Its values."""
        found = self.read(address, shape[0] * shape[1], code)
        return found.reshape(shape, order="F" if order == COLUMNS else "C")

    def vector(self, a: np.ndarray, code: int) -> tuple[c_void_p, int]:
        """The same of a vector."""
        address = self.upload(np.append(encode(a, code), encode(np.zeros(1), code)))
        return self.made("CreateDnVec", c_int64(len(a)), c_void_p(address), code), address

    def descr(self, base: int = 0, fill: int = LOWER, diag: int = 0) -> c_void_p:
        """A cusparseMatDescr_t."""
        made = self.made("CreateMatDescr")
        self.good(self.sparse.cusparseSetMatIndexBase(made, base))
        self.good(self.sparse.cusparseSetMatFillMode(made, fill))
        self.good(self.sparse.cusparseSetMatDiagType(made, diag))
        return made

    def set_attribute(self, m: Stored, number: int, value: int) -> None:
        """Which triangle it is, and what is on its diagonal."""
        raw = c_int(value)
        self.good(
            self.sparse.cusparseSpMatSetAttribute(
                m.descriptor, number, byref(raw), ctypes.c_size_t(4)
            )
        )
