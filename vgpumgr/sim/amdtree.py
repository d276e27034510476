# SPDX-License-Identifier: Apache-2.0
"""Compute partitions of an AMD GPU that amdgpu has, as its attributes in ``/sys`` show and switch them.

Its VFs are another driver's matter: AMD's host driver (gim) makes them when it is loaded, by its parameter ``vf_num``,
and refuses writes to ``sriov_numvfs``.
"""

from __future__ import annotations

import errno

from vgpumgr.sim.pci_model import MachinePci
from vgpumgr.sim.pcibus import Address, State, refuse
from vgpumgr.sim.tree import Directory, File, constant, text


class AmdTree:
    """The partition files of one GPU."""

    def __init__(self, pci: MachinePci) -> None:
        self._pci = pci
        self._current = pci.partitions[0]

    def generation(self) -> int:
        """Never: what changes is read when it is read."""
        return 0

    def add(self, root: Directory) -> None:
        """Nothing: all of it is below the function."""

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """The GPU's attributes while amdgpu has it."""
        if state.function.address != Address.parse(self._pci.address) or state.driver != "amdgpu":
            return
        entries = root.make(path).own
        entries["current_compute_partition"] = File(text(lambda: self._current), self._switch)
        entries["available_compute_partition"] = constant(", ".join(self._pci.partitions))
        entries["current_memory_partition"] = constant("NPS1")
        entries["available_memory_partition"] = constant("NPS1")

    def _switch(self, data: bytes) -> None:
        word = data.decode(errors="replace").strip()
        if word not in self._pci.partitions:
            raise refuse(errno.EINVAL)
        self._current = word
