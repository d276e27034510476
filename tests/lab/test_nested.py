"""Devices of the host in a running guest: real KVM, real VFIO, real libvirt."""

from __future__ import annotations

from tests.lab.host import LabHost
from tests.lab.kernels import RealKernel
from tests.lab.nested import NestedGuest

MTTY = "4348:3253"
BUS = "/sys/bus/mdev/devices"


def test_a_running_guest_gets_a_mediated_device_and_loses_it(
    guest: NestedGuest, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    before = guest.dump("--inactive")
    done = lab_host.document("attach", guest.name, "--profile", "mtty-2")
    assert done["attachment"]["backend"] == "mdev"
    guest.wait_pci(MTTY, present=True)
    (uuid,) = real_kernel.list(BUS)
    assert uuid in guest.dump()
    assert uuid in guest.dump("--inactive")
    lab_host.succeed("detach", guest.name)
    guest.wait_pci(MTTY, present=False)
    assert real_kernel.list(BUS) == []
    assert guest.dump("--inactive") == before
    assert lab_host.document("status")["interrupted"] == []
