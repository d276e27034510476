"""The same files of ``/sys`` on a real kernel and on a simulated machine, for tests that hold for both.

A simulated machine that behaves unlike the kernel makes every test on it worthless; so what the code relies on is
asserted of both, by the same lines.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tests.lab.host import DISPLAY, EDU, NIC, NVME, SHELLS, USB, LabHost, hold_command
from tests.sim.sim_tree import SimFiles
from vgpumgr.sim.control import ControlTree, WriteFaults
from vgpumgr.sim.pcibus import Address, Asleep, Function, PciBus, Sriov
from vgpumgr.sim.tree import MachineTree

PCI = "/sys/bus/pci"
PROBE = f"{PCI}/drivers_probe"
#: the drivers that claim them
FUNCTIONS = {NVME: "nvme", NIC: "e1000e", EDU: None, DISPLAY: "bochs-drm", USB: "xhci_hcd"}
ERRORS = {os.strerror(number): number for number in errno.errorcode}
#: how long a write must not come back to be called asleep
SLEEP_S = 3.0


class Sleeper(Protocol):
    """A write that may not come back at once."""

    def finished(self) -> bool:
        """Whether it has come back, after a while of waiting where it has not."""


class Kernel(Protocol):
    """One machine's ``/sys``."""

    def read(self, path: str) -> str:
        """An attribute's text without the newline at its end."""

    def write(self, path: str, value: object) -> int:
        """Write a line that must not sleep; 0 or the error's number."""

    def begin(self, path: str, value: object) -> Sleeper:
        """Write a line that may sleep."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; none where there is no directory."""

    def link(self, path: str) -> str | None:
        """The last part of a link's target, None where there is no link."""

    def hold(self, device: str) -> None:
        """Open a device under VFIO as a VM does."""

    def release(self, device: str) -> None:
        """Close it."""


@dataclass(slots=True)
class _LabWrite:
    host: LabHost
    name: bytes
    shell: int
    busy: set[int]

    def finished(self) -> bool:
        if self.shell not in self.busy:
            return True
        try:
            self.host.shells[self.shell].finish(self.name, SLEEP_S)
        except TimeoutError:
            return False
        self.busy.discard(self.shell)
        return True


@dataclass(slots=True)
class RealKernel:
    """The lab host's."""

    host: LabHost
    _holders: dict[str, str] = field(default_factory=dict)
    _busy: set[int] = field(default_factory=set)

    def read(self, path: str) -> str:
        return self.host.check(f'text=$(<{shlex.quote(path)}) && echo "$text"')

    def write(self, path: str, value: object) -> int:
        text = self.host.write(path, str(value))
        return 0 if text is None else ERRORS[text]

    def begin(self, path: str, value: object) -> _LabWrite:
        shell = next(n for n in range(1, SHELLS) if n not in self._busy)
        self._busy.add(shell)
        words = f"echo {shlex.quote(str(value))} >{shlex.quote(path)}"
        return _LabWrite(self.host, self.host.shells[shell].start(words), shell, self._busy)

    def list(self, path: str) -> list[str]:
        return self.host.check(f"ls {shlex.quote(path)} 2>/dev/null || true").split()

    def link(self, path: str) -> str | None:
        target = self.host.check(f"readlink {shlex.quote(path)} || true")
        return posixpath.basename(target) or None

    def hold(self, device: str) -> None:
        log = f"/run/hold.{device}"
        command = f"{hold_command(device)} >{log} 2>&1 </dev/null & echo $!"
        self._holders[device] = self.host.check(command)
        self.host.wait_until(f"grep -q group {log}", 60)

    def release(self, device: str) -> None:
        self.host.check(f"kill {self._holders.pop(device)}")

    def release_all(self) -> None:
        """Close what a failed test left open; what waits for that comes back then."""
        for device in list(self._holders):
            self.release(device)
        for shell in list(self._busy):
            self.host.wait_until("true", shell=shell)
        self._busy.clear()


@dataclass(slots=True)
class _SimWrite:
    call: Callable[[], Asleep | None]
    asleep: Asleep | None

    def finished(self) -> bool:
        while self.asleep is not None and self.asleep.ready():
            then = self.asleep.then
            if then is not None:
                then()
            # without anything to do then the call is made again
            self.asleep = None if then is not None else self.call()
        return self.asleep is None


