"""What the GPUs' driver reports: heard in threads, recorded at once, and reported to listeners.

NVML's event set lives in a helper process of its own, which is asked twice a second and idle in between: what comes
meanwhile waits in the set. A helper that ends (a command takes a GPU from its driver, the driver is unloaded) is
followed by another. Xids of the time between, and of that before the daemon, are in the kernel's log: one that is there
and that NVML does not report counts as well. A guest can cause Xids without end: those that are the same are one
record, and one report.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from vgpumgr.app.operations.gpus import Seen, make_events
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.kernel_log import KernelLog, LoggedXid
from vgpumgr.host.machine import read_boot_id
from vgpumgr.model.gpu import Drain
from vgpumgr.model.health import GpuEvent
from vgpumgr.model.pci import PciAddress
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

#: NVML has so long to report an Xid that the kernel's log has
_LATE_S = 1.5
#: a report of the same Xid of a GPU is of all in the log that are so near
_NEAR_S = 3.0

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
        log: KernelLog,
        retry_s: float = RETRY_S,
    ) -> None:
        self._nvml = nvml
        self._store = store
        self._clock = clock
        self._report = report
        self._is_changing = is_changing
        self._retry_s = retry_s
        self._end = threading.Event()
        self._log = log
        #: heard, how often and when last, and not recorded yet: the disk may be full
        self._waiting: dict[GpuEvent, Seen] = {}
        #: Xids of the log that NVML may still report, each with its time by our clock; None: nothing was read yet
        self._logged: list[tuple[float, LoggedXid]] | None = None
        #: when NVML reported an Xid of a GPU last
        self._heard: dict[tuple[PciAddress, int | None], float] = {}
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
            self._log.close()

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
        began_s = self._clock.monotonic_s()
        is_first, logged = self._logged is None, self._logged or []
        logged += ((one.at_s if is_first else began_s, one) for one in self._log.read())
        self._logged = logged
        try:
            for event in self._nvml.take_events():
                self._heard[event.address, event.xid] = began_s
                seen = Seen(1, self._clock.wall_s())
                self._waiting[event] = self._waiting.get(event, Seen()).join(seen)
        except VgpumgrError:
            return False
        finally:
            self._record(self._take_logged(began_s))
        return True

    def _take_logged(self, now_s: float) -> int | None:
        """Takes what NVML has not reported, though it had the time; answers the number of the last record."""
        logged = self._logged or []
        due = [(at_s, one) for at_s, one in logged if now_s - at_s >= _LATE_S]
        unheard = [
            one
            for at_s, one in due
            if abs(self._heard.get((one.address, one.xid), -_NEAR_S) - at_s) >= _NEAR_S
        ]
        try:
            found = make_events(unheard, self._nvml.read_inventory, self._store, self._clock)
        except VgpumgrError:
            return None  # they stay
        self._logged = [(at_s, one) for at_s, one in logged if now_s - at_s < _LATE_S]
        for event, seen in found.items():
            self._waiting[event] = self._waiting.get(event, Seen()).join(seen)
        return max((one.number for _, one in due), default=None)

    def _record(self, last_number: int | None) -> None:
        for event, seen in list(self._waiting.items()):
            try:
                drain = self._store.save_event(event, seen.last_s, seen.times)
            except VgpumgrError:
                return  # tried again with the next ones
            del self._waiting[event]
            self._report(event, drain)
        if last_number is not None:
            self._log.write_position(last_number)


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
        KernelLog(machine),
    )
    watcher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(watcher.close)
