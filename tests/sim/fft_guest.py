# SPDX-License-Identifier: Apache-2.0
"""The guest's cuFFT over a channel through ctypes, for programs that run in a process of their own."""

from __future__ import annotations

import ctypes
import os

from tests.sim.fft_client import Fft
from tests.unit.guest_cuda import context, cu


class Guest(Fft):
    """The guest's driver and library."""

    def __init__(self) -> None:
        self.cuda = cu
        self.context = context()
        self.fft = ctypes.CDLL(f"libcufft.so.{os.environ.get('FFT_RELEASE', '12')}")
