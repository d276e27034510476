"""Several channels with shares of one simulated GPU that has a clock, and guest processes that compute on it.

What each has had is read from the simulated hardware, not from the arbiter that is tested.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.unit.calls_rig import WORKER, guest_env
from tests.unit.transport_rig import LIB, PATIENCE_S, Rig, wait_for
from vgpumgr.sim import machine as machines
from vgpumgr.virtio import arbiter

TENANT = LIB / "test" / "vgpumgr-test-tenant"
MACHINE = "a30-pair"
GPU = "GPU-under-test"


@dataclass(frozen=True)
class Load:
    """What a guest process does: kernels of ``steps`` times ``step_ns`` of device time (0 steps: without end),
    ``depth`` of them at once in each of ``streams`` streams, ``flight`` times (1: it waits for them before the next);
    ``processes`` of that kind. With ``late_us`` each launch stands behind a wait for memory, which ends so much later;
    with ``behind`` the wait stands behind the launch, with ``graph`` before it in the same graph.
    """

    step_ns: int
    steps: int = 1
    depth: int = 1
    streams: int = 1
    flight: int = 2
    processes: int = 1
    late_us: int = 0
    behind: bool = False
    graph: bool = False

    @property
    def words(self) -> list[str]:
        """Arguments of the program."""
        numbers = (self.step_ns, self.steps, self.depth, self.streams, self.flight)
        return [
            *map(str, numbers),
            *(
                [str(self.late_us), str(2 if self.graph else int(self.behind))]
                if self.late_us
                else []
            ),
        ]


ENDLESS = Load(1_000_000, 0, flight=1)


class Tenant:
    """A channel with a share, and the processes of its guest."""

    def __init__(self, rig: Rig, directory: Path) -> None:
        self.rig = rig
        self._directory = directory
        self._processes: list[subprocess.Popen[str]] = []
        #: device time of sessions that have ended
        self._ended: dict[int, int] = {}

    def start(self, load: Load) -> None:
        """Starts the load's processes, and waits until they compute."""
        for _ in range(load.processes):
            process = subprocess.Popen(
                [str(TENANT), *load.words],
                env=guest_env(self.rig),
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends its processes."""
        for process in self._processes:
            process.send_signal(how)
        for process in self._processes:
            process.communicate(timeout=PATIENCE_S)
        self._processes.clear()

    def read_device_ns(self) -> int:
        """Device time that all its sessions have had."""
        pids = {lane.session_pid for lane in self.rig.status().lanes}
        for pid, ns in machines.read_device_time(self._directory).items():
            if pid in pids:
                self._ended[pid] = max(ns, self._ended.get(pid, 0))
        return sum(self._ended.values())


def measure(tenants: Sequence[Tenant], seconds: float, window_s: float = 1.0) -> list[list[float]]:
    """For each window the percent of its time that each tenant had the GPU."""
    rows = []
    before, began = [t.read_device_ns() for t in tenants], time.monotonic_ns()
    end = began + int(seconds * 1e9)
    while time.monotonic_ns() < end:
        time.sleep(window_s)
        now, after = time.monotonic_ns(), [t.read_device_ns() for t in tenants]
        rows.append([100 * (b - a) / (now - began) for a, b in zip(before, after, strict=True)])
        before, began = after, now
    return rows


def mean(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of each tenant, over all windows."""
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def find_arbiter(socket: Path) -> int:
    """The process of the arbiter at that socket."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0].endswith(b"vgpumgr-arbiter") and os.fsencode(socket) in words:
                return int(path.parent.name)
    raise AssertionError("no arbiter runs")


def is_held(socket: Path) -> bool:
    """Whether an arbiter runs for that socket, without asking it, which would keep it alive."""
    with Path(f"{socket}.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def clocked_machine() -> Iterator[Path]:
    """A simulated machine with a clock, in the environment; its directory."""
    with tempfile.TemporaryDirectory(prefix="vgs") as root, pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUMGR_SIM_ROOT", root)
        machines.create_machine(MACHINE)
        try:
            for key, value in machines.machine_env(MACHINE).items():
                patch.setenv(key, value)
            directory = Path(machines.machine_env(MACHINE)["VGPUMGR_SIM"])
            machines.start_clock(directory)
            yield directory
        finally:
            machines.destroy_machine(MACHINE)


@contextlib.contextmanager
def share_out(policy: str | None, percents: Sequence[int]) -> Iterator[list[Tenant]]:
    """A channel for each percentage of one GPU; ``policy`` None: without an arbiter, as channels without a share."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(clocked_machine())
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vga")))
        socket = arbiter.ensure(GPU, policy, sockets, linger_s=1) if policy else None
        if socket is not None:
            stack.callback(wait_for, lambda: not is_held(socket), "the arbiter's end")
        tenants = []
        for percent in percents:
            driver = str(LIB / "sim" / "libcuda.so.1")
            rig = Rig("ring", worker=WORKER, worker_args=("--cuda", driver))
            if socket is not None:
                rig.options = replace(
                    rig.options, compute=percent, compute_policy=policy, arbiter=socket
                )
            tenants.append(Tenant(stack.enter_context(rig), directory))
            stack.callback(tenants[-1].stop, signal.SIGKILL)
        yield tenants
