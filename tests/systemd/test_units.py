"""Our packages on a Debian that systemd runs: what they leave, and what their units do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.systemd.container import DROP_INS, ROOT, Container, change_unit

UNITS = (
    "vgpumgr.socket",
    "vgpumgr.service",
    "vgpumgr-restore.service",
    "vgpumgr-passthrough.service",
)
#: of the daemon, instead of 30
WATCHDOG_S = 4
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
    "write /sys": "open('/sys/bus/pci/devices/0000:00:00.0/driver_override', 'w').write('\\n')",
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


@pytest.fixture
def host(installed: Container) -> Iterator[Container]:
    """With our packages installed; what a test has changed of the daemon's unit is taken back."""
    yield installed
    installed.check(f"rm -rf {DROP_INS}/vgpumgr.service.d && systemctl daemon-reload")


def change_daemon(host: Container, line: str) -> None:
    """A drop-in for the daemon, which is started anew with it."""
    change_unit(host, "vgpumgr.service", f"[Service]\n{line}\n")
    host.check("systemctl restart vgpumgr.service")


def test_packages_leave_a_host_that_serves(host: Container) -> None:
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


def test_the_first_request_starts_the_daemon(host: Container) -> None:
    host.check("systemctl stop vgpumgr.service")
    assert host.check("systemctl is-active vgpumgr.socket") == "active"
    assert host.run("systemctl is-active vgpumgr.service").output.strip() == "inactive"
    answered = json.loads(host.check("cd / && vgpumgr status -o json"))
    assert answered["schema"] == "vgpumgr/v1"
    state = host.show("vgpumgr.service", "ActiveState", "Type", "MainPID")
    assert (state["ActiveState"], state["Type"]) == ("active", "notify")
    # its own word to systemd, when it has settled what was left
    host.wait_until("systemctl show -P StatusText vgpumgr.service | grep -q ^serving")
    # one who is in neither group is refused by the daemon, not by the socket
    refused = host.run(
        "cd / && setpriv --reuid nobody --regid nogroup --clear-groups vgpumgr status"
    )
    assert refused.status != 0
    assert "vgpumgr-ro" in refused.output


def test_a_daemon_that_hangs_is_started_anew(host: Container) -> None:
    change_daemon(host, f"WatchdogSec={WATCHDOG_S}")
    names = ("MainPID", "NRestarts", "WatchdogTimestampMonotonic")
    first = host.show("vgpumgr.service", *names)
    beat = first["WatchdogTimestampMonotonic"]
    host.wait_until(
        f"[ $(systemctl show -P WatchdogTimestampMonotonic vgpumgr.service) != {beat} ]"
    )
    assert host.show("vgpumgr.service", "MainPID")["MainPID"] == first["MainPID"], "it beats"
    host.check(f"kill -STOP {first['MainPID']}")
    host.wait_until(f"[ $(systemctl show -P NRestarts vgpumgr.service) -gt {first['NRestarts']} ]")
    host.wait_until("systemctl is-active vgpumgr.service")
    assert host.show("vgpumgr.service", "MainPID")["MainPID"] != first["MainPID"]
    assert "Watchdog timeout" in host.check("journalctl -u vgpumgr.service --no-pager | tail -n 50")
    host.check("cd / && vgpumgr status")


def test_the_daemons_sandbox_holds(host: Container) -> None:
    """The same attacks in the unit and outside of it: there they succeed, so they can."""
    (host.out / "probe.py").write_text(PROBE)
    host.check(
        "mkdir -p /root /home && touch /root/secret /home/secret && cp /out/probe.py /run/probe.py && "
        "python3 /run/probe.py /run/outside"
    )
    outside = json.loads(host.check("cat /run/outside; umount /mnt"))
    change_daemon(host, "ExecStartPost=/usr/bin/python3 /run/probe.py /run/inside")
    inside = json.loads(host.check("cat /run/inside"))
    assert {name for name, found in inside.items() if found == "may"} == WORK
    assert outside.pop("take ports") in ("may", "ENOSYS"), "not in every kernel; EPERM within"
    assert inside["take ports"] == "EPERM"
    assert outside == dict.fromkeys(outside, "may") | {"take swap": "ENOENT"}
    assert outside.keys() == inside.keys() - {"take ports"}
    status = host.check("cat /proc/$(systemctl show -P MainPID vgpumgr.service)/status")
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)


def test_slices_are_back_before_libvirt_starts(host: Container) -> None:
    before = host.show("vgpumgr-restore.service", "Before")["Before"].split()
    assert {"libvirtd.service", "libvirt-guests.service"} <= set(before)
    assert "sysinit.target" in host.show("vgpumgr-passthrough.service", "Before")["Before"].split()
    host.check("systemctl stop vgpumgr.service vgpumgr-restore.service libvirtd.service 2>&1")
    # as at a boot: libvirt's socket listens already, and what asks it waits
    host.check("systemctl start libvirtd.socket libvirtd-ro.socket")
    host.check("systemctl start --no-block vgpumgr-restore.service")
    host.check("systemctl start libvirtd.service")
    names = ("Result", "ExecMainStatus", "ExecMainExitTimestampMonotonic")
    restore = host.show("vgpumgr-restore.service", *names)
    libvirt = host.show("libvirtd.service", "ExecMainStartTimestampMonotonic")
    assert (restore["Result"], restore["ExecMainStatus"]) == ("success", "0")
    ended = int(restore["ExecMainExitTimestampMonotonic"])
    assert 0 < ended <= int(libvirt["ExecMainStartTimestampMonotonic"])


def test_a_purge_leaves_nothing(host: Container) -> None:
    host.check("dpkg -P vgpumgr-host vgpumgr 2>&1")
    written = "/run/written/upper"
    left = host.check(
        f"find {written} /run -xdev -name '*vgpumgr*' -not -type c "
        f"-not -path '{written}{ROOT}*' -not -path '/run/systemd/*'"
    )
    assert left.splitlines() == []
    assert host.check("systemctl list-units --all --plain --no-legend 'vgpumgr*'") == ""
    assert host.run("pgrep -f 'vgpumgr[-_.]?(daemon|host)'").status == 1
