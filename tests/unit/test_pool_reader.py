"""The daemon's reads of its pool: shared, bounded, and not more often than they have to be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from vgpumgr.errors import PoolNotFoundError, PoolStoreError
from vgpumgr.host.machine import Machine
from vgpumgr.server import pool_reader
from vgpumgr.server.pool_reader import PoolReader

MACHINE = Machine("fakes", Path("/none"), Path("/none"), Path("/none"), "test:///default")


class Store:
    """A store that answers when it may: each read is counted, and hangs until ``may_answer``."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reads = 0
        self.epoch = 0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def open(self) -> PoolReader:
        return PoolReader(MACHINE, self.clock, lambda: self.epoch, self.read)

    def read(self, _machine: Machine) -> Any:
        self.reads += 1
        self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        return f"snapshot {self.reads}"


def run(scene: Callable[[Store, Any], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        store = Store()
        try:
            await scene(store, store.open())
        finally:
            store.may_answer.set()

    asyncio.run(play())


def test_many_callers_share_one_read() -> None:
    async def scene(store: Store, reader: Any) -> None:
        store.may_answer.clear()
        asked = [asyncio.create_task(reader.read()) for _ in range(50)]
        await asyncio.sleep(0.01)
        store.may_answer.set()
        found: list[Any] = await asyncio.gather(*asked)
        assert set(found) == {"snapshot 1"}
        store.clock.now_s += pool_reader.AGE_S
        assert await reader.read() == "snapshot 1"
        store.clock.now_s += 0.1
        assert await reader.read() == "snapshot 2"
        assert store.reads == 2

    run(scene)


def test_what_was_before_a_change_serves_no_longer() -> None:
    async def scene(store: Store, reader: Any) -> None:
        await reader.read()
        store.epoch += 1
        store.clock.now_s += 0.6
        assert await reader.read() == "snapshot 2"
        # changes without a pause are no reason to read without one
        store.epoch += 1
        assert await reader.read() == "snapshot 2"
        # the history does not ask for what is new
        store.clock.now_s += 9
        assert await reader.read(10, after_changes=False) == "snapshot 2"
        assert store.reads == 2

    run(scene)


def test_a_store_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_reader, "BOUND_S", 0.05)

    async def scene(store: Store, reader: Any) -> None:
        store.may_answer.clear()
        with pytest.raises(PoolStoreError, match="does not answer"):
            await reader.read()
        store.clock.now_s += 100
        for _ in range(3):
            with pytest.raises(PoolStoreError, match="does not answer"):
                await reader.read()
        assert store.reads == 1
        # what it says at last is too old, and is read anew
        reading = reader._reading
        assert reading is not None
        store.may_answer.set()
        await reading
        monkeypatch.setattr(pool_reader, "BOUND_S", 60)
        assert await reader.read() == "snapshot 2"

    run(scene)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PoolNotFoundError("this host is in no pool"), "VG378"),
        (PoolStoreError("etcd does not answer"), "VG373"),
        (OSError(24, "Too many open files"), "VG"),
    ],
)
def test_an_error_is_shared_too(error: Exception, kind: str) -> None:
    async def scene(store: Store, reader: Any) -> None:
        store.error = error
        for _ in range(3):
            with pytest.raises(Exception, match=r"\w") as caught:
                await reader.read()
            assert str(getattr(caught.value, "id", "")).startswith(kind)
        assert store.reads == 1
        store.error = None
        store.clock.now_s += 3
        assert await reader.read() == "snapshot 2"

    run(scene)


@pytest.mark.parametrize("hangs", [False, True])
def test_the_end_waits_a_moment_for_a_read(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_reader, "_END_S", 0.05 if hangs else 60)

    async def scene(store: Store, reader: Any) -> None:
        await reader.close()
        store.may_answer.clear()
        asked = asyncio.create_task(reader.read())
        await asyncio.sleep(0.01)
        ending = asyncio.create_task(reader.close())
        await asyncio.sleep(0.01)
        assert not ending.done()
        if not hangs:
            store.may_answer.set()
        await ending
        assert reader._thread.is_alive() == hangs
        store.may_answer.set()
        await asked

    run(scene)
