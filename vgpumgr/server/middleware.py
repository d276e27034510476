"""The middleware before the API: finds the route of a request, checks the role, reads the body within its limits.

Plain ASGI, so that it sees every request. It passes only rows of the table of routes, and compares paths in the form
in which they arrive, so that the framework cannot read another path into them. The role is checked here, before the
body is read, and again where the operation runs (``routes.py``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote

from vgpumgr.errors import (
    AccessDeniedError,
    AuthenticationError,
    MethodNotAllowedError,
    RequestTimeoutError,
    RequestTooLargeError,
    RouteNotFoundError,
    TooManyRequestsError,
    VgpumgrError,
)
from vgpumgr.host.sockets import Peer
from vgpumgr.model.callers import NetworkCaller
from vgpumgr.model.page import PAGE, SECURITY_HEADERS
from vgpumgr.model.routes import ROUTES, SYSTEM_ROUTES, Role, Route
from vgpumgr.server.context import Context
from vgpumgr.server.gatekeeper import check_sender
from vgpumgr.server.listener import Connection
from vgpumgr.server.page import Page, PageAnswer
from vgpumgr.server.page_sessions import KEY, LOGIN, MAX_FORM_BYTES, read_form, redirect, show_form
from vgpumgr.server.responses import encode_error, list_headers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
MAX_BODY_BYTES = 1 << 20
MAX_TARGET_BYTES = 8 << 10
#: a parameter of a path: the characters of a segment in RFC 3986
_SEGMENT = r"((?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)"
#: refused in a decoded parameter: characters that end a segment or a line, and dot segments
_NOT_A_NAME = re.compile(r"[\x00-\x1f\x7f/]|^\.{1,2}$")
_STREAM = "stream_events"
_NETWORK_HEADERS = (("Cache-Control", "no-store"), *SECURITY_HEADERS)
_HINT = "vgpumgr api GET /1.0/openapi.json"


class RouteTable:
    """Finds the row of a request. A route has one canonical form; every other form is unknown."""

    def __init__(self, routes: Sequence[Route] = (*ROUTES, *SYSTEM_ROUTES)) -> None:
        self._fixed = {(r.method, r.path): r for r in routes if "{" not in r.path}
        self._patterns = [
            (r, re.compile(re.sub(r"\\\{\w+\\\}", lambda _: _SEGMENT, re.escape(r.path))))
            for r in routes
            if "{" in r.path
        ]
        self._methods = {r.method for r in routes}

    def find(self, method: str, raw_path: str) -> Route:
        """The row; HEAD is GET without the body. Raises RouteNotFoundError, MethodNotAllowedError."""
        route = self._match("GET" if method == "HEAD" else method, raw_path)
        if route is not None and (method, route.operation) != ("HEAD", _STREAM):
            return route
        if allowed := self.list_methods(raw_path):
            why = f"it has {', '.join(allowed)}"
            error = MethodNotAllowedError(
                "the API has no such method on this path", why=why, hint=_HINT
            )
            error.allowed = allowed
            raise error
        raise RouteNotFoundError("the API has no such path", hint=_HINT)

    def list_methods(self, raw_path: str) -> list[str]:
        """The methods of a path; HEAD goes with GET, except for the stream of events, which has no end."""
        found = {m: r for m in sorted(self._methods) if (r := self._match(m, raw_path))}
        has_head = "GET" in found and found["GET"].operation != _STREAM
        return [*found, *(["HEAD"] if has_head else [])]

    def _match(self, method: str, raw_path: str) -> Route | None:
        route = self._fixed.get((method, raw_path))
        if route is not None:
            return route
        for candidate, pattern in self._patterns:
            match = pattern.fullmatch(raw_path) if candidate.method == method else None
            if match is not None and all(map(_is_name, match.groups())):
                return candidate
        return None


def _is_name(segment: str) -> bool:
    try:
        return not _NOT_A_NAME.search(unquote(segment, errors="strict"))
    except UnicodeDecodeError:
        return False


class Middleware:
    """Wraps the API."""

    def __init__(self, app: App, context: Context) -> None:
        self._app = app
        self._context = context
        self._routes = RouteTable()
        self._page = Page()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        peer: Peer | None = scope["state"].get("peer")
        connection: Connection | None = scope["state"].get("connection")
        try:
            if connection is not None:
                send = _secure(send)
                peer = Peer.from_network(NetworkCaller(connection.origin.address))
                if answer := await self._enter_page(scope, receive, connection):
                    await _send_page(send, answer)
                    return
                peer = self._authenticate(scope, connection)
            if self._page.serves(scope["raw_path"]):
                self._context.access.check(peer, Role.VIEWER)
                await self._serve_page(scope, send)
                return
            route = self._admit(scope, peer)
            if scope["method"] == "HEAD":
                # the server leaves the body out
                scope = {**scope, "method": "GET"}
            if route.cached and await self._serve_cached(scope, send):
                return
            rank = self._context.access.find_rank(peer)
            with self._context.limits.find_requests(peer).hold(peer, rank):
                body = await self._read_body(receive)
                if body is not None:
                    await self._app(scope, _replay(body, receive), send)
        except (AccessDeniedError, AuthenticationError) as error:
            self._context.refusals.note(peer, scope["method"], scope["raw_path"].decode("latin-1"))
            await _send_error(send, error)
        except VgpumgrError as error:
            await _send_error(send, error)
        finally:
            if connection is not None:
                connection.caller = None

    def _authenticate(self, scope: Message, connection: Connection) -> Peer:
        """Who calls over the network. Raises as ``Gatekeeper.authenticate``."""
        peer = self._context.gatekeeper.authenticate(
            connection.origin, scope["headers"], for_page=self._page.serves(scope["raw_path"])
        )
        scope["state"]["peer"] = peer
        connection.caller = peer.caller
        return peer

    async def _enter_page(
        self, scope: Message, receive: Receive, connection: Connection
    ) -> PageAnswer | None:
        """What leads a browser to a session; None for all other requests. Raises as ``Gatekeeper.log_in``."""
        gatekeeper, headers = self._context.gatekeeper, scope["headers"]
        asked = (scope["method"], scope["raw_path"].decode("latin-1"))
        if asked == ("GET", "/"):
            return redirect()
        if asked == ("POST", KEY):
            check_sender(headers)
            return gatekeeper.exchange(connection.origin, headers)
        if asked == ("POST", LOGIN):
            return await self._log_in(scope, receive, connection)
        if asked == ("GET", f"{PAGE}/"):
            try:
                gatekeeper.authenticate(connection.origin, headers, for_page=True)
            except AuthenticationError:
                return show_form()
        return None

    async def _log_in(self, scope: Message, receive: Receive, connection: Connection) -> PageAnswer:
        """A session, or the form again, with the reason. A browser says which page sends a form."""
        check_sender(scope["headers"])
        if b"origin" not in dict(scope["headers"]):
            raise AccessDeniedError("the request comes from no page")
        secret = read_form(await self._read_body(receive, MAX_FORM_BYTES) or b"") or "-"
        try:
            return self._context.gatekeeper.log_in(connection.origin, secret)
        except (AuthenticationError, AccessDeniedError, TooManyRequestsError) as error:
            who = Peer.from_network(NetworkCaller(connection.origin.address))
            self._context.refusals.note(who, scope["method"], LOGIN)
            return show_form(f"{error.error}: {error.why}", error.http_status)

    def _admit(self, scope: Message, peer: Peer | None) -> Route:
        """The route of an admitted request. A caller without a role does not learn which routes exist."""
        access = self._context.access
        access.check(peer, Role.TENANT)
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            raise _too_large()
        route = self._routes.find(scope["method"], scope["raw_path"].decode("latin-1"))
        scope["state"]["role"] = access.authorize(peer, route.operation)
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY_BYTES:
                raise _too_large()
        return route

    async def _read_body(self, receive: Receive, most: int = MAX_BODY_BYTES) -> bytes | None:
        """The whole body within its time; None if the caller hangs up."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._context.limits.times.body_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise _too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RequestTimeoutError(
                "the request did not arrive in time",
                why=f"its body may take {self._context.limits.times.body_s:g} s",
            ) from None

    async def _serve_page(self, scope: Message, send: Send) -> None:
        """A file of the web page. Raises as ``Page.find``."""
        found = await asyncio.to_thread(self._page.find, scope["method"], scope["raw_path"])
        await _send_page(send, found)

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


def _replay(body: bytes, receive: Receive) -> Receive:
    """Repeats the body for the framework, then passes on messages such as the end of the connection."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _too_large() -> RequestTooLargeError:
    return RequestTooLargeError(
        "the request is too large",
        why=f"bodies may have {MAX_BODY_BYTES} bytes, addresses {MAX_TARGET_BYTES}",
    )


def _secure(send: Send) -> Send:
    """Adds to an answer over the network what holds a browser to it, and keeps it out of caches."""
    more = [(name.lower().encode(), value.encode()) for name, value in _NETWORK_HEADERS]

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            added = [one for one in more if one[0] not in given]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_secured


async def _send_page(send: Send, found: PageAnswer) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in found.headers]
    headers.append((b"content-length", b"%d" % len(found.body)))
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": found.body})


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
