"""Feeds the history: one collection of the metrics every ten seconds, or a scrape's that is as new, and the pool's
figures by a read that its callers share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from vgpumgr.app.history import STEP_S
from vgpumgr.errors import VgpumgrError
from vgpumgr.server.context import Context

#: so much longer than the metrics' collection the pool's store is waited for; beyond it there is a gap
_POOL_S = 1.0


@asynccontextmanager
async def keep_history(context: Context) -> AsyncIterator[None]:
    """Collects until the end of the block, unless the configuration says otherwise."""
    if not context.configuration.settings.history.keep:
        yield
        return
    task = asyncio.create_task(_sample(context))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _sample(context: Context) -> None:
    last_s: float | None = None
    while True:
        reading = asyncio.create_task(_measure_pool(context))
        try:
            collected = await asyncio.to_thread(context.metrics.sample, STEP_S)
            await asyncio.wait({reading}, timeout=_POOL_S)
            # a driver that does not answer leaves a gap
            if collected.success and collected.observation and collected.observed_s != last_s:
                assert collected.observed_s is not None
                last_s = collected.observed_s
                now_s = context.clock.monotonic_s()
                pool = reading.result() if reading.done() and not reading.exception() else {}
                context.history.add(collected.observation, last_s, now_s, pool)
        finally:
            reading.cancel()
        await asyncio.sleep(STEP_S)


async def _measure_pool(context: Context) -> Mapping[str, float]:
    """The pool's figures; none where the machine is in no pool, or its store does not answer."""
    if not context.pool.is_member():
        return {}
    try:
        snapshot = await context.pool.read(STEP_S, after_changes=False)
        return await asyncio.to_thread(snapshot.operations.measure)
    except VgpumgrError:
        return {}
