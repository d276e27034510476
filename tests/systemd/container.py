"""One container whose first process is systemd: boot it, run commands in it, end it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.guest.shell import Result
from tests.support.places import short

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: for anything that should take seconds: the machine may be busy
PATIENCE_S = 240.0
DROP_INS = "/run/systemd/system"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Container:
    """A running container; made by ``boot``."""

    directory: Path
    init: int
    """The process of this machine that is its first one."""

    @property
    def out(self) -> Path:
        """Seen as ``/out`` in the container, writable there."""
        return self.directory / "out"

    def words(self, command: str) -> list[str]:
        """A program of this machine that runs a command in the container (bash, as root)."""
        environment = ["env", "-i", f"PATH={_PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]
        return ["nsenter", "-t", str(self.init), "-a", *environment, "bash", "-c", command]

    def run(self, command: str, timeout_s: float = PATIENCE_S) -> Result:
        """Run a command, whatever its exit status."""
        done = subprocess.run(
            self.words(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout)

    def check(self, command: str, timeout_s: float = PATIENCE_S) -> str:
        """Run a command that must succeed; its output without the last newline."""
        result = self.run(command, timeout_s)
        assert result.status == 0, f"{command}: exit {result.status}\n{result.output}"
        return result.output.rstrip("\n")

    def wait_until(self, condition: str) -> None:
        """Wait until a command of the container succeeds."""
        wait_for(lambda: self.run(condition).status == 0, condition)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        wanted = " ".join(f"-p {name}" for name in names)
        lines = self.check(f"systemctl show {unit} {wanted}").splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


def change_unit(host: Container, unit: str, text: str) -> None:
    """A drop-in for a unit, which systemd has read."""
    (host.out / "drop-in").write_text(text)
    place = f"{DROP_INS}/{unit}.d"
    host.check(f"mkdir -p {place} && cp /out/drop-in {place}/test.conf && systemctl daemon-reload")


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.1)


@contextmanager
def boot() -> Iterator[Container]:
    """A container with nothing of ours installed, until the context ends."""
    directory = Path(tempfile.mkdtemp(prefix="vgs.", dir=short()))
    (directory / "out").mkdir()
    groups = find_groups()
    assert groups is not None
    group = groups / directory.name
    # what lies on another file system than /
    folders = [ROOT, Path(os.environ["VGPUMGR_CACHE"]), Path(sys.base_prefix)]
    with (directory / "log").open("wb") as log:
        outer = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", HERE / "container.sh", group, directory, *folders],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        container = Container(directory, find_init(outer, directory / "log"))
        wait_for(
            lambda: container.run("systemctl is-active -q multi-user.target").status == 0, "boot"
        )
        yield container
    finally:
        outer.kill()
        outer.wait()
        remove_group(group)
        shutil.rmtree(directory, ignore_errors=True)


def find_init(outer: subprocess.Popen[bytes], log: Path) -> int:
    """The only child of ``unshare``, once it is systemd."""
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")

    def is_there() -> bool:
        assert outer.poll() is None, log.read_text(errors="replace")
        found = children.read_text().split()
        return bool(found) and Path(f"/proc/{found[0]}/comm").read_text() == "systemd\n"

    wait_for(is_there, "systemd in the container")
    return int(children.read_text())


def find_groups() -> Path | None:
    """Where this machine has control groups of version 2, with or without controllers."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)


def remove_group(group: Path) -> None:
    """The control group, whose last processes end just now."""

    def is_gone() -> bool:
        for directory, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
        return not group.exists()

    wait_for(is_gone, f"{group} is empty")


def unavailable_reason() -> str | None:
    """Why there can be no container here; None if there can."""
    if os.geteuid() != 0:
        return "needs root (namespaces)"
    if not Path("/lib/systemd/systemd").exists():
        return "no systemd is installed"
    file_systems = Path("/proc/filesystems").read_text().split()
    if "overlay" not in file_systems:
        return "this kernel has no overlay file system"
    return None if find_groups() else "no control groups of version 2 are mounted"
