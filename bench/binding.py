"""Claims that bind late: what a command by one costs against one whose lease is there already, and how soon what is
given back is granted to who waits. A simulated machine with its daemon, which is the pool's host.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from unittest import mock

from bench.commands import ON_MACHINE
from bench.machine import NAME
from bench.registry import Figure, at_most, make_goal, seconds
from tests.sim.test_run import daemon
from tests.support.run_host import Host, started_machine, wait_for
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.operations import PoolOperations

_BACKEND = "simulated driver"
_GOAL_S = 0.1
_SHARE = ("--profile", "share:8GiB,30%")
_LATE = ("--binding", "late")


def run(small: bool = False) -> Iterable[Figure]:
    """Whole commands in turn, their medians; and the median of what is granted anew."""
    with started_machine() as host, daemon(host), mock.patch.dict(os.environ, host.env):
        host.call("pool", "init")
        host.call("pool", "join", "--name", "a")
        wait_for(lambda: (host.read("status")["pool"] or {}).get("answers"), "the daemon serves")
        host.call("claim", "create", "late", *_SHARE, *_LATE)
        host.call("claim", "create", "reserved", *_SHARE)
        words = [
            [*ON_MACHINE, "run", "--claim", name, "--", "true"] for name in ("late", "reserved")
        ]
        late, reserved = seconds(*words, runs=1 if small else 15)
        goal, met = at_most(1.2, late, reserved)
        yield Figure(
            "run by a claim that binds late", late, reserved, "s", "a lease that is there", goal, met,
            _BACKEND,
        )  # fmt: skip
        yield make_goal(
            "given back to granted anew",
            _measure_grants(host, 1 if small else 20),
            _GOAL_S,
            _BACKEND,
        )


def _measure_grants(host: Host, count: int) -> float:
    """From a release to the lease of who waits, as the store says."""
    host.call("claim", "create", "rest", "--profile", "whole", "--gpus", "7")
    for name in ("one", "two"):
        host.call("claim", "create", name, "--profile", "whole", *_LATE)
    host.call("claim", "delete", "reserved")
    found = []
    with open_pool(NAME) as pool:
        operations = PoolOperations(pool)
        operations.bind("one")
        for number in range(count):
            has, waits = ("one", "two") if number % 2 == 0 else ("two", "one")
            operations.bind(waits)
            begin = time.perf_counter()
            operations.release(has)
            while operations.show(waits)["state"] != "granted":
                time.sleep(0.002)
            found.append(time.perf_counter() - begin)
    return statistics.median(found)
