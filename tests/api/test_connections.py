"""Single connections: each part of a request has a timeout, and a closed connection leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from functools import partial

import pytest
import uvicorn
from uvicorn.server import ServerState

from vgpumgr.errors import DaemonBusyError, TooManyRequestsError
from vgpumgr.host.sockets import Peer
from vgpumgr.server import connections
from vgpumgr.server.access import Access, Rank
from vgpumgr.server.connections import Limits, PeerProtocol, QuietLoop, Quota
from vgpumgr.server.settings import LimitSettings, Settings

BIG = b"x" * (4 << 20)
ACCESS = Access(frozenset({0}), 70001, 70002)


async def answer(_scope: object, _receive: object, send: object) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(BIG))],
        }
    )  # type: ignore[operator]
    await send({"type": "http.response.body", "body": BIG})  # type: ignore[operator]


def make_limits(**settings: float) -> Limits:
    return Limits(LimitSettings.model_validate(settings), ACCESS)


async def connect(state: ServerState, limits: Limits) -> socket.socket:
    """The client's end of a connection that is served."""
    config = uvicorn.Config(answer, http=PeerProtocol, lifespan="off", log_config=None)
    config.load()
    here, there = socket.socketpair()
    here.settimeout(60)
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(partial(PeerProtocol, limits, config, state, {}), there)
    return here


async def read(client: socket.socket) -> bytes:
    """All data until the connection ends."""
    data = b""
    while True:
        try:
            more = await asyncio.to_thread(client.recv, 1 << 20)
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more


def read_error(reply: bytes) -> tuple[int, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["id"]


@pytest.mark.parametrize(
    ("sent", "error"),
    [(b"", None), (b"GET / HTTP/1.1\r\n", (408, "VG367")), (b"nonsense\r\n\r\n", (400, "VG100"))],
    ids=["silence", "half a head", "no HTTP"],
)
def test_incomplete_heads_time_out(sent: bytes, error: tuple[int, str] | None) -> None:
    async def scene() -> None:
        with await connect(ServerState(), make_limits(head_s=0.05)) as client:
            client.send(sent)
            reply = await read(client)
            assert (read_error(reply) if error else reply) == (error or b"")

    asyncio.run(scene())


def test_one_byte_at_a_time_times_out() -> None:
    async def scene() -> None:
        with await connect(ServerState(), make_limits(head_s=0.3)) as client:
            reading = asyncio.create_task(read(client))
            sent = 0
            head = b"GET / HTTP/1.1\r\nX: " + b"y" * 200
            while not reading.done() and sent < len(head):
                with contextlib.suppress(BrokenPipeError):
                    client.send(head[sent : sent + 1])
                sent += 1
                await asyncio.sleep(0.02)
            assert read_error(await reading) == (408, "VG367")
            assert sent < 100

    asyncio.run(scene())


def test_the_second_request_of_a_connection_times_out() -> None:
    async def scene() -> None:
        state = ServerState()
        with await connect(state, make_limits(head_s=0.2)) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = b""
            while len(head) < len(BIG):
                head += await asyncio.to_thread(client.recv, 1 << 20)
            assert head.startswith(b"HTTP/1.1 200")
            client.send(b"GET / HTTP/1.1\r\n")
            assert (await read(client)).rpartition(b"HTTP/1.1 ")[2].startswith(b"408")
            assert not state.connections

    asyncio.run(scene())


def test_an_unread_answer_times_out() -> None:
    async def scene() -> None:
        state = ServerState()
        limits = make_limits(answer_s=0.2)
        with await connect(state, limits) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for _ in range(500):
                await asyncio.sleep(0.01)
                if not state.connections:
                    break
            assert not state.connections
            assert not limits.connections._users

    asyncio.run(scene())


def test_a_connection_that_is_over_is_held_by_nothing() -> None:
    """Not by the timer of its silence either, which has long not rung: there may be many in that time."""

    async def scene() -> int:
        state, limits = ServerState(), make_limits()
        for _ in range(20):
            (await connect(state, limits)).close()
        while state.connections:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        gc.collect()
        assert not limits.connections._users
        return sum(type(thing) is PeerProtocol for thing in gc.get_objects())

    assert asyncio.run(scene()) == 0


@pytest.mark.parametrize(("uid", "all_stay"), [(1000, False), (0, True)])
def test_connections_of_one_user_are_limited(
    uid: int, all_stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "read_peer", lambda _: Peer(1, uid, frozenset()))

    async def scene() -> None:
        state, limits = ServerState(), make_limits(connections_per_user=3)
        clients = [await connect(state, limits) for _ in range(5)]
        await asyncio.sleep(0)
        kept = [c for c in state.connections if not c.transport.is_closing()]
        assert len(kept) == (5 if all_stay else 3)
        if not all_stay:
            assert read_error(await read(clients[4])) == (429, "VG366")
        for client in clients:
            client.close()

    asyncio.run(scene())


def test_kept_slots_are_refused_to_lower_ranks() -> None:
    kept = {Rank.ROOT: 2, Rank.ADMIN: 3, Rank.VIEWER: 1}
    quota = Quota("things", 20, 100, kept)
    held: list[tuple[Peer, Rank]] = []
    for rank, room in ((Rank.STRANGER, 14), (Rank.VIEWER, 1), (Rank.ADMIN, 3), (Rank.ROOT, 2)):
        peer = Peer(1, int(rank), frozenset())
        for _ in range(room):
            quota.take(peer, rank)
            held.append((peer, rank))
        with pytest.raises(DaemonBusyError):
            quota.take(peer, rank)
    for peer, _ in held:
        quota.give_back(peer)
    assert not quota._users
    quota = Quota("things", 20, 1, kept)
    quota.take(Peer(1, 7, frozenset()), Rank.ADMIN)
    with pytest.raises(TooManyRequestsError, match="user 7 has too many things"):
        quota.take(Peer(1, 7, frozenset()), Rank.ADMIN)


def test_few_descriptors_shrink_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept shares shrink with the limit of descriptors; root keeps at least one connection."""
    monkeypatch.setattr(connections, "read_descriptor_limit", lambda: 288)
    limits = make_limits()
    root = Peer(1, 0, frozenset())
    stranger = Peer(1, 9, frozenset())
    for _ in range(32 - 2 - 4 - 4):
        limits.connections.take(stranger, Rank.STRANGER)
    with pytest.raises(DaemonBusyError):
        limits.connections.take(stranger, Rank.STRANGER)
    limits.connections.take(root, Rank.ROOT)


def test_limits_must_leave_connections_for_others() -> None:
    with pytest.raises(ValueError, match="none is left"):
        Settings.model_validate({"limits": {"connections": 100}})


def test_what_repeats_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = QuietLoop()

    async def scene() -> None:
        for _ in range(1000):
            quiet(asyncio.get_running_loop(), {"message": "accept", "exception": OSError(24, "x")})

    asyncio.run(scene())
    assert capsys.readouterr().err.splitlines() == ["accept: [Errno 24] x"]
