"""``python -m tests.pool_histories [COUNT] [FIRST]``: that many histories of simulated pools, from a seed on.

COUNT is 2,000 unless said. Prints what they reached, and fails where an invariant does not hold or too little was
reached.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.pool_histories.world import BrokenError, World

#: at least so often in a hundred histories; what is rarer has not been tried
REACHED = {
    "crash of a host": 90, "crash of a controller": 90, "kill agent": 50, "pause": 80, "cut off": 170,
    "store down": 80, "entry deleted": 20, "entry overwritten": 8,
    "calls late": 450, "calls doubled": 450, "calls lost": 1000, "answers lost": 450,
    "heartbeats lost": 1000, "refused": 20, "hosts fenced": 20, "sessions fenced": 40, "leases lost and noticed": 180,
    "granted after waiting": 450, "sessions": 550, "sessions resized": 80, "claims deleted": 300, "end granted": 280,
    "end explained": 80, "quotas used": 1100, "over quota": 3000, "kept apart": 700,
    "on hosts asked for": 6000, "waits by closed GPUs": 2000, "wanted": 200, "given back": 90, "end idle": 110,
    "clock jump": 100, "reservations": 110, "waits by reservations": 1000, "reservations in time": 14,
    "reservations used": 8, "ends announced": 110, "ended by time": 50, "uses": 150, "preempted": 10,
    "preempted from a run": 1, "granted by preemption": 8,
}  # fmt: skip


def run_history(seed: int) -> tuple[int, Counter[str], str]:
    """A seed, what its history reached, and what was broken."""
    world = World(seed)
    try:
        return seed, world.run(), ""
    except BrokenError as error:
        return seed, world.count, str(error)


def list_lacks(counts: Counter[str], histories: int) -> list[str]:
    """What was not reached often enough."""
    return [
        f"{name}: {counts[name]}, and {least * histories // 100} are needed"
        for name, least in REACHED.items()
        if counts[name] < least * histories // 100
    ]


def main(count: int, first: int) -> int:
    counts, broken = Counter[str](), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, reached, error in pool.map(run_history, range(first, first + count), chunksize=8):
            counts += reached
            if error:
                broken += 1
                print(f"seed {seed}: {error}")
    for name, number in sorted(counts.items()):
        print(f"{number:10} {name}")
    lacks = list_lacks(counts, count)
    print("\n".join(lacks))
    print(f"{count} histories, {broken} broken")
    return 1 if broken or lacks else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(*numbers, *(2000, 0)[len(numbers) :])))
