"""A lab host whose first process is systemd: the Ansible role installs our packages, and their units do their work.

The tests go on from each other, in order; the last one purges.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab.conftest import Lab
from tests.lab.host import BOOT_S, NIC, ROOT, KeptShell, LabHost

pytestmark = pytest.mark.native
_XML = """<domain type="qemu"><name>bare</name><memory unit="MiB">64</memory>
<os><type arch="x86_64" machine="q35">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type="pci" model="pcie-root"/>
<controller type="pci" model="pcie-root-port"/><controller type="pci" model="pcie-root-port"/></devices></domain>"""
UNITS = (
    "vgpumgr.socket",
    "vgpumgr.service",
    "vgpumgr-restore.service",
    "vgpumgr-passthrough.service",
)
DROP_IN = "/run/systemd/system/vgpumgr.service.d"
#: where the server of Ansible's modules is asked, see modules.py
MODULES = "/run/lab-modules"
#: of the daemon, instead of 30
WATCHDOG_S = 20
#: what a process tries that has taken the daemon over; each ends with the name of its error, or with "may"
PROBES = {
    "write /usr": "open('/usr/lib/intruder', 'w').close()",
    "write /boot": "open('/boot/intruder', 'w').close()",
    "read /root": "open('/root/secret').close()",
    "read /home": "open('/home/secret').close()",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "name the host": "socket.sethostname('lab')",
    "take swap": "call(168, b'/nowhere')",
    "take ports": "call(172, 3)",
    "set a bit of another user": "os.mkdir('/run/intruder'); os.chmod('/run/intruder', 0o4755)",
    "see packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
    "another personality": "call(135, 8)",
    "in time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    # and what is its work
    "write /etc": "open('/etc/vgpumgr/probe', 'w').close(); os.unlink('/etc/vgpumgr/probe')",
    "write /sys": "open('/sys/bus/pci/devices/0000:03:00.0/driver_override', 'w').write('\\n')",
    "read the log": "os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)",
    "a mount": "call(165, b'none', b'/mnt', b'tmpfs', 0, 0)",
}
WORK = {"write /etc", "write /sys", "read the log", "a mount"}
PROBE = f"""
import ctypes, errno, json, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), "")
found = {{}}
for name, text in {PROBES!r}.items():
    try:
        exec(text)
        found[name] = "may"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
for path in ("/usr/lib/intruder", "/boot/intruder"):
    if os.path.exists(path):
        os.unlink(path)
if os.path.exists("/run/intruder"):
    os.rmdir("/run/intruder")
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages."""
    target = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "tools.package", str(target)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=900)
    return target


@pytest.fixture
def bare_host(lab: Lab) -> LabHost:
    """As Debian installs it."""
    return lab.systemd_host()


@pytest.fixture
def host(bare_host: LabHost, dist: Path) -> Iterator[LabHost]:
    """With our packages installed."""
    if bare_host.run("test -e /usr/bin/vgpumgr").status != 0:
        install(bare_host, dist)
    yield bare_host
    bare_host.run(
        f"[ ! -e {DROP_IN}/test.conf ] || rm {DROP_IN}/test.conf && systemctl daemon-reload"
    )


def install(host: LabHost, dist: Path) -> None:
    """Without the role, for one test by itself."""
    slow_down(host)
    bring_bytecode(host, dist)
    for file in find_packages(dist):
        (host.out / file.name).write_bytes(file.read_bytes())
    host.check("dpkg -i /out/*.deb && rm /out/*.deb")


def find_packages(dist: Path) -> list[Path]:
    return [next(dist.glob(f"{name}_*.deb")) for name in ("vgpumgr", "vgpumgr-host")]


def bring_bytecode(host: LabHost, dist: Path) -> None:
    """What the package's postinst would compile, minutes long under emulation: it finds all of it up to date. That it
    compiles what it does not find is seen in tests/unit/test_packages.py."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["dpkg-deb", "-x", find_packages(dist)[0], name], check=True)
        program = Path(name) / "usr/lib/vgpumgr-host"
        words = ["-I", "-m", "compileall", "-q", "-j2", "-s", name, "-p", "/", program]
        # sources of other versions of Python are left out, as by Debian's py3compile
        subprocess.run(["/usr/bin/python3", *words], check=False, stdout=subprocess.DEVNULL)
        made = "\n".join(str(p.relative_to(name)) for p in program.rglob("*.pyc"))
        archive = ["tar", "-c", "-C", name, "-f", host.out / "bytecode.tar", "-T", "-"]
        subprocess.run(archive, input=made, text=True, check=True)
    host.check("tar -x -C / -f /out/bytecode.tar && rm /out/bytecode.tar")


