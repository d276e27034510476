"""What a benchmark is, and how its figures are kept."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured pair. ``ratio`` is ours over the floor's; ``goal`` is the bound on it, as text."""

    name: str
    ours: float
    floor: float
    unit: str
    floor_name: str
    goal: str
    met: bool
    backend: str = "host"
    """What ran below: ``host``, ``null driver``, ``simulated driver``, ``guest under TCG`` or a GPU's model."""

    @property
    def ratio(self) -> float:
        """Ours over the floor's."""
        return self.ours / self.floor

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return asdict(self) | {"ratio": self.ratio}


Benchmark = Callable[[], Iterable[Figure]]


def at_most(limit: float, ours: float, floor: float) -> tuple[str, bool]:
    """A goal ``ratio <= limit`` and whether it is met."""
    return f"at most {limit:g}x", ours / floor <= limit


def at_least(limit: float, ours: float, floor: float) -> tuple[str, bool]:
    """A goal ``ratio >= limit`` and whether it is met."""
    return f"at least {limit:g}x", ours / floor >= limit


def seconds(command: list[str], runs: int = 15) -> float:
    """Median wall time of a whole command."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def circumstances() -> dict[str, str]:
    """Commit, date and class of machine, printed with every run."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )  # fmt: skip
    count = sum(
        line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines()
    )
    return {
        "commit": commit or "unknown",
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{count} x {model}",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
