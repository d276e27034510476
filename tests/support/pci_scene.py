"""A host with PCI functions of every kind that matters to passthrough, as a mounted ``/sys`` and ``/proc``.

``python -m tests.support.pci_scene ROOT`` serves it; ``open_scene`` starts that and answers the operations on it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.domains import PC, UUID_PC
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as FakeVm
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts, list_late_processes
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.domain.domain import Domain
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.control import HostPci
from vgpumgr.sim import fuse
from vgpumgr.sim.control import Sleepers, WriteFaults
from vgpumgr.sim.lifecycle import unmount
from vgpumgr.sim.pcibus import Address, Function, PciBus, Sriov, State
from vgpumgr.sim.tree import Directory, File, MachineTree, constant
from vgpumgr.sim.users import VfioTree
from vgpumgr.state.store import Store

BOOT = "0000:00:02.0"
GPU, AUDIO, USB, UCSI = (f"0000:01:00.{n}" for n in range(4))
INTEL = "0000:03:00.0"
AMD, NIC = "0000:05:00.0", "0000:06:00.0"
MXGPU = "0000:07:00.0"
VGPU = "0000:08:00.0"
NVME = "0000:09:00.0"
OTHER_INTEL = "0000:0a:00.0"
QUOTAS = {"exec_quantum_ms": 0, "preempt_timeout_us": 0}


def make_function(
    address: str,
    ids: tuple[int, int],
    class_code: int,
    group: int,
    driver: str | None,
    **more: object,
) -> Function:
    """One function; subsystem and node do not matter here."""
    vendor, device = ids
    base = Function(Address.parse(address), vendor, device, vendor, 1, class_code, 0, group, driver)
    return replace(base, **more)  # type: ignore[arg-type]


def list_scene() -> list[Function]:
    """The functions; see the names above."""
    bars = (16 << 20, 32 << 30)
    return [
        make_function("0000:00:01.0", (0x8086, 0x4C01), 0x060400, 10, "pcieport"),
        make_function(BOOT, (0x8086, 0x4680), 0x030000, 2, "i915", boot_vga=True),
        make_function(GPU, (0x10DE, 0x2204), 0x030000, 10, "nvidia", boot_vga=False, bars=bars),
        make_function(AUDIO, (0x10DE, 0x1AEF), 0x040300, 10, "snd_hda_intel"),
        make_function(USB, (0x10DE, 0x1AD8), 0x0C0330, 10, "xhci_hcd"),
        make_function(UCSI, (0x10DE, 0x1AD9), 0x0C8000, 10, None),
        make_function(INTEL, (0x8086, 0x56C0), 0x038000, 13, "xe", sriov=Sriov(7, 0x56C0, vf_driver="xe")),
        make_function("0000:04:00.0", (0x1022, 0x1484), 0x060400, 20, "pcieport"),
        make_function(AMD, (0x1002, 0x73BF), 0x030000, 20, "amdgpu", boot_vga=False, reset_methods=""),
        make_function(NIC, (0x8086, 0x10D3), 0x020000, 20, "e1000e"),
        make_function(MXGPU, (0x1002, 0x74A1), 0x120000, 27, "gim", sriov=Sriov(8, 0x74B5)),
        make_function(
            VGPU, (0x10DE, 0x20B2), 0x030200, 28, "nvidia",
            sriov=Sriov(16, 0x20B2, 4, configurable=False),
        ),
        make_function(NVME, (0x144D, 0xA80A), 0x010802, 29, "nvme"),
        make_function(OTHER_INTEL, (0x8086, 0x56C1), 0x038000, 30, "xe", sriov=Sriov(7, 0x56C1, vf_driver="xe")),
    ]  # fmt: skip


class SceneTree:
    """What the drivers of the scene add: quotas of xe, a mounted disk, a network that is up."""

    def __init__(self, bus: PciBus, faults: WriteFaults) -> None:
        self._bus = bus
        self._faults = faults
        self._quotas: dict[str, int] = {}
        self._boots = 1

    def generation(self) -> int:
        """Never changes by itself."""
        return 0

    def add(self, root: Directory) -> None:
        """Classes and mounts; a boot, of which the disk knows nothing."""
        boot_id = File(lambda: f"boot-{self._boots}\n".encode())
        root.add("proc/sys/kernel/random/boot_id", boot_id)
        requests = {
            "boot": lambda _: self._boot(),
            "gone": lambda line: self._bus.lose(Address.parse(line)),
            "unload": self._unload,
            "fault": self._faults.command,
        }
        for name, obey in requests.items():
            root.add(f".sim/{name}", File(None, _obeying(obey)))
        root.add("proc/cmdline", constant("ro quiet intel_iommu=on"))
        mounts = "36 1 259:1 / /srv rw - ext4 /dev/nvme0n1p1 rw"
        root.add("proc/1/mountinfo", constant(mounts))
        disk = f"sys/devices/pci0000:00/{NVME}/nvme/nvme0/nvme0n1/nvme0n1p1"
        root.add(f"{disk}/dev", constant("259:1"))
        root.link("sys/class/block/nvme0n1p1", disk)
        if self._bus.state(Address.parse(NIC)).driver != "e1000e":
            return
        net = f"sys/devices/pci0000:00/{NIC}/net/eth0"
        root.add(f"{net}/flags", constant("0x1003"))
        root.link("sys/class/net/eth0", net)

    def _unload(self, driver: str) -> None:
        self._bus.drivers.discard(driver)
        self._bus.generation += 1

    def _boot(self) -> None:
        fresh = PciBus.of(list_scene())
        self._bus.states, self._bus.drivers = fresh.states, fresh.drivers
        self._bus.removed.clear()
        self._bus.generation += 1
        self._faults.command("clear")
        self._quotas.clear()
        self._boots += 1

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Quotas of virtual functions."""
        for number in range(1, state.numvfs + 1) if path.endswith(INTEL) else ():
            for name in QUOTAS:
                where = f"{path}/sriov_admin/vf{number}/profile/{name}"
                root.add(where, self._quota(f"{number}/{name}"))

    def _quota(self, key: str) -> File:
        def write(data: bytes) -> None:
            self._quotas[key] = int(data)

        return File(lambda: f"{self._quotas.get(key, 0)}\n".encode(), write)


