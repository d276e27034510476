"""What vgpumgr relies on when it binds and unbinds PCI devices, asserted of Debian's kernel and of the simulator."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tests.lab.host import DISPLAY, EDU, NIC, NVME, USB
from tests.lab.kernels import (
    FUNCTIONS,
    PCI,
    PROBE,
    Kernel,
    RealKernel,
    device,
    driver,
    put_back,
    simulate_lab_bus,
    wait_for,
)

VFIO = f"{PCI}/drivers/vfio-pci"


@pytest.fixture(params=["kernel", "simulated"])
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    if request.param == "simulated":
        yield simulate_lab_bus()
        return
    real: RealKernel = request.getfixturevalue("real_kernel")
    yield real
    put_back(real)


def take(kernel: Kernel, address: str) -> None:
    """Give a function to vfio-pci."""
    assert kernel.write(device(address, "driver_override"), "vfio-pci") == 0
    if (now := driver(kernel, address)) is not None:
        assert kernel.write(f"{PCI}/drivers/{now}/unbind", address) == 0
    assert kernel.write(PROBE, address) == 0
    assert driver(kernel, address) == "vfio-pci"


def give_back(kernel: Kernel, address: str) -> None:
    """Undo ``take``."""
    assert kernel.write(device(address, "driver_override"), "") == 0
    assert kernel.write(f"{VFIO}/unbind", address) == 0
    assert kernel.write(PROBE, address) == 0


def test_every_function_has_the_driver_that_claims_it(kernel: Kernel) -> None:
    assert {address: driver(kernel, address) for address in FUNCTIONS} == FUNCTIONS


def test_driver_override_decides_who_may_bind(kernel: Kernel) -> None:
    assert kernel.read(device(EDU, "driver_override")) == "(null)"
    assert kernel.write(f"{VFIO}/bind", EDU) == errno.ENODEV
    assert kernel.write(device(EDU, "driver_override"), "vfio-pci") == 0
    assert kernel.read(device(EDU, "driver_override")) == "vfio-pci"
    assert driver(kernel, EDU) is None, "an override binds nobody by itself"
    assert kernel.write(f"{VFIO}/bind", EDU) == 0
    assert driver(kernel, EDU) == "vfio-pci"
    assert EDU in kernel.list(VFIO)
    assert kernel.write(device(EDU, "driver_override"), "") == 0
    assert kernel.read(device(EDU, "driver_override")) == "(null)"
    assert driver(kernel, EDU) == "vfio-pci", "clearing the override unbinds nobody"
    assert kernel.write(f"{VFIO}/unbind", EDU) == 0
    assert driver(kernel, EDU) is None


def test_an_override_keeps_the_own_driver_away(kernel: Kernel) -> None:
    assert kernel.write(device(NIC, "driver_override"), "vfio-pci") == 0
    assert driver(kernel, NIC) == "e1000e"
    assert kernel.write(f"{PCI}/drivers/e1000e/unbind", NIC) == 0
    assert kernel.write(f"{PCI}/drivers/e1000e/bind", NIC) == errno.ENODEV
    assert kernel.write(PROBE, NIC) == 0
    assert driver(kernel, NIC) == "vfio-pci"
    give_back(kernel, NIC)
    assert driver(kernel, NIC) == "e1000e"


def test_what_is_bound_cannot_be_bound_again(kernel: Kernel) -> None:
    take(kernel, EDU)
    assert kernel.write(f"{VFIO}/bind", EDU) == errno.EBUSY
    assert kernel.write(PROBE, EDU) == 0, "a probe of what is bound changes nothing"
    assert kernel.write(f"{PCI}/drivers/e1000e/bind", EDU) == errno.ENODEV
    assert kernel.write(f"{PCI}/drivers/e1000e/unbind", EDU) == errno.ENODEV
    give_back(kernel, EDU)


@pytest.mark.parametrize("address", ["0000:7f:00.0", "nonsense", "0000:03:00"])
def test_unknown_addresses(kernel: Kernel, address: str) -> None:
    assert kernel.write(f"{VFIO}/bind", address) == errno.ENODEV
    assert kernel.write(f"{VFIO}/unbind", address) == errno.ENODEV
    assert kernel.write(PROBE, address) == errno.ENODEV


def test_a_group_has_all_its_functions(kernel: Kernel) -> None:
    assert kernel.link(device(DISPLAY, "iommu_group")) == kernel.link(device(USB, "iommu_group"))
    group = kernel.link(device(DISPLAY, "iommu_group"))
    assert kernel.list(f"/sys/kernel/iommu_groups/{group}/devices") == [DISPLAY, USB]


def test_vf_count_goes_through_zero_only(kernel: Kernel) -> None:
    count = device(NVME, "sriov_numvfs")
    assert kernel.read(device(NVME, "sriov_totalvfs")) == "4"
    assert kernel.write(count, 5) == errno.ERANGE
    assert kernel.write(count, 70000) == errno.EINVAL
    assert kernel.write(count, "two") == errno.EINVAL
    assert kernel.write(count, -1) == errno.EINVAL
    assert kernel.write(device(NVME, "sriov_drivers_autoprobe"), 0) == 0
    assert kernel.write(count, 2) == 0
    assert kernel.write(count, 4) == errno.EBUSY
    assert kernel.write(count, 2) == 0
    assert kernel.read(count) == "2"
    assert kernel.write(count, 0) == 0
    assert kernel.link(device(NVME, "virtfn0")) is None


def test_vfs_without_autoprobe_have_no_driver_and_groups_of_their_own(kernel: Kernel) -> None:
    assert kernel.write(device(NVME, "sriov_drivers_autoprobe"), 0) == 0
    assert kernel.write(device(NVME, "sriov_numvfs"), 3) == 0
    vfs = [kernel.link(device(NVME, f"virtfn{n}")) or "" for n in range(3)]
    assert vfs == ["0000:01:00.1", "0000:01:00.2", "0000:01:00.3"]
    assert [driver(kernel, vf) for vf in vfs] == [None] * 3
    assert [kernel.link(device(vf, "physfn")) for vf in vfs] == [NVME] * 3
    groups = {kernel.link(device(address, "iommu_group")) for address in [NVME, *vfs]}
    assert len(groups) == 4
    take(kernel, vfs[0])
    assert driver(kernel, NVME) == "nvme"
    assert kernel.write(device(NVME, "sriov_numvfs"), 0) == 0


def test_vfs_with_autoprobe_go_to_the_hosts_driver(kernel: Kernel) -> None:
    assert kernel.write(device(NVME, "sriov_drivers_autoprobe"), 1) == 0
    assert kernel.write(device(NVME, "sriov_numvfs"), 1) == 0
    # the nvme driver probes a VF that is not online yet and may give it up again; that it is asked at all is the point
    assert driver(kernel, "0000:01:00.1") in ("nvme", None)
    assert kernel.write(device(NVME, "sriov_numvfs"), 0) == 0


def test_a_physical_function_under_vfio_or_without_driver_makes_no_vfs(kernel: Kernel) -> None:
    take(kernel, NVME)
    assert kernel.write(device(NVME, "sriov_numvfs"), 1) == errno.ENOENT
    assert kernel.write(device(NVME, "driver_override"), "") == 0
    assert kernel.write(f"{VFIO}/unbind", NVME) == 0
    assert kernel.write(device(NVME, "sriov_numvfs"), 1) == errno.ENOENT
    assert kernel.write(PROBE, NVME) == 0
    assert driver(kernel, NVME) == "nvme"


def test_unbind_of_a_held_device_sleeps_until_it_is_released(kernel: Kernel) -> None:
    take(kernel, EDU)
    kernel.hold(EDU)
    writer = kernel.begin(f"{VFIO}/unbind", EDU)
    assert not writer.finished()
    assert driver(kernel, EDU) is None, "the link is gone while the unbind has not ended"
    assert kernel.read(device(EDU, "vendor")) == "0x1234", "what takes no lock answers"
    take(kernel, NIC)
    give_back(kernel, NIC)
    kernel.release(EDU)
    assert wait_for(writer)
    assert kernel.write(device(EDU, "driver_override"), "") == 0


def test_removal_of_a_held_device_stalls_vf_counts_elsewhere(kernel: Kernel) -> None:
    take(kernel, EDU)
    kernel.hold(EDU)
    remover = kernel.begin(device(EDU, "remove"), 1)
    assert not remover.finished()
    count = kernel.begin(device(NVME, "sriov_numvfs"), 1)
    assert not count.finished(), "the whole PCI core waits for the holder"
    assert kernel.read(device(NVME, "vendor")) == "0x1b36"
    kernel.release(EDU)
    assert wait_for(remover)
    assert wait_for(count)
    assert kernel.read(device(NVME, "sriov_numvfs")) == "1", "what was late has its effect"
    assert kernel.write(device(NVME, "sriov_numvfs"), 0) == 0
    assert kernel.list(device(EDU, "")) == []
    assert kernel.write(f"{PCI}/rescan", 1) == 0
    assert kernel.read(device(EDU, "driver_override")) == "(null)"
    assert driver(kernel, EDU) is None
