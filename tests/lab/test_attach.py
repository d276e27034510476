"""Devices for a VM of the lab host's own libvirtd, by ``vgpumgr attach``: QEMU really has them, VFIO really opens them.

The VM runs its firmware and no operating system: it sees devices come, and never lets one go when it is asked to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.host import EDU, LabHost
from tests.lab.kernels import RealKernel
from tests.lab.nested import FirmwareGuest
from tests.lab.test_kernel_pci import driver, put_back

EDU_ID, MTTY_ID = "1234:11e8", "4348:3253"


@pytest.fixture(scope="module")
def guest(lab_host: LabHost) -> Iterator[FirmwareGuest]:
    guest = FirmwareGuest(lab_host, "vm01")
    guest.define()
    guest.start()
    yield guest
    guest.remove()


@pytest.fixture
def host(real_kernel: RealKernel, guest: FirmwareGuest) -> Iterator[LabHost]:
    yield real_kernel.host
    real_kernel.host.vgpumgr("detach", guest.name, "--all", "--yes")
    put_back(real_kernel)


def test_a_running_guest_gets_a_mediated_device(
    host: LabHost, guest: FirmwareGuest, real_kernel: RealKernel
) -> None:
    host.succeed("attach", guest.name, "--profile", "mtty-2", "--live")
    assert MTTY_ID in guest.list_pci()
    (uuid,) = real_kernel.list("/sys/bus/mdev/devices")
    assert uuid in host.check(f"virsh -q dumpxml {guest.name}")
    row = host.document("mdev", "list")["vgpus"][0]
    assert row["vm"] == guest.name
    guest.restart()
    host.succeed("detach", guest.name, "--yes")
    assert real_kernel.list("/sys/bus/mdev/devices") == []


def test_a_running_guest_gets_a_pci_function(
    host: LabHost, guest: FirmwareGuest, real_kernel: RealKernel
) -> None:
    host.succeed("attach", guest.name, "--profile", "passthrough", "--gpu", EDU, "--live")
    assert EDU_ID in guest.list_pci()
    assert driver(real_kernel, EDU) == "vfio-pci"
    guest.restart()
    host.succeed("detach", guest.name, "--yes")
    assert driver(real_kernel, EDU) is None
