"""Connections: who they are from, how many there may be, and how long one may say nothing.

Anybody on the host may connect. Who connects and sends nothing, or very often, must not take the daemon from others.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from vgpumgr.host.peer import Peer, read_peer

MAX_CONNECTIONS = 512
#: of one user that is not root
MAX_OF_USER = 128
#: until the head of the first request is there
SILENCE_S = 20.0
#: every connection, and what the lanes' helpers, libvirt and files need
_DESCRIPTORS = 4096
_QUIET_S = 60.0


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that knows who connected; the kernel said so, the request cannot."""

    peer: Peer | None = None
    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Reads the peer's credentials once for each connection."""
        super().connection_made(transport)
        self.peer = read_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": self.peer, "is_crowded": self._is_crowded}
        if self._is_one_too_many():
            transport.abort()
            return
        self._silence = self.loop.call_later(SILENCE_S, self._end_silence)

    def connection_lost(self, exc: Exception | None) -> None:
        """The timer would hold the connection, and all that it was asked, until it rings."""
        if self._silence is not None:
            self._silence.cancel()
        super().connection_lost(exc)

    def _is_crowded(self) -> bool:
        """The gate answers then: uvicorn's own limit would say so in no document of ours."""
        return len(self.connections) >= MAX_CONNECTIONS

    def _is_one_too_many(self) -> bool:
        # between the two numbers a request is answered with 503
        if len(self.connections) > 2 * MAX_CONNECTIONS:
            return True
        uid = self.peer.uid if self.peer else None
        if uid == 0:
            return False
        peers = (c.peer for c in self.connections if isinstance(c, PeerProtocol))
        same = [peer for peer in peers if (peer.uid if peer else None) == uid]
        return len(same) > MAX_OF_USER

    def _end_silence(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()


def raise_descriptor_limit() -> None:
    """As many descriptors as connections may need, where the hard limit lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class QuietLoop:
    """Tells what goes wrong in the event loop. What repeats (a connection that cannot be accepted is tried
    hundreds of times a second) is told once a minute.
    """

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """See ``loop.set_exception_handler``."""
        message = str(context.get("message"))
        error = context.get("exception")
        if isinstance(error, OSError):
            now_s = loop.time()
            if now_s - self._told.get(message, -_QUIET_S) < _QUIET_S:
                return
            self._told[message] = now_s
            print(f"{message}: {error}", file=sys.stderr, flush=True)
            return
        loop.default_exception_handler(context)
