"""What the tests in the lab host share: one lab host, booted once for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.host import KEPT, NVME, LabHost, attach_kept, boot, unprivileged_reason
from tests.lab.kernels import RealKernel
from tests.lab.nested import NestedGuest, nested_guest


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it stays in one test process, so that there is one lab host at a time."""
    for item in items:
        if "tests/lab/" in item.nodeid and "[simulated" not in item.nodeid:
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.xdist_group("lab"))


@pytest.fixture(scope="session")
def lab_host() -> Iterator[LabHost]:
    """The lab host. Every test leaves it as it found it."""
    if kept := os.environ.get(KEPT):
        host = attach_kept(Path(kept))
        yield host
        host.cut_power()
        return
    if reason := unprivileged_reason():
        pytest.skip(reason)
    with boot() as host:
        yield host


@pytest.fixture(scope="session")
def real_kernel(lab_host: LabHost) -> RealKernel:
    """The lab host's ``/sys`` with all drivers loaded."""
    lab_host.check(
        "modprobe -a vfio-pci vfio_iommu_type1 nvme e1000e bochs xhci_pci mtty mdpy mbochs"
    )
    lab_host.wait_until(f"[ -e /sys/bus/pci/devices/{NVME}/driver ]")
    return RealKernel(lab_host)


@pytest.fixture(scope="session")
def guest(real_kernel: RealKernel) -> Iterator[NestedGuest]:
    """A guest that runs in the lab host. Every test leaves it running and without devices of the host."""
    with nested_guest(real_kernel.host) as it:
        yield it
