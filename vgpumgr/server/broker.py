"""The broker: at a UNIX socket it answers who may use which GPU over the network.

``vgpumgr-link`` asks for each guest process of another host: {"link": {"host", "claim", "attachment", "pid", "name"}},
and gets {"ok": true} with a connection to the agent of the channel, or {"error": TEXT}. The dialer of an attachment
whose claim binds late asks {"dial": ATTACHMENT}, and gets {"wait": TEXT} while the claim waits, and then
{"tcp": [[HOST, PORT], ...]}: the lease ends when it closes the connection. A question is one line, on a connection of
its own; a dialer asks again on the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import sys
from functools import partial
from typing import Any

from vgpumgr.app.operations.late_links import ask_late, bind_late, release_late
from vgpumgr.app.operations.served import find_channel, serve_link
from vgpumgr.errors import DaemonBusyError, UsageError, VgpumgrError, explain_unexpected
from vgpumgr.host.files import DIRECTORY, make_directory
from vgpumgr.host.process import ProcessId, read_identity
from vgpumgr.model.frozen import dataclass
from vgpumgr.server.context import Context
from vgpumgr.state.leases import LinkRequest
from vgpumgr.virtio.channel import ChannelPaths
from vgpumgr.virtio.links import connect_agent, find_listener, get_broker, split_address
from vgpumgr.virtio.sandbox import USER_IDS, choose_user_id

#: of a question
_MAX_BYTES = 4096
#: in which it is asked
_ASK_S = 10.0
#: connections at a time: one for each guest process that begins
_MAX_CONNECTIONS = 64
#: a dialer has one; one more while its last one ends
_MAX_OF_DIALER = 4
#: so often a claim that waits is asked for
_POLL_S = 0.25
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
        #: attachments whose dialers have a connection
        self.dialing: list[str] = []
        self._tasks: dict[asyncio.Task[None], _Caller] = {}
        self._accepting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens. Raises OSError."""
        make_directory(self._path.parent, DIRECTORY)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(self._path))
        # dialers have users of their own; any other caller is refused by its credentials
        self._path.chmod(0o666)
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
            caller = _read_caller(sock)
            if not _may_ask(caller):
                # it takes no place of those who may
                with contextlib.suppress(OSError):
                    sock.send(b'{"error": "only root asks for links, and dialers"}\n')
                sock.close()
                continue
            own = sum(one.uid == caller.uid for one in self._tasks.values())
            most = _MAX_CONNECTIONS if caller.uid in (0, os.geteuid()) else _MAX_OF_DIALER
            if len(self._tasks) >= _MAX_CONNECTIONS or own >= most:
                sock.close()
                continue
            task = asyncio.create_task(self._answer(sock, caller))
            self._tasks[task] = caller
            task.add_done_callback(self._tasks.pop)

    async def _answer(self, sock: socket.socket, caller: _Caller) -> None:
        with sock:
            try:
                question = await asyncio.wait_for(_read_line(sock), _ASK_S)
                await self._answer_one(sock, caller, question)
            except (OSError, TimeoutError):
                return  # who asked has gone
            except VgpumgrError as error:
                await _send(sock, {"error": _describe(error)})
            except Exception as error:
                await _send(sock, {"error": _describe(explain_unexpected(error, "a link"))})

    async def _answer_one(self, sock: socket.socket, caller: _Caller, question: Any) -> None:
        if isinstance(question, dict) and isinstance(question.get("dial"), str):
            await self._dial(sock, caller, question["dial"])
            return
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
        listener = find_listener(self._context.machine.run_dir)
        if listener is None:
            raise DaemonBusyError("vgpumgr-link does not run", hint="vgpumgr status")
        paths = await pools.change.run(lambda app: serve_link(app.parts, request, listener))
        self._context.cache.forget()
        return paths

    async def _dial(self, sock: socket.socket, caller: _Caller, attachment: str) -> None:
        """Until the dialer closes the connection."""
        directory = self._context.machine.run_dir / "channels" / attachment
        if not re.fullmatch(r"[0-9a-f]+", attachment) or not directory.is_dir():
            raise UsageError("no such channel")
        # a dialer has the user of its channel's relay
        if caller.uid not in (0, os.geteuid(), choose_user_id(directory)):
            raise UsageError("another user's channel")
        dialer = read_identity(caller.pid)
        if dialer is None:
            raise UsageError("the dialer has ended")
        self.dialing.append(attachment)
        try:
            call = partial(bind_late, attachment=attachment, dialer=dialer, directory=directory)
            while await self._wait_for_lease(sock, attachment, dialer):
                found = await self._context.pools.change.run(lambda app: call(app.parts))
                if isinstance(found, str):
                    raise DaemonBusyError(found)
                self._context.cache.forget()
                addresses = [list(split_address(text)) for text in found.addresses]
                await _send(sock, {"tcp": addresses})
                # the same for its next session, or for one whose link was cut
                if (await _read_line(sock)).get("dial") != attachment:
                    raise UsageError("a dialer asks for its own channel")
        finally:
            self.dialing.remove(attachment)
            if attachment not in self.dialing:
                await self._release(attachment, dialer)

    async def _wait_for_lease(
        self, sock: socket.socket, attachment: str, dialer: ProcessId
    ) -> bool:
        """False where the dialer has closed the connection meanwhile."""
        said, loop = "", asyncio.get_running_loop()
        closed = asyncio.ensure_future(loop.sock_recv(sock, 1))
        try:
            ask = partial(ask_late, attachment=attachment, dialer=dialer)
            while True:
                text = await self._context.pools.read.run(lambda app: ask(app.parts))
                if text is None:
                    return True
                if text != said:
                    said = text
                    await _send(sock, {"wait": text})
                await asyncio.wait({closed}, timeout=_POLL_S)
                if closed.done():
                    return False
        finally:
            closed.cancel()

    async def _release(self, attachment: str, dialer: ProcessId) -> None:
        try:
            call = partial(release_late, attachment=attachment, dialer=dialer)
            await asyncio.shield(self._context.pools.change.run(lambda app: call(app.parts)))
        except VgpumgrError as error:  # the service of links tries again
            print(f"a lease is not given back: {error}", file=sys.stderr, flush=True)
        self._context.cache.forget()


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


def _may_ask(caller: _Caller) -> bool:
    """Root, who runs this daemon, and dialers, each of which has the user of its channel's relay."""
    return caller.uid in (0, os.geteuid()) or caller.uid in USER_IDS


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
    """The reason, as a guest's process has it."""
    return ": ".join(part for part in (error.error, error.why or error.cause) if part)
