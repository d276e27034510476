"""The Ansible role on a Debian that systemd runs, from outside: our packages, their units, and slices for a VM.

The GPUs are a simulated machine's, which the daemon and the commands are told of by their environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.conftest import find_packages
from tests.systemd.container import PATIENCE_S, ROOT, Container, change_unit

MACHINE = {"VGPUMGR_MACHINE": "dgx-a100", "VGPUMGR_SIM_ROOT": "/run/machines"}
PROFILES = ("1g.10gb", "passthrough")
_XML = """<domain type="qemu"><name>bare</name><memory unit="MiB">64</memory>
<os><type arch="x86_64" machine="q35">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type="pci" model="pcie-root"/>
<controller type="pci" model="pcie-root-port"/><controller type="pci" model="pcie-root-port"/>
<controller type="pci" model="pcie-root-port"/></devices></domain>"""


@pytest.fixture(scope="module")
def host(bare: Container) -> Container:
    """A host with GPUs and libvirt and a VM, and nothing of ours installed."""
    variables = " ".join(f"{name}={value}" for name, value in MACHINE.items())
    (bare.out / "bare.xml").write_text(_XML)
    for unit in ("vgpumgr", "vgpumgr-restore", "vgpumgr-metrics"):
        change_unit(bare, f"{unit}.service", f"[Service]\nEnvironment={variables}\n")
    # where commands for that machine look for the daemon
    address = f"{MACHINE['VGPUMGR_SIM_ROOT']}/{MACHINE['VGPUMGR_MACHINE']}/host/run/vgpumgr.sock"
    change_unit(bare, "vgpumgr.socket", f"[Socket]\nListenStream=\nListenStream={address}\n")
    # each minute is too seldom for a test
    often = "OnCalendar=\nOnCalendar=*:*:0/4\nRandomizedDelaySec=0\n"
    change_unit(bare, "vgpumgr-metrics.timer", f"[Timer]\n{often}")
    start = "-m vgpumgr sim start dgx-a100 --libvirt qemu:///system"
    bare.check(
        f"mkdir {MACHINE['VGPUMGR_SIM_ROOT']} && cd {ROOT} && {variables} {sys.executable} {start}"
    )
    bare.check("systemctl start libvirtd.service && virsh -q define /out/bare.xml")
    return bare


def play(host: Container, dist: Path, *options: str) -> str:
    """The role, from here, on the container; what Ansible said."""
    given = {
        "vgpumgr_packages": [str(path) for path in find_packages(dist)],
        "vgpumgr_admins": ["daemon"],
        # this machine's kernel has no IOMMU; what the role says of one: tests/unit/test_ansible_role.py
        "vgpumgr_require_iommu": False,
        "vgpumgr_kernel_checks": ["iommu"],
        "vgpumgr_metrics": True,
        "vgpumgr_environment": MACHINE,
        "vgpumgr_attachments": [{"vm": "bare", "profile": profile} for profile in PROFILES],
        "container_directory": str(host.directory),
        "container_init": host.init,
        "ansible_connection": "container",
        "ansible_become": False,
        "ansible_remote_tmp": "/run/ansible",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    program = str(Path(sys.executable).parent / "ansible-playbook")
    words = [program, "-i", "container,", "--diff", *options, "-e", json.dumps(given)]
    settings = {
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [*words, str(ROOT / "ansible/site.yml")], env=os.environ | settings,
        capture_output=True, text=True, timeout=PATIENCE_S * 2, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def count_changes(said: str) -> int:
    (line,) = [one for one in said.splitlines() if one.startswith("container ") and "ok=" in one]
    return int(line.partition("changed=")[2].split()[0])


def test_check_mode_says_what_the_role_would_do(host: Container, dist: Path) -> None:
    said = play(host, dist, "--check")
    assert count_changes(said) > 0
    for file in find_packages(dist):
        assert file.name in said
    assert host.run("ls -d /usr/bin/vgpumgr /etc/vgpumgr /var/lib/vgpumgr").status != 0
    assert host.run("getent group vgpumgr").status != 0


def test_the_role_installs_and_attaches(host: Container, dist: Path) -> None:
    assert count_changes(play(host, dist)) > 0
    assert "<hostdev" in host.check("virsh dumpxml bare")
    variables = " ".join(f"{name}={value}" for name, value in MACHINE.items())
    (vm,) = json.loads(host.check(f"cd / && {variables} vgpumgr vm list -o json"))["vms"]
    assert sorted(one["profile"] for one in vm["attachments"]) == sorted(PROFILES)
    assert host.check("getent group vgpumgr | cut -d: -f4") == "daemon"
    units = "libvirtd.socket vgpumgr.socket vgpumgr-metrics.timer"
    assert host.check(f"systemctl is-enabled {units}").split() == ["enabled"] * 3
    assert host.check("systemctl --failed --plain --no-legend") == ""


def test_the_role_applied_again_changes_nothing(host: Container, dist: Path) -> None:
    again = play(host, dist)
    assert count_changes(again) == 0, again


def test_node_exporter_finds_the_metrics(host: Container) -> None:
    file = "/var/lib/prometheus/node-exporter/vgpumgr.prom"
    host.check(f"rm -rf {Path(file).parent} && systemctl start vgpumgr-metrics.service")
    state = host.show("vgpumgr-metrics.service", "Result", "ExecMainStartTimestampMonotonic")
    assert state["Result"] in ("success", "exec-condition"), "without node_exporter it is skipped"
    assert host.run(f"test -e {file}").status != 0
    host.check(f"mkdir -p {Path(file).parent}")
    host.wait_until(f"test -e {file}")  # the timer's work
    written = host.check(f"stat -c '%a %U' {file}; grep -c ^vgpumgr_ {file}").split()
    assert written[:2] == ["644", "root"]
    assert int(written[2]) > 10
