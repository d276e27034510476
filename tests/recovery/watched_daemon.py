"""A daemon that says what it holds: ``python -m tests.recovery.watched_daemon SOCKET MACHINE`` serves a simulated
machine, ``... SOCKET --fakes DIR BACKEND`` fakes in memory.

Whoever connects to SOCKET gets a line of JSON: see ``growth.read_own``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import threading
from contextlib import nullcontext
from pathlib import Path

from tests.recovery.fakes_backends import make_application
from tests.recovery.growth import read_own
from vgpumgr.daemon.access import Access
from vgpumgr.daemon.server import _listen, _only_daemon, run_daemon, serve


def answer(listener: socket.socket) -> None:
    """Until the process ends."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(read_own()).encode())


def ask(path: Path) -> dict[str, int]:
    """What the daemon that answers there holds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rb") as stream:
            held: dict[str, int] = json.loads(stream.read())
            return held


def serve_fakes(directory: Path, backend: str) -> None:
    """A daemon on fakes, for this user."""
    application = make_application(directory, backend)
    with _only_daemon(application.machine), _listen(application.machine) as listener:
        opener = lambda: nullcontext(application)  # noqa: E731
        access = Access(frozenset({0}), None, None)
        asyncio.run(serve(application.machine, listener, opener, access))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("machine", nargs="?")
    parser.add_argument("--fakes", nargs=2, metavar=("DIR", "BACKEND"))
    asked = parser.parse_args()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(asked.socket)
    listener.listen()
    threading.Thread(target=answer, args=(listener,), daemon=True).start()
    if asked.fakes:
        serve_fakes(Path(asked.fakes[0]), asked.fakes[1])
    else:
        run_daemon(asked.machine)


if __name__ == "__main__":
    main()
