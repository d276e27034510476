"""A GPU of another host over a link, both hosts on this machine, against bare TLS between two processes."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.registry import Figure, at_least, at_most
from tests.support.link_rig import Far, Near, write
from tests.unit.transport_rig import LIB, Rig

_BENCH = LIB / "bench"
#: seconds of one program, on a machine that does other things as well
_PATIENCE_S = 120


def run() -> Iterable[Figure]:
    """A call that waits against a round trip of TLS, a copy against TLS one way, and calls that do not wait."""
    with (
        tempfile.TemporaryDirectory(prefix="vgb") as directory,
        Far(Rig("ring"), Path(directory, "b")) as far,
    ):
        near = Near(far)
        write(near.link_directory / "address", f"tcp 127.0.0.1 {far.port}\n".encode())
        (near.link_directory / "address").chmod(0o644)
        with near:
            yield from _measure(far, near)


def _numbers(near: Near, program: str, *words: str | Path) -> list[float]:
    done = subprocess.run(
        [str(_BENCH / program), *map(str, words)],
        capture_output=True, text=True, check=True, env=near.env, timeout=_PATIENCE_S,
    )  # fmt: skip
    return [float(word) for word in done.stdout.split()]


def _measure(far: Far, near: Near) -> Iterable[Figure]:
    places = (far.directory / "identity", far.directory / "peers", near.link_directory)
    trips, rates, calls, copies, posts = [], [], [], [], []
    for _ in range(3):
        trip, rate = _numbers(near, "vgpumgr-bench-tls", *places)
        trips.append(trip)
        rates.append(rate)
        calls += [ns / 1e9 for ns in _numbers(near, "vgpumgr-bench-channel", "call", "3300")]
        copies.append(_numbers(near, "vgpumgr-bench-channel", "copy")[0])
        posts += _numbers(near, "vgpumgr-bench-channel", "post", "300000")
    call, trip, copy, rate, post = min(calls), min(trips), max(copies), max(rates), max(posts)
    for name, ours, floor, unit, against, (goal, met) in (
        ("call through a link", call, trip, "s", "TLS", at_most(1.5, call, trip)),
        ("copy through a link", copy, rate, "B/s", "TLS", at_least(0.8, copy, rate)),
        ("posts a second", post, 1 / call, "1/s", "calls", at_least(10, post, 1 / call)),
    ):
        yield Figure(name, ours, floor, unit, against, goal, met, "echo worker, loopback")
