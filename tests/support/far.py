"""A channel over virtio-serial whose line is slow: what either end says is heard a while later."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.unit.transport_rig import Rig

#: of each way
DELAY_S = 0.001


class Line:
    """Between a socket that it makes and another: what comes in at one goes out at the other ``delay_s`` later."""

    def __init__(self, here: Path, there: Path, delay_s: float) -> None:
        self._there, self._delay_s = there, delay_s
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(here))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more calls. A call that is carried goes on until one end hangs up."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            with one, socket.socket(socket.AF_UNIX) as other:
                try:
                    other.connect(str(self._there))
                    self._carry(one, other)
                except OSError:
                    # nobody listens there yet, or one end has gone: the caller's next call is another
                    continue

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        """Both ways, until one end hangs up."""
        waiting: dict[socket.socket, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}
        with selectors.DefaultSelector() as selector:
            for end, to in ((one, other), (other, one)):
                selector.register(end, selectors.EVENT_READ, to)
            while True:
                due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
                left = None if due is None else max(0.0, due - time.monotonic())
                for key, _ in selector.select(left):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    data = end.recv(1 << 20)
                    if not data:
                        return
                    waiting[key.data].append((time.monotonic() + self._delay_s, data))
                now = time.monotonic()
                for end, queue in waiting.items():
                    while queue and queue[0][0] <= now:
                        end.sendall(queue.popleft()[1])


class FarRig(Rig):
    """A Rig whose keeper reaches the agent by a ``Line``."""

    def __init__(self, transport: str, **options: Any) -> None:
        super().__init__(transport, **options)
        near = self.directory / "far.sock"
        self._line = Line(near, self.serial, DELAY_S)
        self.options = replace(self.options, serial=near)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, value, trace)
        self._line.close()
