"""Worker pools: threads that call the application, each thread with an application of its own.

NVML and libvirt calls may take their whole deadline; on threads they never hold the event loop, and
what runs in one pool never holds another. The change pool has one thread: changes are made one
after another.

A thread opens its application when it first needs it and closes it itself when its pool ends. One
that is late then is a daemon thread: nothing of it is touched any more.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, TypeVar

from vgpumgr.app.application import Application
from vgpumgr.errors import DaemonBusyError, HostResourceError
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.server.access import Rank

T = TypeVar("T")
Opener = Callable[[], AbstractContextManager[Application]]
MAX_WAITING = 64
#: kept for each rank: viewers leave these to administrators and root, administrators to root
_KEPT_WAITING = 8
#: how long the end of a daemon waits for reads; a read that takes longer waits for something stuck
READ_PATIENCE_S = 3.0


class WorkerPool:
    """``threads`` threads, started when there is work for them; what is more waits, up to a limit. Where ``by_rank``,
    callers of a higher rank go first; otherwise it is first come, first served.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        opener: Opener,
        clock: Clock | None = None,
        *,
        by_rank: bool = False,
    ) -> None:
        self._clock = clock or SystemClock()
        self._name = name
        self._limit = threads
        self._opener = opener
        self._by_rank = by_rank
        self._numbers = itertools.count()
        self._queue: queue.PriorityQueue[tuple[int, int, _Job | None]] = queue.PriorityQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        #: jobs that have not ended
        self._waiting = 0
        self._closed = False
        self._began_s: dict[int, float] = {}

    def submit(self, call: Callable[[Application], T], rank: Rank = Rank.ROOT) -> Future[T]:
        """Runs ``call`` as soon as a thread is free. Raises DaemonBusyError."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise _stopping()
            if self._waiting >= MAX_WAITING - _KEPT_WAITING * (Rank.ROOT - rank):
                raise DaemonBusyError("too many requests wait already", hint="try again later")
            if len(self._threads) < min(self._limit, self._waiting + 1):
                self._start_thread()
            self._waiting += 1
            order = -rank if self._by_rank else 0
            self._queue.put((order, next(self._numbers), _Job(call, future)))
        return future

    async def run(self, call: Callable[[Application], T], rank: Rank = Rank.ROOT) -> T:
        """The same, awaited. Raises DaemonBusyError, too, where the pool ends before its turn."""
        future = self.submit(call, rank)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._closed and future.cancelled():
                raise _stopping() from None
            raise

    def read_longest_s(self) -> float:
        """How long the call that has run longest runs already; 0 while none does."""
        now_s = self._clock.monotonic_s()
        return max((now_s - began_s for began_s in list(self._began_s.values())), default=0.0)

    def close(self, timeout_s: float | None = None) -> None:
        """Takes no more, drops what waits, and waits for what runs (None: however long)."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        while True:
            try:
                job = self._queue.get_nowait()[2]
            except queue.Empty:
                break
            if job is not None:
                job.future.cancel()
        for _ in threads:
            self._queue.put((1, next(self._numbers), None))
        end_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        for thread in threads:
            thread.join(None if end_s is None else max(0.0, end_s - self._clock.monotonic_s()))

    def _start_thread(self) -> None:
        """One more; where the host has no more of them, those that are there do the work."""
        name = f"vgpumgr-{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise HostResourceError(
                    "the daemon lacks what it needs of the host", cause=str(error)
                ) from error
            return
        self._threads.append(thread)

    def _work(self) -> None:
        with ExitStack() as stack:
            application: Application | None = None
            while (job := self._queue.get()[2]) is not None:
                self._began_s[threading.get_ident()] = self._clock.monotonic_s()
                answer: Callable[[], None] | None = None
                try:
                    if job.future.set_running_or_notify_cancel():
                        application = application or stack.enter_context(self._opener())
                        answer = partial(job.future.set_result, job.call(application))
                except BaseException as error:
                    answer = partial(job.future.set_exception, error)
                finally:
                    del self._began_s[threading.get_ident()]
                    with self._lock:
                        self._waiting -= 1
                if (
                    answer is not None
                ):  # after the count: the caller's next job finds this thread free
                    answer()
                    answer = None  # nothing is held while the thread waits


def _stopping() -> DaemonBusyError:
    return DaemonBusyError("the daemon is stopping", hint="try again when it is back")


class _Job:
    """One call and where its result goes."""

    def __init__(self, call: Callable[[Application], Any], future: Future[Any]) -> None:
        self.call = call
        self.future = future


class WorkerPools:
    """All pools of one daemon."""

    def __init__(self, opener: Opener) -> None:
        self.read = WorkerPool("read", 3, opener, by_rank=True)
        self.urgent = WorkerPool("urgent", 1, opener, by_rank=True)
        self.change = WorkerPool("change", 1, opener)

    def close(self) -> None:
        """Waits for the change that runs; reads that are late are left to their helpers."""
        self.change.close()
        for pool in (self.read, self.urgent):
            pool.close(READ_PATIENCE_S)
