"""Reading the bus: one pass, nothing that takes a device's lock, and who uses a function."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from vgpumgr.errors import SysfsError
from vgpumgr.host import pci_tree
from vgpumgr.host.holders import list_pci_users
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import (
    list_bar_sizes,
    list_functions,
    list_variants,
    read_condition,
    read_function,
    read_is_express,
)
from vgpumgr.model.pci import PciAddress, User, UserKind
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


def list_texts(users: list[User], kind: UserKind) -> list[str]:
    return [user.text for user in users if user.kind is kind]


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
        entries = list_functions(machine)
        assert len(entries) == gpus * 33
        assert entries == sorted(entries, key=lambda e: e.address)
    assert not names & LOCKED
    assert reads[16] <= reads[2] * 8, "linear in the number of GPUs"
    assert reads[16] <= 16 * 33 * 7


def test_an_entry_says_all_of_a_function(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 12)
    gpu = read_function(machine, GPU)
    assert gpu is not None
    assert (gpu.driver, gpu.group, gpu.numa_node, gpu.vf_total) == ("xe", 100, 1, 32)
    assert len(gpu.vfs) == 12
    assert list(gpu.vfs) == sorted(gpu.vfs), "by their number, not as text"
    vf = read_function(machine, gpu.vfs[10])
    assert vf is not None
    assert vf.physical == GPU
    assert list_bar_sizes(machine, GPU) == (8 << 30, 16 << 20)
    gone = PciAddress(0, 0x77, 0, 0)
    assert read_function(machine, gone) is None
    assert list_bar_sizes(machine, gone) is None


@pytest.mark.parametrize(
    ("space", "express"),
    [
        ({0x06: 0x10, 0x34: 0x40, 0x40: 0x05, 0x41: 0x50, 0x50: 0x10}, True),
        ({0x06: 0x10, 0x34: 0x40, 0x40: 0x05, 0x41: 0x00}, False),
        ({0x34: 0x40, 0x40: 0x10}, False),
        # a list that never ends; one that root alone may read; a device that does not answer
        ({0x06: 0x10, 0x34: 0x40, 0x40: 0x05, 0x41: 0x40}, False),
        ({0x06: 0x10, 0x34: 0x40, "size": 64}, None),
        (dict.fromkeys(range(256), 255), None),
    ],
)
def test_whether_a_function_is_pci_express(
    tmp_path: Path, space: dict[int | str, int], express: bool | None
) -> None:
    machine = make_machine(tmp_path, 1, 0)
    path = tmp_path / "sys/bus/pci/devices" / str(GPU) / "config"
    assert read_is_express(machine, GPU) is None, "the kernel does not say"
    size = space.pop("size", 256)
    path.write_bytes(bytes(space.get(at, 0) for at in range(size)))
    assert read_is_express(machine, GPU) is express
    path.write_bytes(bytes(4096))
    assert read_is_express(machine, GPU) is True, "by its size"


def test_a_damaged_attribute_is_an_error_with_its_path(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 0)
    path = tmp_path / "sys/bus/pci/devices" / str(GPU) / "numa_node"
    path.chmod(0o644)
    path.write_text("nonsense\n")
    with pytest.raises(SysfsError, match="numa_node holds no number"):
        list_functions(machine)


def test_a_host_without_pci_has_no_functions(tmp_path: Path) -> None:
    machine = Machine(None, tmp_path, tmp_path, tmp_path, "test:///default")
    assert list_functions(machine) == []


def test_disks_that_their_file_system_hides_and_disks_of_nobody(tmp_path: Path) -> None:
    """btrfs has a device number of its own, LVM a name of its own; and data may be on a disk all the same."""
    machine = make_machine(tmp_path, 3, 0)
    block = tmp_path / "sys/class/block"
    block.mkdir(parents=True)
    gpus = [PciAddress(0, 0x10 + 4 * number, 0, 0) for number in range(3)]
    for number, address in enumerate(gpus):
        device = (tmp_path / "sys/bus/pci/devices" / str(address)).resolve()
        disk = device / f"nvme/nvme{number}/nvme{number}n1"
        part = disk / f"nvme{number}n1p1"
        part.mkdir(parents=True)
        (part / "partition").write_text("1\n")
        for minor, path in ((8 * number, disk), (8 * number + 1, part)):
            (path / "dev").write_text(f"259:{minor}\n")
            (block / path.name).symlink_to(path)
    mapped = tmp_path / "sys/devices/virtual/block/dm-0"
    mapped.mkdir(parents=True)
    (mapped / "dev").write_text("253:0\n")
    (block / "dm-0").symlink_to(mapped)
    (block / "nvme1n1p1/holders").mkdir()
    (block / "nvme1n1p1/holders/dm-0").symlink_to(mapped)
    (tmp_path / "dev/mapper").mkdir(parents=True)
    (tmp_path / "dev/mapper/vg-root").symlink_to("../dm-0")
    mounts = tmp_path / "proc/1/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(
        "29 1 0:26 /@ / rw,noatime shared:1 - btrfs /dev/nvme0n1p1 rw,subvol=/@\n"
        "30 1 0:27 / /var rw - btrfs /dev/mapper/vg-root rw\n"
        "31 1 0:5 / /proc rw - proc proc rw\n"
    )
    used = list_pci_users(machine, dict.fromkeys(gpus))
    assert list_texts(used[gpus[0]], UserKind.DISK) == ["disk nvme0n1p1 is mounted at /"]
    assert list_texts(used[gpus[1]], UserKind.DISK) == [
        "disk nvme1n1p1: disk dm-0 is mounted at /var"
    ]
    assert list_texts(used[gpus[2]], UserKind.DISK) == []
    assert [list_texts(used[a], UserKind.IDLE_DISK) for a in gpus] == [
        [],
        [],
        ["disk nvme2n1 is on it"],
    ]
    second = tmp_path / "sys/fs/btrfs/6f1c2a2e/devices/nvme2n1"
    second.parent.mkdir(parents=True)
    second.symlink_to(block / "nvme2n1")
    again = list_pci_users(machine, {gpus[2]: None})[gpus[2]]
    assert list_texts(again, UserKind.DISK) == ["disk nvme2n1 is part of the btrfs 6f1c2a2e"]


def test_a_process_of_a_service_is_told_with_it(tmp_path: Path) -> None:
    simulated = replace(make_machine(tmp_path, 1, 0), root=tmp_path)
    device = (tmp_path / "sys/bus/pci/devices" / str(GPU)).resolve()
    (device / "drm/card0").mkdir(parents=True)
    node = tmp_path / "dev/dri/card0"
    node.parent.mkdir(parents=True)
    node.touch()
    process = tmp_path / "proc/812"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to(node)
    (process / "comm").write_text("nvidia-persiste\n")
    (process / "cgroup").write_text("0::/system.slice/nvidia-persistenced.service\n")
    (text,) = list_texts(list_pci_users(simulated, {GPU: None})[GPU], UserKind.PROCESS)
    assert text.endswith("(nvidia-persistenced.service)")
    (process / "cgroup").write_text(
        "0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope\n"
    )
    (text,) = list_texts(list_pci_users(simulated, {GPU: None})[GPU], UserKind.PROCESS)
    assert text.endswith("open")


def test_how_a_function_is_reset(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 1, 0)
    device = (tmp_path / "sys/bus/pci/devices" / str(GPU)).resolve()
    assert read_condition(machine, GPU) == ("flr bus", "D0")
    (device / "reset_method").unlink()
    assert read_condition(machine, GPU)[0] == "", "one that cannot be reset has no file for it"
    (device / "reset").touch()
    assert read_condition(machine, GPU)[0] is None, "an older kernel does not say how"
    assert read_condition(machine, PciAddress(0, 1, 2, 3)) == (None, None)


ALIASES = """\
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v00008086d*sv*sd*bc03sc*i* intel_vfio_pci
alias vfio_pci:v00008086d000056C0sv*sd*bc*sc*i* flex_vfio_pci
alias pci:v00008086d000056C0sv*sd*bc*sc*i* xe
"""


def test_the_driver_that_knows_most_of_a_device(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, 2, 0)
    other = PciAddress(0, 0x14, 0, 0)
    assert list_variants(machine, [GPU, other]) == {}, "no modules are known"
    release = tmp_path / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("6.12.0\n")
    aliases = tmp_path / "lib/modules/6.12.0/modules.alias"
    aliases.parent.mkdir(parents=True)
    aliases.write_text(ALIASES)
    assert list_variants(machine, [GPU]) == {GPU: "flex_vfio_pci"}
    modalias = (tmp_path / "sys/bus/pci/devices" / str(other)).resolve() / "modalias"
    modalias.write_text(modalias.read_text().replace("d000056C0", "d000056C1"))
    assert list_variants(machine, [other]) == {other: "intel_vfio_pci"}
    modalias.write_text("pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00\n")
    assert list_variants(machine, [other]) == {}, "vfio-pci itself is no variant"
    loaded = tmp_path / "sys/module/flex_vfio_pci/drivers"
    loaded.mkdir(parents=True)
    (loaded / "pci:flex-vfio-pci").touch()
    assert list_variants(machine, [GPU]) == {GPU: "flex-vfio-pci"}, "as it calls itself"


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
    assert [user.pid for user in found if user.kind is UserKind.PROCESS] == [os.getpid()]
    assert "/dev/dri/renderD128 open" in list_texts(found, UserKind.PROCESS)[0]
    assert list_texts(found, UserKind.DISK) == ["disk nvme0n1: disk md0 is mounted at /data"]
    assert list_texts(found, UserKind.NETWORK) == ["network interface eth0 is up"]
    assert list_texts(found, UserKind.DISPLAY) == ["the console is on fb0"]
    assert list_texts(found, UserKind.USB) == ["USB device 3-1 is plugged into it"]
