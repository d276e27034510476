# SPDX-License-Identifier: Apache-2.0
"""``/dev/vfio`` of a simulated machine: who opens a group's file holds what is in it, until it closes it or ends.

A real process with the file open is what a VM's QEMU is to everybody who looks for holders in ``/proc``;
``python -m vgpumgr.sim.pretend_vm`` is such a process. A group that is not viable, because a driver of the host has one
of its functions, refuses with EPERM; bridges do not count (``vfio_dev_viable`` of the kernel).
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from pathlib import Path

from vgpumgr.sim.mdevtree import group_of
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import Directory, File, Node
from vgpumgr.sim.vgpuhost import VgpuHost
from vgpumgr.sim.vgpus import Vgpu

Opener = Callable[[int], Callable[[], None]]
"""Takes the process that opens; gives what closes."""

_GUEST = re.compile(r"(?:^|,)guest=([^,]+)")
_BRIDGE = 0x0604
_HARMLESS = frozenset({None, "vfio-pci", "pci-stub"})


class VfioTree:
    """The files of all groups that something can be opened in."""

    def __init__(self, bus: PciBus, host: VgpuHost | None, *, mdev: bool) -> None:
        self._bus = bus
        self._host = host
        self._mdev = mdev

    def generation(self) -> int:
        """Never changes: of functions the bus tells, mediated devices are an overlay."""
        return 0

    def add(self, root: Directory) -> None:
        """``/dev/vfio``."""
        directory = root.make("dev/vfio")
        directory.own["vfio"] = _node(lambda _pid: lambda: None)
        for state in self._bus.states.values():
            if self._is_vfio(state):
                function = state.function
                name = f"devices/vfio{vfio_number(function.address)}"
                directory.add(name, _node(self._device_opener(function.address)))
                if function.iommu_group is not None:
                    number = function.iommu_group
                    directory.own[str(number)] = _node(self._group_opener(number))
        if self._host is not None and self._mdev:
            directory.overlay(self._host.generation, self._mdev_nodes)

    def _mdev_nodes(self) -> dict[str, Node]:
        assert self._host is not None
        vgpus = [vgpu for vgpu in self._host.all_vgpus() if not vgpu.removed]
        return {str(group_of(vgpu)): _node(self._vgpu_opener(vgpu)) for vgpu in vgpus}

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """``vfio-dev`` of a function that VFIO has."""
        if self._is_vfio(state):
            root.make(f"{path}/vfio-dev/vfio{vfio_number(state.function.address)}")

    def _is_vfio(self, state: State) -> bool:
        return state.driver == "vfio-pci" or self._is_vendor(state)

    def _is_vendor(self, state: State) -> bool:
        return not self._mdev and self._host is not None and self._host.parent(state) is not None

    def _vgpu_opener(self, vgpu: Vgpu) -> Opener:
        return lambda pid: self._open_vgpu(vgpu, guest_name(pid))

    def _group_opener(self, group: int) -> Opener:
        def open_group(pid: int) -> Callable[[], None]:
            members = [self._bus.state(address) for address in self._bus.group(group)]
            self._check_viable(members)
            mine = [m.function.address for m in members if self._is_vfio(m)]
            return self._open_all(mine, guest_name(pid))

        return open_group

    def _device_opener(self, address: Address) -> Opener:
        return lambda pid: self._open_all([address], guest_name(pid))

    def _check_viable(self, members: list[State]) -> None:
        for member in members:
            bridge = member.function.class_code >> 8 == _BRIDGE
            if member.driver not in _HARMLESS and not bridge and not self._is_vendor(member):
                raise refuse(errno.EPERM)

    def _open_all(self, addresses: list[Address], vm: str) -> Callable[[], None]:
        closers: list[Callable[[], None]] = []
        try:
            for address in addresses:
                closers.append(self._open_function(address, vm))
        except OSError:
            _call_all(closers)
            raise
        return lambda: _call_all(closers)

    def _open_function(self, address: Address, vm: str) -> Callable[[], None]:
        state = self._bus.state(address)
        parent = None if self._host is None or self._mdev else self._host.parent(state)
        if self._host is not None and parent is not None:
            vgpus = self._host.vgpus(parent)
            if not vgpus:
                raise refuse(errno.ENODEV)
            return self._open_vgpu(vgpus[0], vm)
        self._bus.hold(address, vm)

        def close() -> None:
            state.holder = None  # of this state: the function may have left the bus meanwhile
            self._bus.generation += 1

        return close

    def _open_vgpu(self, vgpu: Vgpu, vm: str) -> Callable[[], None]:
        host = self._host
        assert host is not None
        host.state.hold(vgpu.id, vm)
        return lambda: host.state.release(vgpu.id) if host.state.get(vgpu.id) else None


def _call_all(closers: list[Callable[[], None]]) -> None:
    for close in closers:
        close()


def _node(opened: Opener) -> File:
    return File(lambda: b"", lambda _data: None, opened=opened)


def vfio_number(address: Address) -> int:
    """The number of a function's VFIO character device."""
    return address.bus << 8 | address.device << 3 | address.function


def guest_name(pid: int) -> str:
    """The VM that a process runs, by QEMU's ``-name guest=NAME``; else the process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    for option, value in itertools.pairwise(words):
        if option == "-name" and (match := _GUEST.search(value)):
            return match[1][:40]
    return f"process {pid}"
