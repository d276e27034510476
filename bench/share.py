"""Shares of a simulated GPU's time: how far what each tenant has had is from its percentage, in points.

A line for each window of a second has a mark for each error; then come the mean of the run and the error of
the windows (root of the mean square). What a tenant has had is read from the simulated hardware. ``burst``
compares parts of what all have had, ``fixed`` parts of the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.registry import Figure, at_least, at_most
from tests.support.shares_rig import Load, Tenant, mean, measure, share_out

#: kernels of one length, always some more of them in the stream
LENGTHS = {
    "100 us": Load(100_000, 1, 64),
    "1 ms": Load(1_000_000, 1, 8),
    "5 ms": Load(5_000_000),
    "50 ms": Load(50_000_000),
    "500 ms": Load(500_000_000, flight=1),
}
MIXED = ("100 us", "1 ms", "5 ms", "50 ms")
#: goals in points
GOALS = {"fixed": 1.0, "burst": 2.0}
#: of a plot: a column is so many points
COLUMN, SIDE = 1.0, 15


@dataclass(frozen=True)
class Scenario:
    """Percentages, and the lengths of kernels, one for all or one for each."""

    policy: str
    percents: tuple[int, ...]
    kernels: tuple[str, ...]
    seconds: float = 8

    @property
    def name(self) -> str:
        """As the table has it."""
        percents = ":".join(map(str, self.percents))
        return f"share {self.policy} {percents}, {'/'.join(self.kernels)}"


SCENARIOS = (
    Scenario("burst", (10, 90), ("5 ms",)),
    Scenario("burst", (30, 70), ("1 ms",)),
    Scenario("burst", (50, 50), ("100 us",)),
    Scenario("burst", (30, 70), ("100 us", "50 ms")),
    Scenario("burst", (10, 20, 30, 40), MIXED),
    Scenario("burst", (40, 30, 30), ("500 ms", "5 ms", "5 ms"), 30),
    Scenario("burst", (5, 5, 10, 10, 10, 10, 20, 30), ("5 ms",)),
    Scenario("fixed", (30,), ("5 ms",)),
    Scenario("fixed", (10, 70), ("5 ms",)),
    Scenario("fixed", (10, 20, 30, 30), MIXED),
)


def find_errors(scenario: Scenario, row: Sequence[float]) -> list[float]:
    """Points above each tenant's percentage."""
    if scenario.policy == "fixed":
        return [had - want for had, want in zip(row, scenario.percents, strict=True)]
    had, wanted = sum(row) or 1.0, sum(scenario.percents)
    return [
        100 * one / had - 100 * want / wanted
        for one, want in zip(row, scenario.percents, strict=True)
    ]


def plot(errors: Sequence[float]) -> str:
    """A mark for each tenant, from SIDE points too little to SIDE too much."""
    line = [" "] * (2 * SIDE + 1)
    line[SIDE] = "|"
    for number, error in enumerate(errors):
        place = round(max(-SIDE, min(SIDE, error / COLUMN)))
        line[SIDE + place] = chr(ord("a") + number)
    return "".join(line)


def start_all(scenario: Scenario, tenants: Sequence[Tenant]) -> None:
    """Each with its kernels, and some time to begin."""
    for number, tenant in enumerate(tenants):
        tenant.start(LENGTHS[scenario.kernels[number % len(scenario.kernels)]])
    time.sleep(1)


def run_scenario(scenario: Scenario) -> Figure:
    """Prints the windows; the largest error of a tenant in the mean of the run."""
    with share_out(scenario.policy, scenario.percents) as tenants:
        start_all(scenario, tenants)
        rows = measure(tenants, scenario.seconds)
    windows = [find_errors(scenario, row) for row in rows]
    print(
        f"{scenario.name}: points of error in each second, a to {chr(96 + len(scenario.percents))}"
    )
    for errors in windows:
        print(f"  [{plot(errors)}]  {'  '.join(f'{error:+6.1f}' for error in errors)}")
    found = find_errors(scenario, mean(rows))
    spread = [
        math.sqrt(sum(e * e for e in column) / len(windows))
        for column in zip(*windows, strict=True)
    ]
    print(f"   mean of the run {'  '.join(f'{error:+6.2f}' for error in found)}")
    print(f"   error of a second {'  '.join(f'{error:6.2f}' for error in spread)}", flush=True)
    worst, goal = max(map(abs, found)), GOALS[scenario.policy]
    text, met = at_most(1, worst, goal)
    return Figure(
        scenario.name,
        max(worst, 0.001),
        goal,
        "points",
        f"{goal:g} points",
        text,
        met,
        "simulated GPU",
    )


def run_alone(seconds: float) -> Figure:
    """What a lone tenant has of the GPU with a share, against a channel without one, in turns."""
    found: dict[str | None, float] = {}
    for policy in (None, "burst", None, "burst"):
        with share_out(policy, (30,)) as tenants:
            tenants[0].start(LENGTHS["1 ms"])
            time.sleep(1)
            had = mean(measure(tenants, seconds))[0]
        found[policy] = max(had, found.get(policy, 0.0))
    goal, met = at_least(0.99, found["burst"], found[None])
    return Figure(
        "share burst, a lone tenant's GPU time", found["burst"], found[None], "percent", "no share", goal, met,
        "simulated GPU",
    )  # fmt: skip


def run() -> Iterator[Figure]:
    """All scenarios, one after the other."""
    for scenario in SCENARIOS:
        yield run_scenario(scenario)
    yield run_alone(4)
