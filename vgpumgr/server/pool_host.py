"""The daemon as the host of its machine in a pool: a thread serves while the machine is in one.

What the thread does waits for the pool's store, and nothing else of the daemon waits for the thread: who shows the pool
reads what the thread has kept in a file. Whether the machine has joined or is about to leave is looked up each moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from vgpumgr.app.application import Application
from vgpumgr.app.operations.claims import recover_uses
from vgpumgr.errors import LockHeldError, VgpumgrError, explain_unexpected
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import Machine
from vgpumgr.pool.leaving import BY_DAEMON, is_leaving
from vgpumgr.pool.membership import (
    open_pool_of,
    read_membership,
    read_seen,
    read_stamp,
    write_seen,
)
from vgpumgr.server.context import Context
from vgpumgr.server.pool_events import list_events
from vgpumgr.state.leases import SeenPool

#: between looks whether the machine is in a pool
LOOK_S = 0.5
#: after an error, or while another process serves
RETRY_S = 2.0
#: so often what the store calls used is compared with what is attached: seconds
COMPARE_S = 60.0
#: so often leases that end are compared with what is attached by them: seconds
ENDS_S = 5.0
#: a store that does not answer is not waited for longer at the end
_END_S = 10.0

#: gets what is known of the pool when it has changed, or why this daemon does not serve
Report = Callable[[SeenPool | VgpumgrError], None]


class PoolServer:
    """From ``start`` to ``close``: serves whenever the machine is in a pool and no other process does."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        report: Report,
        report_claims: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _events: None,
    ) -> None:
        self._machine = machine
        self._report_claims = report_claims
        self._seen: SeenPool | None = None
        self._clock = clock
        self._report = report
        self._said: object = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Ends, and lets another host lead at once."""
        self._end.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._end.is_set():
            pause_s = LOOK_S
            try:
                self._serve()
            except Exception as error:
                pause_s = RETRY_S
                self._fail(explain_unexpected(error, "serving as a host of the pool"))
            self._end.wait(pause_s)

    def _serve(self) -> None:
        """Until the end, or until the machine is in another pool, or in none."""
        stamp = read_stamp(self._machine)
        membership = read_membership(self._machine)
        if membership is None or membership.host is None or is_leaving(self._machine):
            self._said = self._seen = None
            return
        with open_pool_of(self._machine) as pool:
            pool.serve(lambda: self._is_over(stamp), lambda _text: None, self._hear, BY_DAEMON)

    def _is_over(self, stamp: object) -> bool:
        return self._end.is_set() or read_stamp(self._machine) != stamp or is_leaving(self._machine)

    def _hear(self, seen: SeenPool) -> None:
        if events := list_events(self._seen, seen):
            self._report_claims(events)
        if seen.is_answering:
            self._seen = seen
        if self._said != (said := (seen.text, seen.is_answering)):
            self._said = said
            self._report(seen)

    def _fail(self, error: VgpumgrError) -> None:
        if self._said == (said := error.as_dict()):
            return
        self._said = said
        if not isinstance(error, LockHeldError):  # the process that serves says how it is
            seen = read_seen(self._machine)
            if seen is not None:
                text = f"does not serve: {error.error}{f': {error.why}' if error.why else ''}"
                now_s = self._clock.wall_s()
                with contextlib.suppress(OSError):
                    write_seen(
                        self._machine, replace(seen, text=text, since_s=now_s, is_answering=False)
                    )
        self._report(error)


@asynccontextmanager
async def serve_pool(
    context: Context, ask: Callable[[str], None] = lambda _reason: None
) -> AsyncIterator[None]:
    """Serves until the end of the block, unless the configuration says otherwise; reports what changes. ``ask`` asks
    for a reconcile, where an attachment's lease is over.
    """
    if not context.configuration.settings.pool.serve:
        yield
        return

    said: list[object] = []

    def compare(app: Application) -> None:
        found = [action.as_data() for action in recover_uses(app.parts)]
        # what cannot be repaired is found each minute, and said once
        actions = [one for one in found if one not in said]
        said[:] = [one for one in found if not one["done"]]
        if actions:
            context.cache.forget()
            context.hub.publish("pool", host=None, answers=True, text=None, error=None, actions=actions)  # fmt: skip
            context.audit.append({"event": "pool", "actions": actions})

    loop, due, answered = asyncio.get_running_loop(), asyncio.Event(), False

    async def compare_when_due() -> None:
        """When the store answers again, and now and then: what a command could not give back meanwhile is missed by no
        outage that was seen here. Again where it fails: another command may have the machine's lock for long.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(due.wait(), COMPARE_S)
            due.clear()
            if not answered:
                continue
            try:
                await context.pools.change.run(compare)
            except Exception as error:
                if not isinstance(error, VgpumgrError | OSError):
                    print(f"claims in use are not compared: {error!r}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_S)
                due.set()

    def report(found: SeenPool | VgpumgrError) -> None:
        nonlocal answered
        context.cache.forget()
        if isinstance(found, VgpumgrError):
            answered = False
            context.hub.publish(
                "pool", host=None, answers=None, text=None, error=found.as_dict(), actions=[]
            )
            return
        context.hub.publish(
            "pool", host=found.host, answers=found.is_answering, text=found.text, error=None,
            actions=[],
        )  # fmt: skip
        is_first, answered = found.is_answering and not answered, found.is_answering
        if is_first:
            # what was detached meanwhile still counts as in use there
            with contextlib.suppress(RuntimeError):  # the daemon ends
                loop.call_soon_threadsafe(due.set)

    def report_claims(events: Sequence[Mapping[str, Any]]) -> None:
        context.cache.forget()
        for event in events:
            context.hub.publish("claim", **event)

    async def end_what_is_over() -> None:
        while True:
            await asyncio.sleep(ENDS_S)
            seen = await asyncio.to_thread(read_seen, context.machine)
            if seen is not None and any(one.ending_since_s is not None for one in seen.leases):
                ask("a lease ends")

    server = PoolServer(context.machine, context.clock, report, report_claims)
    server.start()
    tasks = [asyncio.create_task(one()) for one in (compare_when_due, end_what_is_over)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(server.close)
