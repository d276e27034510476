"""libvirt as Debian has it: QEMU runs as a user of its own, who must reach the channel's sockets and nothing more."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.guest.conftest import wait_for
from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from vgpumgr.virtio.keeper import Keeper

USER, GROUP = "libvirt-qemu", "kvm"
MACHINE = "a30-pair"
DOMAIN = """<domain type='qemu'><name>vm01</name><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>
<devices><controller type='virtio-serial' index='0'/></devices></domain>"""
pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
]


@dataclass
class Host:
    """A simulated host whose QEMUs are not root's."""

    libvirtd: PrivateLibvirtd
    directory: Path

    def run(self, *words: str) -> Any:
        """A vgpumgr command that must succeed, of a user with a strict umask."""
        done = subprocess.run(
            [sys.executable, "-m", "vgpumgr", *words, "-o", "json"],
            env=os.environ | {"VGPUMGR_SIM_ROOT": str(self.directory)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, umask=0o077,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ask(self, *words: str) -> Any:
        """The same on the machine."""
        return self.run("--machine", MACHINE, *words)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    try:
        pwd.getpwnam(USER), grp.getgrnam(GROUP)
    except KeyError:
        pytest.skip(f"no user {USER} or group {GROUP}: libvirt-daemon-system is not Debian's")
    with private_libvirtd(USER, GROUP) as daemon:
        it = Host(daemon, daemon.scratch / "sim")
        it.directory.mkdir()
        it.run("sim", "start", MACHINE, "--libvirt", daemon.uri)
        (daemon.scratch / "vm01.xml").write_text(DOMAIN)
        daemon.virsh("define", str(daemon.scratch / "vm01.xml"))
        try:
            yield it
        finally:
            daemon.virsh("destroy", "vm01", check=False)
            subprocess.run(
                [sys.executable, "-m", "vgpumgr", "sim", "stop", MACHINE],
                env=os.environ | {"VGPUMGR_SIM_ROOT": str(it.directory)}, check=True,
            )  # fmt: skip


@pytest.mark.parametrize("running", [False, True], ids=["shut off", "running"])
def test_qemu_of_another_user_has_ring_and_serial(host: Host, running: bool) -> None:
    uid = pwd.getpwnam(USER).pw_uid
    if running:
        host.libvirtd.virsh("start", "vm01")
    attached = host.ask("attach", "vm01", "--profile", "1g.6gb", "--hello-timeout", "1")
    channel = host.directory / MACHINE / "host/run/channels" / attached["attachment"]["id"]
    if running:  # a guest without an agent cannot confirm: it is for the next start
        host.libvirtd.virsh("destroy", "vm01")
    host.libvirtd.virsh("start", "vm01")
    keeper = Keeper(channel)
    wait_for(lambda: keeper.status().qemu.connected, "QEMU has the ring's memory")
    wait_for(lambda: keeper.status().guest.serial_connected, "the worker has QEMU's port")
    assert keeper.status().qemu.uid == uid
    # what is not QEMU's is closed to it
    assert keeper.control_socket.stat().st_uid == os.geteuid()
    assert keeper.control_socket.stat().st_mode & 0o077 == 0
    assert keeper.ivshmem_socket.stat().st_mode & 0o077 == 0
    assert channel.stat().st_mode & 0o777 == 0o711
    host.libvirtd.virsh("destroy", "vm01")
    host.ask("detach", "vm01", "--yes")
    assert not channel.exists()
