"""The reconciler: observes and repairs the machine after events, and at an interval.

Events (of libvirt, of the kernel, of the timer) only trigger a reconcile; decisions use observed state. Events
close together are one reconcile. ``Lifecycle`` decides when the slice of a VM is freed: a VM that is no longer
defined must be missing for a while, and no QEMU of it may run. Only that a VM was stopped is known from its
event alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from vgpumgr.app.documents.operations import RecoverDocument
from vgpumgr.app.operations.recovery import Policy, Release
from vgpumgr.domain.events import LibvirtWatcher, VmChange, VmEvent
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import VgpumgrError, explain_unexpected
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import find_qemu
from vgpumgr.host.sockets import KernelUevents, UeventSource
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.frozen import dataclass
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.server.audit import AuditLog
from vgpumgr.server.context import Context
from vgpumgr.server.events import EventHub
from vgpumgr.server.responses import ResponseCache
from vgpumgr.server.settings import ReleaseSettings, Settings
from vgpumgr.server.workers import WorkerPool

#: nothing more is heard for so long: the burst is over
QUIET_S = 0.2
#: a burst that does not end is looked into all the same
PATIENCE_S = 2.0
RETRY_S = 5.0
#: changes after which the VM's worker is tried again even if it was given up
_STARTS = frozenset({VmChange.STARTED, VmChange.REVERTED})
#: what an operation of ours causes, too, and reads back itself; the timer sees somebody else's
_OWN = frozenset({VmChange.DEFINED, VmChange.DEVICE_REMOVED})


@dataclass(frozen=True, slots=True)
class Tools:
    """What the reconciler works with."""

    #: changes are made here, one after another
    pool: WorkerPool
    #: small reads
    reads: WorkerPool
    hub: EventHub
    audit: AuditLog
    cache: ResponseCache


class Reconciler:
    """Lives on one event loop; the methods called ``hear_...`` may be called from any thread."""

    def __init__(
        self,
        tools: Tools,
        settings: Settings,
        lifecycle: Lifecycle,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._tools = tools
        self._settings = settings
        self._lifecycle = lifecycle
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._reasons: dict[str, None] = {}
        self._started = False
        self._reconciling = False
        self._heard: asyncio.Queue[VmEvent] = asyncio.Queue()
        self._last_reported: object = None
        #: why libvirt cannot be heard; None: it can, or nobody has tried
        self.libvirt_problem: str | None = None
        #: looks so far
        self.looks = 0

    def hear_vm(self, event: VmEvent) -> None:
        """See ``domain.events.Listener``."""
        self._call(self._on_vm, event)

    def hear_libvirt(self, problem: str | None) -> None:
        """See ``domain.events.Listener``."""
        self._call(self._on_libvirt, problem)

    def ask(self, reason: str) -> None:
        """It is time to look; called on the event loop."""
        self._reasons[reason] = None
        self._asked.set()

    def watch(self, source: UeventSource) -> Callable[[], None]:
        """Listens to the kernel's events until the returned function is called."""
        number = source.fileno()
        self._loop.add_reader(number, self._on_uevents, source)

        def end() -> None:
            self._loop.remove_reader(number)

        return end

    async def run(self) -> None:
        """Looks whenever it is time; ends when cancelled."""
        reporting = asyncio.create_task(self._report_vms())
        try:
            while True:
                await self._wait()
                await self._reconcile()
        finally:
            reporting.cancel()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_vm(self, event: VmEvent) -> None:
        if event.change in (VmChange.STOPPED, VmChange.CRASHED):
            self._lifecycle.note_stopped(event.uuid)
        self._started |= event.change in _STARTS
        self._heard.put_nowait(event)
        is_changing = not self._reconciling and self._tools.pool.read_longest_s() > 0
        if not (event.change in _OWN and is_changing):
            self.ask(f"{event.name} {event.change}")

    def _on_libvirt(self, problem: str | None) -> None:
        was = self.libvirt_problem
        self.libvirt_problem = problem
        self._tools.cache.forget()
        if problem is None:
            self._tools.hub.publish("libvirt", state="connected", problem=None)
            self.ask("libvirt is connected")
        elif was is None:
            self._tools.hub.publish("libvirt", state="lost", problem=problem)

    def _on_uevents(self, source: UeventSource) -> None:
        batch = source.read()
        for event in batch.events:
            self._tools.hub.publish(
                "device", action=event.action, subsystem=event.subsystem, name=event.name,
                driver=event.driver,
            )  # fmt: skip
            self.ask(str(event))
        if batch.lost:
            self.ask("kernel events were lost")
        if batch.events or batch.lost:
            self._tools.cache.forget()

    async def _report_vms(self) -> None:
        """Events of VMs go out with what the VM has of us, in the order they came."""
        while True:
            event = await self._heard.get()
            attachments: list[str] | None = None
            with contextlib.suppress(Exception):
                attachments = await self._tools.reads.run(
                    lambda app, uuid=event.uuid: app.list_attachment_ids(uuid)  # type: ignore[misc]
                )
            self._tools.cache.forget()
            self._tools.hub.publish(
                "vm", change=str(event.change), vm=event.name, uuid=event.uuid,
                attachments=attachments, device=event.device,
            )  # fmt: skip

    async def _wait(self) -> None:
        """Until something was heard and the burst is over, or the timer says so."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), self._choose_pause_s())
        if not self._reasons:
            self._reasons["timer"] = None
            return
        end_s = self._loop.time() + PATIENCE_S
        while self._loop.time() < end_s:
            self._asked.clear()
            try:
                await asyncio.wait_for(self._asked.wait(), QUIET_S)
            except TimeoutError:
                return

    def _choose_pause_s(self) -> float | None:
        settings = self._settings.reconcile
        jitter = settings.jitter * (2 * self._rng() - 1)
        pauses = [settings.interval_s * (1 + jitter)] if settings.interval_s else []
        due_s = self._lifecycle.read_next_s()
        if due_s is not None:
            pauses.append(max(due_s, QUIET_S))
        return min(pauses, default=None)

    async def _reconcile(self) -> None:
        reasons, started = list(self._reasons), self._started
        self._reasons.clear()
        self._asked.clear()
        self._started = False
        self._reconciling = True
        policy = Policy(readd=self._settings.repair.devices, restart=started)
        try:
            document = await self._tools.pool.run(
                lambda app: app.reconcile(policy, self._lifecycle.choose_releases)
            )
        except Exception as error:
            # whatever it is (a full table of descriptors, a bug): the next look may go better
            self._started |= started
            self._report_failure(reasons, explain_unexpected(error, "a look at the machine"))
        else:
            self._report_done(reasons, document)
        finally:
            self._reconciling = False
            self.looks += 1

    def _report_failure(self, reasons: list[str], error: VgpumgrError) -> None:
        if self._last_reported != error.id:
            self._last_reported = error.id
            self._tools.hub.publish(
                "reconcile", reasons=reasons, actions=[], drift=None, error=error.as_dict()
            )
        if reasons != ["timer"]:
            # what was heard must be looked into, and not in a minute
            self._loop.call_later(RETRY_S, self.ask, reasons[0])

    def _report_done(self, reasons: list[str], document: RecoverDocument) -> None:
        actions = [action.as_data() for action in document.actions]
        drift = [found.as_data() for found in document.drift]
        if actions:
            self._tools.cache.forget()
            with contextlib.suppress(VgpumgrError):  # it is done, and told below
                self._tools.audit.append(
                    {"event": "reconcile", "reasons": reasons, "actions": actions}
                )
        if actions or self._last_reported != drift:
            self._tools.hub.publish(
                "reconcile", reasons=reasons, actions=actions, drift=drift, error=None
            )
        self._last_reported = drift


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a daemon hears from; None: nowhere, its timer must do."""

    libvirt_uri: str | None = None
    open_uevents: Callable[[], UeventSource] | None = None
    #: the GPUs' driver
    has_nvml: bool = False


