"""The gate before the API: who may pass, how much they may send, and answers that are ready.

Plain ASGI, so that it sees every request, also those that no route serves.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from vgpumgr.daemon.answers import encode_error, list_headers
from vgpumgr.daemon.context import Context
from vgpumgr.errors import AccessDeniedError, DaemonBusyError, RequestTooLargeError, VgpumgrError
from vgpumgr.host.peer import Peer
from vgpumgr.model.routes import ROUTES, SYSTEM_ROUTES, Role, Route

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
MAX_BODY_BYTES = 1 << 20
MAX_TARGET_BYTES = 8 << 10
#: one line of refusals for each user in this time, with their number
REFUSALS_S = 60.0


class Gate:
    """Wraps the API."""

    def __init__(
        self,
        app: App,
        context: Context,
        routes: Sequence[Route] = (*ROUTES, *SYSTEM_ROUTES),
    ) -> None:
        self._app = app
        self._context = context
        self._fixed = {(r.method, r.path): r for r in routes if "{" not in r.path}
        self._patterns = [
            (r, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(r.path))))
            for r in routes
            if "{" in r.path
        ]
        self._refusals: dict[int, tuple[float, int]] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            _check_crowd(scope)
            route = self._find(scope["method"], scope["path"])
            peer: Peer | None = scope["state"].get("peer")
            needed = route.role if route else Role.VIEWER
            scope["state"]["role"] = self._context.access.check(peer, needed)
            self._check_size(scope)
            if route is None or not route.cached or not await self._serve_cached(scope, send):
                await self._app(scope, _limit(receive), send)
        except AccessDeniedError as error:
            self._note_refusal(scope)
            await _send_error(send, error)
        except (RequestTooLargeError, DaemonBusyError) as error:
            await _send_error(send, error)

    def _find(self, method: str, path: str) -> Route | None:
        route = self._fixed.get((method, path))
        if route is not None:
            return route
        for candidate, pattern in self._patterns:
            if candidate.method == method and pattern.fullmatch(path):
                return candidate
        return None

    def _check_size(self, scope: Message) -> None:
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            raise _too_large()
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY_BYTES:
                raise _too_large()

    async def _serve_cached(self, scope: Message, send: Send) -> bool:
        if scope["query_string"]:
            return False
        answer = self._context.cache.find(scope["path"])
        if answer is None or (b"cache-control", b"no-cache") in scope["headers"]:
            return False
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(answer.body)),
        ]
        if answer.etag:
            headers.append((b"etag", answer.etag.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return True

    def _note_refusal(self, scope: Message) -> None:
        """One entry a minute and user: refusals must not fill the log."""
        peer: Peer | None = scope["state"].get("peer")
        uid = peer.uid if peer else -1
        now_s = self._context.clock.monotonic_s()
        since_s, count = self._refusals.get(uid, (-REFUSALS_S, 0))
        if now_s - since_s < REFUSALS_S:
            self._refusals[uid] = (since_s, count + 1)
            return
        if len(self._refusals) > 1000:
            self._refusals.clear()
        self._refusals[uid] = (now_s, 0)
        entry = {
            "event": "refused", "uid": uid, "pid": peer.pid if peer else None,
            "method": scope["method"], "path": scope["path"][:200], "more_before": count,
        }  # fmt: skip
        try:
            self._context.audit.append(entry)
        except VgpumgrError:
            return  # refused it is, with or without a log


def _check_crowd(scope: Message) -> None:
    is_crowded: Callable[[], bool] | None = scope["state"].get("is_crowded")
    if is_crowded is not None and is_crowded():
        raise DaemonBusyError("the daemon has too many connections already", hint="try again later")


def _limit(receive: Receive) -> Receive:
    """Counts what a body without a length brings."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise _too_large()
        return message

    return counted


def _too_large() -> RequestTooLargeError:
    return RequestTooLargeError(
        "the request is too large",
        why=f"bodies may have {MAX_BODY_BYTES} bytes, addresses {MAX_TARGET_BYTES}",
    )


async def _send_error(send: Send, error: VgpumgrError) -> None:
    body = encode_error(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        # what is left of the body is not read
        (b"connection", b"close"),
        *((name.lower().encode(), value.encode()) for name, value in list_headers(error)),
    ]
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
