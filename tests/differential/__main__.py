"""``python -m tests.differential [COUNT] [SEED]``: random sequences, directly and over a channel, or one per device.

Prints what they reached, and each difference as the shortest sequence that shows it. ``COUNT`` is 1000 by default.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.differential.compare import (
    Difference,
    Reached,
    direct,
    forwarded,
    forwarded_to,
    run_all,
)
from tests.differential.generate import generate
from tests.unit.calls_rig import simulated_channel
from tests.unit.several_rig import run_simulated
from tests.unit.transport_rig import wait_for

TRANSPORTS = ("ring", "serial")
DEVICES = "two devices"
#: it has clusters of blocks
MACHINE = "hgx-h100"


def run(count: int, seed: int, transport: str) -> tuple[Reached, list[Difference]]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgd")))
        rig = stack.enter_context(simulated_channel(transport, root, machine=MACHINE))
        before = rig.status().worker.pid
        one, other = stack.enter_context(direct()), stack.enter_context(forwarded(rig))
        found = run_all([generate(seed + i) for i in range(count)], one, [other])
        after = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (after.worker.pid, after.violations.count, after.sessions.lost) == (before, 0, 0)
        assert after.totals.memory_bytes == 0
    return found


def run_devices(count: int, seed: int) -> tuple[Reached, list[Difference]]:
    """On two devices, of which each has a channel of its own."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgd")))
        guest = stack.enter_context(run_simulated("ring", root, machine=MACHINE))
        one = stack.enter_context(direct(CUDA_VISIBLE_DEVICES="0,1"))
        other = stack.enter_context(forwarded_to(guest))
        found = run_all([generate(seed + i, 2) for i in range(count)], one, [other])
        wait_for(lambda: guest.lanes() == [0, 0], "lanes freed")
        for keeper in guest.keepers:
            after = keeper.status()
            assert (after.violations.count, after.sessions.lost) == (0, 0)
            assert after.totals.memory_bytes == 0
    return found


def main(words: list[str]) -> int:
    count, seed = (int(w) for w in [*words, *("1000", "1")[len(words) :]])
    failed = False
    for transport in (*TRANSPORTS, DEVICES):
        reached, differences = (
            run_devices(count, seed) if transport == DEVICES else run(count, seed, transport)
        )
        print(f"{transport}: {reached.describe()}; {len(differences)} differ", flush=True)
        for kind in dict.fromkeys(d.kind for d in differences):
            print(
                min(
                    (d for d in differences if d.kind == kind),
                    key=lambda d: len(d.sequence["steps"]),
                )
            )
        failed = failed or bool(differences)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
