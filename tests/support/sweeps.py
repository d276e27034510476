"""Sweeps (``@pytest.mark.sweep``): tests that do one thing at many moments, or with many seeds, in parts.

One part of each runs in any case. The others come last, in another order in each run; those that a slow machine has no
time for are skipped and named at the end: a run that does not end says nothing at all.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable

import pytest

#: no part of a sweep begins later in a run, but the one of each that must
LATE_S = 3000
#: when a run began, in seconds since 1970, and what orders its sweeps; its processes share it
BEGAN = "VGPUMGR_TESTS_BEGAN"
LEFT_OUT = f"a part of a sweep, and the run is at it for more than {LATE_S} s"

_may_be_left_out = pytest.StashKey[bool]()


def begin() -> None:
    """A run begins now."""
    os.environ[BEGAN] = str(int(time.time()))


def place_last(items: list[pytest.Item]) -> None:
    """All parts of sweeps go to the end, but one of each."""
    parts = [item for item in items if item.get_closest_marker("sweep")]
    order = random.Random(os.environ.get(BEGAN, "0"))
    order.shuffle(parts)
    later = list(_list_later(parts))
    for item in later:
        item.stash[_may_be_left_out] = True
    items[:] = [item for item in items if _may_be_left_out not in item.stash] + later


def _list_later(parts: Iterable[pytest.Item]) -> Iterable[pytest.Item]:
    seen: set[str] = set()
    for item in parts:
        sweep = item.nodeid.partition("[")[0]
        if sweep in seen:
            yield item
        seen.add(sweep)


def skip_if_late(item: pytest.Item) -> None:
    """Skip what may be left out, where the run takes too long."""
    began = os.environ.get(BEGAN)
    if began and _may_be_left_out in item.stash and time.time() - int(began) > LATE_S:
        pytest.skip(LEFT_OUT)
