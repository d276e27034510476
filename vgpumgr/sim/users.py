"""Who uses a simulated machine's functions: VMs, through ``/dev/vfio``, and the host.

Who opens a group's file holds what is in it, until it closes it or ends. A real process with the file open is what a
VM's QEMU is to every search for holders in ``/proc``; ``python -m vgpumgr.sim.pretend_vm`` is such a process. A
group that is not viable, because a driver of the host has one of its functions, refuses with EPERM; bridges do not
count (``vfio_dev_viable`` of the kernel).

The host has networks, disks and mounts, the console, sound and USB, as long as its driver has the function.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from contextlib import ExitStack

from vgpumgr.host.process import read_words
from vgpumgr.sim.machine_model import Machine, Uses
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import Directory, File, Node, Part, constant, device_path, parse_int, text
from vgpumgr.sim.vgpuhost import VgpuHost, group_of
from vgpumgr.sim.vgpus import Vgpu

Opener = Callable[[int], Callable[[], None]]
"""Takes the process that opens; gives what closes."""

_GUEST = re.compile(r"(?:^|,)guest=([^,]+)")
_BRIDGE = 0x0604
_HARMLESS = frozenset({None, "vfio-pci", "pci-stub"})


class VfioTree(Part):
    """The files of all groups that something can be opened in."""

    def __init__(self, bus: PciBus, host: VgpuHost | None, *, mdev: bool) -> None:
        self._bus = bus
        self._host = host
        self._mdev = mdev

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
        with ExitStack() as opened:
            for address in addresses:
                opened.callback(self._open_function(address, vm))
            return opened.pop_all().close

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


def _node(opened: Opener) -> File:
    return File(lambda: b"", lambda _data: None, opened=opened)


def vfio_number(address: Address) -> int:
    """The number of a function's VFIO character device."""
    return address.bus << 8 | address.device << 3 | address.function


def guest_name(pid: int) -> str:
    """The VM that a process runs, by QEMU's ``-name guest=NAME``; else the process."""
    for option, value in itertools.pairwise(read_words(pid)):
        if option == "-name" and (match := _GUEST.search(value)):
            return match[1][:40]
    return f"process {pid}"


_IFF_UP_BROADCAST_RUNNING_MULTICAST = "0x1043"
_BLOCK_MAJOR = 259


class UsesTree(Part):
    """Class directories, device nodes and mounts of a whole machine."""

    def __init__(self, machine: Machine, bus: PciBus) -> None:
        self._bus = bus
        pairs = [(gpu.place.address, gpu.place.uses) for gpu in machine.gpus]
        pairs += [(pci.address, pci.uses) for pci in machine.data.pci]
        self._uses = {Address.parse(address): uses for address, uses in pairs if uses}
        self._disks = sorted(uses.disk for uses in self._uses.values() if uses.disk)
        self._console = True

    def add(self, root: Directory) -> None:
        """The classes, ``/dev`` and ``/proc/1/mountinfo``."""
        for name in ("block", "net"):
            root.make(f"sys/class/{name}")
        mounts = []
        for address, uses in self._uses.items():
            state = self._bus.states.get(address)
            if state is not None and _used(state):
                self._add_classes(root, device_path(address), uses)
                mounts += [self._mount_line(uses, path) for path in uses.mounts]
        if mounts:
            root.add("proc/1/mountinfo", constant("\n".join(mounts)))

    def _add_classes(self, root: Directory, path: str, uses: Uses) -> None:
        if uses.net:
            root.link(f"sys/class/net/{uses.net}", f"{path}/net/{uses.net}")
        if uses.disk:
            root.link(f"sys/class/block/{uses.disk}", f"{path}/block/{uses.disk}")
        if uses.drm:
            root.link(f"sys/class/drm/{uses.drm}", f"{path}/drm/{uses.drm}")
            root.add(f"dev/dri/{uses.drm}", constant(""))
        if uses.sound is not None:
            root.add(f"dev/snd/controlC{uses.sound}", constant(""))
        if uses.graphics:
            root.link(f"sys/class/graphics/{uses.graphics}", f"{path}/graphics/{uses.graphics}")
            self._add_console(root)

    def _add_console(self, root: Directory) -> None:
        root.add("sys/class/vtconsole/vtcon0/name", constant("(S) dummy device"))
        root.add("sys/class/vtconsole/vtcon0/bind", File(text(lambda: int(not self._console))))
        root.add("sys/class/vtconsole/vtcon1/name", constant("(M) frame buffer device"))
        bind = File(text(lambda: int(self._console)), self._bind_console)
        root.add("sys/class/vtconsole/vtcon1/bind", bind)

    def _bind_console(self, data: bytes) -> None:
        self._console = bool(parse_int(data))

    def _device_number(self, disk: str) -> str:
        return f"{_BLOCK_MAJOR}:{self._disks.index(disk)}"

    def _mount_line(self, uses: Uses, path: str) -> str:
        assert uses.disk is not None
        number = self._device_number(uses.disk)
        return f"29 1 {number} / {path} rw,relatime shared:1 - ext4 /dev/{uses.disk} rw"

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """What the driver of one function has made of it."""
        uses = self._uses.get(state.function.address)
        if uses is None or not _used(state):
            return
        if uses.net:
            flags = constant(_IFF_UP_BROADCAST_RUNNING_MULTICAST)
            root.make(f"{path}/net/{uses.net}").own.update(
                {"flags": flags, "operstate": constant("up")}
            )
        if uses.disk:
            number = constant(self._device_number(uses.disk))
            root.add(f"{path}/block/{uses.disk}/dev", number)
            root.make(f"{path}/block/{uses.disk}/holders")
        if uses.drm:
            root.add(f"{path}/drm/{uses.drm}/dev", constant("226:0"))
        if uses.graphics:
            root.add(f"{path}/graphics/{uses.graphics}/name", constant("simdrmfb"))
        if uses.sound is not None:
            root.add(f"{path}/sound/card{uses.sound}/id", constant("HDMI"))
        if uses.usb is not None:
            hub = root.make(f"{path}/usb{uses.usb}")
            for port in range(uses.plugged):
                hub.add(f"{uses.usb}-{port + 1}/product", constant("USB Keyboard"))


def _used(state: State) -> bool:
    return state.driver is not None and state.driver == state.function.driver
