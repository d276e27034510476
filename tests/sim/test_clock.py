"""The clock of simulated GPUs: kernels take device time, and processes share one engine in slices."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shares_rig import TENANT, clocked_machine
from tests.unit.transport_rig import LIB, PATIENCE_S, wait_for
from vgpumgr.sim import lifecycle
from vgpumgr.sim import machine as machines

pytestmark = pytest.mark.native

#: kernels of 5 ms
WORDS = ("1000000", "5", "1", "1", "1")
KERNEL_NS = 5_000_000


@pytest.fixture
def clocked() -> Iterator[Path]:
    with clocked_machine() as directory:
        yield directory


def compute(*words: str, **env: str) -> subprocess.Popen[str]:
    """A program of the host on the simulated driver, that computes by now."""
    process = subprocess.Popen(
        [str(TENANT), *words],
        env={**os.environ, "LD_LIBRARY_PATH": str(LIB / "sim"), **env},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> int:
    """How many kernels it has done."""
    process.send_signal(signal.SIGTERM)
    return int(process.communicate(timeout=PATIENCE_S)[0])


def test_kernels_take_the_device_time_that_they_sleep(clocked: Path) -> None:
    process = compute(*WORDS)
    before, began = machines.read_device_time(clocked)[process.pid], time.monotonic_ns()
    time.sleep(2)
    took, passed = (
        machines.read_device_time(clocked)[process.pid] - before,
        time.monotonic_ns() - began,
    )
    assert took <= passed * 1.02
    all_ns = machines.read_device_time(clocked)[process.pid]
    done = end(process)
    assert all_ns * 0.8 <= (done + 1) * KERNEL_NS <= all_ns * 1.5 + 3 * KERNEL_NS


def test_processes_share_the_engine_equally_however_many_streams_they_have(clocked: Path) -> None:
    processes = [compute(*WORDS), compute("1000000", "5", "1", "16", "1")]
    before = machines.read_device_time(clocked)
    time.sleep(3)
    after = machines.read_device_time(clocked)
    had = [after[p.pid] - before[p.pid] for p in processes]
    assert 0.7 < had[0] / had[1] < 1.4, had
    for process in processes:
        end(process)


def test_a_process_killed_with_the_engine_leaves_it_to_the_next(clocked: Path) -> None:
    first = compute("1000000", "0", "1", "1", "1")  # a kernel without end
    time.sleep(0.1)
    first.kill()
    first.communicate()
    other = compute(*WORDS)
    wait_for(
        lambda: machines.read_device_time(clocked).get(other.pid, 0) > KERNEL_NS, "its kernels"
    )
    end(other)


def test_without_a_clock_no_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="vgc") as root:
        monkeypatch.setenv("VGPUMGR_SIM_ROOT", root)
        directory = machines.create_machine("a30-pair")
        try:
            for key, value in machines.machine_env("a30-pair").items():
                monkeypatch.setenv(key, value)
            process = compute("1000000", "1000", "1", "1", "1")
            time.sleep(0.5)
            assert end(process) > 10  # of a second each, if a clock were there
            process = compute(*WORDS, VGPUMGR_SIM_CLOCK="1")
            wait_for(lambda: bool(machines.read_device_time(directory)[process.pid]), "device time")
            end(process)
        finally:
            machines.destroy_machine("a30-pair")


def test_sim_start_gives_a_machine_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="vgc") as root:
        monkeypatch.setenv("VGPUMGR_SIM_ROOT", root)
        directory, _ = lifecycle.start("a30-pair", clock=True)
        try:
            for key, value in machines.machine_env("a30-pair").items():
                monkeypatch.setenv(key, value)
            process = compute(*WORDS)
            wait_for(lambda: bool(machines.read_device_time(directory)[process.pid]), "device time")
            end(process)
        finally:
            lifecycle.stop("a30-pair")
