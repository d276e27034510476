"""The daemon: what asking it costs, and how often it can be asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.registry import ROOT, Figure, at_most, seconds

REQUEST = b"GET /1.0/gpus HTTP/1.1\r\nHost: x\r\n\r\n"
_CPU = Path("/proc")


def run() -> Iterable[Figure]:
    """``gpu list`` against ``--help``, and list requests for each second of one core."""
    vgpumgr = [sys.executable, "-m", "vgpumgr"]
    with _daemon() as (pid, path):
        ours = seconds([*vgpumgr, "--machine", "dgx-a100", "gpu", "list"])
        floor = seconds([*vgpumgr, "--help"])
        goal, met = at_most(1.5, ours, floor)
        yield Figure(
            "gpu list through the daemon", ours, floor, "s", "vgpumgr --help", goal, met,
            "simulated driver",
        )  # fmt: skip
        rate = _rate(pid, path)
        yield Figure(
            "list requests per core-second", rate, 1500, "1/s", "goal", "at least 1500",
            rate >= 1500, "simulated driver",
        )  # fmt: skip


def _rate(pid: int, path: str, requests: int = 5000) -> float:
    """Requests for each second of CPU time of the daemon, one connection, body read to its end."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        _ask(stream)
        before = _cpu_s(pid)
        for _ in range(requests):
            _ask(stream)
        return requests / (_cpu_s(pid) - before)


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


def _cpu_s(pid: int) -> float:
    fields = (_CPU / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _daemon() -> Iterator[tuple[int, str]]:
    """A daemon on a simulated machine of its own."""
    with tempfile.TemporaryDirectory(prefix="vgbench.", dir="/tmp") as directory:
        os.environ["VGPUMGR_SIM_ROOT"] = directory
        command = [sys.executable, "-m", "vgpumgr", "-q"]
        subprocess.run([*command, "sim", "start", "dgx-a100"], check=True, cwd=ROOT)
        daemon = subprocess.Popen([*command, "--machine", "dgx-a100", "daemon"], cwd=ROOT)
        path = f"{directory}/dgx-a100/host/run/vgpumgr.sock"
        try:
            wait_answer(path, "/1.0")
            yield daemon.pid, path
        finally:
            daemon.terminate()
            daemon.wait()
            subprocess.run([*command, "sim", "stop", "dgx-a100"], check=True, cwd=ROOT)
            del os.environ["VGPUMGR_SIM_ROOT"]


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
