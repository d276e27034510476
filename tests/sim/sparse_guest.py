# SPDX-License-Identifier: Apache-2.0
"""The guest's cuSPARSE over a channel through ctypes, for programs that run in a process of their own."""

from __future__ import annotations

from tests.sim.sparse_client import Sparse
from tests.unit.guest_cuda import context, cu


class Guest(Sparse):
    """The guest's driver and library."""

    def __init__(self) -> None:
        self.cuda = cu
        self.context = context()
        self.open("libcusparse.so.12")
