"""What the GPUs' driver reports: heard in a thread, recorded at once, and reported to listeners.

NVML's event set lives in a helper process of its own, which is asked twice a second and idle in between: what comes
meanwhile waits in the set. A helper that ends (a command takes a GPU from its driver, the driver is unloaded) is
followed by another; events of the time between are lost, but ECC errors and the temperature are also asked for
whenever GPUs are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import read_boot_id
from vgpumgr.model.gpu import Drain
from vgpumgr.model.health import GpuEvent
from vgpumgr.nvml.client import NvmlClient
from vgpumgr.server.context import Context
from vgpumgr.server.reconciler import Sources
from vgpumgr.state.store import STATE_FILE, Store

POLL_S = 0.5
#: a driver that is not there, or does not answer, is asked so much less often
RETRY_S = 10.0
#: a new helper also hears GPUs that its driver was given meanwhile
RENEW_S = 600.0
_END_S = 2.0

#: gets an event and, where it made the GPU unhealthy, that
Report = Callable[[GpuEvent, Drain | None], None]


class HealthWatcher:
    """Listens from ``start`` to ``close``. ``is_changing``: whether a change runs, which may want the GPUs
    without us.
    """

    def __init__(
        self,
        nvml: NvmlClient,
        store: Store,
        clock: Clock,
        report: Report,
        is_changing: Callable[[], bool],
        retry_s: float = RETRY_S,
    ) -> None:
        self._nvml = nvml
        self._store = store
        self._clock = clock
        self._report = report
        self._is_changing = is_changing
        self._retry_s = retry_s
        self._end = threading.Event()
        #: heard, and not recorded yet: the disk may be full
        self._waiting: list[GpuEvent] = []
        self._thread = threading.Thread(target=self._watch, name="nvml-events", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Ends; a driver that does not answer is not waited for."""
        self._end.set()
        self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._nvml.close()

    def _watch(self) -> None:
        opened_s, pause_s = self._clock.monotonic_s(), 0.0
        while not self._end.wait(pause_s):
            is_up = self._hear()
            pause_s = POLL_S if is_up else self._retry_s
            while not is_up and self._is_changing() and not self._end.wait(POLL_S):
                pass
            if self._clock.monotonic_s() - opened_s > RENEW_S and not self._is_changing():
                self._nvml.close()
                opened_s = self._clock.monotonic_s()

    def _hear(self) -> bool:
        """Takes what has come; False: the driver cannot be heard now."""
        try:
            self._waiting += self._nvml.take_events()
        except VgpumgrError:
            return False
        finally:
            self._record()
        return True

    def _record(self) -> None:
        while self._waiting:
            event = self._waiting[0]
            try:
                drain = self._store.save_event(event, self._clock.wall_s())
            except VgpumgrError:
                return  # tried again with the next ones
            self._waiting.pop(0)
            self._report(event, drain)


@asynccontextmanager
async def hear_gpus(context: Context, sources: Sources) -> AsyncIterator[None]:
    """Hears what the driver reports until the end of the block, and passes it on."""
    if not sources.has_nvml:
        yield
        return

    def report(event: GpuEvent, drain: Drain | None) -> None:
        context.cache.forget()
        data = {"gpu": event.uuid, "pci": str(event.address), "xid": event.xid, "text": str(event)}
        context.hub.publish("health", **data, unhealthy=drain is not None)
        if drain is not None:
            with contextlib.suppress(VgpumgrError):  # it is recorded, and published above
                context.audit.append({"event": "unhealthy", **data})

    machine = context.machine
    watcher = HealthWatcher(
        NvmlClient(machine),
        Store(machine.state_dir / STATE_FILE, read_boot_id(machine)),
        context.clock,
        report,
        lambda: context.pools.change.read_longest_s() > 0,
    )
    watcher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(watcher.close)
