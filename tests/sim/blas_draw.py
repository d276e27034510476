# SPDX-License-Identifier: Apache-2.0
"""Random operands for calls of cuBLAS, and what the families have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.blas_client import C32, C64, Matrix, Scalar, Vector, draw, letter_of

Values = dict[str, Any]
Maker = Callable[["Draw"], tuple[Values, Callable[[Values], None]]]


class Draw:
    """Random operands for one call of one function."""

    def __init__(self, rng: np.random.Generator, name: str, variant: int) -> None:
        self.rng, self.name = rng, name.removesuffix("_64")
        self.wide = name.endswith("_64")
        self.variant = variant
        self.code = letter_of(self.name)
        self.is_complex = self.code in (C32, C64)

    def size(self) -> int:
        """A small dimension."""
        return int(self.rng.integers(1, 9))

    def pick(self, *options: Any) -> Any:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def op(self) -> int:
        """Plain, transposed or adjoint."""
        return int(self.rng.integers(3))

    def matrix(self, rows: int, cols: int, code: int | None = None) -> Matrix:
        """A matrix."""
        code = self.code if code is None else code
        return Matrix(draw(self.rng, (rows, cols), code), code, int(self.rng.integers(3)))

    def vector(self, n: int, code: int | None = None, positive: bool = False) -> Vector:
        """A vector."""
        code = self.code if code is None else code
        inc = self.pick(1, 2, 3) if positive else self.pick(1, 2, -1, -3)
        return Vector(draw(self.rng, n, code), code, inc)

    def scalar(self, code: int | None = None) -> Scalar:
        """A factor."""
        code = self.code if code is None else code
        return Scalar(draw(self.rng, 1, code), code)


def turn(values: np.ndarray, op: int) -> np.ndarray:
    """op(A)."""
    return values if op == 0 else values.T if op == 1 else values.conj().T


def is_hermitian(name: str) -> bool:
    """One of the functions for Hermitian matrices?"""
    return bool(re.match(r"[CZ]h", name))


def symmetric(values: np.ndarray, uplo: int, hermitian: bool) -> np.ndarray:
    """The whole matrix that one triangle stands for."""
    part = np.tril(values) if uplo == 0 else np.triu(values)
    if not hermitian:
        return part + part.T - np.diag(np.diag(part))
    return part + part.conj().T - np.diag(np.diag(part).real)


def triangle(values: np.ndarray, uplo: int, unit: int) -> np.ndarray:
    """The triangular matrix."""
    part = np.tril(values) if uplo == 0 else np.triu(values)
    return part - np.diag(np.diag(part)) + np.eye(len(part)) if unit else part


def put_triangle(target: Matrix, values: np.ndarray, uplo: int) -> None:
    """Change one triangle."""
    old = target.get()
    keep = np.tril(np.ones(old.shape, bool)) if uplo == 0 else np.triu(np.ones(old.shape, bool))
    target.set(np.where(keep, values, old))


def order(n: int, uplo: int) -> list[tuple[int, int]]:
    """The packed form's places."""
    return [(i, j) for j in range(n) for i in (range(j, n) if uplo == 0 else range(j + 1))]


def pack(values: np.ndarray, uplo: int) -> np.ndarray:
    """A triangle, packed."""
    return np.array([values[place] for place in order(len(values), uplo)])


def band(values: np.ndarray, kl: int, ku: int) -> np.ndarray:
    """A band matrix as BLAS stores it."""
    m, n = values.shape
    out = np.zeros((kl + ku + 1, n), values.dtype)
    for j in range(n):
        for i in range(max(0, j - ku), min(m, j + kl + 1)):
            out[ku + i - j, j] = values[i, j]
    return out


def limit_band(values: np.ndarray, kl: int, ku: int) -> np.ndarray:
    """Zero outside of the band."""
    return np.triu(np.tril(values, ku), -kl)
