"""What guest tests share: one scene for each test process, VMs with a slice, and patience."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.guest.lab import GuestLab, lab

PROFILE = "1g.10gb"


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here boots guests; tests of one file share theirs, so they stay in one process."""
    for item in items:
        if "tests/guest/" in item.nodeid and item.path.name != "test_image.py":
            item.add_marker(pytest.mark.guest)
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def scene() -> Iterator[GuestLab]:
    """A simulated DGX A100 with a libvirtd."""
    if os.geteuid() != 0:
        pytest.skip("needs root: libvirtd in namespaces of its own")
    with lab("dgx-a100") as it:
        yield it


@contextmanager
def attached_vm(
    scene: GuestLab, name: str, *options: str, machine: str = "q35", agent: bool = True
) -> Iterator[str]:
    """A domain that was given a slice while shut off; running only if the test starts it."""
    scene.define(name, machine=machine, agent=agent)
    try:
        scene.vgpumgr("attach", name, "--profile", PROFILE, *options)
        yield name
    finally:
        remove(scene, name)


def remove(scene: GuestLab, name: str) -> None:
    """Whatever a test left of a VM, gone."""
    scene.libvirtd.virsh("destroy", name, check=False)
    scene.forget_shells(name)
    scene.run("detach", name, "--yes")
    scene.libvirtd.virsh("undefine", name, check=False)


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 300) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.1)