def slow_down(host: LabHost) -> None:
    """A start of the daemon takes many times as long under emulation."""
    (host.out / "slow").write_text("[Service]\nTimeoutStartSec=400\n")
    host.check(f"mkdir -p {DROP_IN} && cp /out/slow {DROP_IN}/slow.conf && systemctl daemon-reload")


def load_modules(host: LabHost) -> str:
    """Ansible's modules, in the lab host's own Python, ready to be forked; what stands in for the interpreter."""
    python = "PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3"
    client = host.out / "python"
    if not client.exists():
        module = ROOT / "tests/lab/modules.py"
        client.write_text(
            f'#!/bin/sh\n[ $# = 0 ] && {python} -I {module} run {MODULES}\n{python} "$@"\n'
        )
        client.chmod(0o755)
        found = find_spec("ansible")
        assert found is not None
        assert found.origin is not None
        site = Path(found.origin).parents[1]
        serve = f"cd {ROOT} && {python} -m tests.lab.modules serve {MODULES} {site}"
        host.check(f"setsid sh -c '{serve}' </dev/null >/out/modules.log 2>&1 &")
        host.wait_until(f"[ -e {MODULES} ]")
    return "/out/python"


def play(host: LabHost, dist: Path, *options: str) -> str:
    """The role, from here, on the lab host; what Ansible said."""
    given = {
        "vgpumgr_packages": [str(path) for path in find_packages(dist)],
        "vgpumgr_admins": ["daemon"],
        "vgpumgr_kernel_checks": ["iommu"],
        "vgpumgr_metrics": True,
        "vgpumgr_attachments": [{"vm": "bare", "profile": "passthrough", "gpu": NIC}],
        "lab_directory": str(host.directory),
        "ansible_connection": "lab",
        "ansible_become": False,
        "ansible_remote_tmp": "/run/ansible",
        "ansible_python_interpreter": load_modules(host),
    }
    words = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        "lab,",
        "--diff",
        *options,
    ]
    words += ["-e", json.dumps(given), str(ROOT / "ansible/site.yml")]
    plugins = str(Path(__file__).parent / "connection")
    settings = {
        "ANSIBLE_CONNECTION_PLUGINS": plugins,
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
    }
    # the connection has this shell meanwhile
    host.shells[2].close()
    try:
        done = subprocess.run(
            words, env=os.environ | settings | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
    finally:
        host.shells[2] = KeptShell(host.directory / "shell.2", BOOT_S)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def count_changes(said: str) -> int:
    (line,) = [line for line in said.splitlines() if line.startswith("lab ") and "changed=" in line]
    return int(line.partition("changed=")[2].split()[0])


def test_check_mode_says_what_the_role_would_do(bare_host: LabHost, dist: Path) -> None:
    slow_down(bare_host)
    (bare_host.out / "bare.xml").write_text(_XML)
    bare_host.check("modprobe -a vfio-pci vfio_iommu_type1; systemctl start libvirtd.service")
    bare_host.check("virsh -q define /out/bare.xml")
    said = play(bare_host, dist, "--check")
    assert count_changes(said) > 0
    for file in find_packages(dist):
        assert file.name in said
    assert bare_host.run("ls -d /usr/bin/vgpumgr /etc/vgpumgr /var/lib/vgpumgr").status != 0
    assert bare_host.run("getent group vgpumgr").status != 0


def test_the_role_installs_and_attaches(bare_host: LabHost, dist: Path) -> None:
    bring_bytecode(bare_host, dist)
    assert count_changes(play(bare_host, dist)) > 0
    assert "<hostdev" in bare_host.check("virsh dumpxml bare")
    (vm,) = json.loads(bare_host.check("cd / && vgpumgr vm list -o json"))["vms"]
    assert [one["profile"] for one in vm["attachments"]] == ["passthrough"]
    assert bare_host.check("getent group vgpumgr | cut -d: -f4") == "daemon"
    units = "libvirtd.socket vgpumgr.socket vgpumgr-metrics.timer"
    assert bare_host.check(f"systemctl is-enabled {units}").split() == ["enabled"] * 3


def test_the_role_applied_again_changes_nothing(host: LabHost, dist: Path) -> None:
    again = play(host, dist)
    assert count_changes(again) == 0, again


def show(host: LabHost, unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit."""
    lines = host.check(f"systemctl show {unit} " + " ".join(f"-p {n}" for n in names)).splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def change_unit(host: LabHost, *lines: str) -> None:
    """A drop-in for the daemon, which is started anew with it."""
    text = "".join(f"{line}\n" for line in ("[Service]", *lines))
    (host.out / "drop-in").write_text(text)
    host.check(
        f"mkdir -p {DROP_IN} && cp /out/drop-in {DROP_IN}/test.conf && systemctl daemon-reload"
    )
    host.check("systemctl restart vgpumgr.service")


def test_packages_leave_a_host_that_serves(host: LabHost) -> None:
    """Users, directories and units, as sysusers, tmpfiles and the maintainer's scripts made them."""
    assert host.check("getent group vgpumgr vgpumgr-ro | cut -d: -f1") == "vgpumgr\nvgpumgr-ro"
    owners = host.check(
        "stat -c '%a %U:%G %n' /run/vgpumgr /var/lib/vgpumgr /run/vgpumgr/vgpumgr.sock"
    )
    assert owners.splitlines() == [
        "755 root:root /run/vgpumgr", "700 root:root /var/lib/vgpumgr", "666 root:root /run/vgpumgr/vgpumgr.sock",
    ]  # fmt: skip
    assert host.check(f"systemctl is-enabled {' '.join(UNITS)}").split() == ["enabled"] * 4
    assert (
        host.check("systemctl is-active vgpumgr.socket vgpumgr.service").split() == ["active"] * 2
    )
    assert host.check("systemctl --failed --plain --no-legend") == ""
    # the only thing that systemd 252 has to say: the key is of 254, and harmless here
    said = host.run(f"systemd-analyze verify {' '.join(UNITS)}").output.splitlines()
    assert [line for line in said if "DelegateSubgroup" not in line] == []


def test_the_first_request_starts_the_daemon(host: LabHost) -> None:
    host.check("systemctl stop vgpumgr.service")
    assert host.check("systemctl is-active vgpumgr.socket") == "active"
    assert host.run("systemctl is-active vgpumgr.service").output.strip() == "inactive"
    answered = json.loads(host.check("cd / && vgpumgr status -o json"))
    assert answered["schema"] == "vgpumgr/v1"
    state = show(host, "vgpumgr.service", "ActiveState", "Type", "MainPID")
    assert (state["ActiveState"], state["Type"]) == ("active", "notify")
    # its own word to systemd, when it has settled what was left
    host.wait_until("systemctl show -P StatusText vgpumgr.service | grep -q ^serving")
    # one who is in neither group is refused by the daemon, not by the socket
    refused = host.run(
        "cd / && setpriv --reuid nobody --regid nogroup --clear-groups vgpumgr status"
    )
    assert refused.status != 0
    assert "vgpumgr-ro" in refused.output


def test_node_exporter_finds_the_metrics(host: LabHost) -> None:
    file = "/var/lib/prometheus/node-exporter/vgpumgr.prom"
    host.check("systemctl enable --now vgpumgr-metrics.timer")
    host.check(f"rm -rf {Path(file).parent} && systemctl start vgpumgr-metrics.service")
    state = show(host, "vgpumgr-metrics.service", "Result", "ExecMainStartTimestampMonotonic")
    assert state["Result"] in ("success", "exec-condition"), "without node_exporter it is skipped"
    assert host.run(f"test -e {file}").status != 0
    host.check(f"mkdir -p {Path(file).parent}")
    host.wait_until(f"test -e {file}")  # the timer's work
    written = host.check(f"stat -c '%a %U' {file}; grep -c ^vgpumgr_ {file}").split()
    assert written[:2] == ["644", "root"]
    assert int(written[2]) > 10


def test_a_daemon_that_hangs_is_started_anew(host: LabHost) -> None:
    change_unit(host, f"WatchdogSec={WATCHDOG_S}")
    first = show(host, "vgpumgr.service", "MainPID", "NRestarts", "WatchdogTimestampMonotonic")
    beat = first["WatchdogTimestampMonotonic"]
    host.wait_until(
        f"[ $(systemctl show -P WatchdogTimestampMonotonic vgpumgr.service) != {beat} ]"
    )
    assert show(host, "vgpumgr.service", "MainPID")["MainPID"] == first["MainPID"], "it beats"
    host.check(f"kill -STOP {first['MainPID']}")
    host.wait_until(f"[ $(systemctl show -P NRestarts vgpumgr.service) -gt {first['NRestarts']} ]")
    host.wait_until("systemctl is-active vgpumgr.service")
    assert show(host, "vgpumgr.service", "MainPID")["MainPID"] != first["MainPID"]
    assert "Watchdog timeout" in host.check("journalctl -u vgpumgr.service --no-pager | tail -n 50")
    host.check("cd / && vgpumgr status")


def test_the_daemons_sandbox_holds(host: LabHost) -> None:
    """The same attacks in the unit and outside of it: there they succeed, so they can."""
    (host.out / "probe.py").write_text(PROBE)
    host.check(
        "touch /root/secret /home/secret; cp /out/probe.py /run/probe.py && python3 /run/probe.py /run/outside"
    )
    outside = json.loads(host.check("cat /run/outside; umount /mnt"))
    change_unit(host, "ExecStartPost=/usr/bin/python3 /run/probe.py /run/inside")
    inside = json.loads(host.check("cat /run/inside"))
    assert {name for name, found in inside.items() if found == "may"} == WORK
    assert outside == dict.fromkeys(PROBES, "may") | {"take swap": "ENOENT"}
    status = host.check("cat /proc/$(systemctl show -P MainPID vgpumgr.service)/status")
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)


def test_slices_are_back_before_libvirt_starts(host: LabHost) -> None:
    before = show(host, "vgpumgr-restore.service", "Before")["Before"].split()
    assert {"libvirtd.service", "libvirt-guests.service"} <= set(before)
    assert "sysinit.target" in show(host, "vgpumgr-passthrough.service", "Before")["Before"].split()
    host.check("systemctl stop vgpumgr.service vgpumgr-restore.service libvirtd.service 2>&1")
    # as at a boot: libvirt's socket listens already, and what asks it waits
    host.check("systemctl start libvirtd.socket libvirtd-ro.socket")
    host.check("systemctl start --no-block vgpumgr-restore.service")
    host.check("systemctl start libvirtd.service")
    restore = show(
        host,
        "vgpumgr-restore.service",
        "Result",
        "ExecMainStatus",
        "ExecMainExitTimestampMonotonic",
    )
    libvirt = show(host, "libvirtd.service", "ExecMainStartTimestampMonotonic")
    assert (restore["Result"], restore["ExecMainStatus"]) == ("success", "0")
    ended, began = (
        restore["ExecMainExitTimestampMonotonic"],
        libvirt["ExecMainStartTimestampMonotonic"],
    )
    assert 0 < int(ended) <= int(began)


def test_a_purge_leaves_nothing(host: LabHost) -> None:
    host.run("cd / && vgpumgr detach bare --all --yes")
    host.check("dpkg -P vgpumgr-host vgpumgr 2>&1")
    written = "/run/written/upper"
    left = host.check(
        f"find {written} /run -xdev -name '*vgpumgr*' -not -type c -not -path '{written}{ROOT}/*' "
        "-not -path '/run/systemd/*' -not -path '/run/udev/links/*lab.vgpumgr*'"
    )
    assert left.splitlines() == []
    assert host.check("systemctl list-units --all --plain --no-legend 'vgpumgr*'") == ""
    assert host.run("pgrep -f 'vgpumgr[-_.]?(daemon|host)'").status == 1
