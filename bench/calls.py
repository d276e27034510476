"""Calls without outputs, from a host process through shim, channel and worker to the null driver."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.registry import Figure, at_least, at_most
from vgpumgr.host.machine import LIB_DIR as LIB
from vgpumgr.virtio.keeper import Keeper, KeeperOptions

CALLS = 1_000_000
NULL = LIB / "bin" / "null" / "libcuda.so.1"
GOAL_PER_S = 4e6
#: of one launch in the guest's library
GOAL_INSTRUCTIONS = 800
PROGRAM = (str(LIB / "bench" / "vgpumgr-bench-calls"), str(LIB / "guest" / "libcuda.so.1"))


@contextmanager
def null_channel(
    lanes: str = "shared", worker: Path = LIB / "bin" / "vgpumgr-worker", cuda: Path | None = NULL
) -> Iterator[Path]:
    """A channel over the ring, on this host, with private or shared lanes; the agent's socket."""
    with tempfile.TemporaryDirectory(prefix="vgb") as name:
        directory = Path(name)
        keeper = Keeper(directory / "k")
        arguments = ("--cuda", str(cuda)) if cuda else ()
        keeper.start(KeeperOptions(worker=worker, worker_args=arguments))
        try:
            keeper.wait_ready()
            words = [
                str(LIB / "guest" / "vgpumgr-guestd"),
                *("--socket", str(directory / "agent.sock"), "--lanes", lanes),
            ]
            words += ["--transport", "ring", "--ivshmem-socket", str(keeper.ivshmem_socket)]
            agent = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            try:
                while keeper.status().transports != ("ring",):
                    time.sleep(0.01)
                yield directory / "agent.sock"
            finally:
                agent.terminate()
                agent.wait()
        finally:
            keeper.stop()


def count_instructions() -> int:
    """Of one launch, from call to return, in a process that has launched before; the same whatever the machine does."""
    with null_channel() as socket:
        env = os.environ | {"VGPUMGR_AGENT": str(socket)}
        done = subprocess.run(
            [*PROGRAM, "steps"], env=env, capture_output=True, text=True, check=True
        )
    return int(done.stdout)


def run() -> Iterator[Figure]:
    """Launches a second, against the goal of four million; instructions of one."""
    program = [*PROGRAM, str(CALLS)]
    with null_channel() as socket:
        env = os.environ | {"VGPUMGR_AGENT": str(socket)}
        rates = []
        for _ in range(3):
            done = subprocess.run(program, env=env, capture_output=True, text=True, check=True)
            rate, waits = done.stdout.split()
            assert waits == "1", f"{waits} waits instead of the final synchronise's one"
            rates.append(float(rate))
    ours = sorted(rates)[1]
    goal, met = at_least(1, ours, GOAL_PER_S)
    yield Figure(
        "launches without outputs", ours, GOAL_PER_S, "1/s", "the goal", goal, met, "null driver"
    )
    steps = count_instructions()
    goal, met = at_most(1, steps, GOAL_INSTRUCTIONS)
    yield Figure(
        "instructions of a launch",
        steps,
        GOAL_INSTRUCTIONS,
        "",
        "the goal",
        goal,
        met,
        "null driver",
    )
