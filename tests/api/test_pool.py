"""The daemon is the host of its machine in a pool: it joins and leaves while it runs, and waits for no store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Daemon, make_daemon
from tests.support.etcd import Etcd
from vgpumgr.cli.http import HttpBackend
from vgpumgr.errors import LockHeldError, PoolMemberError, PoolNotFoundError, VgpumgrError
from vgpumgr.pool.control.records import POOL, GpuRecord, Timing, format_record
from vgpumgr.pool.leaving import leave_pool
from vgpumgr.pool.membership import init_pool, join_pool, open_pool
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.interface import Delete, Put, Transaction

SHARE = "share:8GiB,30%"
#: heartbeats each second: what a store that is stopped changes is seen soon
TIMING = Timing(3, 30, 10)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    for daemon in make_daemon():
        choose(daemon, monkeypatch)
        yield daemon


def choose(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is on the daemon's machine, and waits for what the daemon answers, however busy it is."""
    monkeypatch.setattr("vgpumgr.pool.membership._ANSWER_S", 60.0)
    for name in ("SIM", "STATE_DIR", "RUN_DIR"):
        monkeypatch.setenv(f"VGPUMGR_{name}", str(daemon.directory))


def await_true(condition: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return found


def make_pool(daemon: Daemon, etcd: Endpoints | None = None) -> None:
    with init_pool(None, etcd, "fgd") as pool:
        record = pool.record(pool.view())
        changed = format_record(type(record)(record.id, record.version, TIMING))
        pool.store.transact(Transaction((), (Put(POOL, changed),)))
    join(daemon, etcd)


def join(daemon: Daemon, etcd: Endpoints | None = None) -> None:
    gpus = [
        GpuRecord("a", gpu["index"], gpu["uuid"], gpu["model"], gpu["memory_total_bytes"])
        for gpu in daemon.get("/1.0/gpus")["gpus"]
    ]
    with join_pool(None, etcd, "a", gpus):
        pass


def read_pool(daemon: Daemon) -> Any:
    return daemon.get("/1.0/status")["pool"]


def serves(daemon: Daemon) -> Any:
    found = read_pool(daemon)
    return found if found and found["server"] and found["answers"] else None


def ask(verb: str, *arguments: Any) -> Any:
    with open_pool(None) as pool:
        return getattr(PoolOperations(pool), verb)(*arguments)


def leave() -> str | None:
    return leave_pool(None)


def change(daemon: Daemon, path: str, **body: object) -> Any:
    """Its end."""
    return daemon.client.call(path, **body)


def test_a_daemon_serves_what_its_machine_joins_until_it_leaves(daemon: Daemon) -> None:
    assert read_pool(daemon) is None
    make_pool(daemon)
    found = await_true(lambda: serves(daemon))
    assert (found["host"], found["text"]) == ("a", "leads the pool")
    assert "the daemon, as a host of the pool" in found["server"]
    assert found["server"] == ask("describe")["pool"]["server"]
    with open_pool(None) as pool, pytest.raises(LockHeldError) as caught:
        pool.serve(lambda: False, lambda _: None)
    assert "the daemon" in caught.value.held_by[0]
    assert ask("create", "train", "default", SHARE, 1, "keep")["state"] == "granted"
    await_true(lambda: read_pool(daemon)["leases"] == 1)
    document = change(daemon, "attach", vm="vm01", claim="train", hello_timeout_s=0)
    assert document["attachment"]["claim"] == "train"
    assert ask("show", "train")["used_by"]["name"] == "vm01"
    with pytest.raises(PoolMemberError):
        leave()  # a lease is on it: the daemon goes on
    await_true(lambda: serves(daemon))
    change(daemon, "detach", vm="vm01")
    assert ask("delete", "train")[0]
    assert leave() == "a"
    await_true(lambda: read_pool(daemon) is None)
    with pytest.raises(PoolNotFoundError):
        ask("describe")
    join(daemon)
    await_true(lambda: serves(daemon))
    # a host that was removed says so, and comes back once it has joined again
    with open_pool(None) as pool:
        gone = tuple(Delete(f"p/{key}/a") for key in ("host", "alive"))
        pool.store.transact(Transaction((), gone))
    text = "does not serve: host a of this machine is not in the pool"
    await_true(lambda: (p := read_pool(daemon)) and not p["answers"] and text in p["text"])
    join(daemon)
    await_true(lambda: serves(daemon))


def test_sigterm_resigns_and_another_process_may_serve(daemon: Daemon) -> None:
    make_pool(daemon)
    await_true(lambda: serves(daemon))
    await_true(lambda: ask("describe")["leader"] == "a")
    assert daemon.end() == 0
    found = ask("describe")
    assert (found["leader"], found["pool"]["server"]) == (None, None)
    is_over = threading.Event()
    with open_pool(None) as pool:
        thread = threading.Thread(target=lambda: serve_here(is_over))
        thread.start()
        await_true(lambda: ask("describe")["pool"]["server"])
        daemon.start()
        assert "pool serve" in str(await_true(lambda: read_pool(daemon))["server"])
        is_over.set()
        thread.join(30)
        found = await_true(lambda: serves(daemon))
        assert pool.membership.host == "a"
    await_true(lambda: "the daemon" in str(read_pool(daemon)["server"]))


def serve_here(is_over: threading.Event) -> None:
    with open_pool(None) as pool:
        pool.serve(is_over.is_set, lambda _: None)


def test_a_store_that_stops_is_shown_and_ends_nothing(daemon: Daemon, tmp_path: Path) -> None:
    with Etcd(tmp_path).running() as etcd:
        events = list[dict[str, Any]]()
        threading.Thread(target=collect, args=(daemon.client, events), daemon=True).start()
        make_pool(daemon, Endpoints(etcd.urls, timeout_s=5))
        await_true(lambda: serves(daemon) and events)
        assert ask("create", "train", "default", SHARE, 1, "keep")["state"] == "granted"
        change(daemon, "attach", vm="vm01", claim="train", hello_timeout_s=0)
        etcd.members[0].pause(True)  # each request to it waits for its whole deadline
        found = await_true(lambda: (p := read_pool(daemon)) and not p["answers"] and p)
        assert "goes on without the store" in found["text"]
        assert found["leases"] == 1
        status = daemon.get("/1.0/status")
        assert (status["attachments"], status["drift"]) == (1, [])
        with pytest.raises(VgpumgrError) as caught:
            change(daemon, "attach", vm="vm02", claim="train", hello_timeout_s=0)
        assert caught.value.id == "VG373"
        detached = change(daemon, "detach", vm="vm01")
        assert "vgpumgr recover releases it" in " ".join(detached["notes"])
        looks = daemon.get("/1.0/operations")["operations"]
        assert looks  # the daemon answers meanwhile
        etcd.members[0].pause(False)
        etcd.await_leader()
        # what was detached meanwhile is released once the store answers
        await_true(lambda: ask("show", "train")["used_by"] is None)
        await_true(lambda: serves(daemon))
        await_true(lambda: any(event["actions"] for event in events))
        answers = [one["answers"] for one in events if one["host"]]
        # a busy machine may have more outages
        assert (answers[0], answers[-1], False in answers) == (True, True, True)


def collect(client: HttpBackend, events: list[dict[str, Any]]) -> None:
    for event in client.listen("/1.0/events"):
        if event["type"] == "pool":
            events.append(event)


def test_a_daemon_that_is_not_to_serve_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for daemon in make_daemon(settings="[pool]\nserve = false\n"):
        choose(daemon, monkeypatch)
        make_pool(daemon)
        time.sleep(1.5)
        assert ask("describe")["pool"]["server"] is None
