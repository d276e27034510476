"""Who has a device file open: one way of telling for vGPUs and for PCI functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpumgr.host.holders import list_group_holders, list_pci_users
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import read_words
from vgpumgr.mdev.control import HostVgpus
from vgpumgr.model.pci import PciAddress, User, UserKind
from vgpumgr.model.vgpu import Framework, VgpuDevice
from vgpumgr.nvml.client import NvmlClient

GPU = PciAddress(0, 0x10, 0, 0)
GROUP = 14


def make_process(root: Path, pid: int, name: str, words: list[str], *opened: str) -> None:
    """A process of the machine, as ``/proc`` shows it."""
    process = root / f"proc/{pid}"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text(f"{name}\n")
    (process / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    for number, path in enumerate(opened):
        (process / f"fd/{number}").symlink_to(f"{root}{path}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / f"sys/bus/pci/devices/{GPU}").mkdir(parents=True)
    return Machine("test", tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


@pytest.mark.parametrize(
    ("option", "vm"),
    [
        ("guest=vm01,debug-threads=on", "vm01"),
        ("debug-threads=on,guest=a,,b", "a,b"),
        ("guest=x,,guest=y,process=z", "x,guest=y"),
    ],
)
def test_a_vm_is_named_by_whatever_device_it_holds(machine: Machine, option: str, vm: str) -> None:
    words = ["/usr/bin/qemu-system-x86_64", "-name", option, "-uuid", "1"]
    make_process(machine.root, 875, "qemu-system-x86", words, f"/dev/vfio/{GROUP}")
    told = f'vm "{vm}", process 875 (qemu-system-x86), which has /dev/vfio/{GROUP} open'
    assert list_group_holders(machine, GROUP) == (told,)
    assert list_pci_users(machine, {GPU: GROUP})[GPU] == [User(UserKind.PROCESS, told, 875)]


def test_a_vm_that_opened_the_device_alone_is_named(machine: Machine) -> None:
    """As /dev/iommu lets it, without the group."""
    uuid = "a1111111-2222-3333-4444-555555555555"
    (machine.root / f"sys/bus/mdev/devices/{uuid}/vfio-dev/vfio3").mkdir(parents=True)
    words = ["/usr/libexec/qemu-kvm", "-name", "guest=vm01"]
    make_process(machine.root, 7, "qemu-kvm", words, "/dev/vfio/devices/vfio3")
    (told,) = list_group_holders(machine, GROUP, uuid)
    assert told.startswith('vm "vm01", process 7 (qemu-kvm)')
    assert list_group_holders(machine, GROUP) == (), "of the group it has nothing open"


def test_others_are_told_as_processes(machine: Machine) -> None:
    node = f"/dev/vfio/{GROUP}"
    make_process(machine.root, 8, "dpdk", ["dpdk-testpmd", "-name"], node)
    make_process(machine.root, 9, "other", ["other"], "/dev/vfio/1")
    make_process(machine.root, 10, "served", ["served"], node)
    (machine.root / "proc/10/cgroup").write_text("0::/system.slice/spdk.service\n")
    assert list_group_holders(machine, GROUP) == (
        f"process 8 (dpdk), which has {node} open",
        f"process 10 (served), which has {node} open (spdk.service)",
    )


def test_our_own_reader_is_nobody(machine: Machine) -> None:
    words = ["python3", "-m", "vgpumgr.nvml.helper"]
    make_process(machine.root, 11, "python3", words, f"/dev/vfio/{GROUP}")
    assert read_words(11, machine.root / "proc")[:3] == words
    assert list_group_holders(machine, GROUP) == ()


def test_a_vm_that_the_driver_names_too_is_named_once(machine: Machine) -> None:
    device = VgpuDevice(
        None, str(GPU), Framework.VENDOR_VFIO, "256", "", iommu_group=GROUP, vm_name="vm01"
    )
    vgpus = HostVgpus(machine, NvmlClient(machine))
    assert vgpus.list_holders(device) == ('vm "vm01"',)
    words = ["qemu", "-name", "guest=vm01"]
    make_process(machine.root, 7, "qemu", words, f"/dev/vfio/{GROUP}")
    (told,) = vgpus.list_holders(device)
    assert told.startswith('vm "vm01", process 7 (qemu)')
