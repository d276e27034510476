"""The daemon under systemd, without systemd: its socket, its notifications, its watchdog, its unit files."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.places import short
from vgpumgr.app.operations.restore import TIMEOUT_S
from vgpumgr.cli.http import HttpBackend, connect_unix

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "templates/systemd"
PATIENCE_S = 240
#: systemd gives a service its sockets as descriptors from 3 on, and names it by its pid
AS_SYSTEMD = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
    "os.execv(sys.executable, [sys.executable, '-m', 'tests.support.api_daemon', *sys.argv[2:]])"
)


class Service:
    """A daemon as systemd starts it; the test is systemd."""

    def __init__(self, directory: Path, watchdog_s: float = 1, *arguments: str) -> None:
        self.directory = directory
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(directory / "listen.sock"))
        self.listener.listen()
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(directory / "notify.sock"))
        number = self.listener.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-c", AS_SYSTEMD, str(number), str(directory), *arguments],
            cwd=ROOT, pass_fds=(number,), stdin=subprocess.DEVNULL,
            env=os.environ | {
                "LISTEN_FDS": "1", "NOTIFY_SOCKET": str(directory / "notify.sock"),
                "WATCHDOG_USEC": str(int(watchdog_s * 1e6)), "PYTHONPATH": str(ROOT),
            },
        )  # fmt: skip
        self.client = HttpBackend(partial(connect_unix, str(directory / "listen.sock")))
        self.told: list[str] = []

    def hear(self, timeout_s: float) -> str | None:
        """The next notification, None if there is none in time."""
        self.notifications.settimeout(timeout_s)
        try:
            message = self.notifications.recv(4096).decode()
        except TimeoutError:
            return None
        self.told.append(message)
        return message

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """A notification of that kind."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = self.hear(1)
            if message is not None and wanted(message):
                return message
        raise AssertionError(self.told)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self.listener.close()
        self.notifications.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="vgsd.", dir=short()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_request_that_came_first_is_answered_and_the_life_is_told(directory: Path) -> None:
    """systemd's socket takes the request before there is a daemon: it waits there, nothing is lost."""
    service = Service(directory)
    try:
        assert service.client.request("GET", "/1.0").document()["pid"] == service.process.pid
        assert service.wait_for(lambda m: "READY=1" in m).startswith("READY=1\nSTATUS=")
        for _ in range(3):
            service.wait_for(lambda m: m == "WATCHDOG=1")
        assert not (directory / "vgpumgr.sock").exists(), "it has one already"
        service.process.send_signal(signal.SIGTERM)
        service.wait_for(lambda m: m.startswith("STOPPING=1"))
        assert service.process.wait(PATIENCE_S) == 0
        assert (directory / "listen.sock").exists(), "the socket is systemd's, and stays"
    finally:
        service.end()


def test_what_it_does_stands_in_the_status(directory: Path) -> None:
    service = Service(directory, 1, "2")
    try:
        body = json.dumps({"vm": "vm01", "profile": "1g.10gb", "hello_timeout_s": 0}).encode()
        service.client.request("POST", "/1.0/attachments", body).document()
        service.wait_for(lambda m: "STATUS=1 operation running" in m)
        service.wait_for(lambda m: m == "STATUS=serving")
    finally:
        service.end()


def count_beats(service: Service, duration_s: float) -> int:
    """How many there are in that time."""
    end = time.monotonic() + duration_s
    beats = 0
    while (left := end - time.monotonic()) > 0:
        beats += service.hear(left) == "WATCHDOG=1"
    return beats


def drain(service: Service) -> None:
    while service.hear(0.01) is not None:
        pass


def test_no_beat_while_the_event_loop_hangs(directory: Path) -> None:
    """A stopped process stands for one that hangs."""
    service = Service(directory)
    try:
        service.wait_for(lambda m: m == "WATCHDOG=1")
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        drain(service)
        assert count_beats(service, 2) == 0
        service.process.send_signal(signal.SIGCONT)
        service.wait_for(lambda m: m == "WATCHDOG=1")
    finally:
        service.end()


def test_no_beat_while_a_change_does_not_end(directory: Path) -> None:
    """The API still answers, but nothing can be changed any more: another daemon shall recover."""
    service = Service(directory, 1, "6", "1")
    try:
        service.wait_for(lambda m: m == "WATCHDOG=1")
        body = json.dumps({"vm": "vm01", "profile": "1g.10gb", "hello_timeout_s": 0}).encode()
        service.client.request("POST", "/1.0/attachments", body).document()
        service.wait_for(lambda m: "a change does not end" in m)
        drain(service)
        status = service.client.request("GET", "/1.0/operations").document()["operations"][-1]
        beats = count_beats(service, 1.5)
        if status["status"] == "running":
            now = service.client.request("GET", "/1.0/operations").document()["operations"][-1]
            assert beats == 0 or now["status"] != "running"
        service.wait_for(lambda m: m == "WATCHDOG=1")
    finally:
        service.end()


