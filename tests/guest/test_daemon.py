"""The daemon on a simulated machine with a genuine libvirtd: what goes through it is what is there without it."""

from __future__ import annotations

import re
import subprocess
import sys
import time

from tests.guest.lab import GuestLab

LISTS = (
    ("gpu", "list"), ("gpu", "show", "0"), ("mig", "list"), ("mig", "profiles"), ("vm", "list"),
    ("virtio", "list"), ("gpu", "show", "99"), ("vm", "show", "nobody"),
)  # fmt: skip

#: memory and number of the worker's processes change by themselves
OF_PROCESSES = re.compile(r'("key": "(?:host-memory|processes)"[^{}]*?"used": )[0-9]+')


def everything(scene: GuestLab) -> list[tuple[int, str, str]]:
    found = []
    for words in LISTS:
        done = scene.run(*words, "-o", "json")
        found.append((done.status, OF_PROCESSES.sub(r"\1N", done.stdout), done.stderr))
    return found


def test_through_the_daemon_all_is_byte_for_byte_the_same(scene: GuestLab) -> None:
    scene.define("daemonvm")
    direct = everything(scene)
    command = [sys.executable, "-m", "vgpumgr", "--machine", scene.machine, "daemon"]
    daemon = subprocess.Popen(command, env=scene.environment)
    try:
        deadline = time.monotonic() + 60
        while scene.run("api", "GET", "/1.0").status != 0:
            assert time.monotonic() < deadline
            assert daemon.poll() is None
        assert everything(scene) == direct
        scene.vgpumgr("attach", "daemonvm", "--profile", "1g.10gb")
        through = everything(scene)
        assert scene.document("op", "list")["operations"][-1]["status"] == "succeeded"
        daemon.terminate()
        assert daemon.wait(60) == 0
        # the keeper outlived its daemon, and a process without one sees the same
        assert everything(scene) == through
        scene.vgpumgr("detach", "daemonvm", "--yes")
    finally:
        daemon.kill()
        daemon.wait()
        scene.run("detach", "daemonvm", "--yes")
        scene.virsh("undefine", "daemonvm")
