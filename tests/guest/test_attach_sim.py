"""The command line from end to end: a simulated DGX A100 with its NVML and CUDA, a genuine libvirtd, QEMUs in firmware,
genuine keepers and workers. Only the guest's programs are missing here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.support.forked import run_vgpumgr
from vgpumgr.host.process import read_state

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.native,
    pytest.mark.xdist_group("libvirtd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
]


@dataclass
class Host:
    """A simulated host with two VMs."""

    libvirtd: PrivateLibvirtd
    environment: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_vgpumgr(*words, env=self.environment)

    def ask(self, *words: str, status: int = 0) -> Any:
        """A command's document, or with a status its error."""
        done = self.run("--machine", "dgx-a100", *words, "-o", "json")
        assert done.returncode == status, done.stderr
        if status:
            return json.loads(done.stderr)["error"]
        return json.loads(done.stdout)

    def is_as_before(self) -> bool:
        gpus = self.ask("gpu", "list")["gpus"]
        return all(not g["instances"] and not g["mig"]["current"] for g in gpus)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with private_libvirtd() as daemon:
        scene = Host(daemon, os.environ | {"VGPUMGR_SIM_ROOT": str(daemon.scratch / "sim")})
        started = scene.run("sim", "start", "dgx-a100", "--libvirt", daemon.uri)
        assert started.returncode == 0, started.stderr
        for name, machine in (("vm01", "pc"), ("vm02", "q35")):
            path = daemon.scratch / f"{name}.xml"
            path.write_text(
                f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
                f"<os><type arch='x86_64' machine='{machine}'>hvm</type></os><features><acpi/>"
                "</features><devices><controller type='virtio-serial' index='0'/></devices></domain>"
            )
            daemon.virsh("define", str(path))
        try:
            yield scene
        finally:
            for name in ("vm01", "vm02"):
                scene.run("--machine", "dgx-a100", "detach", name, "--yes")
            scene.run("sim", "stop", "dgx-a100")


def test_attach_starts_a_worker_on_the_slice_and_detach_frees_all(host: Host) -> None:
    done = host.ask("attach", "vm01", "--profile", "1g.10gb")
    attachment = done["attachment"]
    assert done["usable"] == "next-start"
    channel = host.ask("virtio", "show", "vm01")["channel"]
    assert channel["worker_ready"]
    environ = Path(f"/proc/{channel['worker_pid']}/environ").read_bytes().split(b"\0")
    assert f"CUDA_VISIBLE_DEVICES={attachment['device']}".encode() in environ
    (instance,) = host.ask("mig", "list")["instances"]
    assert instance["vm"] == "vm01"
    assert instance["compute_instances"][0]["uuid"] == attachment["device"]
    # QEMU takes both devices
    host.libvirtd.virsh("start", "vm01")
    assert len(host.ask("vm", "show", "vm01")["vm"]["devices_live"]) == 2
    host.libvirtd.virsh("destroy", "vm01")
    host.ask("detach", "vm01")
    assert host.is_as_before()
    # gone, or a zombie where nobody waits for orphans
    assert read_state(channel["keeper_pid"]) in (None, "X", "Z")
    assert host.ask("virtio", "list")["channels"] == []
    assert host.ask("detach", "vm01", status=5)["id"] == "VG211"


def test_two_vms_one_running(host: Host) -> None:
    host.libvirtd.virsh("start", "vm02")
    host.ask("attach", "vm01", "--profile", "1g.10gb")
    second = host.ask("attach", "vm02", "--profile", "3g.40gb", "--hello-timeout", "0.5")
    assert second["usable"] == "next-start"
    assert any("no PCIe-to-PCI bridge" in note for note in second["plan"]["notes"])
    assert host.ask("attach", "vm02", "--profile", "1g.10gb", status=6)["id"] == "VG210"
    rows = {vm["name"]: vm for vm in host.ask("vm", "list")["vms"]}
    assert rows["vm01"]["attachment"]["profile"] == "1g.10gb"
    assert rows["vm02"]["state"] == "running"
    text = host.run("--machine", "dgx-a100", "vm", "show", "vm02").stdout
    assert "3g.40gb" in text
    host.libvirtd.virsh("destroy", "vm02")
    host.ask("detach", "vm01")
    host.ask("detach", "vm02")
    assert host.is_as_before()


def test_dead_keeper_can_be_detached(host: Host) -> None:
    host.ask("attach", "vm01", "--profile", "1g.10gb")
    channel = host.ask("virtio", "show", "vm01")["channel"]
    os.kill(channel["keeper_pid"], signal.SIGKILL)
    shown = host.ask("vm", "show", "vm01")["vm"]
    assert "its keeper does not run" in shown["problems"][0]
    host.ask("detach", "vm01")
    assert host.is_as_before()


def test_worker_that_cannot_start_is_rolled_back(host: Host) -> None:
    """A CUDA library that is none: the plan gets as far as the worker, then everything is undone."""
    before = host.libvirtd.virsh("dumpxml", "--inactive", "vm01").stdout
    broken = host.libvirtd.scratch / "broken"
    broken.mkdir()
    (broken / "libcuda.so.1").write_text("not a library")
    env_file = next((host.libvirtd.scratch / "sim" / "dgx-a100").glob("env"))
    text = env_file.read_text()
    library_path = f"LD_LIBRARY_PATH={broken}:{ROOT}/vgpumgr/_lib/sim\n"
    lines = [line for line in text.splitlines(True) if "LD_LIBRARY_PATH" not in line]
    env_file.write_text("".join([*lines, library_path]))
    try:
        error = host.ask("attach", "vm01", "--profile", "1g.10gb", status=9)
    finally:
        env_file.write_text(text)
    assert error["id"] == "VG230"
    assert "libcuda" in error["cause"]
    assert "everything done before it was undone" in error["why"]
    assert host.is_as_before()
    assert host.libvirtd.virsh("dumpxml", "--inactive", "vm01").stdout == before


def test_libvirt_down(host: Host) -> None:
    host.libvirtd.go_down()
    try:
        error = host.ask("attach", "vm01", "--profile", "1g.10gb", status=1)
        assert error["id"] == "VG202"
        assert "Failed to connect" in error["cause"]
        assert host.is_as_before()
    finally:
        host.libvirtd.come_up()
