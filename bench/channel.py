"""The channel between two processes of this host, as ratios to what the machine itself can do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.calls import GOAL_PER_S, NULL, null_channel
from bench.registry import Figure, at_least, at_most
from tests.unit.several_rig import run_guest
from vgpumgr.host.machine import LIB_DIR as LIB

_BENCH = LIB / "bench"


def _numbers(program: str, *arguments: str, env: dict[str, str] | None = None) -> list[float]:
    done = subprocess.run(
        [str(_BENCH / program), *arguments], capture_output=True, text=True, check=True, env=env
    )
    return [float(word) for word in done.stdout.split()]


def run() -> Iterable[Figure]:
    """A call against a raw ping-pong, posts to a null worker, a copy against memcpy, each with the
    window in the process and with a private lane, copies through the library both ways and between
    two slices, how soon a new process has its first call, and a graph's launch.
    """
    echo = LIB / "test" / "vgpumgr-test-echo"
    with (
        null_channel("shared", echo, None) as shared,
        null_channel("private", echo, None) as private,
    ):
        yield from _measure(_guest(shared), _guest(private))
    yield from _measure_copies()
    yield from _measure_between_devices()
    yield from _measure_first_call()
    yield from _measure_graph()


#: best times of a copy between devices, and of memmove; see tests/unit/guest_cuda.py
_BETWEEN = """
import time
SIZE = 16 << 20; contexts = [c_void_p(), c_void_p()]; memories = []
ok(cu.cuInit(0))
for i in range(2):
    ok(cu.cuDevicePrimaryCtxRetain(byref(contexts[i]), i)); ok(cu.cuCtxSetCurrent(contexts[i]))
    memories.append(memory(SIZE))
here, there = ctypes.create_string_buffer(SIZE), ctypes.create_string_buffer(SIZE)
def best(copy):
    took = []
    for _ in range(30):
        start = time.perf_counter(); copy(); took.append(time.perf_counter() - start)
    return SIZE / min(took)
print(best(lambda: ok(cu.cuMemcpyPeer(memories[0], contexts[0], memories[1], contexts[1], c_size_t(SIZE)))))
print(best(lambda: ctypes.memmove(here, there, SIZE)))
"""


def _measure_between_devices() -> Iterable[Figure]:
    """cuMemcpyPeer of 16 MiB between two slices, which goes through the program's process, against memcpy."""
    with run_guest("ring", shm_size_bytes=64 << 20) as guest:
        process = guest.start_python(_BETWEEN)
        text, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors)
    ours, plain = map(float, text.split())
    goal, met = at_least(0.3, ours, plain)
    yield Figure(
        "16 MiB between two slices", ours, plain, "B/s", "memcpy", goal, met, "null driver"
    )


def _measure_copies() -> Iterable[Figure]:
    """cuMemcpyHtoD and cuMemcpyDtoH of 16 MiB, as a program calls them, against memcpy."""
    shim = str(LIB / "guest" / "libcuda.so.1")
    shared, private = [], []
    with null_channel("shared") as one, null_channel("private") as other:
        for _ in range(5):
            shared.append(_numbers("vgpumgr-bench-copies", shim, env=_guest(one)))
            private.append(_numbers("vgpumgr-bench-copies", shim, env=_guest(other)))
    plain = max(rates[2] for rates in shared)
    for way, name in enumerate(("16 MiB to the device", "16 MiB from the device")):
        ours = max(rates[way] for rates in shared)
        goal, met = at_least((0.7, 0.5)[way], ours, plain)
        yield Figure(f"library: {name}", ours, plain, "B/s", "memcpy", goal, met, "null driver")
        kept = max(rates[way] for rates in private)
        name = f"library, private lane: {name}"
        goal, met = at_least(0.4, kept, ours)
        yield Figure(name, kept, ours, "B/s", "shared lane", goal, met, "null driver")


