"""Connections of a browser, and the daemon's answers to it.

The event loop reads heads and bodies within their limits and asks the gate. What may pass goes to a thread, which
speaks with the daemon over a stream of its own, on this host or over ssh, and writes each part as it arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping

from vgpumgr.cli.gateway.gate import Gate, Reply, answer_error
from vgpumgr.cli.gateway.requests import MAX_HEAD_BYTES, Request, read_head
from vgpumgr.cli.http import HttpBackend, OpenAnswer, Stream, exchange
from vgpumgr.errors import (
    DaemonAnswerError,
    DaemonBusyError,
    DaemonNotRunningError,
    RemoteHostError,
    RequestTimeoutError,
    RequestTooLargeError,
    VgpumgrError,
)
from vgpumgr.model.page import SECURITY_HEADERS
from vgpumgr.model.routes import API

#: connections that have sent no whole head yet, or have their answer; one more ends the oldest, so that silence keeps
#: no other out
MAX_WAITING = 128
#: requests that are with the daemon, event streams included
MAX_CALLS = 48
HEAD_S = 10.0
_BODY_S = 30.0
#: in which a browser reads a part
_WRITE_S = 30.0
#: what a browser still sends after its request, before the connection ends
_LINGER_S = 1.0
#: in which requests under way end with the command
_END_S = 2.0
#: how often the session's clock is read: the event loop's stands still while the machine sleeps, and that one does not
_EXPIRY_S = 10.0
_PART = 64 << 10
#: what goes on to the daemon, and what comes back
_ASKED = ("accept", "if-match", "if-none-match", "last-event-id", "prefer")
_ANSWERED = ("content-type", "cache-control", "etag", "location", "retry-after", "allow")
#: nothing has begun: it comes back, and can be asked again
_AWAY = (DaemonNotRunningError, RemoteHostError)


class Gateway:
    """Serves one session."""

    def __init__(self, gate: Gate, backend: HttpBackend, command: str = "vgpumgr") -> None:
        self._gate = gate
        # what the page learns beside the daemon's own answer: the program, with the machine or host that it is for
        self._said = {"command": command} | ({"role": "viewer"} if gate.read_only else {})
        self._backend = backend
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[Call] = set()
        self._threads: set[asyncio.Future[Reply | None]] = set()

    async def serve(self, listener: socket.socket, end: asyncio.Event) -> None:
        """Until ``end``; what is under way ends with it, and with the session."""
        server = await asyncio.start_server(self._serve, sock=listener, limit=MAX_HEAD_BYTES)
        expiry = asyncio.create_task(self._expire())
        try:
            await end.wait()
        finally:
            expiry.cancel()
            server.close()
            for task in self._tasks:
                task.cancel()
            self._hang_up()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # the threads write through this loop: it runs on until they have ended. One that still waits for ssh ends
            # with the process
            if self._threads:
                await asyncio.wait(self._threads, timeout=_END_S)

    async def _expire(self) -> None:
        """Ends what is under way once the session has expired, and what was let in just before."""
        while True:
            left_s = self._gate.left_s
            if left_s <= 0:
                self._hang_up()
            await asyncio.sleep(min(left_s, _EXPIRY_S) if left_s > 0 else _EXPIRY_S)

    def _hang_up(self) -> None:
        for call in list(self._calls):
            call.hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._await_other_side(task)
        # what was written has then left this process, and the end of the connection loses nothing
        writer.transport.set_write_buffer_limits(high=0)
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.CancelledError):
                await self._serve_one(task, reader, writer)
        finally:
            self._waiting.pop(task, None)
            self._tasks.discard(task)
            writer.transport.abort()

    def _await_other_side(self, task: asyncio.Task[None]) -> None:
        """From here on it is the browser's turn; the oldest of too many such connections ends."""
        self._waiting[task] = None
        if len(self._waiting) > MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cancel()

    async def _serve_one(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request, and the end of its connection."""
        request: Request | None = None
        body = b""
        try:
            head = await _read_head(reader)
            self._waiting.pop(task, None)
            request = read_head(head)
            reply = self._gate.check(request)
            if reply is None:
                body = await _read_body(request, reader, writer)
        except VgpumgrError as error:
            reply = answer_error(error, error.http_status)
        if reply is None and len(self._calls) >= MAX_CALLS:
            busy = DaemonBusyError("the page has too many requests under way", hint="try again")
            reply = answer_error(busy, busy.http_status)
        if reply is None:
            assert request is not None
            await self._forward(request, body, reader, writer)
        else:
            is_head = request is not None and request.method == "HEAD"
            await _write(writer, _format(reply, with_body=not is_head))
        self._await_other_side(task)
        await _end(reader, writer)

    async def _forward(
        self,
        request: Request,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()

        def write(data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(_write(writer, data), loop).result()

        call = Call(self._backend, request, body, write, self._said)
        self._calls.add(call)
        watch = asyncio.create_task(_await_hang_up(reader, call))
        try:
            reply = await asyncio.shield(self._start(call))
            if reply is not None:
                await _write(writer, _format(reply, with_body=request.method != "HEAD"))
        finally:
            call.hang_up()
            # what ends the connection reads it, too
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._calls.discard(call)

    def _start(self, call: Call) -> asyncio.Future[Reply | None]:
        """Its answer, from a thread of its own, for which no process waits at its end."""
        loop = asyncio.get_running_loop()
        running: asyncio.Future[Reply | None] = loop.create_future()

        def run() -> None:
            reply: Reply | None = None
            try:
                reply = call.run()
            finally:
                # the loop may have ended before
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(running.set_result, reply)

        # it may raise, where the process has too many threads: then nothing is counted
        threading.Thread(target=run, name="gateway", daemon=True).start()
        self._threads.add(running)
        running.add_done_callback(self._threads.discard)
        return running


class Call:
    """One request to the daemon, in a thread."""

    def __init__(
        self,
        backend: HttpBackend,
        request: Request,
        body: bytes,
        write: Callable[[bytes], None],
        said: Mapping[str, str],
    ) -> None:
        self._backend = backend
        self._request = request
        self._body = body
        self._write = write
        self._said = said
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._over = False
        self._begun = False

    def run(self) -> Reply | None:
        """Passes request and answer on; answers what to say where nothing came from the daemon."""
        if self._over:
            return None
        try:
            with contextlib.closing(self._backend.connect()) as stream:
                if not self._keep(stream):
                    return None
                try:
                    self._pass(stream)
                finally:
                    self._keep(None)
        except VgpumgrError as error:
            return None if self._begun else self._explain(error)
        except (OSError, ValueError, RuntimeError, TimeoutError):
            pass  # the browser or the daemon hung up, the one within an answer
        return None

    def hang_up(self) -> None:
        """Ends it, from another thread."""
        with self._lock:
            self._over = True
            if self._stream is not None:
                with contextlib.suppress(OSError):
                    self._stream.shutdown(socket.SHUT_RDWR)

    def _explain(self, error: VgpumgrError) -> Reply:
        """503 where it can be asked again. A change that the daemon did not answer may have begun."""
        hung_up = self._request.reads and isinstance(error, DaemonAnswerError)
        away = hung_up or isinstance(error, _AWAY)
        return answer_error(error, 503 if away else error.http_status)

    def _keep(self, stream: Stream | None) -> bool:
        with self._lock:
            self._stream = stream
            return not self._over

    def _pass(self, stream: Stream) -> None:
        asked = {name: v for name in _ASKED if (v := self._request.find(name)) and v.isascii()}
        is_page = not self._request.path.startswith(API)
        # the page's files have no parameters
        target = self._request.path if is_page else self._request.target
        body = None if self._request.reads else self._body
        with exchange(stream, self._request.method, target, body, asked) as answer:
            if self._request.path == API and answer.status == 200:
                answer = _add(answer, self._said)
            self._begun = True
            self._write(_format_head(answer.status, _list_headers(answer, is_page=is_page)))
            for part in answer.parts:
                self._write(part)


def _add(answer: OpenAnswer, said: Mapping[str, str]) -> OpenAnswer:
    """What the daemon says of itself, with what the gateway says of the session."""
    text = b"".join(answer.parts)
    headers = {k: v for k, v in answer.headers.items() if k != "content-length"}
    if not text:
        return OpenAnswer(answer.status, headers, iter(()))
    body = json.dumps(json.loads(text) | said).encode()
    headers["content-length"] = str(len(body))
    return OpenAnswer(answer.status, headers, iter((body,)))


def _list_headers(answer: OpenAnswer, *, is_page: bool) -> Iterable[tuple[str, str]]:
    names = ("content-length", *_ANSWERED)
    yield from ((name.title(), answer.headers[name]) for name in names if name in answer.headers)
    if not is_page and "cache-control" not in answer.headers:
        yield ("Cache-Control", "no-store")
    yield from SECURITY_HEADERS


def _format_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace")


def _format(reply: Reply, *, with_body: bool) -> bytes:
    length = ("Content-Length", str(len(reply.body)))
    return _format_head(reply.status, (length, *reply.headers)) + (reply.body if with_body else b"")


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """The head with its empty line. Raises RequestTimeoutError, RequestTooLargeError, EOFError."""
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
    except TimeoutError:
        raise RequestTimeoutError(
            "the request did not arrive in time", why=f"its head may take {HEAD_S:g} s"
        ) from None
    except asyncio.LimitOverrunError:
        raise RequestTooLargeError(
            "the request is too large", why=f"its head may have {MAX_HEAD_BYTES} bytes"
        ) from None


async def _read_body(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    if not request.length:
        return b""
    if request.find("expect") is not None:
        await _write(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        return await asyncio.wait_for(reader.readexactly(request.length), _BODY_S)
    except TimeoutError:
        raise RequestTimeoutError(
            "the request did not arrive in time", why=f"its body may take {_BODY_S:g} s"
        ) from None


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Writes, and waits while the browser has much to read. Raises ConnectionError, TimeoutError."""
    if writer.is_closing():
        raise ConnectionResetError("the browser hung up")
    writer.write(data)
    await asyncio.wait_for(writer.drain(), _WRITE_S)


async def _await_hang_up(reader: asyncio.StreamReader, call: Call) -> None:
    """Ends the call once the browser is gone. What else it sends is no request, and is dropped."""
    with contextlib.suppress(OSError):
        while await reader.read(_PART):
            pass
    call.hang_up()


async def _end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends the connection so that the answer is read first: unread bytes would reset it."""
    if writer.is_closing():
        return
    writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(_PART):
                pass


def open_listener(port: int) -> socket.socket:
    """A socket on the loopback interface. Raises OSError."""
    return socket.create_server(("127.0.0.1", port), backlog=128)
