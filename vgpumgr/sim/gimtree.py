# SPDX-License-Identifier: Apache-2.0
"""AMD's driver for hosts of virtual functions (gim), as its own library talks to it.

Behind ``/.sim/gim``, which stands for the driver's device: reading tells its GPUs with what each virtual function has
of the frame buffer, ``ADDRESS COUNT`` changes their number. As the driver is published: the number goes straight from
one to another, at least one and at most what the GPU supports (else EINVAL), never while a VM has one (EBUSY), and on
some GPUs not at all (EOPNOTSUPP). Its parameter ``vf_num`` says how many there are after boot.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from vgpumgr.sim.pci_model import MachinePci
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import Directory, File, parse_address

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
