"""WorkerPools: who runs what, what waits, and that every application is closed by the thread that opened it."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vgpumgr.errors import DaemonBusyError, HostResourceError, explain_unexpected
from vgpumgr.server.access import Rank
from vgpumgr.server.workers import MAX_WAITING, WorkerPool, WorkerPools

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


class Opened:
    """Stands for the application; notes which thread opened and which closed it."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.log.append(("open", threading.get_ident()))
        try:
            yield self
        finally:
            self.log.append(("close", threading.get_ident()))


def test_each_thread_closes_what_it_opened() -> None:
    opened = Opened()
    pools = WorkerPools(opened.open)
    together = threading.Barrier(2)
    futures = [pools.read.submit(lambda _: together.wait(PATIENCE_S)) for _ in range(2)]
    futures.append(pools.urgent.submit(lambda _: 0))
    for future in futures:
        future.result(PATIENCE_S)
    pools.close()
    begun = sorted(ident for word, ident in opened.log if word == "open")
    ended = sorted(ident for word, ident in opened.log if word == "close")
    assert begun == ended
    assert len(begun) == 3


def test_errors_go_to_the_caller_and_the_lane_goes_on() -> None:
    pool = WorkerPool("x", 1, Opened().open)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda _: 1 // 0).result(PATIENCE_S)
    assert pool.submit(lambda _: 7).result(PATIENCE_S) == 7
    pool.close()
    with pytest.raises(DaemonBusyError):
        pool.submit(lambda _: 7)


def test_too_many_are_refused_and_what_waits_is_dropped_at_the_end() -> None:
    pool = WorkerPool("x", 1, Opened().open)
    started, go = threading.Event(), threading.Event()

    def hold(_: Any) -> str:
        started.set()
        go.wait(PATIENCE_S)
        return "ended"

    running = pool.submit(hold)
    waiting = [pool.submit(lambda _: 0) for _ in range(MAX_WAITING - 1)]
    with pytest.raises(DaemonBusyError):
        pool.submit(lambda _: 0)
    assert started.wait(PATIENCE_S)
    assert pool.read_longest_s() > 0
    pool.close(0.01)
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(PATIENCE_S)
    go.set()
    assert running.result(PATIENCE_S) == "ended"
    pool.close()
    assert pool.read_longest_s() == 0


def test_root_runs_first_and_has_slots_of_its_own() -> None:
    pool = WorkerPool("x", 1, Opened().open, by_rank=True)
    started, go = threading.Event(), threading.Event()
    order: list[Rank] = []
    held = pool.submit(lambda _: (started.set(), go.wait(PATIENCE_S)), Rank.VIEWER)
    assert started.wait(PATIENCE_S)
    futures = []
    for rank, room in ((Rank.VIEWER, 47), (Rank.ADMIN, 8), (Rank.ROOT, 8)):
        for _ in range(room):
            futures.append(pool.submit(lambda _, rank=rank: order.append(rank), rank))  # type: ignore[misc]
        with pytest.raises(DaemonBusyError):
            pool.submit(lambda _: None, rank)
    go.set()
    for future in (held, *futures):
        future.result(PATIENCE_S)
    pool.close()
    assert order == [Rank.ROOT] * 8 + [Rank.ADMIN] * 8 + [Rank.VIEWER] * 47


def test_changes_run_in_the_order_of_arrival() -> None:
    pool = WorkerPool("x", 1, Opened().open)
    started, go = threading.Event(), threading.Event()
    order: list[int] = []
    pool.submit(lambda _: (started.set(), go.wait(PATIENCE_S)))
    assert started.wait(PATIENCE_S)
    ranks = (Rank.ADMIN, Rank.ROOT, Rank.ADMIN, Rank.ROOT)
    futures = [pool.submit(lambda _, n=n: order.append(n), rank) for n, rank in enumerate(ranks)]  # type: ignore[misc]
    go.set()
    for future in futures:
        future.result(PATIENCE_S)
    pool.close()
    assert order == [0, 1, 2, 3]


def test_who_waits_for_a_lane_that_ends_is_told_that_the_daemon_stops() -> None:
    async def ask() -> None:
        pool = WorkerPool("x", 1, Opened().open)
        started, go = threading.Event(), threading.Event()

        def hold(_: Any) -> None:
            started.set()
            go.wait(PATIENCE_S)

        running = pool.submit(hold)
        waiting = asyncio.create_task(pool.run(lambda _: 0))
        while not started.is_set() or pool._waiting < 2:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(pool.close, 0.01)
        with pytest.raises(DaemonBusyError, match="stopping"):
            await waiting
        go.set()
        running.result(PATIENCE_S)

    asyncio.run(ask())


def test_a_host_without_threads_loses_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool("x", 2, Opened().open)
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HostResourceError, match="lacks") as refused:
        pool.submit(lambda _: 7)
    assert refused.value.http_status == 503
    monkeypatch.setattr(threading.Thread, "start", start)
    started, go = threading.Event(), threading.Event()
    held = pool.submit(lambda _: (started.set(), go.wait(PATIENCE_S)))
    assert started.wait(PATIENCE_S)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    second = pool.submit(lambda _: 7)
    go.set()
    held.result(PATIENCE_S)
    assert second.result(PATIENCE_S) == 7, "by the thread that there is"
    monkeypatch.setattr(threading.Thread, "start", start)
    pool.close()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TimeoutError("timed out"), 504),
        (subprocess.TimeoutExpired(["sriov-manage"], 5), 504),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), 504),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), 503),
        (MemoryError(), 503),
        (ImportError("libsqlite3.so.0: failed to map segment from shared object"), 503),
        (ImportError("libz.so.1: cannot open shared object file: Too many open files"), 503),
        (
            ImportError("x.so: failed to map segment from shared object: Operation not permitted"),
            500,
        ),
        (ImportError("cannot import name 'x' from 'y'"), 500),
        (SystemError("error return without exception set"), 503),
        (RuntimeError("can't start new thread"), 503),
        (sqlite3.OperationalError("out of memory"), 503),
        (sqlite3.OperationalError("no such table"), 500),
        (ZeroDivisionError("ours"), 500),
    ],
)
def test_what_is_late_is_no_bug_of_ours(error: Exception, status: int) -> None:
    assert explain_unexpected(error, "the daemon").http_status == status


#: a read that never comes back must neither hold the process nor run clean-up while the interpreter ends
LATE = """
import threading
from contextlib import contextmanager
from vgpumgr.server import workers as pools

@contextmanager
def opener():
    try:
        yield None
    finally:
        print("closed in", threading.current_thread().name, flush=True)

pools.READ_PATIENCE_S = 0.5
both = pools.WorkerPools(opener)
for pool in (both.read, both.urgent, both.change):
    pool.submit(lambda _: None).result(60)
begun = threading.Event()
both.read.submit(lambda _: (begun.set(), threading.Event().wait()))
begun.wait(60)  # what has not begun is dropped
both.close()
"""


def test_the_process_ends_though_a_read_is_late() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120, check=True, cwd=ROOT
    )  # fmt: skip
    assert sorted(done.stdout.split("\n")) == [
        "", "closed in vgpumgr-change-0", "closed in vgpumgr-urgent-0",
    ]  # fmt: skip
    assert done.stderr == ""
