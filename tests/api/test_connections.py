"""Who connects and says nothing, or connects very often, does not take the daemon from others."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from vgpumgr.daemon import connections
from vgpumgr.daemon.connections import PeerProtocol, QuietLoop
from vgpumgr.host.peer import Peer


async def refuse(_scope: object, _receive: object, _send: object) -> None:
    raise AssertionError("nothing was asked")


async def connect(state: ServerState) -> socket.socket:
    """The client's end of a connection that is served."""
    config = uvicorn.Config(refuse, http=PeerProtocol, lifespan="off", log_config=None)
    config.load()
    here, there = socket.socketpair()
    here.settimeout(60)
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: PeerProtocol(config, state, {}), there)
    return here


async def read(client: socket.socket) -> bytes:
    """What came; nothing once the connection is over."""
    try:
        return await asyncio.to_thread(client.recv, 100)
    except ConnectionResetError:
        return b""


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 0.05)

    async def scene() -> None:
        with await connect(ServerState()) as client:
            client.send(b"GET / HTTP/1.1\r\n")
            assert await read(client) == b""

    asyncio.run(scene())


def test_a_connection_that_is_over_is_held_by_nothing() -> None:
    """Not by the timer of its silence either, which has long not rung: there may be many in that time."""

    async def scene() -> int:
        state = ServerState()
        for _ in range(20):
            (await connect(state)).close()
        while state.connections:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        gc.collect()
        return sum(type(thing) is PeerProtocol for thing in gc.get_objects())

    assert asyncio.run(scene()) == 0


@pytest.mark.parametrize(("uid", "all_stay"), [(1000, False), (0, True)])
def test_one_user_has_no_more_than_his_share(
    uid: int, all_stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_OF_USER", 3)
    monkeypatch.setattr(connections, "read_peer", lambda _: Peer(1, uid, frozenset()))

    async def scene() -> None:
        state = ServerState()
        clients = [await connect(state) for _ in range(5)]
        await asyncio.sleep(0)
        kept = [c for c in state.connections if not c.transport.is_closing()]
        assert len(kept) == (5 if all_stay else 3)
        for client in clients:
            client.close()

    asyncio.run(scene())


def test_what_repeats_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = QuietLoop()

    async def scene() -> None:
        for _ in range(1000):
            quiet(asyncio.get_running_loop(), {"message": "accept", "exception": OSError(24, "x")})

    asyncio.run(scene())
    assert capsys.readouterr().err.splitlines() == ["accept: [Errno 24] x"]
