"""Events: what happens, told to everybody who listens, in order, with numbers to resume from."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from vgpumgr.host.clock import Clock

KEPT = 1024
_QUEUE = 256
_PING_S = 15.0


class EventHub:
    """Lives on one event loop; ``publish`` may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._listeners: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._number = 0
        self._closed = False

    def publish(self, kind: str, **data: Any) -> None:
        """Tells everybody."""
        event = {"type": kind, "time_s": self._clock.wall_s(), **data}
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, event)

    def _deliver(self, event: dict[str, Any]) -> None:
        self._number += 1
        event = {"id": self._number, **event}
        self._recent.append(event)
        for queue in list(self._listeners):
            if queue.full():  # too slow: it is hung up on and can resume from its last number
                self._listeners.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def close(self) -> None:
        """Hangs up on everybody."""
        self._closed = True
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Server-sent events, from the one behind ``after`` on; comments keep the line awake."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_QUEUE)
        missed = [e for e in self._recent if after is not None and e["id"] > after]
        self._listeners.add(queue)
        try:
            yield b": vgpumgr events\n\n"
            for event in missed:
                yield _encode(event)
                # so that the end of the connection is noticed between two
                await asyncio.sleep(0)
            while not self._closed:
                try:
                    event_or_end = await asyncio.wait_for(queue.get(), _PING_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event_or_end is None:
                    return
                yield _encode(event_or_end)
        finally:
            self._listeners.discard(queue)


def _encode(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, separators=(",", ":"))
    return f"id: {event['id']}\nevent: {event['type']}\ndata: {data}\n\n".encode()
