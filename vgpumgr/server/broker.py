"""The broker: at a UNIX socket it answers who may use which GPU over the network.

``vgpumgr-link`` asks for each guest process of another host: {"link": {"host", "claim", "attachment", "pid", "name"}},
and gets {"ok": true} with a connection to the agent of the channel, or {"error": TEXT}. One question is one line, and
one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from typing import Any

from vgpumgr.app.operations.served import find_channel, serve_link
from vgpumgr.errors import DaemonBusyError, UsageError, VgpumgrError, explain_unexpected
from vgpumgr.host.files import DIRECTORY, make_directory
from vgpumgr.model.frozen import dataclass
from vgpumgr.server.context import Context
from vgpumgr.state.leases import LinkRequest
from vgpumgr.virtio.channel import ChannelPaths
from vgpumgr.virtio.links import connect_agent, find_listener, get_broker

#: of a question
_MAX_BYTES = 4096
#: in which it is asked
_ASK_S = 10.0
#: connections at a time: one for each guest process that begins
_MAX_CONNECTIONS = 64
_CREDENTIALS = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks."""

    pid: int
    uid: int


class Broker:
    """Lives on one event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path = get_broker(context.machine)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens. Raises OSError."""
        make_directory(self._path.parent, DIRECTORY)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(self._path))
        self._path.chmod(0o600)
        listener.listen(_MAX_CONNECTIONS)
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    async def close(self) -> None:
        """Ends."""
        for task in (self._accepting, *self._tasks):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.1)  # no descriptor is free
                continue
            sock.setblocking(False)
            if len(self._tasks) >= _MAX_CONNECTIONS:
                sock.close()
                continue
            task = asyncio.create_task(self._answer(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, sock: socket.socket) -> None:
        with sock:
            try:
                question = await asyncio.wait_for(_read_line(sock), _ASK_S)
                await self._answer_one(sock, _read_caller(sock), question)
            except (OSError, TimeoutError):
                return  # who asked has gone
            except VgpumgrError as error:
                await _send(sock, {"error": _describe(error)})
            except Exception as error:
                await _send(sock, {"error": _describe(explain_unexpected(error, "a link"))})

    async def _answer_one(self, sock: socket.socket, caller: _Caller, question: Any) -> None:
        if caller.uid not in (0, os.geteuid()):
            raise UsageError("only root asks for links")
        request = _read_request(question)
        paths = await self._find_paths(request)
        with connect_agent(paths) as agent:
            await _send(sock, {"ok": True}, agent.fileno())

    async def _find_paths(self, request: LinkRequest) -> ChannelPaths:
        pools = self._context.pools
        known = await pools.read.run(lambda app: find_channel(app.parts, request))
        if known is not None:
            return known
        listener = find_listener(self._context.machine)
        if listener is None:
            raise DaemonBusyError("vgpumgr-link does not run", hint="vgpumgr status")
        paths = await pools.change.run(lambda app: serve_link(app.parts, request, listener))
        self._context.cache.forget()
        return paths


def _read_request(question: Any) -> LinkRequest:
    """Raises UsageError."""
    asked = question.get("link") if isinstance(question, dict) else None
    names = ("host", "claim", "attachment")
    values = [asked.get(name) if isinstance(asked, dict) else None for name in names]
    host, claim, attachment = (one if isinstance(one, str) else "" for one in values)
    if not (host and claim and attachment):
        raise UsageError("no question of a link")
    return LinkRequest(host, claim, attachment)


async def _read_line(sock: socket.socket) -> Any:
    """Raises UsageError, OSError."""
    loop, data = asyncio.get_running_loop(), b""
    while not data.endswith(b"\n"):
        part = await loop.sock_recv(sock, _MAX_BYTES)
        data += part
        if not part:
            raise ConnectionError
        if len(data) > _MAX_BYTES:
            raise UsageError("a question has one line")
    try:
        return json.loads(data)
    except ValueError as error:
        raise UsageError("no question of a link", cause=str(error)) from error


def _read_caller(sock: socket.socket) -> _Caller:
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return _Caller(pid, uid)


async def _send(sock: socket.socket, answer: dict[str, Any], descriptor: int | None = None) -> None:
    """One line, which a socket always has space for, with a descriptor or without."""
    data = json.dumps(answer).encode() + b"\n"
    with contextlib.suppress(OSError):
        if descriptor is None:
            await asyncio.get_running_loop().sock_sendall(sock, data)
        else:
            socket.send_fds(sock, [data], [descriptor])


def _describe(error: VgpumgrError) -> str:
    """What a guest's process is told."""
    return ": ".join(part for part in (error.error, error.why or error.cause) if part)
