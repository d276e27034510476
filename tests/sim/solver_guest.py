# SPDX-License-Identifier: Apache-2.0
"""The guest's cuSOLVER over a channel through ctypes, for programs that run in a process of their own."""

from __future__ import annotations

import os

from tests.sim.solver_client import Solver
from tests.unit.guest_cuda import context, cu


class Guest(Solver):
    """The guest's driver and library."""

    def __init__(self) -> None:
        self.cuda = cu
        self.context = context()
        self.open(f"libcusolver.so.{os.environ.get('SOLVER_RELEASE', '12')}")
