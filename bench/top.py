"""What one refresh of ``vgpumgr top`` costs: asking a simulated DGX A100, and drawing 80x24."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from unittest import mock

from bench.registry import Figure
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.daemon.local import open_application
from vgpumgr.host.clock import SystemClock
from vgpumgr.sim.machine import create_machine
from vgpumgr.tui.frame import draw
from vgpumgr.tui.sample import take_sample
from vgpumgr.tui.symbols import UNICODE
from vgpumgr.tui.view import View

_GOAL_S = 0.05
_RUNS = 30


def cpu_seconds(work: Callable[[], object]) -> float:
    """Median CPU time of this process, all its threads, for one call."""
    times = []
    for _ in range(_RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def run() -> Iterable[Figure]:
    """CPU time of a refresh against that of reading the GPUs alone, which any tool must do."""
    with (
        tempfile.TemporaryDirectory(prefix="vgb") as directory,
        mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=directory),
    ):
        machine_dir = create_machine("dgx-a100")
        with (machine_dir / "env").open("a") as env:
            env.write("VGPUMGR_LIBVIRT_URI=test:///default\n")
        with open_application("dgx-a100") as application:
            backend, view, clock = LocalBackend(application), View(UNICODE), SystemClock()

            def refresh() -> None:
                view.show(take_sample(backend.call, clock))
                draw(view, 80, 24)

            floor = cpu_seconds(application.nvml.read_inventory)
            ours = cpu_seconds(refresh)
            assert view.sample is not None
            assert not view.sample.problems, view.sample.problems
    yield Figure(
        "top, one refresh (CPU)",
        ours,
        floor,
        "s",
        "reading the GPUs",
        f"at most {_GOAL_S:g} s",
        ours <= _GOAL_S,
        "simulated driver",
    )
