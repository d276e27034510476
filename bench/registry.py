"""What a benchmark is, and how its figures are kept."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
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


def at_most(limit: float, ours: float, floor: float) -> tuple[str, bool]:
    """A goal ``ratio <= limit`` and whether it is met."""
    return f"at most {limit:g}x", ours / floor <= limit


def at_least(limit: float, ours: float, floor: float) -> tuple[str, bool]:
    """A goal ``ratio >= limit`` and whether it is met."""
    return f"at least {limit:g}x", ours / floor >= limit


def make_goal(name: str, ours: float, goal_s: float, backend: str) -> Figure:
    """A time against a budget of its own."""
    goal, met = at_most(1, ours, goal_s)
    return Figure(name, ours, goal_s, "s", f"{goal_s:g} s", goal, met, backend)


def seconds(*commands: list[str], runs: int = 15, accepted: tuple[int, ...] = (0,)) -> list[float]:
    """Median wall time of each whole command. They are run in turn, so that others on the machine
    slow down all alike.
    """
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(runs):
        for command, found in zip(commands, times, strict=True):
            start = time.perf_counter()
            done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
            found.append(time.perf_counter() - start)
            if done.returncode not in accepted:
                raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr!r}")
    return [statistics.median(found) for found in times]


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
