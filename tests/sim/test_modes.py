"""What commands leave on the disk, looked at from outside: modes under umask 0, and planted links and directories."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.attached_machine import attached_machine
from tests.support.forked import run_vgpumgr
from tests.support.unprivileged import NOBODY

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes a machine"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
#: what every user's process may write, on purpose
SHARED = {
    "state": "the simulated GPUs: processes of every user compute on them",
    "vgpumgr.sock": "the peer's credentials decide",
    "broker.sock": "the same: each dialer has a user of its own",
}
COMMAND = (sys.executable, "-m", "vgpumgr")
LAYOUT = """\
version: v1
mig-configs:
  a:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2}
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    # short: the paths of sockets are limited
    with tempfile.TemporaryDirectory(prefix="vgm") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def run(directory: Path) -> Iterator[Run]:
    """Commands on a simulated machine, all of them with umask 0."""
    env = os.environ | {"VGPUMGR_SIM_ROOT": str(directory / "sim"), "VGPUMGR_MACHINE": "dgx-a100"}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return run_vgpumgr(*words, env=env, umask=0)

    assert call("sim", "start", "dgx-a100", "--libvirt", "test:///default").returncode == 0
    yield call
    assert call("sim", "stop", "dgx-a100").returncode == 0


def list_made(directory: Path) -> dict[str, int]:
    """Modes of all that stands there, without the mounted /sys."""
    found = {}
    for path in directory.rglob("*"):
        if "root" not in path.relative_to(directory).parts[:-1]:
            found[str(path.relative_to(directory))] = stat.S_IMODE(path.lstat().st_mode)
    return found


def test_nothing_is_writable_for_others_whatever_the_umask(run: Run, directory: Path) -> None:
    (directory / "web.yaml").write_text(LAYOUT)
    words = (
        ("mig", "layout", "apply", str(directory / "web.yaml"), "--yes"),
        ("passthrough", "bind", "0000:4e:00.0", "--persist", "--yes"),
        ("metrics", "--out", str(directory / "vgpumgr.prom")),
        ("mig", "layout", "plan", str(directory / "web.yaml"), "--out", str(directory / "p.json")),
    )
    for command in words:
        done = run(*command)
        assert done.returncode == 0, done.stderr
    daemon = start_daemon(directory)
    try:
        assert run("passthrough", "unbind", "0000:4e:00.0", "--yes").returncode == 0
        made = list_made(directory)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
    made.update(list_made(directory))
    names = {Path(name).name for name in made}
    assert {
        "journal",
        "audit.jsonl",
        "state.copy",
        "vgpumgr.sock",
        "vgpumgr.prom",
        "p.json",
    } <= names
    assert_closed(made)


def test_nothing_of_an_attachment_is_writable_for_others() -> None:
    before = os.umask(0)
    try:
        with attached_machine() as machine:
            made = list_made(machine.machine.run_dir.parent)
    finally:
        os.umask(before)
    names = {Path(name).name for name in made}
    assert {"state.sqlite", "keeper.pid", "worker.log", "control.sock", "qemu", "journal"} <= names
    assert "operations.json" in names
    assert_closed(made)


def assert_closed(made: dict[str, int]) -> None:
    loose = {name: oct(mode) for name, mode in made.items() if mode & 0o022}
    assert {Path(name).name for name in loose} <= set(SHARED), loose
    private = {"journal", "audit.jsonl", "vgpumgr.lock", "daemon.lock", "control.sock", "qemu"}
    read = {n: oct(mode) for n, mode in made.items() if Path(n).name in private and mode & 0o077}
    assert not read


def start_daemon(directory: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {"VGPUMGR_SIM_ROOT": str(directory / "sim"), "VGPUMGR_MACHINE": "dgx-a100"}
    daemon = subprocess.Popen([*COMMAND, "daemon"], env=env, umask=0, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (directory / "sim/dgx-a100/host/run/vgpumgr.sock").exists():
        assert daemon.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return daemon


@pytest.mark.parametrize(
    "name", ["run/vgpumgr.lock", "run/daemon.lock", "state/journal", "state/state.sqlite"]
)
def test_a_planted_link_is_refused_and_its_target_is_untouched(
    run: Run, directory: Path, name: str
) -> None:
    """Root's target, and it ends in half a line: what a journal's repair would cut off."""
    victim = directory / "victim"
    victim.write_bytes(b"precious\nand torn")
    link = directory / "sim/dgx-a100/host" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    done = run("attach", "test", "--profile", "1g.10gb", "--transport", "serial", "-o", "json")
    assert victim.read_bytes() == b"precious\nand torn"
    error = json.loads(done.stdout or done.stderr)["error"]
    assert (done.returncode, error["id"], error["cause"]) == (4, "VG134", str(link))
    assert "link" in error["why"] or "no regular file" in error["why"]


def test_the_audit_log_is_no_link(run: Run, directory: Path) -> None:
    victim = directory / "victim"
    victim.write_bytes(b"precious\nand torn")
    state = directory / "sim/dgx-a100/host/state"
    state.mkdir(exist_ok=True)
    (state / "audit.jsonl").symlink_to(victim)
    done = run("daemon")
    assert done.returncode == 4
    assert "audit.jsonl" in done.stderr
    assert "has a bug" not in done.stderr
    assert victim.read_bytes() == b"precious\nand torn"


@pytest.mark.parametrize("which", ["run", "state"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_a_directory_of_others_is_refused(run: Run, directory: Path, which: str, how: str) -> None:
    place = directory / "sim/dgx-a100/host" / which
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if how == "owner":
        os.chown(place, NOBODY, NOBODY)
    else:
        place.chmod(0o777)
    done = run("attach", "test", "--profile", "1g.10gb", "--transport", "serial")
    assert done.returncode == 4, done.stderr
    assert str(place) in done.stderr
    assert "VG134" in done.stderr
    assert "try:" in done.stderr
    assert not list(place.rglob("journal"))
    assert not list(place.rglob("*.lock"))


def test_a_keeper_refuses_a_directory_of_others(directory: Path) -> None:
    keeper = Path(__file__).parents[2] / "vgpumgr/_lib/bin/vgpumgr-keeper"
    place = directory / "channel"
    for prepare in (
        lambda: os.chown(place, NOBODY, NOBODY),
        lambda: place.chmod(0o777),
        lambda: place.rmdir() or place.symlink_to(directory),
    ):
        place.mkdir()
        prepare()
        done = subprocess.run(
            [keeper, "--dir", place, "--worker", "/bin/true"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 1
        assert "directory" in done.stderr
        place.unlink() if place.is_symlink() else shutil.rmtree(place)
