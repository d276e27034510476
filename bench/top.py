"""What one refresh of ``vgpumgr top`` costs: asking a simulated DGX A100, and drawing 80x24."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

from bench.machine import NAME, simulated
from bench.registry import Figure
from vgpumgr.app.application import open_application
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.host.clock import SystemClock
from vgpumgr.tui.frame import draw
from vgpumgr.tui.rows import UNICODE
from vgpumgr.tui.sample import take_sample
from vgpumgr.tui.view import View

_GOAL_S = 0.05
_RUNS = 30


def cpu_seconds(work: Callable[[], object], runs: int) -> float:
    """Median CPU time of this process, all its threads, for one call."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def run(small: bool = False) -> Iterable[Figure]:
    """CPU time of a refresh against that of reading the GPUs alone, which any tool must do."""
    runs = 2 if small else _RUNS
    with simulated(), open_application(NAME) as application:
        backend, view, clock = LocalBackend(application), View(UNICODE), SystemClock()

        def refresh() -> None:
            view.show(take_sample(backend.call, clock))
            draw(view, 80, 24)

        floor = cpu_seconds(application.parts.nvml.read_inventory, runs)
        ours = cpu_seconds(refresh, runs)
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
