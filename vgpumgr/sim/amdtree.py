"""Compute partitions of an AMD GPU that amdgpu has, as its attributes in ``/sys`` show and switch them.

Its VFs are another driver's matter: AMD's host driver (gim) makes them when it is loaded, by its parameter ``vf_num``,
and refuses writes to ``sriov_numvfs``.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from vgpumgr.sim.pci_model import MachinePci
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import Directory, File, constant, parse_address, text


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


_DRIVER = "gim"
_STEP_MIB = 16
"""What a share of the frame buffer is a multiple of."""


class GimTree:
    """The GPUs of a machine that gim may have."""

    def __init__(self, bus: PciBus, functions: Sequence[MachinePci]) -> None:
        self._bus = bus
        self._gpus = {Address.parse(pci.address): pci for pci in functions if pci.gim}

    def generation(self) -> int:
        """Never: what changes is read when it is read."""
        return 0

    def add(self, root: Directory) -> None:
        """The driver's device, while the driver is there."""
        if self._gpus and _DRIVER in self._bus.drivers:
            root.add(".sim/gim", File(self._read, self._change))

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Nothing: all that shows in ``/sys`` is the bus's."""

    def _read(self) -> bytes:
        lines = [line for address in self._gpus for line in self._tell(address)]
        return "".join(f"{line}\n" for line in lines).encode()

    def _tell(self, address: Address) -> list[str]:
        state = self._bus.states.get(address)
        gim = self._gpus[address].gim
        if state is None or state.driver != _DRIVER or gim is None:
            return []
        room = (gim.framebuffer_mib - gim.reserved_mib) // max(state.numvfs, 1)
        size = room // _STEP_MIB * _STEP_MIB
        places = [self._bus.vf_address(state.function, index) for index in range(state.numvfs)]
        return [
            f"gpu {address} {gim.supported}",
            *(f"vf {p} {gim.reserved_mib + size * i} {size}" for i, p in enumerate(places)),
        ]

    def _change(self, data: bytes) -> None:
        words = data.decode(errors="replace").split()
        if len(words) != 2 or not words[1].isdecimal():
            raise refuse(errno.EINVAL)
        address, count = parse_address(words[0].encode()), int(words[1])
        state = self._bus.state(address)
        gim = self._gpus[address].gim if address in self._gpus else None
        if state.driver != _DRIVER or gim is None:
            raise refuse(errno.ENODEV)
        if gim.fixed:
            raise refuse(errno.EOPNOTSUPP)
        if not 1 <= count <= gim.supported:
            raise refuse(errno.EINVAL)
        self._bus.change_vfs(address, count)