def _measure_graph() -> Iterable[Figure]:
    """A launch of a graph that has captured 500 kernels, against the launch of one kernel."""
    shim = str(LIB / "guest" / "libcuda.so.1")
    single, graph = [], []
    with null_channel() as socket:
        for _ in range(5):
            single.append(_numbers("vgpumgr-bench-calls", shim, "300000", env=_guest(socket)))
            graph.append(_numbers("vgpumgr-bench-calls", shim, "300000", "500", env=_guest(socket)))
    assert {waits for _, waits in graph} == {1}, "a launch of a graph waits for something"
    floor, ours = (1 / max(rate for rate, _ in found) for found in (single, graph))
    goal, met = at_most(1.2, ours, floor)
    yield Figure(
        "launch of a graph of 500 kernels", ours, floor, "s", "one kernel", goal, met, "null driver"
    )


def _guest(socket: Path) -> dict[str, str]:
    return {**os.environ, "VGPUMGR_AGENT": str(socket)}


def _measure_first_call() -> Iterable[Figure]:
    """From a process's start to the end of its first call, against the null driver in the process."""
    shim = str(LIB / "guest" / "libcuda.so.1")
    direct, shared, private = [], [], []
    with null_channel("shared") as one, null_channel("private") as other:
        for _ in range(5):
            direct += _numbers("vgpumgr-bench-first", str(NULL), "7")
            shared += _numbers("vgpumgr-bench-first", shim, "7", env=_guest(one))
            private += _numbers("vgpumgr-bench-first", shim, "7", env=_guest(other))
    floor = min(direct) / 1e9
    for name, found in (("", shared), (", private lane", private)):
        ours = min(found) / 1e9
        goal, met = at_most(1.2, ours, floor)
        yield Figure(
            f"new process's first call{name}", ours, floor, "s", "direct", goal, met, "null driver"
        )


def _measure(shared: dict[str, str], private: dict[str, str]) -> Iterable[Figure]:
    floors, calls, posts, copied, plain = [], [], [], [], []
    kept: dict[str, list[float]] = {"call": [], "post": [], "copy": []}
    for _ in range(5):
        floors += _numbers("vgpumgr-bench-pingpong")
        calls += _numbers("vgpumgr-bench-channel", "call", env=shared)
        posts += _numbers("vgpumgr-bench-channel", "post", env=shared)
        pair = _numbers("vgpumgr-bench-channel", "copy", env=shared)
        copied.append(pair[0])
        plain.append(pair[1])
        for what, found in kept.items():
            found.append(_numbers("vgpumgr-bench-channel", what, env=private)[0])
    # The best of each: on a machine that does other things too, the rest measures those.
    floor, call = min(floors) / 1e9, min(calls) / 1e9
    goal, met = at_most(1.5, call, floor)
    yield Figure("synchronous call", call, floor, "s", "raw ping-pong", goal, met, "null driver")
    rate = max(posts)
    goal, met = at_least(1, rate, GOAL_PER_S)
    yield Figure(
        "calls without outputs", rate, GOAL_PER_S, "1/s", "the goal", goal, met, "null driver"
    )
    ours, theirs = max(copied), max(plain)
    goal, met = at_least(0.9, ours, theirs)
    yield Figure("16 MiB host to device", ours, theirs, "B/s", "memcpy", goal, met, "null driver")
    yield from _compare(kept, call, rate, ours)


def _compare(
    private: dict[str, list[float]], call: float, post: float, copy: float
) -> Iterable[Figure]:
    """A private lane against the window in the process: a second hop, and a second copy."""
    ours = min(private["call"]) / 1e9
    goal, met = at_most(10, ours, call)
    yield Figure("private lane: call", ours, call, "s", "shared lane", goal, met, "null driver")
    for name, found, floor, unit in (
        ("calls without outputs", private["post"], post, "1/s"),
        ("16 MiB host to device", private["copy"], copy, "B/s"),
    ):
        goal, met = at_least(0.4, max(found), floor)
        yield Figure(
            f"private lane: {name}",
            max(found),
            floor,
            unit,
            "shared lane",
            goal,
            met,
            "null driver",
        )
