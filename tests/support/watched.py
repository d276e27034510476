"""A daemon's reconciler on parts of the test's choice, its event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from vgpumgr.app.application import Application
from vgpumgr.app.context import Parts
from vgpumgr.app.metrics import Collected, MetricsService
from vgpumgr.host.machine import Machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.server.access import Access
from vgpumgr.server.connections import Limits
from vgpumgr.server.reconciler import Reconciler, Sources, watch
from vgpumgr.server.server import build_context
from vgpumgr.server.settings import Settings
from vgpumgr.server.workers import WorkerPools

PATIENCE_S = 240


class Watched:
    """What a test sees of it."""

    def __init__(self) -> None:
        self.reconciler: Reconciler
        self.events: list[dict[str, Any]] = []
        self.audit: Path

    def changes(self, vm: str) -> list[str]:
        """What was told of a VM, in order."""
        return [e["change"] for e in self.events if e["type"] == "vm" and e["vm"] == vm]

    def actions(self) -> list[str]:
        """What was done, in order."""
        return [
            f"{action['subject']}: {action['text']}"
            for event in self.events
            if event["type"] == "reconcile"
            for action in event["actions"]
        ]

    def drifts(self) -> list[list[str]]:
        """The kinds of what differed, each time that it was told."""
        told = [e for e in self.events if e["type"] == "reconcile" and e["drift"] is not None]
        return [[found["kind"] for found in event["drift"]] for event in told]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Waits until something is so; a machine may be slow."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}; so far: {self.events}"
            time.sleep(0.02)

    def wait_looked(self) -> None:
        """Waits for a look that began from now on."""
        before = self.reconciler.looks
        self.reconciler._loop.call_soon_threadsafe(self.reconciler.ask, "the test")
        # one may be running that began before
        self.wait(lambda: self.reconciler.looks >= before + 1, "a look")
        self.reconciler._loop.call_soon_threadsafe(self.reconciler.ask, "the test")
        self.wait(lambda: self.reconciler.looks >= before + 2, "another look")


@contextmanager
def watched(parts: Parts, settings: Settings, sources: Sources) -> Iterator[Watched]:
    """The reconciler runs until the end of the block; every event of its hub is kept."""
    seen, up = Watched(), Future[None]()
    end: list[Callable[[], object]] = []

    async def run() -> None:
        machine = Machine("test", parts.run_dir, parts.state_dir, parts.run_dir, "test:///default")
        metrics = MetricsService(lambda _: Collected(), open_statistics(parts.run_dir))
        application = Application(machine, parts, metrics)
        pools = WorkerPools(lambda: nullcontext(application))
        limits = Limits(settings.limits, Access(frozenset({0}), None, None))
        context = build_context(machine, pools, limits, metrics)
        deliver = context.hub._deliver

        def keep(event: dict[str, Any]) -> None:
            seen.events.append(event)
            deliver(event)

        context.hub._deliver = keep  # type: ignore[method-assign]
        seen.audit = context.audit.path
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        end.append(lambda: loop.call_soon_threadsafe(over.set))
        async with watch(context, settings, sources) as seen.reconciler:
            up.set_result(None)
            await over.wait()
        await asyncio.to_thread(pools.close)

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if up.done():
                raise
            up.set_exception(error)

    thread = threading.Thread(target=work, name="watched")
    thread.start()
    up.result(PATIENCE_S)
    try:
        yield seen
    finally:
        end[0]()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
