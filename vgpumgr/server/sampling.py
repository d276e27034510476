"""Feeds the history: one collection of the metrics every ten seconds, or a scrape's that is as new."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vgpumgr.app.history import STEP_S
from vgpumgr.server.context import Context


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
        collected = await asyncio.to_thread(context.metrics.sample, STEP_S)
        # a driver that does not answer leaves a gap
        if collected.success and collected.observation and collected.observed_s != last_s:
            assert collected.observed_s is not None
            last_s = collected.observed_s
            now_s = context.clock.monotonic_s()
            context.history.add(collected.observation, last_s, now_s)
        await asyncio.sleep(STEP_S)