@dataclass(slots=True)
class SimulatedKernel:
    """A simulated machine's."""

    files: SimFiles

    def read(self, path: str) -> str:
        return self.files.read(path)

    def write(self, path: str, value: object) -> int:
        try:
            asleep = self.files.write(path, value)
        except OSError as error:
            return error.errno or 0
        assert asleep is None, f"{path}: asleep"
        return 0

    def begin(self, path: str, value: object) -> _SimWrite:
        call = partial(self.files.write, path, value)
        return _SimWrite(call, call())

    def list(self, path: str) -> list[str]:
        try:
            return self.files.list(path)
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        try:
            node = self.files.tree.find(self.files.resolve(posixpath.dirname(path)))
        except OSError:
            return None
        target = getattr(getattr(node, "entries", {}).get(posixpath.basename(path)), "target", "")
        return posixpath.basename(target) or None

    def hold(self, device: str) -> None:
        assert self.files.write("/.sim/hold", f"{device} vm01") is None

    def release(self, device: str) -> None:
        assert self.files.write("/.sim/release", device) is None


class _BusFiles(SimFiles):
    """A bus without a machine around it."""

    def __init__(self, bus: PciBus) -> None:
        self.tree = MachineTree(
            bus, {}, {}, [ControlTree(bus, WriteFaults(), None, lambda _address: None)]
        )


def simulate_lab_bus() -> SimulatedKernel:
    """The lab host's PCI devices, as the simulator would have them."""

    def function(address: str, identity: int, class_code: int, group: int, driver: str | None,
                 sriov: Sriov | None = None) -> Function:  # fmt: skip
        vendor, device = identity >> 16, identity & 0xFFFF
        where = Address.parse(address)
        return Function(
            where, vendor, device, 0x1AF4, 0x1100, class_code, -1, group, driver, sriov=sriov
        )

    bus = PciBus.of(
        [
            function(NVME, 0x1B360010, 0x010802, 7, "nvme", Sriov(4, 0x0010)),
            function(NIC, 0x808610D3, 0x020000, 8, "e1000e"),
            function(EDU, 0x123411E8, 0x00FF00, 9, None),
            function(DISPLAY, 0x12341111, 0x038000, 10, "bochs-drm"),
            function(USB, 0x1B36000D, 0x0C0330, 10, "xhci_hcd"),
        ]
    )
    return SimulatedKernel(_BusFiles(bus))


def device(address: str, name: str) -> str:
    """The path of an attribute of a PCI function."""
    return f"{PCI}/devices/{address}/{name}"


def driver(kernel: Kernel, address: str) -> str | None:
    """The driver that has a PCI function."""
    return kernel.link(device(address, "driver"))


def put_back(kernel: RealKernel) -> None:
    """Give every function to the driver that claims it, whatever a failed test left."""
    kernel.release_all()
    kernel.write(device(NVME, "sriov_numvfs"), 0)
    kernel.write(device(NVME, "sriov_drivers_autoprobe"), 1)
    for address in find_moved(kernel):
        kernel.write(device(address, "driver_override"), "")
        kernel.write(device(address, "driver/unbind"), address)
        kernel.write(PROBE, address)
    assert not find_moved(kernel)


def find_moved(kernel: RealKernel) -> set[str]:
    """The functions that have another driver than their own."""
    links = [device(address, "driver") for address in FUNCTIONS]
    lines = kernel.host.run(f"stat -c %N {' '.join(links)} 2>/dev/null").output.splitlines()
    found = {line.split("/")[5]: line.strip("'").rpartition("/")[2] for line in lines}
    return {address for address, own in FUNCTIONS.items() if found.get(address) != own}


def wait_for(sleeper: Sleeper, tries: int = 20) -> bool:
    """Whether a write comes back at last."""
    return any(_each(sleeper.finished, tries))


def _each(call: Callable[[], bool], tries: int) -> list[bool]:
    found: list[bool] = []
    while len(found) < tries and not (found and found[-1]):
        found.append(call())
    return found
