"""Runs in the lab host: vgpumgr's command line, loaded once and forked for every command.

Python takes seconds to load vgpumgr under TCG; a forked child runs the same ``main`` on the same machine at once. On
each port ``lab.vgpumgr.N`` a line "ID {"argv": [...], "env": {...}}" is answered by a JSON object with status, stdout
and stderr, and a line "\\036ID STATUS"; the ports are independent of each other. With "module" another program runs.
vgpumgr's own helpers are forked too: each takes as long to load. The lab host with systemd runs the installed package,
which starts them itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import vgpumgr
from vgpumgr.host import helper

#: slow to load, for few commands; all others are loaded at once
LEFT_OUT = (
    "vgpumgr.cli.remote", "vgpumgr.cli.top", "vgpumgr.server", "vgpumgr.sim", "vgpumgr.tui",
    "vgpumgr.virtio.codegen", "vgpumgr.virtio.spec", "vgpumgr.__main__",
)  # fmt: skip
MARK = b"\x1e"


def load() -> None:
    """Import what a command may need."""
    for name in ("typer.main", "libvirt", "yaml"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(vgpumgr.__path__, "vgpumgr.", onerror=print):
        if not module.name.startswith(LEFT_OUT):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


class Forked:
    """A forked helper: what ``vgpumgr.host.helper`` asks of a ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """The same, waited for. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("helper", timeout)
            time.sleep(0.01)
        return status


def fork_helper(argv: Sequence[str], env: Mapping[str, str]) -> tuple[socket.socket, Forked]:
    """``vgpumgr.host.helper._spawn`` without loading Python."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        be_helper(argv, env, theirs.fileno())
    theirs.close()
    return ours, Forked(child)


def be_helper(argv: Sequence[str], env: Mapping[str, str], descriptor: int) -> None:
    """Be ``python -m MODULE ARGUMENT... DESCRIPTOR``."""
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, 1024)
        os.environ.clear()
        os.environ.update(env)
        # a simulated machine's: the dynamic linker looks at its variable when a program starts only
        for folder in env.get("LD_LIBRARY_PATH", "").split(":"):
            if (nvml := Path(folder) / "libnvidia-ml.so.1").is_file():
                ctypes.CDLL(str(nvml))
        sys.argv = [*argv[2:], str(descriptor)]
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
        status = 0
    finally:
        os._exit(status)


def serve(name: str) -> None:
    """Answer on one port for ever; every command runs in a process of its own."""
    port, rest = os.open(name, os.O_RDWR), b""
    # blocks until somebody listens
    os.write(port, MARK + b"ready 0\n")
    while True:
        data = os.read(port, 65536)
        if not data:
            time.sleep(0.1)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            answer(port, line)


def answer(port: int, line: bytes) -> None:
    """Run one command in a child; what it prints goes to files."""
    name, _, text = line.partition(b" ")
    command = json.loads(text)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            run(command, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reply = {"status": status, "stdout": read(out.fileno()), "stderr": read(err.fileno())}
    send(port, json.dumps(reply).encode() + MARK + name + b" %d\n" % (status % 256))


def read(file: int) -> str:
    """All of an open file."""
    return Path(f"/proc/self/fd/{file}").read_text(errors="replace")


def run(command: dict[str, object], out: int, err: int) -> None:
    """Be vgpumgr."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, 1024)
    environment = command.get("env")
    os.environ.update(environment if isinstance(environment, dict) else {})
    words = command["argv"]
    assert isinstance(words, list)
    sys.argv = ["vgpumgr", *words]
    status: object = 70
    try:
        status = be(command)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status if isinstance(status, int) else bool(status))


def be(command: dict[str, object]) -> object:
    """The module that is asked for, or the command line."""
    if module := command.get("module"):
        runpy.run_module(str(module), run_name="__main__", alter_sys=True)
        return 0
    from vgpumgr.cli.main import main

    return main()


def send(port: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(port, data) :]


def main(names: list[str]) -> None:
    """Load, then serve the ports, each in a process of its own."""
    load()
    helper._spawn = fork_helper  # type: ignore[assignment]
    for name in names[1:]:
        if os.fork() == 0:
            serve(name)
    serve(names[0])


if __name__ == "__main__":
    main(sys.argv[1:])
