"""Connections: the caller's credentials, limits, and timeouts.

Every user of the host can connect. A user that opens many connections, or stalls them, must not deny service to others:
connections are kept for root, administrators and viewers, and every user but root has a limit.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from vgpumgr.errors import (
    DaemonBusyError,
    RequestTimeoutError,
    TooManyRequestsError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.limits import read_descriptor_limit
from vgpumgr.host.sockets import Peer, read_peer
from vgpumgr.server.access import Access, Rank
from vgpumgr.server.responses import encode_error, list_headers
from vgpumgr.server.settings import LimitSettings

#: event streams in total, and those kept for root and for administrators
MAX_LISTENERS = 64
_KEPT_LISTENERS = {Rank.ROOT: 8, Rank.ADMIN: 8}
#: every connection, and what the pools' helpers, libvirt and files need
DESCRIPTORS = 4096
OTHER_DESCRIPTORS = 256
_QUIET_S = 60.0


class Quota:
    """Slots that callers share. A caller takes a slot unless it is kept for a higher rank, or the user has its maximum;
    root has no maximum.
    """

    def __init__(self, what: str, total: int, per_user: int, kept: Mapping[Rank, int]) -> None:
        self._what = what
        self._per_user = per_user
        self._open_to = {rank: total - sum(kept[r] for r in kept if r > rank) for rank in Rank}
        self._users: Counter[object] = Counter()

    def take(self, peer: Peer | None, rank: Rank) -> None:
        """Takes one slot until ``give_back``. Raises TooManyRequestsError, DaemonBusyError."""
        key, who = (peer.key, str(peer)) if peer else (None, "user None")
        if rank is not Rank.ROOT and self._users[key] >= self._per_user:
            raise TooManyRequestsError(
                f"{who} has too many {self._what}",
                why=f"a user other than root may have {self._per_user}",
                hint="end some of them, or try again later; docs/daemon.md lists the limits",
            )
        if self._users.total() >= self._open_to[rank]:
            raise DaemonBusyError(
                f"the daemon has too many {self._what} already",
                why=f"callers such as {who} may have {self._open_to[rank]} all together",
                hint="try again later",
            )
        self._users[key] += 1

    def give_back(self, peer: Peer | None) -> None:
        """Frees one slot."""
        key = peer.key if peer else None
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]

    @contextmanager
    def hold(self, peer: Peer | None, rank: Rank) -> Iterator[None]:
        """Takes a slot for the block. Raises as ``take``."""
        self.take(peer, rank)
        try:
            yield
        finally:
            self.give_back(peer)


class Limits:
    """The limits and timeouts of one daemon's callers."""

    def __init__(self, settings: LimitSettings, access: Access) -> None:
        self.access = access
        self.times = settings
        total = min(settings.connections, read_descriptor_limit() - OTHER_DESCRIPTORS)
        total = max(total, 16)
        share = total / settings.connections
        kept = {
            Rank.ROOT: max(1, int(settings.kept_for_root * share)),
            Rank.ADMIN: int(settings.kept_for_admins * share),
            Rank.VIEWER: int(settings.kept_for_viewers * share),
        }
        self.connections = Quota("connections", total, settings.connections_per_user, kept)
        #: what the listener on a network may have besides
        self.free_descriptors = read_descriptor_limit() - OTHER_DESCRIPTORS - total
        # callers over the network take nothing from those of this host
        self._requests, self._listeners = (
            {is_remote: Quota(what, most, per_user, kept_of_it) for is_remote in (False, True)}
            for what, most, per_user, kept_of_it in (
                ("requests under way", total, settings.requests_per_user, kept),
                ("event streams", MAX_LISTENERS, settings.listeners_per_user, _KEPT_LISTENERS),
            )
        )

    def find_requests(self, peer: Peer | None) -> Quota:
        """The slots for requests under way of callers such as this one."""
        return self._requests[peer is not None and peer.caller is not None]

    def find_listeners(self, peer: Peer | None) -> Quota:
        """The slots for event streams."""
        return self._listeners[peer is not None and peer.caller is not None]


class PeerProtocol(H11Protocol):
    """HTTP/1.1 with the peer's credentials from the kernel, and a timeout for each part of a request."""

    peer: Peer | None = None
    #: bytes that the peer may leave unread before the time of its answer begins
    unread_bytes = 0
    _holds_slot = False
    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def __init__(self, limits: Limits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Reads the peer's credentials once for each connection."""
        super().connection_made(transport)
        # pause_writing starts the timeout as soon as the peer leaves a byte unread
        transport.set_write_buffer_limits(high=self.unread_bytes, low=0)
        try:
            self.take_slot(transport)
        except VgpumgrError as error:
            self._refuse(error)
            return
        self._holds_slot = True
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers, which would keep the connection in memory, and frees its slot."""
        self._stop_head_timer()
        self._stop_answer_timer()
        if self._holds_slot:
            self._holds_slot = False
            self.give_slot_back()
        super().connection_lost(exc)

    def take_slot(self, transport: asyncio.Transport) -> None:
        """Says in the state of each request who calls. Raises TooManyRequestsError, DaemonBusyError."""
        self.peer = read_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": self.peer}
        self._limits.connections.take(self.peer, self._limits.access.find_rank(self.peer))

    def give_slot_back(self) -> None:
        """Frees what ``take_slot`` took."""
        self._limits.connections.give_back(self.peer)

    def data_received(self, data: bytes) -> None:
        """Starts the timeout of each request's head, also of the second request of a connection."""
        if self._head_timer is None and not self._in_request():
            self._await_head()
        super().data_received(data)

    def handle_events(self) -> None:
        """See uvicorn. A complete head ends its timeout."""
        super().handle_events()
        if self._in_request():
            self._stop_head_timer()

    def pause_writing(self) -> None:
        """The peer does not read as fast as the daemon writes: starts the timeout of the answer."""
        super().pause_writing()
        if self._answer_timer is None:
            self._answer_timer = self.loop.call_later(
                self._limits.times.answer_s, self.transport.abort
            )

    def resume_writing(self) -> None:
        """The peer has read everything."""
        super().resume_writing()
        self._stop_answer_timer()

    def send_400_response(self, msg: str) -> None:
        """Answers data that is not HTTP with the envelope of every error."""
        if self._in_request() and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(UsageError("the request cannot be read", cause=msg))

    def _in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.times.head_s, self._end_silence)

    def _end_silence(self) -> None:
        self._head_timer = None
        if self._in_request() or self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            why = f"its head may take {self._limits.times.head_s:g} s"
            self._refuse(RequestTimeoutError("the request did not arrive in time", why=why))
        else:
            self.transport.abort()

    def _refuse(self, error: VgpumgrError) -> None:
        """Answers without reading the request, and hangs up."""
        body = encode_error(error)
        head = [
            f"HTTP/1.1 {error.http_status} {STATUS_PHRASES[error.http_status].decode()}",
            "content-type: application/json", f"content-length: {len(body)}", "connection: close",
            *(f"{name.lower()}: {value}" for name, value in list_headers(error)),
        ]  # fmt: skip
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None


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
