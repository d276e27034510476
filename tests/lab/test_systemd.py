"""A lab host whose first process is systemd: the daemon in its unit, with all that is refused to it there, gives a VM a
real device. What our packages, their units and the Ansible role do beyond that needs no kernel of its own, and is tried
in containers: tests/systemd.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab.conftest import Lab
from tests.lab.host import NIC, ROOT, LabHost

pytestmark = pytest.mark.native
_XML = """<domain type="qemu"><name>bare</name><memory unit="MiB">64</memory>
<os><type arch="x86_64" machine="q35">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type="pci" model="pcie-root"/>
<controller type="pci" model="pcie-root-port"/><controller type="pci" model="pcie-root-port"/></devices></domain>"""
DROP_IN = "/run/systemd/system/vgpumgr.service.d"


@pytest.fixture
def host(lab: Lab, tmp_path: Path) -> LabHost:
    """With the files of our packages; users and directories are made as at a boot."""
    host = lab.systemd_host()
    # unpacked and compiled out here: dpkg and Python take minutes for it under emulation
    words = [sys.executable, "-m", "tools.package", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=900)
    with tempfile.TemporaryDirectory() as tree:
        for name in ("vgpumgr", "vgpumgr-host"):
            subprocess.run(
                ["dpkg-deb", "-x", next(tmp_path.glob(f"{name}_*.deb")), tree], check=True
            )
        program = Path(tree) / "usr/lib/vgpumgr-host"
        compile_words = ["-I", "-m", "compileall", "-q", "-j2", "-s", tree, "-p", "/", program]
        # sources of other versions of Python are left out, as by Debian's py3compile
        subprocess.run(["/usr/bin/python3", *compile_words], check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "-cf", host.out / "files.tar", "-C", tree, "usr", "etc"], check=True)
    host.check(
        "tar -x --no-same-owner --keep-directory-symlink -C / -f /out/files.tar && rm /out/files.tar"
    )
    # a start of the daemon takes many times as long under emulation
    (host.out / "slow").write_text("[Service]\nTimeoutStartSec=400\n")
    host.check(f"mkdir -p {DROP_IN} && cp /out/slow {DROP_IN}/slow.conf && systemctl daemon-reload")
    host.check("systemd-sysusers vgpumgr.conf && systemd-tmpfiles --create vgpumgr.conf")
    return host


def test_the_daemon_in_its_unit_gives_a_vm_a_real_device(host: LabHost) -> None:
    (host.out / "bare.xml").write_text(_XML)
    host.check("modprobe -a vfio-pci vfio_iommu_type1 e1000e; systemctl start libvirtd.service")
    host.check("virsh -q define /out/bare.xml && systemctl start vgpumgr.socket")
    host.wait_until(f"[ -e /sys/bus/pci/devices/{NIC}/driver ]")
    assert host.driver(NIC) == "e1000e"
    command = f"cd / && vgpumgr attach bare --profile passthrough --gpu {NIC} -o json"
    assert json.loads(host.check(command))["schema"] == "vgpumgr/v1"
    assert host.check("systemctl is-active vgpumgr.service") == "active", "it was the daemon's work"
    assert "<hostdev" in host.check("virsh dumpxml bare")
    assert host.driver(NIC) == "vfio-pci"
    host.check("cd / && vgpumgr detach bare --all --yes")
    assert "<hostdev" not in host.check("virsh dumpxml bare")
    assert host.driver(NIC) == "e1000e"
    pid = "$(systemctl show -P MainPID vgpumgr.service)"
    assert "Seccomp:\t2" in host.check(f"cat /proc/{pid}/status"), "its sandbox was on"