def _obeying(obey: Callable[[str], None]) -> Callable[[bytes], None]:
    return lambda data: obey(data.decode().strip())


def serve(root: Path) -> None:
    """Mounts the scene until it is unmounted."""
    bus = PciBus.of(list_scene())
    faults = WriteFaults()
    sleepers = Sleepers()
    vfio = VfioTree(bus, None, mdev=False)
    parts = [vfio, sleepers, SceneTree(bus, faults)]
    fuse.serve(MachineTree(bus, {}, {0: "0-3"}, parts), root, faults, sleepers)


@dataclass
class Scene:
    """The host and the operations on it."""

    directory: Path
    root: Path
    machine: Machine
    pci: HostPci
    parts: Parts
    service: PassthroughService
    hypervisor: FakeHypervisor
    nvml: FakeNvml

    def ask(self, control: str, line: str) -> None:
        """A request to the simulation; see ``SceneTree.add``."""
        (self.root / ".sim" / control).write_text(line)

    @contextlib.contextmanager
    def guest(self, name: str, address: str) -> Iterator[Callable[[], None]]:
        """A VM that has the function open; it ends at the end, or when what this yields is called."""
        group = (self.root / "sys/bus/pci/devices" / address / "iommu_group").readlink().name
        command = [sys.executable, "-m", "vgpumgr.sim.pretend_vm", "-name", f"guest={name}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        node = str(self.root / "dev/vfio" / group)
        with subprocess.Popen([*command, node], text=True, **pipes) as qemu:  # type: ignore[call-overload]
            assert qemu.stdout.readline() == "open\n"

            def end() -> None:
                qemu.stdin.close()
                qemu.wait(timeout=60)

            yield end

    def driver(self, address: str) -> str | None:
        """The function's driver, read without our own code."""
        link = self.root / "sys/bus/pci/devices" / address / "driver"
        return link.readlink().name if link.is_symlink() else None

    def has(self, address: str) -> bool:
        """Whether the function is on the bus."""
        return (self.root / "sys/bus/pci/devices" / address).exists()

    def bindings(self) -> list[str]:
        """What is remembered as taken."""
        return [str(b.address) for b in self.parts.pci.list_bindings()]

    def await_no_late(self, timeout_s: float = 300) -> None:
        """Waits until no helper is late any more."""
        end_s = time.monotonic() + timeout_s
        while self.parts.list_late():
            assert time.monotonic() < end_s, self.parts.list_late()
            time.sleep(0.05)


@contextlib.contextmanager
def mount_scene(root: Path) -> Iterator[Path]:
    """Mounts the scene at ``root``, an empty directory."""
    if (problem := fuse.available()) is not None:
        pytest.skip(f"no FUSE: {problem}")
    command = [sys.executable, "-m", "tests.support.pci_scene", str(root)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _await_mount(root, server)
        yield root
    finally:
        unmount(root)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=2)
        server.kill()
        server.wait()


@contextlib.contextmanager
def open_scene(root: Path, directory: Path, bind_timeout_s: float = 60.0) -> Iterator[Scene]:
    """A fresh host at a mounted ``root``; what it remembers is below ``directory``."""
    (root / ".sim/boot").write_text("1")
    scene = make_scene(directory, root, bind_timeout_s)
    with scene.pci:
        yield scene


def _await_mount(root: Path, server: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + 60
    while not os.path.ismount(root):
        assert server.poll() is None, "the mount has failed"
        assert time.monotonic() < end_s, "the mount does not come up"
        time.sleep(0.02)


def make_scene(directory: Path, root: Path, bind_timeout_s: float) -> Scene:
    """The operations on a mounted scene."""
    state, run = directory / "state", directory / "run"
    machine = Machine("scene", root, state, run, "test:///default")
    hypervisor = FakeHypervisor([FakeVm("vm01", UUID_PC, Domain.from_xml(PC))])
    nvml = FakeNvml([replace(make_gpu(layout=None), pci=PciAddress.parse(GPU))])
    pci = HostPci(machine, Store(state / "state.sqlite"), bind_timeout_s=bind_timeout_s)
    parts = Parts(
        nvml=nvml,
        read_inventory=nvml.read_inventory,
        hypervisor=hypervisor,
        channels=FakeChannels(directory / "channels"),
        store=Store(state / "state.sqlite"),
        clock=SystemClock(),
        state_dir=state,
        run_dir=run,
        boot_id=pci.boot_id,
        is_privileged=True,
        list_late=lambda: list_late_processes(machine),
        pci=pci,
    )
    return Scene(directory, root, machine, pci, parts, PassthroughService(parts), hypervisor, nvml)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
