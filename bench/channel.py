"""The channel between two processes of this host, as ratios to what the machine itself can do."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.calls import null_channel
from bench.registry import Figure, at_least, at_most
from vgpumgr.host.machine import LIB_DIR as LIB
from vgpumgr.virtio.keeper import Keeper, KeeperOptions

_BENCH = LIB / "bench"


def _numbers(program: str, *arguments: str, env: dict[str, str] | None = None) -> list[float]:
    done = subprocess.run(
        [str(_BENCH / program), *arguments], capture_output=True, text=True, check=True, env=env
    )
    return [float(word) for word in done.stdout.split()]


def run() -> Iterable[Figure]:
    """A call against a raw ping-pong, posts to a null worker, a copy against memcpy, and how soon a
    new process has its first call.
    """
    yield from _measure_channel()
    yield _measure_first_call()


def _measure_first_call() -> Figure:
    """From a process's start to the end of its first call, against the null driver in the process."""
    null = LIB / "bin" / "null" / "libcuda.so.1"
    direct, forwarded = [], []
    with null_channel() as socket:
        env = {**os.environ, "VGPUMGR_AGENT": str(socket)}
        for _ in range(5):
            direct += _numbers("vgpumgr-bench-first", str(null), "7")
            shim = str(LIB / "guest" / "libcuda.so.1")
            forwarded += _numbers("vgpumgr-bench-first", shim, "7", env=env)
    ours, theirs = min(forwarded) / 1e9, min(direct) / 1e9
    goal, met = at_most(1.2, ours, theirs)
    return Figure("new process's first call", ours, theirs, "s", "direct", goal, met, "null driver")


def _measure_channel() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="vgb") as name:
        keeper = Keeper(Path(name) / "k")
        keeper.start(KeeperOptions(worker=LIB / "test" / "vgpumgr-test-echo"))
        agent_socket = Path(name) / "guest.sock"
        agent = subprocess.Popen(
            [
                *(str(LIB / "guest" / "vgpumgr-guestd"), "--transport", "ring"),
                *("--socket", str(agent_socket), "--ivshmem-socket", str(keeper.ivshmem_socket)),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            keeper.wait_ready()
            while not agent_socket.exists() or keeper.status().guest.hello == "none":
                if agent.poll() is not None:
                    raise RuntimeError("the guest agent has ended")
            yield from _measure({**os.environ, "VGPUMGR_AGENT": str(agent_socket)})
        finally:
            agent.terminate()
            agent.wait()
            keeper.stop()


def _measure(env: dict[str, str]) -> Iterable[Figure]:
    floors, calls, posts, copied, plain = [], [], [], [], []
    for _ in range(5):
        floors += _numbers("vgpumgr-bench-pingpong")
        calls += _numbers("vgpumgr-bench-channel", "call", env=env)
        posts += _numbers("vgpumgr-bench-channel", "post", env=env)
        pair = _numbers("vgpumgr-bench-channel", "copy", env=env)
        copied.append(pair[0])
        plain.append(pair[1])
    # The best of each: on a machine that does other things too, the rest measures those.
    floor, call = min(floors) / 1e9, min(calls) / 1e9
    goal, met = at_most(3, call, floor)
    yield Figure("synchronous call", call, floor, "s", "raw ping-pong", goal, met, "null driver")
    rate = max(posts)
    goal, met = at_least(1, rate, 1e6)
    yield Figure("calls without outputs", rate, 1e6, "1/s", "the goal", goal, met, "null driver")
    ours, theirs = max(copied), max(plain)
    goal, met = at_least(0.7, ours, theirs)
    yield Figure("16 MiB host to device", ours, theirs, "B/s", "memcpy", goal, met, "null driver")
