"""A guest without a network card on host ``a`` has a GPU of host ``b``: libvirtd, QEMU, the kernel, both daemons and
the link between them are real.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.guest.conftest import remove
from tests.guest.lab import GuestLab
from tests.support.link_hosts import LinkHosts, find_listener, two_hosts
from tests.support.run_host import Host, wait_for

CLAIM, LATE, VM = "train", "late", "link-vm"
SHARE = "share:2GiB,25%"
#: a program that has a result and goes on
WAITS = "matmul > /tmp/first; cat /tmp/first; read line < /tmp/go; train"


@dataclass
class Scene:
    lab: GuestLab
    hosts: LinkHosts


@pytest.fixture(scope="module")
def both(scene: GuestLab) -> Iterator[Scene]:
    """The lab's machine is host ``a``."""
    here = Host(scene.directory / "sim")
    # other users go through it, as through /run/vgpumgr
    for path in (here.root, *list(here.root.parents)[:2]):
        path.chmod(path.stat().st_mode | 0o111)
    here.env = dict(scene.environment)
    with two_hosts(known=here) as hosts:
        for name, more in ((CLAIM, ()), (LATE, ("--binding", "late"))):
            hosts.a.call("claim", "create", name, "--profile", SHARE, "--where", "b", *more)
        scene.define(VM)
        try:
            yield Scene(scene, hosts)
        finally:
            remove(scene, VM)
            for name in (CLAIM, LATE):
                hosts.a.call("claim", "delete", name, code=None)


def list_served(both: Scene) -> list[str]:
    return [one["vm"] for one in both.hosts.b.read("virtio", "list")["channels"]]


def read_state(both: Scene) -> str:
    """Of the claim that binds late."""
    return str(both.hosts.a.read("claim", "show", LATE)["claim"]["state"])


def test_a_guest_binds_late(both: Scene) -> None:
    """The lease is there from the first CUDA call to the program's end."""
    both.lab.vgpumgr("attach", VM, "--claim", LATE)
    both.lab.start(VM)
    assert read_state(both) == "idle"
    shell = both.lab.shell(VM)
    for _ in range(2):
        assert "PASS train" in shell.check("train")
        wait_for(lambda: read_state(both) == "idle", "it is given back")
    both.lab.destroy(VM)
    both.lab.vgpumgr("detach", VM, "--yes")
    assert list_served(both) == []


@pytest.fixture(scope="module", params=["ring", "serial"])
def attached(both: Scene, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The VM has the claim's GPU, and runs."""
    both.lab.vgpumgr("attach", VM, "--claim", CLAIM, "--transport", request.param)
    both.lab.start(VM)
    yield both
    both.lab.destroy(VM)
    both.lab.vgpumgr("detach", VM, "--yes")
    wait_for(lambda: list_served(both) == [], "nothing is served any more")


def test_a_guest_trains_on_a_gpu_of_another_host(attached: Scene) -> None:
    assert "<interface" not in attached.lab.virsh("dumpxml", VM)
    shell = attached.lab.shell(VM)
    assert [name for name in shell.check("ls /sys/class/net").split() if name != "lo"] == []
    assert "PASS train" in shell.check("train")
    assert list_served(attached) == [f"{CLAIM}.a"]
    used = attached.hosts.b.read("claim", "show", CLAIM)["claim"]["used_by"]
    assert (used["host"], used["kind"], used["name"]) == ("a", "vm", VM)
    # its own quota, which host b keeps
    assert "share:2GiB,25%" in attached.hosts.b.call("virtio", "list").stdout
    for program in ("reduction", "graphs", "pools", "errors", "threads", "textures"):
        output = shell.check(program)
        assert f"PASS {program}" in output
        assert "FAIL" not in output
    # what is shared between processes does not go over a link, and says so
    assert shell.run("processes").status != 0


def test_training_goes_on_where_daemons_and_the_listener_die(attached: Scene) -> None:
    """In the same boot."""
    shell = attached.lab.shell(VM)
    shell.check(f"mkfifo /tmp/go; ({WAITS}) > /tmp/out 2>&1 & sleep 0")
    wait_for(lambda: "PASS matmul" in shell.run("cat /tmp/out").output, "it has begun")
    hosts = attached.hosts
    for name in ("a", "b"):
        hosts.end_daemon(name, signal.SIGKILL)
    listener = find_listener(hosts.b)
    assert listener is not None
    os.kill(listener, signal.SIGKILL)
    for name in ("b", "a"):
        hosts.start_daemon(name)
    wait_for(lambda: find_listener(hosts.b) not in (None, listener), "another listener runs")
    shell.check("echo > /tmp/go")
    wait_for(lambda: "PASS train" in shell.check("cat /tmp/out"), "it has ended")
    shell.check("rm /tmp/go")
