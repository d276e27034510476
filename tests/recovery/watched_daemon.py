"""A daemon that says what it holds: ``python -m tests.recovery.watched_daemon SOCKET MACHINE`` serves a simulated
machine, ``... SOCKET --fakes DIR`` fakes in memory.

Whoever connects to SOCKET gets a line of JSON: see ``growth.read_own``.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import socket
import threading
from array import array
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.recovery.fakes_backends import make_application, make_world
from tests.recovery.growth import Sample, read_own
from vgpumgr.server.access import Access
from vgpumgr.server.server import _listen, _only_daemon, run_daemon, serve

#: the last connection is over by then, on a machine that has nothing else to do
_QUIET_S = 0.2
_MOST_LOOKS = 25


class _Loops(asyncio.DefaultEventLoopPolicy):
    """Remembers the daemon's loop."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self.last = super().new_event_loop()
        loop: asyncio.AbstractEventLoop = self.last
        return loop


async def look() -> Sample:
    """On the daemon's loop, between two of its turns, once nothing is under way: two looks show the same."""
    level = array("q", [0])
    for _ in range(_MOST_LOOKS):
        await asyncio.sleep(_QUIET_S)
        _forget_cancelled(asyncio.get_running_loop())
        held = read_own()
        if held["objects"] == level[0]:
            break
        level[0] = held["objects"]
        del held  # the next look must not count it
    else:
        held = read_own()
    return {"daemon_objects" if name == "objects" else name: n for name, n in held.items()}


def _forget_cancelled(loop: Any) -> None:
    """Of cancelled timers asyncio keeps up to a hundred, as shells, until they would ring: not ours to count."""
    kept = [timer for timer in loop._scheduled if not timer.cancelled()]
    for timer in loop._scheduled:
        timer._scheduled = not timer.cancelled()
    loop._scheduled[:] = kept
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


def answer(listener: socket.socket, loops: _Loops) -> None:
    """Until the process ends."""
    while True:
        connection, _ = listener.accept()
        with connection:
            held = asyncio.run_coroutine_threadsafe(look(), loops.last).result()
            connection.sendall(json.dumps(held).encode())


def ask(path: Path) -> Sample:
    """What the daemon that answers there holds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rb") as stream:
            held: Sample = json.loads(stream.read())
            return held


def serve_fakes(directory: Path, leak: str | None) -> None:
    """A daemon on fakes, for this user."""
    application = make_application(directory, make_world(directory), leak)
    with _only_daemon(application.machine), _listen(application.machine) as listener:
        opener = lambda: nullcontext(application)  # noqa: E731
        access = Access(frozenset({0}), None, None)
        asyncio.run(serve(application.machine, listener, opener, access))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("machine", nargs="?")
    parser.add_argument("--fakes", metavar="DIR")
    parser.add_argument("--leak")
    asked = parser.parse_args()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(asked.socket)
    listener.listen()
    loops = _Loops()
    asyncio.set_event_loop_policy(loops)
    threading.Thread(target=answer, args=(listener, loops), daemon=True).start()
    if asked.fakes:
        serve_fakes(Path(asked.fakes), asked.leak)
    else:
        run_daemon(asked.machine)


if __name__ == "__main__":
    main()
