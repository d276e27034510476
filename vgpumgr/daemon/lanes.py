"""Lanes: threads that call the application, each thread with an application of its own.

NVML and libvirt calls may take their whole deadline; on threads they never hold the event loop, and
what runs in one lane never holds another. The change lane has one thread: changes are made one
after another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

from vgpumgr.daemon.application import Application
from vgpumgr.errors import DaemonBusyError

T = TypeVar("T")
Opener = Callable[[], AbstractContextManager[Application]]
MAX_WAITING = 64


class Lane:
    """``threads`` threads; what is more waits, up to a limit."""

    def __init__(self, name: str, threads: int, opener: Opener) -> None:
        self._opener = opener
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"vgpumgr-{name}")
        self._local = threading.local()
        self._stack = ExitStack()
        self._stack_lock = threading.Lock()
        self._waiting = 0

    def submit(self, call: Callable[[Application], T]) -> Future[T]:
        """Runs ``call`` as soon as a thread is free. Raises DaemonBusyError."""
        if self._waiting >= MAX_WAITING:
            raise DaemonBusyError("too many requests wait already", hint="try again later")
        self._waiting += 1
        future = self._pool.submit(lambda: call(self._application()))
        future.add_done_callback(self._count_down)
        return future

    async def run(self, call: Callable[[Application], T]) -> T:
        """The same, awaited."""
        return await asyncio.wrap_future(self.submit(call))

    def _count_down(self, _future: Future[T]) -> None:
        with self._stack_lock:
            self._waiting -= 1

    def _application(self) -> Application:
        application: Application | None = getattr(self._local, "application", None)
        if application is None:
            opened = self._opener()
            application = opened.__enter__()
            self._local.application = application
            with self._stack_lock:
                self._stack.push(opened)
        return application

    def close(self, *, wait: bool) -> None:
        """Ends the threads; with ``wait`` after what runs, else without looking back."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
        if wait:
            self._stack.close()


class Lanes:
    """All lanes of one daemon."""

    def __init__(self, opener: Opener) -> None:
        self.read = Lane("read", 3, opener)
        self.urgent = Lane("urgent", 1, opener)
        self.change = Lane("change", 1, opener)

    def close(self) -> None:
        """Waits for the change that runs; reads that are late are left to their helpers."""
        self.change.close(wait=True)
        self.read.close(wait=False)
        self.urgent.close(wait=False)
