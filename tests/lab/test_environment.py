"""The lab host itself: a real kernel, the devices that the tests rely on, the tools that vgpumgr meets there."""

from __future__ import annotations

import pytest

from tests.lab.host import DISPLAY, EDU, NIC, NVME, USB, LabHost


def test_debian_kernel_with_an_iommu(lab_host: LabHost) -> None:
    assert "Debian" in lab_host.check("uname -v")
    assert int(lab_host.check("ls /sys/kernel/iommu_groups | wc -l")) >= 8
    assert lab_host.check("findmnt -no FSTYPE /") == "overlay"


@pytest.mark.parametrize(
    ("address", "identity"),
    [(NVME, "1b36:0010"), (NIC, "8086:10d3"), (EDU, "1234:11e8"), (DISPLAY, "1234:1111"), (USB, "1b36:000d")],
)  # fmt: skip
def test_devices_are_where_the_tests_look(lab_host: LabHost, address: str, identity: str) -> None:
    device = f"/sys/bus/pci/devices/{address}"
    found = lab_host.check(f"cat {device}/vendor {device}/device").replace("0x", "").split()
    assert ":".join(found) == identity
    assert lab_host.check(f"readlink {device}/iommu_group")


def test_display_and_usb_share_a_group_and_edu_has_its_own(lab_host: LabHost) -> None:
    def members(address: str) -> set[str]:
        path = f"/sys/bus/pci/devices/{address}/iommu_group/devices"
        return set(lab_host.check(f"ls {path}").split())

    assert members(DISPLAY) == members(USB) == {DISPLAY, USB}
    assert members(EDU) == {EDU}
    assert members(NVME) == {NVME}


def test_vgpumgr_runs_in_it(lab_host: LabHost) -> None:
    done = lab_host.vgpumgr("version")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("vgpumgr ")
    wrong = lab_host.vgpumgr("nonsense")
    assert wrong.status == 2
    assert "nonsense" in wrong.stderr


def test_state_of_this_machine_is_not_seen(lab_host: LabHost) -> None:
    assert lab_host.check("ls -A /var/lib/vgpumgr /etc/libvirt/qemu 2>/dev/null || true").split() in (
        ["/var/lib/vgpumgr:"], ["/etc/libvirt/qemu:", "/var/lib/vgpumgr:"], []
    )  # fmt: skip


def test_mdevctl_sees_the_sample_drivers(lab_host: LabHost) -> None:
    lab_host.check("modprobe -a mtty mdpy mbochs")
    parents = lab_host.check("ls /sys/class/mdev_bus").split()
    assert parents == ["mbochs", "mdpy", "mtty"]
    assert {"mtty-2", "mdpy-vga", "mbochs-small"} <= set(lab_host.check("mdevctl types").split())
