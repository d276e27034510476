# SPDX-License-Identifier: Apache-2.0
"""The guest's cuRAND over a channel through ctypes, for programs that run in a process of their own."""

from __future__ import annotations

from tests.sim.rand_client import Rand
from tests.unit.guest_cuda import context, cu


class Guest(Rand):
    """The guest's driver and library."""

    def __init__(self) -> None:
        self.cuda = cu
        self.context = context()
        self.open("libcurand.so.10")
