"""How long planning a host of eight GPUs takes, from whatever layouts to whatever targets."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from bench.registry import Figure, at_most
from tests.support.layout_oracle import A30, A100, H100, RTX, Layout, make_gpu, make_oracle
from vgpumgr.mig.layout import board as boards
from vgpumgr.mig.layout.planner import try_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu

_GOAL_S = 0.010
_HOSTS = 400
_KINDS = {
    "8 A100": (A100,) * 8,
    "8 RTX PRO 6000": (RTX,) * 8,
    "8 GPUs, four kinds": (A30, A100, H100, RTX) * 2,
}
Case = tuple[Sequence[Gpu], Sequence[GpuTarget]]


def run(small: bool = False) -> Iterable[Figure]:
    """Each host is a draw of layouts and targets, one host in eight with an impossible one. ``first``
    plans with nothing remembered, as a command does; ``again`` as a daemon. ``slowest target``: all
    eight GPUs are to have the same, and the figure is that of the target which takes longest. Times
    are processor times: planning waits for nothing.
    """
    for kind, names in _KINDS.items():
        draw = random.Random(kind)
        cases = [_draw_case(draw, names) for _ in range(2 if small else _HOSTS)]
        yield _make_figure(f"{kind}: first", statistics.median(_measure(cases, boards.forget)))
        yield _make_figure(f"{kind}: again", statistics.median(_measure(cases, lambda: None)))
    for name in () if small else (A100, RTX):
        yield _make_figure(f"8 {name}: slowest target, first", _find_slowest(name))


def _find_slowest(name: str) -> float:
    """Chosen by processor time, so that others on the machine do not choose; timed as the rest."""
    draw = random.Random(name)
    oracle = make_oracle(name)

    def draw_cases(names: Sequence[str], count: int) -> list[Case]:
        return [_make_case(name, draw.choices(oracle.layouts, k=8), names) for _ in range(count)]

    def rate(names: Sequence[str]) -> float:
        return statistics.median(_measure(draw_cases(names, 3), boards.forget, time.thread_time))

    slowest = max(oracle.targets(), key=rate)
    return statistics.median(_measure(draw_cases(slowest, 41), boards.forget))


def _make_case(name: str, layouts: Sequence[Layout], wanted: Sequence[str]) -> Case:
    gpus = [make_gpu(name, layout, index) for index, layout in enumerate(layouts)]
    instances = tuple(TargetInstance(w) for w in wanted)
    return gpus, [GpuTarget(gpu.uuid, True, instances) for gpu in gpus]


def _draw_case(draw: random.Random, names: Sequence[str]) -> Case:
    gpus, targets = [], []
    for index, name in enumerate(names):
        oracle = make_oracle(name)
        gpu = make_gpu(name, draw.choice(oracle.layouts), index)
        wanted = list(draw.choice(list(oracle.targets())))
        if draw.random() < 1 / 8 / len(names):
            wanted += wanted
        gpus.append(gpu)
        targets.append(GpuTarget(gpu.uuid, True, tuple(TargetInstance(w) for w in wanted)))
    return gpus, targets


def _measure(
    cases: Sequence[Case],
    prepare: Callable[[], None],
    clock: Callable[[], float] = time.process_time,
) -> list[float]:
    times = []
    for gpus, targets in cases:
        prepare()
        start = clock()
        try_layout(gpus, targets)
        times.append(clock() - start)
    return times


def _make_figure(name: str, seconds: float) -> Figure:
    goal, met = at_most(1, seconds, _GOAL_S)
    return Figure(f"plan {name}", seconds, _GOAL_S, "s", "10 ms", goal, met)