def read_unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / name)
    return parser


def test_restore_comes_behind_the_driver_and_before_libvirt_and_ends_in_time() -> None:
    unit = read_unit("vgpumgr-restore.service")
    after, before = unit["Unit"]["After"].split(), unit["Unit"]["Before"].split()
    assert {"systemd-modules-load.service", "nvidia-persistenced.service"} <= set(after)
    assert {"libvirtd.service", "virtqemud.service", "libvirt-guests.service"} <= set(before)
    assert not {"Requires", "BindsTo", "Requisite"} & set(unit["Unit"]), "it must never block boot"
    limit_s = float(unit["Service"]["TimeoutStartSec"])
    (asked_s,) = [float(w) for w in unit["Service"]["ExecStart"].split() if w.isdigit()]
    assert asked_s == TIMEOUT_S
    assert limit_s > asked_s + 120, "a change that began just in time may end"
    assert unit["Service"]["KillMode"] == "process"


def test_the_daemon_is_watched_and_its_keepers_outlive_it() -> None:
    unit = read_unit("vgpumgr.service")
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert float(service["WatchdogSec"]) >= 10
    assert service["KillMode"] == "process"
    assert "libvirtd.service" in unit["Unit"]["After"].split()
    assert "vgpumgr-restore.service" in unit["Unit"]["After"].split()
    socket_unit = read_unit("vgpumgr.socket")
    assert socket_unit["Socket"]["ListenStream"] == "/run/vgpumgr/vgpumgr.sock"


def test_no_unit_closes_devices_to_workers() -> None:
    """Each of these lets a unit's processes, keepers and workers among them, open no node of a GPU (systemd.exec(5),
    systemd.resource-control(5)); ProtectClock by the DeviceAllow that it implies.
    """
    closing = {"protectclock", "privatedevices", "deviceallow", "devicepolicy"}
    for name in ("vgpumgr.service", "vgpumgr-restore.service"):
        assert not closing & set(read_unit(name)["Service"]), name


def test_systemd_can_read_the_units(directory: Path) -> None:
    """The program need not be installed here: a file stands in its place."""
    program = directory / "vgpumgr"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (p for p in UNITS.iterdir() if p.suffix in (".service", ".socket", ".timer")):
        text = path.read_text().replace("/usr/bin/vgpumgr", str(program))
        (directory / path.name).write_text(text)
    units = sorted(str(path) for path in directory.glob("vgpumgr*.*"))
    assert len(units) == 6
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{directory}:", "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    mine = [line for line in done.stderr.splitlines() if "vgpumgr" in line]
    version = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.split()[1]) < 254:  # docs/limits.md says what then holds
        newer = "Unknown key 'DelegateSubgroup' in section [Service], ignoring"
        assert [newer in line for line in mine].count(True) == 1, done.stderr
        mine = [line for line in mine if newer not in line]
    assert (done.returncode, mine) == (0, []), done.stderr
    broken = directory / "vgpumgr.service"
    broken.write_text(broken.read_text().replace("WatchdogSec=30", "WatchdogSec=soon"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(broken)],
        capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{directory}:"},
    )  # fmt: skip
    assert "soon" in done.stderr, "it would have said so"


@pytest.mark.native
@pytest.mark.parametrize("option", ["--boot", "--early"])
def test_the_boots_restore_does_not_wait_for_the_daemon_that_waits_for_it(option: str) -> None:
    """The socket listens early in a boot, and systemd starts the daemon after the restore."""
    # short: the paths of sockets are limited
    with (
        tempfile.TemporaryDirectory(prefix="vgb") as name,
        socket.socket(socket.AF_UNIX) as systemd,
    ):
        environment = os.environ | {
            "VGPUMGR_SIM_ROOT": f"{name}/sim",
            "VGPUMGR_MACHINE": "a30-pair",
        }

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "vgpumgr", *words],
                env=environment, capture_output=True, text=True, timeout=90, check=False,
            )  # fmt: skip

        assert run("sim", "start", "a30-pair").returncode == 0
        try:
            place = Path(name, "sim/a30-pair/host/run")
            place.mkdir(parents=True, exist_ok=True)
            systemd.bind(str(place / "vgpumgr.sock"))
            systemd.listen()
            done = run("restore", option)
            assert done.returncode == 0, done.stderr
        finally:
            run("sim", "stop", "a30-pair")
