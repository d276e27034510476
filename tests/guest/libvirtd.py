"""A libvirtd of our own, with real domains under TCG, beside whatever runs on this machine.

It lives in private mount and process namespaces: libvirt's fixed directories are bound to a scratch directory, and
all its QEMUs end with it. Its socket stands in the scratch directory, so this process and its children reach it through
``uri`` (``qemu+unix:///system?socket=...``). Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import short

PRIVATE = ("run/libvirt", "var/lib/libvirt", "var/log/libvirt", "var/cache/libvirt", "etc/libvirt")
INSIDE = r"""
set -eu
for dir in $PRIVATE; do
    mkdir -p "/$dir"
    mount --bind "$SCRATCH/$dir" "/$dir"
done
# libvirtd may be killed and started again while its domains run
while [ -e "$SCRATCH/run-libvirtd" ]; do
    libvirtd -p "$SCRATCH/libvirtd.pid" >>"$SCRATCH/libvirtd.log" 2>&1 || :
    sleep 0.1
    while [ -e "$SCRATCH/hold" ]; do sleep 0.1; done
done
"""


class PrivateLibvirtd:
    """One libvirtd; ``start`` before use, ``stop`` ends it and every domain."""

    def __init__(self, scratch: Path, qemu_user: str = "root", qemu_group: str = "root") -> None:
        self.scratch = scratch
        self.qemu = (qemu_user, qemu_group)
        self.socket = scratch / "run/libvirt/libvirt-sock"
        self.uri = f"qemu+unix:///system?socket={self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 300) -> None:
        """Start and wait for the socket to answer."""
        for directory in PRIVATE:
            (self.scratch / directory).mkdir(parents=True, exist_ok=True)
        etc = self.scratch / "etc/libvirt"
        # a host of its own, so that domains may migrate between two of them
        host = f'auth_unix_rw = "none"\nhost_uuid = "{uuid.uuid4()}"\n'
        (etc / "libvirtd.conf").write_text(host)
        (etc / "qemu.conf").write_text(
            f'user = "{self.qemu[0]}"\ngroup = "{self.qemu[1]}"\n'
            'security_driver = "none"\nremember_owner = 0\n'
            'stdio_handler = "file"\ncgroup_controllers = [ ]\nnamespaces = [ ]\n'
        )
        (self.scratch / "run-libvirtd").touch()
        env = os.environ | {"SCRATCH": str(self.scratch), "PRIVATE": " ".join(PRIVATE)}
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork",
             "--kill-child", "--mount-proc", "bash", "-c", INSIDE],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = 300) -> None:
        """Wait until libvirtd answers a client."""
        deadline = time.monotonic() + timeout_s
        while self.virsh("uri", check=False).returncode != 0:
            if time.monotonic() > deadline:
                log = self.scratch / "libvirtd.log"
                text = log.read_text(errors="replace") if log.exists() else "it never started"
                raise TimeoutError(f"libvirtd does not answer:\n{text[-2000:]}")
            time.sleep(0.1)

    def virsh(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run virsh on this libvirtd; output is captured. Raises CalledProcessError, with what virsh said."""
        words = ["virsh", "-q", "-c", self.uri, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if check and done.returncode:
            error = subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
            error.add_note(done.stderr)
            raise error
        return done

    def go_down(self) -> None:
        """Kill libvirtd and keep it down; its domains run on. ``come_up`` brings it back."""
        (self.scratch / "hold").touch()
        self._kill()
        self.socket.unlink(missing_ok=True)

    def come_up(self) -> None:
        """Start libvirtd again after ``go_down``."""
        (self.scratch / "hold").unlink()
        self.wait_ready()

    def send(self, number: int) -> int | None:
        """Send libvirtd a signal; one that ends is started again at once. The pid of the one that got it."""
        try:
            pid_inside = int((self.scratch / "libvirtd.pid").read_text())
        except (OSError, ValueError):
            return None
        assert self._process is not None
        for pid in descendants(self._process.pid):
            if innermost_pid(pid) == pid_inside:
                os.kill(pid, number)
                return pid
        return None

    def _kill(self) -> None:
        self.send(signal.SIGKILL)

    def stop(self) -> None:
        """End libvirtd and all its domains."""
        (self.scratch / "run-libvirtd").unlink(missing_ok=True)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid``, as numbered in our own namespace."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)


def innermost_pid(pid: int) -> int:
    """The process's number in its own namespace."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return -1


@contextlib.contextmanager
def private_libvirtd(
    qemu_user: str = "root", qemu_group: str = "root"
) -> Iterator[PrivateLibvirtd]:
    """A running libvirtd in a scratch directory with a short path (sockets allow about 100 characters)."""
    scratch = Path(tempfile.mkdtemp(prefix="vglv.", dir=short()))
    scratch.chmod(0o755)
    daemon = PrivateLibvirtd(scratch, qemu_user, qemu_group)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(scratch, ignore_errors=True)
