"""Sweeps: tests that do one thing at many moments, with many seeds, on several systems or transports, in parts.

One part of each runs in any case, another one in each run. The others come last; those that a slow machine has no time
for are skipped and named at the end: a run that does not end says nothing at all.
"""

from __future__ import annotations

import os
import random
import time

import pytest

#: seconds after which no part of a sweep begins, but the one of each that must; counted from the beginning of set-up
LATE_S = 3300
#: the same in the lab, which runs long before the end: who is there later than that will be late
LATE_LAB_S = 2100
#: when a run began, in seconds since 1970, and what orders its sweeps; its processes share it
BEGAN = "VGPUMGR_TESTS_BEGAN"
LEFT_OUT = "a part of a sweep, and the run is late"

#: each function with parameters is a sweep, and each set of parameters a part of it
BY_PARAMETERS = (
    "tests/differential/", "tests/fresh/", "tests/fuzz/", "tests/guest/test_cycles.py",
    "tests/guest/test_live.py", "tests/guest/test_qemu_user.py", "tests/hostile/", "tests/recovery/",
    "tests/sanitize/", "tests/sim/test_docs_sessions.py", "tests/sim/test_hanging_keeper.py",
    "tests/unit/test_lane_privacy.py", "tests/unit/test_layout_exhaustive.py", "tests/unit/test_negotiation.py",
    "tests/unit/test_pool_histories.py", "tests/unit/test_transport_faults.py",
)  # fmt: skip
#: each file is a sweep, and each of its tests a part of it; they stand on those before them, and stay in their places
BY_FILE = ("tests/guest/test_faults.py", "tests/lab/test_apparmor.py", "tests/lab/test_nested.py")

#: seconds after which a test is left out
_late_s = pytest.StashKey[int]()


def begin() -> None:
    """A run begins now, if it has not with its set-up."""
    os.environ.setdefault(BEGAN, str(int(time.time())))


def find_sweep(name: str) -> str | None:
    """The sweep that a test is a part of, by its id."""
    if name.startswith(BY_FILE):
        return name.partition("::")[0]
    function, parameters, _ = name.partition("[")
    return function if parameters and name.startswith(BY_PARAMETERS) else None


def place_last(items: list[pytest.Item]) -> None:
    """All parts of sweeps go to the end, but one of each: file after file, in the order that pytest has found in it,
    which builds what tests share as seldom as it can.
    """
    order = random.Random(os.environ.get(BEGAN, "0"))
    kept = {sweep: _choose(order, sweep, parts) for sweep, parts in _group(items).items()}
    later = [item for item in items if kept.get(find_sweep(item.nodeid), item) is not item]
    for item in later:
        item.stash[_late_s] = LATE_LAB_S if item.nodeid.startswith("tests/lab/") else LATE_S
    last = [item for item in later if find_sweep(item.nodeid) not in BY_FILE]
    ranks = {path: order.random() for path in dict.fromkeys(item.path for item in last)}
    last.sort(key=lambda item: ranks[item.path])
    moved = set(last)
    items[:] = [item for item in items if item not in moved] + last


def _group(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    sweeps: dict[str, list[pytest.Item]] = {}
    for item in items:
        if sweep := find_sweep(item.nodeid):
            sweeps.setdefault(sweep, []).append(item)
    return sweeps


def _choose(order: random.Random, sweep: str, parts: list[pytest.Item]) -> pytest.Item:
    """The part that runs in any case."""
    return parts[0] if sweep in BY_FILE else order.choice(parts)


def skip_if_late(item: pytest.Item) -> None:
    """Skip what may be left out, where the run takes too long."""
    began = os.environ.get(BEGAN)
    if began and _late_s in item.stash and time.time() - int(began) > item.stash[_late_s]:
        pytest.skip(LEFT_OUT)
