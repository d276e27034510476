"""Devices of the host in a running guest: real KVM, real VFIO, real libvirt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.host import EDU, NIC, NVME, LabHost
from tests.lab.kernels import RealKernel, device, driver, wait_for
from tests.lab.kills import OPENED, play
from tests.lab.nested import MTTY_ID, NIC_ID, VF_ID, NestedGuest, clean_up, read_status

BUS = "/sys/bus/mdev/devices"
PENDING, BUSY, UNSUPPORTED = 8, 6, 7
#: python -m tests.lab kills --states 40 for more
KILLS = 3


@pytest.fixture
def vm(guest: NestedGuest, real_kernel: RealKernel) -> Iterator[str]:
    """The running guest's name; whatever a failed test left is taken from it."""
    yield guest.name
    clean_up(guest, real_kernel)


def list_devices(host: LabHost, vm: str) -> list[str]:
    """Where the devices are that vgpumgr says the VM has."""
    attachments = host.document("vm", "show", vm)["vm"]["attachments"]
    return [device["address"] for one in attachments for device in one["host_devices"]]


def test_a_running_guest_gets_a_mediated_device_and_loses_it(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    before, live = guest.dump("--inactive"), guest.dump()
    done = lab_host.document("attach", vm, "--profile", "mtty-2")
    assert done["attachment"]["backend"] == "mdev"
    guest.wait_pci(MTTY_ID, present=True)
    (uuid,) = real_kernel.list(BUS)
    assert uuid in guest.dump()
    assert uuid in guest.dump("--inactive")
    refused = lab_host.vgpumgr("mdev", "delete", uuid)
    assert refused.status == BUSY, refused.stderr
    assert vm in refused.stderr
    lab_host.succeed("detach", vm)
    guest.wait_pci(MTTY_ID, present=False)
    assert real_kernel.list(BUS) == []
    assert guest.dump("--inactive") == before
    assert guest.dump() == live
    assert read_status(lab_host)["interrupted"] == []


def test_a_running_guest_has_devices_of_three_backends_at_once(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    before = guest.dump("--inactive")
    lab_host.succeed("attach", vm, "--profile", "passthrough", "--gpu", NIC)
    guest.wait_pci(NIC_ID, present=True)
    assert driver(real_kernel, NIC) == "vfio-pci"
    lab_host.succeed("attach", vm, "--profile", "vf:2", "--gpu", NVME, "--add")
    guest.wait_pci(VF_ID, present=True)
    assert real_kernel.read(device(NVME, "sriov_numvfs")) == "2"
    vf = real_kernel.link(device(NVME, "virtfn0")) or ""
    assert (driver(real_kernel, vf), driver(real_kernel, NVME)) == ("vfio-pci", "nvme")
    lab_host.succeed("attach", vm, "--profile", "mtty-2", "--add")
    guest.wait_pci(MTTY_ID, present=True)
    (uuid,) = real_kernel.list(BUS)
    assert {NIC_ID, VF_ID, MTTY_ID} <= guest.list_pci()
    assert set(list_devices(lab_host, vm)) >= {NIC, vf}
    lab_host.succeed("detach", vm, "--attachment", "vf:2")
    guest.wait_pci(VF_ID, present=False)
    assert real_kernel.read(device(NVME, "sriov_numvfs")) == "0"
    assert {NIC_ID, MTTY_ID} <= guest.list_pci()
    assert real_kernel.list(BUS) == [uuid]
    lab_host.succeed("detach", vm, "--all")
    assert not {NIC_ID, MTTY_ID} & guest.list_pci()
    assert driver(real_kernel, NIC) == "e1000e"
    assert real_kernel.list(BUS) == []
    assert guest.dump("--inactive") == before
    status = read_status(lab_host)
    assert (status["interrupted"], status["drift"]) == ([], [])


def test_a_guest_that_does_not_let_go_is_waited_for_and_keeps_its_device(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    before = guest.dump("--inactive")
    lab_host.succeed("attach", vm, "--profile", "passthrough", "--gpu", NIC)
    guest.wait_pci(NIC_ID, present=True)
    lab_host.check(f"virsh -q suspend {vm}")
    done = lab_host.vgpumgr("detach", vm)
    assert (done.status, "VG483" in done.stderr) == (PENDING, True), done.stdout + done.stderr
    assert f'vm "{vm}"' in done.stderr
    assert driver(real_kernel, NIC) == "vfio-pci", "nothing is taken from under a guest"
    assert list_devices(lab_host, vm) == [NIC], "nothing is lost"
    lab_host.check(f"virsh -q resume {vm}")
    guest.wait_pci(NIC_ID, present=False)
    lab_host.succeed("recover")
    assert driver(real_kernel, NIC) == "e1000e"
    assert list_devices(lab_host, vm) == []
    assert guest.dump("--inactive") == before


def test_an_unbind_under_a_guest_waits_for_it_and_then_completes_by_itself(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    lab_host.succeed("passthrough", "bind", NIC)
    guest.plug_by_hand(NIC)
    guest.wait_pci(NIC_ID, present=True)
    asked = lab_host.vgpumgr("passthrough", "unbind", NIC)
    assert asked.status in (2, BUSY), asked.stderr
    assert f'vm "{vm}"' in asked.stderr
    lab_host.check(f"virsh -q suspend {vm}")
    unbind = lab_host.start_vgpumgr("passthrough", "unbind", NIC, "--yes")
    status = lab_host.vgpumgr("status", port=1)
    assert "journal" in status.stdout, status.stderr
    done = lab_host.finish_vgpumgr(unbind)
    assert done.status == PENDING, done.stderr
    assert f'vm "{vm}"' in done.stderr
    lab_host.check(f"virsh -q resume {vm}")
    # the kernel asks QEMU for the device, and QEMU asks the guest
    guest.wait_pci(NIC_ID, present=False)
    lab_host.wait_until(f"readlink {device(NIC, 'driver')} | grep -q e1000e")
    lab_host.vgpumgr("recover")
    status_after = read_status(lab_host)
    assert status_after["interrupted"] == []
    assert driver(real_kernel, NIC) == "e1000e"


def test_a_device_pulled_out_under_a_guest_holds_up_the_bus_until_it_is_released(
    guest: NestedGuest, vm: str, lab_host: LabHost
) -> None:
    lab_host.succeed("attach", vm, "--profile", "passthrough", "--gpu", NIC)
    guest.wait_pci(NIC_ID, present=True)
    lab_host.check(f"virsh -q suspend {vm}")
    lab_host.monitor("device_del nic0")
    lab_host.wait_until("grep -qs '^vfio_' /proc/[0-9]*/wchan")
    refused = lab_host.vgpumgr("vf", "enable", NVME, "--count", "1")
    assert (refused.status, "VG449" in refused.stderr) == (BUSY, True), refused.stderr
    assert "journal" in lab_host.vgpumgr("status").stdout
    lab_host.check(f"virsh -q resume {vm}")
    guest.wait_pci(NIC_ID, present=False)
    lab_host.wait_until(f"[ ! -e {device(NIC, 'vendor')} ]")
    lab_host.succeed("detach", vm)
    assert list_devices(lab_host, vm) == []
    lab_host.monitor("device_add e1000e,id=nic0,bus=rp1,netdev=net0,romfile=")
    lab_host.wait_until(f"[ -e {device(NIC, 'vendor')} ]")
    lab_host.succeed("vf", "enable", NVME, "--count", "1")
    lab_host.succeed("vf", "disable", NVME)


def test_a_mediated_device_removed_under_a_guest_is_its_until_it_is_detached(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    """By mdevctl, or by hand: the kernel waits for the guest, and the device has left the bus."""
    before = guest.dump("--inactive")
    lab_host.succeed("attach", vm, "--profile", "mtty-2")
    guest.wait_pci(MTTY_ID, present=True)
    (uuid,) = real_kernel.list(BUS)
    assert "in use" in lab_host.run("rmmod mtty").output
    remover = real_kernel.begin(f"{BUS}/{uuid}/remove", 1)
    lab_host.wait_until(f"[ ! -e {BUS}/{uuid} ] && grep -qs '^vfio_' /proc/[0-9]*/wchan")
    holder = f'vm "{vm}", process '
    (row,) = lab_host.document("mdev", "list")["vgpus"]
    assert (row["state"], holder in str(row["held_by"])) == ("ghost", True), row
    (drift,) = read_status(lab_host)["drift"]
    assert f"was removed by another program while {holder}" in drift["text"]
    refused = lab_host.vgpumgr("restore")
    assert (refused.status != 0, holder in refused.stdout) == (True, True), refused
    assert not remover.finished(), "nothing is taken from under a guest"
    assert MTTY_ID in guest.list_pci()
    lab_host.succeed("detach", vm)
    guest.wait_pci(MTTY_ID, present=False)
    assert wait_for(remover)
    assert real_kernel.list(BUS) == lab_host.document("mdev", "list")["vgpus"] == []
    assert guest.dump("--inactive") == before
    status = read_status(lab_host)
    assert (status["interrupted"], status["drift"]) == ([], [])


def test_a_conventional_device_is_refused_before_anything_is_changed(
    guest: NestedGuest, vm: str, lab_host: LabHost, real_kernel: RealKernel
) -> None:
    before = guest.dump("--inactive")
    done = lab_host.vgpumgr("attach", vm, "--profile", "passthrough", "--gpu", EDU, "--live")
    assert (done.status, "no PCI Express one" in done.stderr) == (UNSUPPORTED, True), done.stderr
    assert driver(real_kernel, EDU) is None
    assert guest.dump("--inactive") == before


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("vm")
def test_libvirtd_killed_in_the_middle_leaves_a_device_whole_or_given_back(
    guest: NestedGuest, real_kernel: RealKernel
) -> None:
    """Or the VM's until it stops, where QEMU has got it and libvirt has not heard of that."""
    done = play(guest, real_kernel, KILLS, moments=[OPENED])
    assert done["wrong"] == [], done
    assert done["kills"] == KILLS
