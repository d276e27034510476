# SPDX-License-Identifier: Apache-2.0
"""What the functions of solver_reductions.py refuse at once; ``python -m tests.sim.solver_refusals``: what makes the
context fail.
"""

from __future__ import annotations

import os
from ctypes import c_void_p
from typing import Any

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS
from tests.sim.solver_client import (
    INVALID_VALUE,
    LEFT,
    LOWER,
    RIGHT,
    VECTORS,
    N,
    Solver,
    T,
    read_specification,
)

AREA = 4096


def _calls(s: Solver, made: c_void_p) -> dict[str, tuple[Any, ...]]:
    """One call of each function that is right, of matrices that are zero; each address is used once."""

    def m() -> int:
        return s.alloc(8 << 10)

    pivots = s.upload(np.arange(1, 9, dtype="i4"))
    area, host = s.alloc(16 * AREA), np.zeros(1 << 12, "u1")
    end = (area, AREA, s.info())
    generalised = (1, VECTORS, LOWER, 4, m(), 5, m(), 6, m(), *end)
    return {
        "Dsygvd": generalised,
        "Dsygvj": (*generalised, made),
        "Dgebrd": (5, 4, m(), 6, m(), m(), m(), m(), *end),
        "Dorgbr": (LEFT, 5, 4, 4, m(), 6, m(), *end),
        "Sorgbr": (RIGHT, 4, 5, 4, m(), 6, m(), *end),
        "Dsytrd": (LOWER, 4, m(), 5, m(), m(), m(), *end),
        "Dorgtr": (LOWER, 4, m(), 5, m(), *end),
        "Zunmtr": (LEFT, LOWER, N, 4, 3, m(), 5, m(), m(), 6, *end),
        "Dormtr": (RIGHT, LOWER, T, 3, 4, m(), 5, m(), m(), 6, *end),
        "Dsytri": (LOWER, 4, m(), 5, pivots, *end),
        "Dlauum": (LOWER, 4, m(), 5, *end),
        "Xtrtri": (LOWER, 0, 4, 1, m(), 5, area, 8 * AREA, host, len(host), end[2]),
        "Dlaswp": (3, m(), 5, 1, 4, pivots, 1),
    }


#: by a function: what is wrong at a place; the lead of a matrix is refused where it is shorter than the columns
WRONG: dict[str, tuple[tuple[int, Any], ...]] = {
    "Dsygvd": ((0, 0), (0, 4), (1, -1), (1, 2), (2, 2), (2, -1), (3, -1), (5, 3), (7, 3), (10, 1), (11, None)),
    "Dsygvj": ((0, 4), (1, 2), (7, 3), (10, 1), (12, None)),
    "Dgebrd": ((0, 3), (1, -1), (3, 4), (9, 1), (10, None)),
    "Dorgbr": ((0, -1), (0, 2), (0, RIGHT), (1, 3), (2, 6), (2, 3), (3, -1), (5, 4), (8, 1), (9, None)),
    "Sorgbr": ((0, -1), (0, 2)),
    "Dsytrd": ((0, 2), (1, -1), (3, 3), (8, 1), (9, None)),
    "Dorgtr": ((0, 2), (1, -1), (3, 3), (6, 1), (7, None)),
    "Zunmtr": ((0, -1), (0, 2), (1, 2), (2, -1), (2, T), (2, 3), (3, -1), (4, -1), (6, 3), (9, 3), (11, 1), (12, None)),
    "Dormtr": ((0, 2), (3, -1), (4, 6), (6, 3), (9, 2)),
    "Dsytri": ((0, 2), (1, -1), (3, 3), (4, None), (6, 1), (7, None)),
    "Dlauum": ((0, 2), (1, -1), (3, 3), (5, 1), (6, None)),
    "Xtrtri": ((0, 2), (1, -1), (1, 2), (2, -1), (2, 1 << 31), (5, 3), (7, 1), (10, None)),
    "Dlaswp": ((0, -1), (3, 0), (4, 0), (4, 6), (5, None), (6, 0)),
}  # fmt: skip
#: a matrix of as many rows and columns has a work area of more elements than an int is
LARGE = 1 << 25


def refused_reductions(s: Solver) -> None:
    """What is no shape, no side, no problem, no object, too small an area or no place for info."""
    calls = _calls(s, s.made("SyevjInfo"))
    assert calls.keys() == WRONG.keys()
    for name, right in calls.items():
        for place, value in WRONG[name]:
            wrong = (*right[:place], value, *right[place + 1 :])
            assert s.status(name, *wrong) == INVALID_VALUE, (name, place, value)
        s.do(name, *right)
    x, info, size = s.alloc(64), s.info(), np.zeros(1, "i4")
    rest = (LARGE, x, LARGE)
    most = (x, (1 << 31) - 1, info)
    assert s.status("Dgebrd_bufferSize", LARGE, LARGE, size) == INVALID_VALUE
    assert s.status("Dgebrd", LARGE, *rest, x, x, x, x, *most) == INVALID_VALUE
    orgbr = (LEFT, LARGE, LARGE, *rest, x)
    assert s.status("Dorgbr_bufferSize", *orgbr, size) == INVALID_VALUE
    assert s.status("Dorgbr", *orgbr, *most) == INVALID_VALUE
    # more work than LAPACK counts, for all functions with eigenvectors
    many = (40000, x, 40000)
    assert s.status("Dsyevd", VECTORS, LOWER, *many, x, x, 32 * 40001, info) == INVALID_VALUE
    # pivots that name no row exchange nothing
    kept = np.arange(1.0, 9.0)
    x = s.upload(kept)
    s.do("Dlaswp", 1, x, 8, 1, 4, s.upload(np.array([0, -3, 9, 4], "i4")), 1)
    assert np.array_equal(s.vector(x, 8, "f8"), kept)


def _become_wild(name: str, place: int) -> int:
    """The status of the context after a call with an address that is none of the device's; a pivot's row: place -1."""
    s = Solver()
    if place < 0:
        pivot = s.upload(np.array([1 << 20], "i4"))
        s.do(name, 1, s.alloc(64), 1 << 20, 1, 1, pivot, 1)
    else:
        right = _calls(s, s.made("SyevjInfo"))[name]
        s.do(name, *right[:place], 0x1000, *right[place + 1 :])
    return s.wait()


def main() -> None:
    """Each address in a process of its own, since no context of a process is of use after that. The work area and the
    place for info are added by one function for all.
    """
    kinds, tried = read_specification(), [("Dlaswp", -1)]
    for name in WRONG.keys() - {"Dsygvj"}:
        places = [i for i, (kind, _) in enumerate(kinds[name]) if kind == "device"]
        tried += [(name, i) for i in (places if name in ("Dsygvd", "Dlaswp") else places[:-2])]
    for name, place in tried:
        child = os.fork()
        if not child:
            os._exit(_become_wild(name, place) != ILLEGAL_ADDRESS)
        assert os.waitpid(child, 0)[1] == 0, (name, place)
    print(len(tried))


if __name__ == "__main__":
    main()
