"""What the tests in the lab host share: one lab host, booted once for all of them.

The lab host is emulated. Where the machine below it stands still for minutes, its kernel locks up and it answers
nobody (LabHostDiedError): then the test runs once more, in a lab host that is booted anew. Any other failure stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.host import (
    KEPT,
    NVME,
    LabHost,
    LabHostDiedError,
    attach_kept,
    boot,
    unprivileged_reason,
)
from tests.lab.kernels import RealKernel
from tests.lab.nested import NestedGuest, nested_guest

#: for a test that runs twice, and a boot between
TIMEOUT_S = 2400


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of one lab host stays in one test process, so that it is booted once."""
    for item in items:
        if "tests/lab/" in item.nodeid and "[simulated" not in item.nodeid:
            item.add_marker(pytest.mark.lab)
            group = "lab-systemd" if "test_systemd.py" in item.nodeid else "lab"
            item.add_marker(pytest.mark.xdist_group(group))
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=[LabHostDiedError.__name__]))


class Lab:
    """The lab host, its drivers and its guest, each made when a test first asks for it and anew after the host died."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._host: LabHost | None = None
        self._kernel: RealKernel | None = None
        self._guest: NestedGuest | None = None
        self._systemd: LabHost | None = None

    def close(self) -> None:
        """Power it off."""
        self._host = self._kernel = self._guest = self._systemd = None
        self._stack.close()

    def host(self) -> LabHost:
        """Skips the test where there can be none."""
        if self._host is not None and self._host.died:
            self.close()
        if self._host is None:
            if kept := os.environ.get(KEPT):
                self._host = attach_kept(Path(kept))
                self._stack.callback(self._host.cut_power)
            elif reason := unprivileged_reason():
                pytest.skip(reason)
            else:
                self._host = self._stack.enter_context(boot())
        return self._host

    def systemd_host(self) -> LabHost:
        """Another one in its place, whose first process is systemd."""
        if self._systemd is None or self._systemd.died:
            self.close()
            if kept := os.environ.get(KEPT):
                self._systemd = attach_kept(Path(kept))
                self._stack.callback(self._systemd.cut_power)
            elif reason := unprivileged_reason():
                pytest.skip(reason)
            else:
                self._systemd = self._stack.enter_context(boot(systemd=True))
        return self._systemd

    def kernel(self) -> RealKernel:
        """Its ``/sys``, with all drivers loaded."""
        host = self.host()
        if self._kernel is None:
            host.check(
                "modprobe -a vfio-pci vfio_iommu_type1 nvme e1000e bochs xhci_pci mtty mdpy mbochs"
            )
            host.wait_until(f"[ -e /sys/bus/pci/devices/{NVME}/driver ]")
            self._kernel = RealKernel(host)
        return self._kernel

    def guest(self) -> NestedGuest:
        """A guest that runs."""
        host = self.kernel().host
        if self._guest is None:
            self._guest = self._stack.enter_context(nested_guest(host))
        return self._guest


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """What the tests before have made of it; a host that died is found out where one asks for it."""
    it = Lab()
    yield it
    it.close()


@pytest.fixture
def lab_host(lab: Lab) -> LabHost:
    """The lab host. Every test leaves it as it found it."""
    return lab.host()


@pytest.fixture
def real_kernel(lab: Lab) -> RealKernel:
    """The lab host's ``/sys`` with all drivers loaded."""
    return lab.kernel()


@pytest.fixture
def guest(lab: Lab) -> NestedGuest:
    """A guest that runs in the lab host. Every test leaves it running and without devices of the host."""
    return lab.guest()