def find_sources(machine: Machine) -> Sources:
    """A machine's libvirt, and the kernel's events on a real one: a simulated one has none."""
    uevents = None if machine.is_simulated else KernelUevents
    return Sources(machine.libvirt_uri, uevents, has_nvml=True)


@asynccontextmanager
async def watch(
    context: Context, settings: Settings, sources: Sources
) -> AsyncIterator[Reconciler]:
    """Looks again whenever something is heard, until the end of the block."""
    pools = context.pools
    tools = Tools(pools.change, pools.read, context.hub, context.audit, context.cache)
    lifecycle = Lifecycle(settings.release, context.clock)
    reconciler = Reconciler(tools, settings, lifecycle)
    running = asyncio.create_task(reconciler.run())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(running.cancel)
        if sources.open_uevents is not None:
            # where this process may not listen, the timer does
            with contextlib.suppress(OSError):
                source = sources.open_uevents()
                stack.callback(source.close)
                stack.callback(reconciler.watch(source))
        if sources.libvirt_uri is not None:
            watcher = LibvirtWatcher(sources.libvirt_uri, reconciler)
            watcher.start()
            stack.push_async_callback(asyncio.to_thread, watcher.close)
        yield reconciler


#: a wall clock that differs by more has been set; time servers move it by less
_SET_S = 5.0


