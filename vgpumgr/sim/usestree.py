# SPDX-License-Identifier: Apache-2.0
"""What the host does with its PCI functions: networks, disks and mounts, the console, sound, USB; as long as the host's
driver has the function.
"""

from __future__ import annotations

from vgpumgr.sim.machine_model import Machine
from vgpumgr.sim.pci_model import Uses
from vgpumgr.sim.pcibus import Address, PciBus, State
from vgpumgr.sim.tree import Directory, File, constant, device_path, parse_int, text

_IFF_UP_BROADCAST_RUNNING_MULTICAST = "0x1043"
_BLOCK_MAJOR = 259


class UsesTree:
    """Class directories, device nodes and mounts of a whole machine."""

    def __init__(self, machine: Machine, bus: PciBus) -> None:
        self._bus = bus
        pairs = [(gpu.place.address, gpu.place.uses) for gpu in machine.gpus]
        pairs += [(pci.address, pci.uses) for pci in machine.data.pci]
        self._uses = {Address.parse(address): uses for address, uses in pairs if uses}
        self._disks = sorted(uses.disk for uses in self._uses.values() if uses.disk)
        self._console = True

    def generation(self) -> int:
        """Never: of drivers the bus tells."""
        return 0

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
