"""The reconciler: looks at everything again when something has happened, and now and then anyway.

What it hears (libvirt's events, the kernel's, its timer) only says that it is time to look. Many
events close together are one look.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vgpumgr.app.documents.recovery import RecoverDocument
from vgpumgr.app.managing import ManagingApplication
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.domain.events import VmChange, VmEvent
from vgpumgr.errors import VgpumgrError, explain_unexpected
from vgpumgr.host.uevents import UeventSource
from vgpumgr.server.audit import AuditLog
from vgpumgr.server.events import EventHub
from vgpumgr.server.lifecycle import Lifecycle
from vgpumgr.server.responses import AnswerCache
from vgpumgr.server.settings import Settings
from vgpumgr.server.workers import Lane

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
    lane: Lane
    #: small reads
    reads: Lane
    hub: EventHub
    audit: AuditLog
    cache: AnswerCache


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
        self._looking = False
        self._heard: asyncio.Queue[VmEvent] = asyncio.Queue()
        self._last_told: object = None
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
        telling = asyncio.create_task(self._tell_vms())
        try:
            while True:
                await self._wait()
                await self._look()
        finally:
            telling.cancel()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_vm(self, event: VmEvent) -> None:
        if event.change in (VmChange.STOPPED, VmChange.CRASHED):
            self._lifecycle.note_stopped(event.uuid)
        self._started |= event.change in _STARTS
        self._heard.put_nowait(event)
        is_changing = not self._looking and self._tools.lane.read_longest_s() > 0
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

    async def _tell_vms(self) -> None:
        """Events of VMs go out with what the VM has of us, in the order they came."""
        while True:
            event = await self._heard.get()
            attachments: list[str] | None = None
            with contextlib.suppress(Exception):
                attachments = await self._tools.reads.run(
                    lambda app, uuid=event.uuid: _managing(app).list_attachment_ids(uuid)  # type: ignore[misc]
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

    async def _look(self) -> None:
        reasons, started = list(self._reasons), self._started
        self._reasons.clear()
        self._asked.clear()
        self._started = False
        self._looking = True
        policy = Policy(readd=self._settings.repair.devices, restart=started)
        try:
            document = await self._tools.lane.run(
                lambda app: _managing(app).reconcile(policy, self._lifecycle.choose_releases)
            )
        except Exception as error:
            # whatever it is (a full table of descriptors, a bug): the next look may go better
            self._started |= started
            self._tell_failure(reasons, explain_unexpected(error, "a look at the machine"))
        else:
            self._tell_done(reasons, document)
        finally:
            self._looking = False
            self.looks += 1

    def _tell_failure(self, reasons: list[str], error: VgpumgrError) -> None:
        if self._last_told != error.id:
            self._last_told = error.id
            self._tools.hub.publish(
                "reconcile", reasons=reasons, actions=[], drift=None, error=error.as_dict()
            )
        if reasons != ["timer"]:
            # what was heard must be looked into, and not in a minute
            self._loop.call_later(RETRY_S, self.ask, reasons[0])

    def _tell_done(self, reasons: list[str], document: RecoverDocument) -> None:
        actions = [action.as_data() for action in document.actions]
        drift = [found.as_data() for found in document.drift]
        if actions:
            self._tools.cache.forget()
            with contextlib.suppress(VgpumgrError):  # it is done, and told below
                self._tools.audit.append(
                    {"event": "reconcile", "reasons": reasons, "actions": actions}
                )
        if actions or self._last_told != drift:
            self._tools.hub.publish(
                "reconcile", reasons=reasons, actions=actions, drift=drift, error=None
            )
        self._last_told = drift


def _managing(application: object) -> ManagingApplication:
    assert isinstance(application, ManagingApplication)
    return application
