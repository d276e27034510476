"""What systemd is told: that the daemon is ready, what it does, and that it lives.

It lives while its event loop runs and its change lane does: a change that takes longer than any wait
that a request can ask for will not end. Then systemd starts another daemon, and that one recovers.
"""

from __future__ import annotations

import asyncio

import uvicorn

from vgpumgr.host.systemd import notify, read_watchdog_s
from vgpumgr.model.request import MAX_HELLO_TIMEOUT_S
from vgpumgr.server.context import Context
from vgpumgr.server.reconciler import Reconciler

#: a guest may be waited for that long; the rest is what everything else of an attach may take
HANG_S = MAX_HELLO_TIMEOUT_S + 600.0
_BEAT_S = 1.0


class Heartbeat:
    """One daemon's."""

    def __init__(
        self, server: uvicorn.Server, context: Context, reconciler: Reconciler, hang_s: float
    ) -> None:
        self._server = server
        self._context = context
        self._reconciler = reconciler
        self._hang_s = hang_s

    async def run(self) -> None:
        """Until cancelled."""
        while not self._server.started:
            await asyncio.sleep(0.01)
        period_s = read_watchdog_s()
        told = self._describe()
        notify(f"READY=1\nSTATUS={told}")
        while True:
            now = self._describe()
            if now != told:
                notify(f"STATUS={now}")
                told = now
            if period_s is not None and not self._hangs():
                notify("WATCHDOG=1")
            await asyncio.sleep(min(period_s or _BEAT_S, _BEAT_S))

    def _hangs(self) -> bool:
        return self._context.lanes.change.read_longest_s() > self._hang_s

    def _describe(self) -> str:
        running = self._context.operations.count_running()
        parts = [f"{running} operations running" if running else "serving"]
        if self._hangs():
            parts.append("a change does not end")
        if self._reconciler.libvirt_problem is not None:
            parts.append("libvirt is not there")
        return "; ".join(parts)