class Lifecycle:
    """What a daemon remembers of VMs between two looks. Safe to use from any thread."""

    def __init__(
        self,
        settings: ReleaseSettings,
        clock: Clock,
        find_running: Callable[[str], int | None] = find_qemu,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._find_running = find_running
        self._lock = threading.Lock()
        #: when each was stopped last, and by how much the wall clock was ahead of the other then; what
        #: it got since it keeps
        self._stopped_s: dict[str, tuple[float, float]] = {}
        self._missing_since_s: dict[str, float] = {}

    def note_stopped(self, vm_uuid: str) -> None:
        """A VM was stopped."""
        with self._lock:
            self._stopped_s[vm_uuid] = (self._clock.wall_s(), self._read_lead_s())

    def choose_releases(self, observed: Snapshot) -> Sequence[Release]:
        """What is to be freed now."""
        with self._lock:
            known = {record.id for record in observed.records}
            self._missing_since_s = {
                id_: since for id_, since in self._missing_since_s.items() if id_ in known
            }
            found = []
            for record in observed.records:
                if record.run is not None:
                    continue  # its process says when it ends
                why = self._choose(record, observed.find_vm(record.vm_uuid), observed)
                if why is not None:
                    found.append(Release(record, why))
            self._forget_started(observed)
            return found

    def read_next_s(self) -> float | None:
        """In how long something may be due that waits; None if nothing waits."""
        with self._lock:
            if not self._missing_since_s:
                return None
            due_s = min(self._missing_since_s.values()) + self._settings.delay_s
            return max(0.0, due_s - self._clock.monotonic_s())

    def _choose(self, record: AttachmentRecord, vm: Vm | None, observed: Snapshot) -> str | None:
        if record.state is not AttachmentState.ATTACHED or record.id in observed.busy:
            return None
        if vm is None:
            return self._choose_missing(record)
        self._missing_since_s.pop(record.id, None)
        if vm.is_active:
            return None
        if vm.migrated and self._settings.migrated:
            return "the VM runs on another host now"
        if self._settings.stopped and self._was_there(record, vm.uuid):
            return "the VM was stopped"
        return None

    def _was_there(self, record: AttachmentRecord, vm_uuid: str) -> bool:
        """Whether the VM had it when it was stopped. Nobody can tell once the wall clock has been set."""
        stopped_s, lead_s = self._stopped_s.get(vm_uuid, (float("-inf"), 0.0))
        was_set = abs(self._read_lead_s() - lead_s) > _SET_S
        return record.created_s <= stopped_s and not was_set

    def _read_lead_s(self) -> float:
        return self._clock.wall_s() - self._clock.monotonic_s()

    def _forget_started(self, observed: Snapshot) -> None:
        still = {vm.uuid for vm in observed.vms if not vm.is_active}
        self._stopped_s = {uuid: s for uuid, s in self._stopped_s.items() if uuid in still}

    def _choose_missing(self, record: AttachmentRecord) -> str | None:
        if not self._settings.undefined:
            return None
        now_s = self._clock.monotonic_s()
        since_s = self._missing_since_s.setdefault(record.id, now_s)
        if now_s - since_s < self._settings.delay_s:
            return None
        if self._find_running(record.vm_uuid) is not None:
            # libvirt has lost it; asked again when something happens, or by the clock
            self._missing_since_s[record.id] = now_s
            return None
        del self._missing_since_s[record.id]
        return "the VM is no longer defined"
