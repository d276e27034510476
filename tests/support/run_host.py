"""A simulated machine on which commands of the host run, from outside: ``vgpumgr run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.forked import run_vgpumgr

MACHINE = "dgx-a100"
#: for anything that should take seconds: the machine may be busy
PATIENCE_S = 240.0


class Host:
    """A simulated machine, and this program on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # no libvirt runs: a host without VMs needs none
        self.env = {**os.environ, "VGPUMGR_SIM_ROOT": str(root)}
        self.started: list[subprocess.Popen[str]] = []

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "vgpumgr", "--machine", MACHINE, *words]

    def call(
        self, *words: str, code: int | None = 0, given: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = run_vgpumgr(
            "--machine", MACHINE, *words, env=self.env, timeout_s=PATIENCE_S, given=given, cwd=cwd
        )
        assert code is None or done.returncode == code, (done.stdout, done.stderr)
        return done

    def read(self, *words: str) -> Any:
        return json.loads(self.call(*words, "-o", "json").stdout)

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.words(*words), env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **how,
        )  # fmt: skip
        self.started.append(process)
        return process

    @property
    def channels(self) -> list[Path]:
        return list((self.root / MACHINE / "host" / "run" / "channels").glob("*"))

    def list_left(self) -> dict[str, Any]:
        """All that a run may leave behind."""
        mig, gpus, virtio = (self.read(noun, "list") for noun in ("mig", "gpu", "virtio"))
        modes = [gpu["mig"]["current"] for gpu in gpus["gpus"]]
        found = {
            "instances": mig["instances"],
            "channels": self.channels,
            "processes": list_processes(str(self.root)),
            "attachments": virtio["channels"],
            "modes": [mode for mode in modes if mode],
        }
        return {name: value for name, value in found.items() if value}


@contextmanager
def started_machine(variables: Mapping[str, str] | None = None) -> Iterator[Host]:
    """A simulated machine from start to stop; its commands have ``variables``, too."""
    # short: the paths of sockets are limited
    with tempfile.TemporaryDirectory(prefix="vgr") as directory:
        host = Host(Path(directory))
        host.env |= variables or {}
        words = [sys.executable, "-m", "vgpumgr", "sim"]
        how: dict[str, Any] = {"check": True, "capture_output": True, "timeout": PATIENCE_S}
        subprocess.run([*words, "start", MACHINE], env=host.env, **how)
        try:
            yield host
        finally:
            subprocess.run([*words, "stop", MACHINE], env=host.env, **how)


def end_all(host: Host) -> None:
    """End what a test has started, and see that nothing is left of it."""
    for process in host.started:
        if process.poll() is None:
            process.kill()
        if process.stdin is not None and process.stdin.closed:
            process.stdin = None
        process.communicate()
    host.started.clear()
    host.call("recover")
    assert host.list_left() == {}


def list_processes(text: str) -> list[str]:
    """The command lines of keepers, workers and agents that name ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        name = Path(words[0]).name
        if name in ("vgpumgr-keeper", "vgpumgr-guestd") and any(text in word for word in words):
            found.append(" ".join(words))
    return found


def wait_for(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line or process.poll() is None, process.communicate()
    return line
