"""A guest without a network card computes on a GPU of another host of the pool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.conftest import remove, wait_for
from tests.guest.lab import GuestLab, lab
from tests.support.link_hosts import LinkHosts, two_hosts
from tests.support.run_host import Host

SHARE = "share:2GiB,25%"


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[GuestLab, LinkHosts]]:
    """Host ``a`` has the VM."""
    if os.geteuid() != 0:
        pytest.skip("needs root: libvirtd in namespaces of its own")
    with lab("dgx-a100") as scene:
        scene.directory.chmod(0o711)
        known = Host(Path(scene.environment["VGPUMGR_SIM_ROOT"]))
        known.env |= scene.environment
        with two_hosts(known=known) as found:
            yield scene, found


def test_a_guest_computes_on_another_hosts_gpu(hosts: tuple[GuestLab, LinkHosts]) -> None:
    scene, pool = hosts
    for name, binding in (("late", "late"), ("train", "reserve")):
        words = ("--profile", SHARE, "--where", "b", "--binding", binding)
        pool.a.call("claim", "create", name, *words)
    scene.define("vm01")
    try:
        scene.vgpumgr("attach", "vm01", "--claim", "late")
        scene.start("vm01")
        assert pool.a.read("claim", "show", "late")["claim"]["state"] == "idle"
        # its first call waits for the lease, and its end gives it back
        assert "PASS vectoradd" in scene.shell("vm01").check("vectoradd")
        wait_for(lambda: read_state(pool, "late") == "idle", "the lease ends")
        scene.destroy("vm01")
        scene.vgpumgr("detach", "vm01")
        scene.vgpumgr("attach", "vm01", "--claim", "train")
        scene.start("vm01")
        assert "PASS matmul" in scene.shell("vm01").check("matmul")
        used = pool.b.read("claim", "show", "train")["claim"]["used_by"]
        assert (used["host"], used["kind"], used["name"]) == ("a", "vm", "vm01")
        (there,) = pool.b.read("virtio", "list")["channels"]
        assert there["run"]["command"] == "vm01 of host a"
    finally:
        remove(scene, "vm01")
    wait_for(lambda: pool.b.read("virtio", "list")["channels"] == [], "nothing is served")


def read_state(pool: LinkHosts, claim: str) -> str:
    """Of a claim."""
    return str(pool.a.read("claim", "show", claim)["claim"]["state"])
