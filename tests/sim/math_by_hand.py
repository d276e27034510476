# SPDX-License-Identifier: Apache-2.0
"""Calls of mathematics libraries made by hand, as a guest with another library could.

For programs that run over a channel in a process of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from tests.unit.guest_cuda import cu

POST, TRY, ASK = range(3)
_ROOM = 12288


class Request(ctypes.Structure):
    """``struct math_request``."""

    _fields_ = [
        ("handle", c_uint64), ("stream", c_void_p), ("function", c_uint64), ("mode", c_uint), ("wait", c_int),
        ("arguments", c_void_p), ("length", c_size_t), ("values", c_void_p), ("room", c_size_t),
        ("filled", c_size_t), ("status", c_int), ("name", c_void_p),
    ]  # fmt: skip


def create(library: int) -> int:
    """A handle of the library with that number."""
    made, status = c_uint64(), c_int()
    assert cu.vgpumgr_math_create(library, byref(made), byref(status)) == 0
    assert status.value == 0
    return made.value


def send(
    handle: int,
    function: int,
    words: Sequence[int],
    wait: int,
    *,
    make: bool = False,
    mode: int = 0,
    cut: int = 0,
) -> tuple[int, int, bytes, int]:
    """The channel's result, the library's status, what came back, and what was made.

    The last ``cut`` bytes are not sent.
    """
    data = (c_uint64 * max(1, len(words)))(*[word % (1 << 64) for word in words])
    values, made = ctypes.create_string_buffer(_ROOM), c_uint64()
    length = len(words) * 8 - cut
    r = Request(
        handle, None, function, mode, wait, addressof(data), length, addressof(values), _ROOM
    )
    result = cu.vgpumgr_math_make(byref(r), byref(made)) if make else cu.vgpumgr_math_call(byref(r))
    return result, r.status, values.raw[: r.filled], made.value


def ask(
    handle: int,
    function: int,
    words: Sequence[int],
    wait: int,
    *,
    make: bool = False,
    mode: int = 0,
) -> int:
    """The first of both that is no success, else what was made, else 0."""
    result, status, _, made = send(handle, function, words, wait, make=make, mode=mode)
    return result or status or made
