"""What processes have of a GPU by the driver's word, compared with what channels may have.

Sessions count memory and wait for turns themselves; one that was taken over can skip both. So a thread of the daemon
asks NVML for the memory and the time of each process while there is a limit or a share to compare them with.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import read_boot_id
from vgpumgr.model.attachment import AttachmentRecord, AttachmentStore
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.limits import parse_limits
from vgpumgr.nvml.client import NvmlClient
from vgpumgr.server.context import Context
from vgpumgr.server.reconciler import Sources
from vgpumgr.state.store import STATE_FILE, Store
from vgpumgr.virtio.overuse import PERIOD_S, Overuse, list_figures
from vgpumgr.virtio.share_time import Figures, ShareClock, Window

if TYPE_CHECKING:
    from vgpumgr.virtio.keeper import KeeperChannels

_END_S = 2.0


#: what a record's channel did that it may not
Report = Callable[[AttachmentRecord, Overuse | Window], None]


class _Gpus:
    """What the driver says of each GPU's processes, asked for once; None: it does not answer, or has no figures."""

    def __init__(
        self, nvml: NvmlClient, clock: Clock, before: Mapping[GpuUuid, tuple[float, float]]
    ) -> None:
        self._nvml = nvml
        self._clock = clock
        self._before = before
        #: when times were asked for, by the clock of the day and by the one that only grows
        self.asked: dict[GpuUuid, tuple[float, float]] = {}
        self._memory: dict[GpuUuid, dict[int, int | None] | None] = {}
        self._times: dict[GpuUuid, Figures | None] = {}

    def list_memory(self, gpu: GpuUuid) -> dict[int, int | None] | None:
        """Bytes of each process; None for one of which the driver does not say it."""
        if gpu not in self._memory:
            try:
                found = self._nvml.list_processes(gpu)
            except VgpumgrError:
                self._memory[gpu] = None
            else:
                self._memory[gpu] = list_figures([(one.pid, one.memory_bytes) for one in found])
        return self._memory[gpu]

    def read_times(self, gpu: GpuUuid) -> Figures | None:
        """The part of its time that each process had since the round before."""
        if gpu not in self._times:
            self._times[gpu] = self._ask(gpu)
        return self._times[gpu]

    def _ask(self, gpu: GpuUuid) -> Figures | None:
        now = (self._clock.wall_s(), self._clock.monotonic_s())
        since = self._before.get(gpu)
        since_us = int((since[0] if since else now[0] - PERIOD_S) * 1e6)
        try:
            found = self._nvml.read_process_times(gpu, since_us).processes
        except VgpumgrError:
            return None
        if found is None:
            return None
        self.asked[gpu] = now
        parts = {one.pid: one.part for one in found}
        return Figures(since[1] if since else None, now[1], parts)


class LimitWatcher:
    """From ``start`` to ``close``: compares the limit ``device-memory`` of each channel that has one, and the time of
    each share, with what the driver says of its processes.
    """

    def __init__(
        self,
        nvml: NvmlClient,
        store: AttachmentStore,
        channels: KeeperChannels,
        clock: Clock,
        report: Report,
        period_s: float = PERIOD_S,
    ) -> None:
        self._nvml = nvml
        self._store = store
        self._channels = channels
        self._clock = clock
        self._report = report
        self._period_s = period_s
        self._clocks: dict[str, ShareClock] = {}
        self._asked: dict[GpuUuid, tuple[float, float]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="limits", daemon=True)

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
        while not self._end.wait(self._period_s):
            with contextlib.suppress(VgpumgrError):  # the store cannot be read now
                self._compare_all()

    def _compare_all(self) -> None:
        gpus = _Gpus(self._nvml, self._clock, self._asked)
        records = [one for one in self._store.list_attachments() if one.gpu and one.channel]
        shares = {
            one.id: self._clocks.get(one.id, ShareClock()) for one in records if one.share_part
        }
        self._clocks = shares
        for record in records:
            if self._end.is_set():
                return
            try:
                self._compare(record, gpus)
            except (VgpumgrError, OSError):  # no keeper, or it does not answer
                shares.pop(record.id, None)
        self._asked = gpus.asked

    def _compare(self, record: AttachmentRecord, gpus: _Gpus) -> None:
        assert record.gpu is not None
        assert record.channel is not None
        limit = parse_limits(record.channel.limits).device_memory
        if limit is not None:
            used = gpus.list_memory(record.gpu)
            if over := self._channels.compare_memory(record.id, limit, used):
                self._report(record, over)
        if clock := self._clocks.get(record.id):
            window = self._channels.compare_time(
                record.id, clock, gpus.read_times(record.gpu), self._clock.monotonic_s
            )
            if window:
                self._report(record, window)


def _describe(found: Overuse | Window) -> dict[str, object]:
    """The fields of an event."""
    if isinstance(found, Overuse):
        more = {"bytes": found.bytes, "all_bytes": found.driver_bytes, "limit": found.limit}
        return {"key": "device-memory", "pid": found.pid, **more}
    percent = {"percent": round(found.driver * 100), "charged_percent": round(found.charged * 100)}
    return {"key": "compute", "pid": found.pid, "elapsed_s": round(found.elapsed_s, 1), **percent}


@asynccontextmanager
async def watch_limits(context: Context, sources: Sources) -> AsyncIterator[None]:
    """Compares until the end of the block; reports what it found."""
    if not sources.has_nvml:
        yield
        return
    from vgpumgr.virtio.keeper import KeeperChannels

    def report(record: AttachmentRecord, found: Overuse | Window) -> None:
        context.cache.forget()
        data = {"vm": record.vm_name, "attachment": record.id, **_describe(found)}
        context.hub.publish("limit", **data)
        # it is published above, and in the channel's status
        with contextlib.suppress(VgpumgrError):
            context.audit.append({"event": "limit", **data})

    machine = context.machine
    watcher = LimitWatcher(
        NvmlClient(machine),
        Store(machine.state_dir / STATE_FILE, read_boot_id(machine)),
        KeeperChannels(machine),
        context.clock,
        report,
    )
    watcher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(watcher.close)
