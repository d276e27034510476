"""What a process holds, again and again, and whether that still grows once all that has its bound is full.

Objects of Python's own allocator are counted one by one: one that stays in each cycle shows. What other code
allocates (SQLite, libxml2, libvirt, large strings) is counted in bytes, and the process as the kernel sees it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Any

from vgpumgr.engine import journal

#: how much of its size a process may grow by in 1,000 cycles of the second half. Of 400,000 objects, one that stays
#: in each cycle is 0.25 %; memory that doubles in 50,000 cycles is 2 %
BOUNDS = {
    "objects": 0.001,
    "daemon_objects": 0.001,
    "malloc_bytes": 0.03,
    "rss_bytes": 0.02,
    "helpers_rss_bytes": 0.02,
}
#: pages come one by one and tables double now and then: so much in half a run says nothing
SLACK_BYTES = 256 << 10
#: a daemon's tasks come and go between two looks; one that stays in each of 40 cycles is more
SLACK_OBJECTS = 24
#: in fewer cycles only what is large says anything
MIN_CYCLES = 20
#: what has a rule of its own, and goes up and down below it: journals, the state file, reports of operations
LIMITS = {"journal_bytes": 512 << 10, "database_bytes": 1 << 20, "reports": 201}
_PAGE = os.sysconf("SC_PAGE_SIZE")

Sample = dict[str, int]


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2``, see mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def read_rss_bytes(pid: int | str) -> int:
    """Resident memory of a process; 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def read_own() -> Sample:
    """What this process holds, but for caches that have their bound: they need not be full yet."""
    rss_bytes = read_rss_bytes("self")
    _forget_caches()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    held = libc.mallinfo2()
    return {
        "objects": sys.getallocatedblocks(),
        "malloc_bytes": held.uordblks + held.hblkhd,
        "rss_bytes": rss_bytes,
    }


def measure_state(state: Path) -> Sample:
    """What is in a state directory and has a rule of its own: it is seen to keep to it."""
    return {
        "journal_bytes": sum(path.stat().st_size for path in state.glob("journal*")),
        "database_bytes": sum(path.stat().st_size for path in state.glob("*.sqlite*")),
        "reports": sum(1 for _ in state.glob("operations/*")),
    }


def _forget_caches() -> None:
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("vgpumgr.")]:
        for value in list(vars(module).values()):
            if isinstance(value, _lru_cache_wrapper) and value.cache_parameters()["maxsize"]:
                value.cache_clear()
    # the journal that was read last, which has a size at which it is put away
    journal._known.clear()
    # the interpreter's own, of 4,096 names: whoever asks for an attribute by a new string leaves that in it
    sys._clear_type_cache()
    gc.collect()


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one quantity: its size at the end, and how much more it was for each cycle of either half."""

    size: int
    first: float
    second: float
    #: cycles of either half
    cycles: float

    @property
    def share(self) -> float:
        """Of its size, in 1,000 cycles as those of the second half."""
        return self.second * 1000 / max(self.size, 1)


def find_growth(cycles: Sequence[int], sizes: Sequence[int]) -> Growth:
    """The slopes of both halves."""
    points = list(zip(cycles, sizes, strict=True))
    half = (cycles[-1] - cycles[0]) / 2
    middle = cycles[0] + half
    halves = ([p for p in points if p[0] <= middle], [p for p in points if p[0] >= middle])
    first, second = map(_find_slope, halves)
    return Growth(sizes[-1], first, second, half)


def _find_slope(points: Sequence[tuple[int, int]]) -> float:
    """For each cycle (Theil-Sen: the median of all pairs, which no single sample bends)."""
    level = _without_largest_step(points)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(level, 2)]
    return statistics.median(slopes)


def _without_largest_step(points: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """A table that doubles is one step, and no growth in each cycle: the largest counts as the others do."""
    steps: list[float] = [y2 - y1 for (_, y1), (_, y2) in pairwise(points)]
    largest = steps.index(max(steps))
    # of itself where there is no other
    steps[largest] = statistics.median(steps[:largest] + steps[largest + 1 :] or steps)
    level = accumulate(steps, initial=float(points[0][1]))
    return [(x, y) for (x, _), y in zip(points, level, strict=True)]


class Series:
    """What was seen after so many cycles. Looking must not grow what is looked at: numbers, and no objects."""

    def __init__(self) -> None:
        self.cycles = array("q")
        self.seen: dict[str, array[int]] = {}

    def add(self, cycle: int, sample: Sample) -> None:
        """One look."""
        self.cycles.append(cycle)
        for name, size in sample.items():
            self.seen.setdefault(name, array("q")).append(size)

    def describe(self) -> dict[str, Any]:
        """The growth of each quantity, as people read it, with its bound."""
        found = {}
        for name in [name for name in BOUNDS if name in self.seen]:
            grown = find_growth(self.cycles, self.seen[name])
            found[name] = {
                "sizes": " ".join(map(str, self.seen[name])),
                "per_cycle_first_half": round(grown.first, 2),
                "per_cycle_second_half": round(grown.second, 2),
                "second_half": round(grown.second * grown.cycles),
                "share_per_1000_cycles": round(grown.share, 5),
                "bound": BOUNDS[name],
            }
        return found

    def find_largest(self) -> dict[str, int]:
        """The most that was seen of what has a limit."""
        return {name: max(self.seen[name]) for name in LIMITS if name in self.seen}


def watch(
    cycle: Callable[[int], None], look: Callable[[], Sample], count: int, looks: int
) -> Series:
    """So many cycles, and what is held before, between and after them."""
    series, done = Series(), 0
    series.add(done, look())
    while done < count:
        more = min(max(1, count // looks), count - done)
        cycle(more)
        done += more
        series.add(done, look())
        seen = {name: sizes[-1] for name, sizes in series.seen.items()}
        print(done, seen, file=sys.stderr, flush=True)
    return series


def judge(described: dict[str, Any], largest: dict[str, int], cycles: int) -> list[str]:
    """What still grows, and what is larger than it may be."""
    large = [
        f"{name}: {n}, at most {LIMITS[name]}" for name, n in largest.items() if n > LIMITS[name]
    ]
    told = {n: g for n, g in described.items() if cycles >= MIN_CYCLES or n == "malloc_bytes"}
    return large + [
        f"{name} grow by {found['per_cycle_second_half']} in each cycle of the second half,"
        f" {found['share_per_1000_cycles']:.2%} of their size in 1,000; bound {found['bound']:.2%}"
        for name, found in told.items()
        if found["share_per_1000_cycles"] > found["bound"]
        and found["second_half"] > _find_slack(name)
    ]


def _find_slack(name: str) -> int:
    return {"objects": 0, "daemon_objects": SLACK_OBJECTS}.get(name, SLACK_BYTES)
