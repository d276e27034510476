"""A power cut of the lab host: what had been acknowledged comes back, by the command that the boot unit runs, and then
a VM that starts by itself has its devices.

The last of the lab's tests: it boots the lab host once more.
"""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from tests.lab.host import EDU, NIC, NVME, ROOT, LabHost
from tests.lab.kernels import RealKernel, device, driver
from tests.lab.nested import MTTY_ID, NIC_ID, NestedGuest, start_libvirtd

UUID = "d1111111-2222-3333-4444-555555555555"
MDEV = f"/sys/bus/mdev/devices/{UUID}"
UNIT = "vgpumgr-restore.service"


def read_unit() -> configparser.ConfigParser:
    """The boot unit."""
    (path,) = [p for p in (ROOT / "templates").rglob(UNIT) if Path(p).is_file()]
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(path)
    return unit


def read_unit_command() -> list[str]:
    """What the boot unit runs, without the program's name."""
    return shlex.split(read_unit()["Service"]["ExecStart"])[1:]


def give_devices(guest: NestedGuest) -> None:
    """Devices of two backends for a guest that is shut off, and starts with libvirtd."""
    host = guest.host
    guest.destroy()
    host.check(f"virsh -q autostart {guest.name}")
    host.succeed("attach", guest.name, "--profile", "passthrough", "--gpu", NIC)
    host.succeed("attach", guest.name, "--profile", "mtty-2", "--add")
    host.check("sync")


@pytest.mark.timeout(1500)
def test_everything_comes_back_before_guests_start(
    lab_host: LabHost, real_kernel: RealKernel, guest: NestedGuest
) -> None:
    if not lab_host.arguments:
        pytest.skip("a kept lab host cannot be booted from here")
    give_devices(guest)
    lab_host.succeed("mdev", "create", "mtty-2", "--uuid", UUID, "--auto")
    lab_host.succeed("passthrough", "bind", EDU, "--persist")
    lab_host.succeed("vf", "enable", NVME, "--count", "2", "--persist")
    lab_host.reboot()
    lab_host.check("modprobe -a vfio-pci vfio_iommu_type1 nvme e1000e mtty")
    lab_host.wait_until(f"[ -e /sys/bus/pci/devices/{NVME}/driver ]")
    assert lab_host.run(f"[ -e {MDEV} ]").status == 1, "nothing of it outlives a boot by itself"
    assert (driver(real_kernel, EDU), driver(real_kernel, NIC)) == (None, "e1000e")
    done = lab_host.vgpumgr(*read_unit_command())
    assert done.status == 0, done.stdout + done.stderr
    assert real_kernel.link(f"{MDEV}/mdev_type") == "mtty-2"
    assert driver(real_kernel, EDU) == "vfio-pci"
    assert real_kernel.read(device(NVME, "sriov_numvfs")) == "2"
    vfs = [real_kernel.link(device(NVME, f"virtfn{n}")) or "" for n in range(2)]
    assert [driver(real_kernel, vf) for vf in vfs] == [None, None]
    # the unit's order: libvirtd, and with it the guest, comes after
    assert "libvirtd.service" in read_unit()["Unit"]["Before"].split()
    assert driver(real_kernel, NIC) == "vfio-pci"
    assert len(real_kernel.list("/sys/bus/mdev/devices")) == 2
    guest.connect()
    start_libvirtd(lab_host)
    guest.wait_ready()
    assert {NIC_ID, MTTY_ID} <= guest.list_pci()
