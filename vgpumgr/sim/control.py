# SPDX-License-Identifier: Apache-2.0
"""``/.sim`` of a machine's files: what tests and the simulated tools ask of the machine, one line for each request.

* ``hold``: ``KEY VM`` opens a vGPU (by UUID or VF) or a function bound to vfio-pci, as a VM's QEMU would.
* ``release``: ``KEY`` closes it.
* ``sriov``: ``-e ADDRESS|ALL`` or ``-d ADDRESS|ALL``; behind ``usr/lib/nvidia/sriov-manage``.
* ``gone``: ``ADDRESS`` falls off the bus.
* ``driver``: ``-NAME`` unloads a driver that nobody is bound to, ``NAME`` loads it.
* ``fault``: see ``writefaults``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import Directory, File, Node, parse_address
from vgpumgr.sim.vgpuhost import VgpuHost
from vgpumgr.sim.vgpus import Vgpu
from vgpumgr.sim.writefaults import WriteFaults

_SRIOV_MANAGE = (Path(__file__).parent / "data/sriov-manage").read_bytes()


class ControlTree:
    """The machine's ``/.sim``, and NVIDIA's tool where there are GPUs for it."""

    def __init__(
        self,
        bus: PciBus,
        faults: WriteFaults,
        host: VgpuHost | None,
        lost: Callable[[Address], None],
    ) -> None:
        """``lost`` is told of functions that fall off the bus."""
        self._lost = lost
        self._bus = bus
        self._faults = faults
        self._host = host

    def generation(self) -> int:
        """Never changes."""
        return 0

    def add(self, root: Directory) -> None:
        """``/.sim`` and ``/usr/lib/nvidia``."""
        commands: dict[str, Callable[[str], None]] = {
            "hold": self._hold,
            "release": self._release,
            "gone": self._gone,
            "driver": self._driver,
            "sriov": self._sriov,
        }
        files: dict[str, Node] = {
            name: File(None, self._obeying(command)) for name, command in commands.items()
        }
        files["fault"] = File(
            lambda: str(self._faults).encode(), self._obeying(self._faults.command)
        )
        root.make(".sim").own.update(files)
        if self._host is not None:
            tool = File(lambda: _SRIOV_MANAGE, program=True)
            root.add("usr/lib/nvidia/sriov-manage", tool)

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Nothing: what it adds belongs to no function."""

    @staticmethod
    def _obeying(command: Callable[[str], None]) -> Callable[[bytes], None]:
        return lambda data: command(data.decode(errors="replace").strip())

    def _hold(self, line: str) -> None:
        key, _, vm = line.partition(" ")
        if not vm:
            raise refuse(errno.EINVAL)
        vgpu = self._find(key)
        if self._host is not None and vgpu is not None:
            self._host.state.hold(vgpu.id, vm)
        else:
            self._bus.hold(parse_address(key.encode()), vm)

    def _release(self, key: str) -> None:
        vgpu = self._find(key, ghosts=True)
        if self._host is not None and vgpu is not None:
            self._host.state.release(vgpu.id)
        else:
            self._bus.release(parse_address(key.encode()))

    def _find(self, key: str, *, ghosts: bool = False) -> Vgpu | None:
        """The vGPU with this UUID, or on this VF."""
        if self._host is None:
            return None
        for vgpu in self._host.all_vgpus():
            if (ghosts or not vgpu.removed) and key in (vgpu.uuid, self._host.vf_address(vgpu)):
                return vgpu
        return None

    def _gone(self, line: str) -> None:
        address = parse_address(line.encode())
        self._bus.lose(address)
        self._lost(address)

    def _driver(self, line: str) -> None:
        name = line.removeprefix("-")
        if not line.startswith("-"):
            self._bus.drivers.add(name)
        elif any(state.driver == name for state in self._bus.states.values()):
            raise refuse(errno.EBUSY)
        else:
            self._bus.drivers.discard(name)
        self._bus.generation += 1

    def _sriov(self, line: str) -> None:
        option, _, which = line.partition(" ")
        if self._host is None or option not in ("-e", "-d"):
            raise refuse(errno.EINVAL)
        for address in self._host.sriov_gpus() if which == "ALL" else [self._gpu(which)]:
            self._bus.sriov_manage(address, None if option == "-e" else 0)

    def _gpu(self, which: str) -> Address:
        address = parse_address(which.encode())
        if self._host is None or address not in self._host.sriov_gpus():
            raise refuse(errno.ENODEV)
        return address
