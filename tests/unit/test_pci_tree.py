"""Reading the bus: one pass, nothing that takes a device's lock, and who uses a function."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from vgpumgr.errors import SysfsError
from vgpumgr.host import pci_tree
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import list_bar_sizes, list_pci_entries, read_pci_entry
from vgpumgr.host.pci_users import list_pci_users
from vgpumgr.model.pci import PciAddress
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.pcibus import Address, Function, PciBus, Sriov
from vgpumgr.sim.tree import MachineTree

GPU = PciAddress(0, 0x10, 0, 0)
#: what the kernel reads or lists under the device's lock, or wakes the device for
LOCKED = {"sriov_numvfs", "driver_override", "config", "uevent", "reset_method"}


def make_machine(root: Path, gpus: int, vfs: int) -> Machine:
    """GPUs with virtual functions, as plain files."""
    places = [Address(0, 0x10 + 4 * number, 0, 0) for number in range(gpus)]
    bus = PciBus.of(
        [
            Function(
                place, 0x8086, 0x56C0, 0x8086, 1, 0x038000, 1, 100 + number, "xe",
                sriov=Sriov(32, 0x56C0), bars=(16 << 20, 8 << 30),
            )
            for number, place in enumerate(places)
        ]
    )  # fmt: skip
    for place in places:
        bus.set_numvfs(place, vfs)
    write_snapshot(MachineTree(bus, {}, {1: "0-3"}).root(), root)
    return Machine("test", root, root / "state", root / "run", "test:///default")


def test_one_pass_reads_everything_once_and_nothing_that_may_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[int] = Counter()
    names: set[str] = set()
    genuine = os.open

    def spy(path: str, *arguments: int, **more: int) -> int:
        names.add(str(path).rpartition("/")[2])
        reads[gpus] += 1
        return genuine(path, *arguments, **more)

    monkeypatch.setattr(pci_tree.os, "open", spy)
    for gpus in (2, 16):
        machine = make_machine(tmp_path / str(gpus), gpus, 32)
        entries = list_pci_entries(machine)
        assert len(entries) == gpus * 33
        assert entries == sorted(entries, key=lambda e: e.address)
    assert not names & LOCKED
    assert reads[16] <= reads[2] * 8, "linear in the number of GPUs"
    assert reads[16] <= 16 * 33 * 7


def test_an_entry_says_all_of_a_function(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 12)
    gpu = read_pci_entry(machine, GPU)
    assert gpu is not None
    assert (gpu.driver, gpu.group, gpu.numa_node, gpu.vf_total) == ("xe", 100, 1, 32)
    assert len(gpu.vfs) == 12
    assert list(gpu.vfs) == sorted(gpu.vfs), "by their number, not as text"
    vf = read_pci_entry(machine, gpu.vfs[10])
    assert vf is not None
    assert vf.physical == GPU
    assert list_bar_sizes(machine, GPU) == (8 << 30, 16 << 20)
    gone = PciAddress(0, 0x77, 0, 0)
    assert read_pci_entry(machine, gone) is None
    assert list_bar_sizes(machine, gone) is None


def test_a_damaged_attribute_is_an_error_with_its_path(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 0)
    path = tmp_path / "sys/bus/pci/devices" / str(GPU) / "numa_node"
    path.chmod(0o644)
    path.write_text("nonsense\n")
    with pytest.raises(SysfsError, match="numa_node holds no number"):
        list_pci_entries(machine)


def test_a_host_without_pci_has_no_functions(tmp_path: Path) -> None:
    machine = Machine(None, tmp_path, tmp_path, tmp_path, "test:///default")
    assert list_pci_entries(machine) == []


def test_users_of_all_kinds(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 0)
    device = (tmp_path / "sys/bus/pci/devices" / str(GPU)).resolve()
    for below in (
        "drm/card1",
        "drm/renderD128",
        "sound/card2",
        "graphics/fb0",
        "usb3/3-1",
        "net/eth0",
    ):
        (device / below).mkdir(parents=True)
    (device / "net/eth0/flags").write_text("0x1003\n")
    disk = device / "nvme/nvme0/nvme0n1"
    (disk / "holders").mkdir(parents=True)
    (disk / "dev").write_text("259:0\n")
    raid = tmp_path / "sys/devices/virtual/block/md0"
    raid.mkdir(parents=True)
    (raid / "dev").write_text("9:0\n")
    (disk / "holders/md0").symlink_to(raid)
    classes = {"block/nvme0n1": disk, "block/md0": raid, "net/eth0": device / "net/eth0"}
    for name, target in classes.items():
        link = tmp_path / "sys/class" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    console = tmp_path / "sys/class/vtconsole/vtcon1"
    console.mkdir(parents=True)
    (console / "name").write_text("(M) frame buffer device\n")
    (console / "bind").write_text("1\n")
    mounts = tmp_path / "proc/1/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("30 1 9:0 / /data rw - ext4 /dev/md0 rw\n")
    node = tmp_path / "dev/dri/renderD128"
    node.parent.mkdir(parents=True)
    node.touch()
    with node.open():
        found = list_pci_users(machine, {GPU: None})[GPU]
    assert [pid for pid, _ in found.processes] == [os.getpid()]
    assert "/dev/dri/renderD128 open" in found.processes[0][1]
    assert found.disks == ["disk nvme0n1: disk md0 is mounted at /data"]
    assert found.networks == ["network interface eth0 is up"]
    assert found.displays == ["the console is on fb0"]
    assert found.usb == ["USB device 3-1 is plugged into it"]
