# SPDX-License-Identifier: Apache-2.0
"""The guest's cuDNN over a channel through ctypes, for programs that run in a process of their own."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p

from tests.sim.dnn_client import Dnn
from tests.unit.guest_cuda import context, cu


class Guest(Dnn):
    """The guest's driver and library, and a handle."""

    def __init__(self) -> None:
        self.cuda = cu
        self.context = context()
        self.dnn = ctypes.CDLL("libcudnn.so.9")
        self.dnn_handle = self.new_handle()
        self.dnn.cudnnGetLastErrorString.restype = None

    def new_handle(self) -> c_void_p:
        """Another handle."""
        made = c_void_p()
        status = self.dnn.cudnnCreate(byref(made))
        assert status == 0, status
        return made
