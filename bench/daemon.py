"""The daemon: what asking it costs, and how often it can be asked."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commands import LIST, PLAN, VGPUMGR, compare, layout_file
from bench.machine import NAME, simulated
from bench.registry import ROOT, Figure

REQUEST = b"GET /1.0/gpus HTTP/1.1\r\nHost: x\r\n\r\n"
_CPU = Path("/proc")


def run(small: bool = False) -> Iterable[Figure]:
    """Commands against ``--help``, and list requests for each second of one core."""
    runs, requests = (1, 20) if small else (15, 5000)
    with running_daemon() as (pid, path), layout_file() as layout:
        yield compare("gpu list through the daemon", LIST, 1.5, runs)
        yield compare("mig layout plan through the daemon", [*PLAN, layout], 2, runs)
        rate = _rate(pid, path, requests)
        yield Figure(
            "list requests per core-second", rate, 1500, "1/s", "goal", "at least 1500",
            rate >= 1500, "simulated driver",
        )  # fmt: skip


def _rate(pid: int, path: str, requests: int) -> float:
    """Requests for each second of CPU time of the daemon, one connection, body read to its end."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        _ask(stream)
        before = cpu_s(pid)
        for _ in range(requests):
            _ask(stream)
        # the kernel counts ticks
        return requests / max(cpu_s(pid) - before, 1 / os.sysconf("SC_CLK_TCK"))


def _ask(stream: socket.socket) -> None:
    stream.sendall(REQUEST)
    data = b""
    while b"\r\n\r\n" not in data:
        data += stream.recv(1 << 18)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += stream.recv(1 << 18)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process, so far."""
    fields = (_CPU / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_daemon(name: str = NAME, text: str | None = None) -> Iterator[tuple[int, str]]:
    """A daemon on a simulated machine of its own."""
    with simulated(name, text) as machine:
        daemon = subprocess.Popen([*VGPUMGR, "-q", "--machine", name, "daemon"], cwd=ROOT)
        path = str(machine.run_dir / "vgpumgr.sock")
        try:
            wait_answer(path, "/1.0")
            yield daemon.pid, path
        finally:
            daemon.terminate()
            daemon.wait()


def ask(path: str, resource: str) -> bytes:
    """The body of one answer, on a connection of its own. Raises OSError where none answers."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        stream.sendall(f"GET {resource} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with stream.makefile("rb") as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(head.decode())
    return body


def wait_answer(path: str, resource: str) -> bytes:
    """The first answer."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask(path, resource)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.002)
