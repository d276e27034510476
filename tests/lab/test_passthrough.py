"""Whole groups and virtual functions, taken from the host and given back: a real kernel and its VFIO."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.host import DISPLAY, EDU, NVME, USB, LabHost
from tests.lab.kernels import PCI, RealKernel, device, driver, put_back, wait_for

BUSY = 6


@pytest.fixture
def host(real_kernel: RealKernel) -> Iterator[LabHost]:
    yield real_kernel.host
    put_back(real_kernel)
    real_kernel.host.check("rm -rf /var/lib/vgpumgr/* /run/vgpumgr")


def test_a_whole_group_goes_and_comes_back(host: LabHost, real_kernel: RealKernel) -> None:
    host.succeed("passthrough", "bind", DISPLAY, "--yes")
    assert [driver(real_kernel, a) for a in (DISPLAY, USB)] == ["vfio-pci"] * 2
    real_kernel.hold(DISPLAY)
    real_kernel.release(DISPLAY)
    rows = {row["address"]: row for row in host.document("passthrough", "list")["functions"]}
    assert rows[DISPLAY]["verdict"] == "viable"
    host.succeed("passthrough", "unbind", DISPLAY, "--yes")
    assert [driver(real_kernel, a) for a in (DISPLAY, USB)] == ["bochs-drm", "xhci_hcd"]


def test_virtual_functions_come_go_to_vfio_and_leave(
    host: LabHost, real_kernel: RealKernel
) -> None:
    host.succeed("vf", "enable", NVME, "--count", "2")
    vfs = [real_kernel.link(device(NVME, f"virtfn{n}")) or "" for n in range(2)]
    assert [driver(real_kernel, vf) for vf in vfs] == [None, None], "the host's driver took one"
    host.succeed("passthrough", "bind", vfs[1])
    assert driver(real_kernel, vfs[1]) == "vfio-pci"
    assert driver(real_kernel, NVME) == "nvme"
    real_kernel.hold(vfs[1])
    refused = host.vgpumgr("vf", "disable", NVME)
    assert refused.status == BUSY
    assert "vfio-hold" in refused.stderr
    real_kernel.release(vfs[1])
    host.succeed("passthrough", "unbind", vfs[1], "--yes")
    host.succeed("vf", "disable", NVME)
    assert real_kernel.read(device(NVME, "sriov_numvfs")) == "0"


def test_what_sticks_is_named_and_completes_by_itself(
    host: LabHost, real_kernel: RealKernel
) -> None:
    host.succeed("passthrough", "bind", EDU)
    real_kernel.hold(EDU)
    asked = host.vgpumgr("passthrough", "unbind", EDU)
    assert asked.status in (2, BUSY)
    assert "vfio-hold" in asked.stderr
    assert driver(real_kernel, EDU) == "vfio-pci", "nothing has been tried"
    unbind = host.start_vgpumgr("passthrough", "unbind", EDU, "--yes")
    status = host.vgpumgr("status", port=1, timeout_s=120)
    assert "journal" in status.stdout
    done = host.finish_vgpumgr(unbind)
    assert done.status != 0
    real_kernel.release(EDU)
    host.wait_until(f"[ ! -e {PCI}/devices/{EDU}/driver ]")
    # the sleeping write has come back: the function can be bound again
    assert real_kernel.write(device(EDU, "driver_override"), "vfio-pci") == 0
    assert real_kernel.write(f"{PCI}/drivers_probe", EDU) == 0
    assert driver(real_kernel, EDU) == "vfio-pci"


def test_a_removal_that_waits_stops_what_needs_the_pci_core(
    host: LabHost, real_kernel: RealKernel
) -> None:
    host.succeed("passthrough", "bind", EDU)
    real_kernel.hold(EDU)
    remover = real_kernel.begin(device(EDU, "remove"), 1)
    assert not remover.finished()
    refused = host.vgpumgr("vf", "enable", NVME, "--count", "1")
    assert (refused.status, "VG449" in refused.stderr) == (BUSY, True), refused.stderr
    real_kernel.release(EDU)
    assert wait_for(remover)
    assert real_kernel.write(f"{PCI}/rescan", 1) == 0
    host.succeed("vf", "enable", NVME, "--count", "1")
    host.succeed("vf", "disable", NVME)
