"""How fast the simulated driver runs kernels: warp-wide against lane by lane, in one process on the same cores."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from bench.registry import Figure, at_least
from tests.sim.ptx_runner import Module, compile_ptx

_SOURCE = Path(__file__).resolve().parent / "ptx_kernels.cu"
_RUNS = 9
Launch = tuple[int | tuple[int, ...], int | tuple[int, ...], str, tuple[float, ...]]


def run(small: bool = False) -> Iterable[Figure]:
    """Processor times of a launch, the least of several; the engines take turns. Arrays fit in the caches."""
    module = Module(compile_ptx(str(_SOURCE)))
    n = 1 << (10 if small else 16)
    x = module.upload("f", [(k % 977) * 0.01 for k in range(n)])
    y = module.upload("f", [(k % 971) * 0.01 for k in range(n)])
    out = module.alloc(4 * n)
    side = 16 if small else 96
    kernels: dict[str, tuple[float, str, Launch]] = {
        "fma_chain": (6, "fused multiply-add", (4, 128, "Qi", (out, 10 if small else 2000))),
        "elementwise": (6, "elementwise float32", (2, 256, "QQfi", (x, y, 1.5, n))),
        "matmul_shared": (
            3,
            "matmul in shared memory",
            ((side // 16, side // 16), (16, 16), "QQQi", (x, y, out, side)),
        ),
        "reduce_shared": (3, "reduction in shared memory", (4, 256, "QQi", (x, out, n))),
        "reduce_shuffle": (3, "reduction by shuffles", (4, 256, "QQi", (x, out, n))),
        "divergent": (
            1,
            "each lane its own way",
            (8, 128, "Qi", (out, 1 << (10 if small else 14))),
        ),
        "mandelbrot": (1, "loops left at other times", (8, 128, "Qi", (out, 32))),
    }
    for name, (goal, title, launch) in kernels.items():
        yield _measure(module, name, goal, title, launch)


def _measure(module: Module, name: str, goal: float, title: str, launch: Launch) -> Figure:
    grid, block, codes, arguments = launch
    best = {True: float("inf"), False: float("inf")}
    for _ in range(_RUNS):
        for by_lane in best:
            module.by_lane(by_lane)
            start = time.process_time()
            module.run(name, grid, block, codes, *arguments)
            best[by_lane] = min(best[by_lane], time.process_time() - start)
    rates = {by_lane: 1 / seconds for by_lane, seconds in best.items()}
    text, met = at_least(goal, rates[False], rates[True])
    return Figure(
        title, rates[False], rates[True], "1/s", "lane by lane", text, met, "PTX interpreter"
    )
