"""``pool serve`` goes on with its heartbeats, whatever becomes of its watch, and says what it refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.etcd import Etcd, find_ports
from tests.support.memory_store import MemoryStore, MemoryWatch
from vgpumgr.errors import PoolStoreError
from vgpumgr.host.clock import SystemClock
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import HostRecord, LeaseRecord, Timing, put
from vgpumgr.pool.serving import Server
from vgpumgr.pool.store.etcd import EtcdStore, EtcdWatch
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.interface import Event, Transaction, Watch


class CountingStore(MemoryStore):
    """Counts heartbeats; its watch is as the test wants it."""

    def __init__(self, open_watch: Callable[[], Watch]) -> None:
        super().__init__(time.monotonic)
        self.kept = 0
        self.watches = 0
        self._open_watch = open_watch

    def keep_alive(self, lease: int) -> None:
        super().keep_alive(lease)
        self.kept += 1

    def watch(self, prefix: str, revision: int) -> MemoryWatch:  # noqa: ARG002
        self.watches += 1
        return self._open_watch()  # type: ignore[return-value]


class Waiting:
    """A watch whose events the test releases."""

    def __init__(self) -> None:
        self.is_due = threading.Event()

    def read(self, timeout_s: float) -> Sequence[Event]:
        if self.is_due.wait(timeout_s):
            self.is_due.clear()
            return [Event("p/x", "", 1)]
        return []

    def close(self) -> None:
        self.is_due.set()


def make_server(store: MemoryStore, said: list[str]) -> tuple[Server, HostAgent]:
    timing, host = Timing(), HostRecord("h", "machine")
    store.transact(Transaction((), (put(host),)))
    agent = HostAgent(host, timing, time.monotonic)
    controller = Controller("h", timing, time.monotonic)
    return Server(store, "h", agent, controller, time.sleep, said.append), agent


def test_a_watch_that_does_not_answer_delays_no_heartbeat() -> None:
    is_over = threading.Event()

    def hang() -> Watch:
        is_over.wait(60)
        raise PoolStoreError("no answer")

    store = CountingStore(hang)
    server, agent = make_server(store, [])
    began_s = time.monotonic()
    for _ in range(6):
        server.run_round(0.05)
    assert agent.is_heard
    assert store.kept >= 5
    assert time.monotonic() - began_s < 30
    server.stop()
    is_over.set()


def test_a_watch_that_fails_costs_no_round() -> None:
    def fail() -> Watch:
        raise PoolStoreError("the name is not known")

    said = list[str]()
    server, agent = make_server(CountingStore(fail), said)
    for _ in range(4):
        server.run_round(0.05)
    assert agent.is_heard
    assert said == ["host h leads the pool"]
    server.stop()


def test_one_watch_is_for_all_rounds_and_ends_a_wait() -> None:
    watch = Waiting()
    store = CountingStore(lambda: watch)
    server, _ = make_server(store, [])
    for _ in range(3):
        server.run_round(0.05)
    began_s = time.monotonic()
    threading.Timer(0.1, watch.is_due.set).start()
    server.run_round(120)
    assert time.monotonic() - began_s < 60
    assert store.watches == 1
    before = threading.active_count()
    server.stop()
    # it does not read the store while the process ends
    assert threading.active_count() == before - 1


def test_a_host_says_that_it_refuses_a_store_that_went_back() -> None:
    said = list[str]()
    store = CountingStore(Waiting)
    server, agent = make_server(store, said)
    store.transact(Transaction((), (put(LeaseRecord("c", "h", (0,), 500)),)))
    server.run_round(0.01)
    assert "c" in agent.sessions
    store.revision -= 3
    server.run_round(0.01)
    assert "refuses what the store says" in said[-1]
    store.revision += 3
    server.run_round(0.01)
    assert said[-1] == "host h leads the pool"
    server.stop()


def test_a_watch_begins_with_the_member_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Etcd(tmp_path).running() as etcd:
        urls = (f"http://127.0.0.1:{find_ports(1)[0]}", *etcd.urls)
        store = EtcdStore(Endpoints(urls), SystemClock())
        assert store.get("p/x") is None
        asked = list[str]()
        connect = "vgpumgr.pool.store.gateway.http.client.HTTPConnection.connect"
        original = EtcdWatch.read

        def connecting(connection: object) -> None:
            asked.append(f"http://127.0.0.1:{connection.port}")  # type: ignore[attr-defined]
            raise OSError("no")

        watch = store.watch("p/", 1)
        monkeypatch.setattr(connect, connecting)
        with pytest.raises(PoolStoreError):
            original(watch, 0.1)
        assert asked[0] == etcd.urls[0]
        watch.close()
        store.close()
