"""libvirt's events: what happens to VMs, and whether libvirt is there at all.

A connection of its own stands for as long as libvirt runs and is made again when it is back. Events
that happened meanwhile are lost: a listener observes everything anew then.
"""

from __future__ import annotations

import contextlib
import threading
from enum import StrEnum
from functools import cache, partial
from typing import Any, Protocol

from vgpumgr.domain.libvirt import LateCallError, load_libvirt, run_with_deadline
from vgpumgr.model.frozen import dataclass

#: a local socket that is not there costs nothing to try
RETRY_S = 0.5
CONNECT_TIMEOUT_S = 15.0
#: libvirt is asked whether it lives this often, and is taken for gone after so many silences
KEEPALIVE_S, KEEPALIVE_COUNT = 2, 3
_LOOK_S = 1.0
_END_S = 5.0


class VmChange(StrEnum):
    """What happened to a VM, as far as it matters for what it has of us."""

    DEFINED = "defined"
    UNDEFINED = "undefined"
    RENAMED = "renamed"
    STARTED = "started"
    STOPPED = "stopped"
    #: its QEMU ended without being asked to, or the guest panicked
    CRASHED = "crashed"
    #: it runs on another host now, says the libvirt that it left
    MIGRATED = "migrated"
    #: its definition and state are those of a snapshot
    REVERTED = "reverted"
    DEVICE_REMOVED = "device-removed"


@dataclass(frozen=True, slots=True)
class VmEvent:
    """One event; ``device`` is the alias of a device that was removed."""

    change: VmChange
    name: str
    uuid: str
    device: str | None = None


class Listener(Protocol):
    """Receives events; called on the watcher's threads, must not wait and not raise."""

    def hear_vm(self, event: VmEvent) -> None:
        """Something happened to a VM."""

    def hear_libvirt(self, problem: str | None) -> None:
        """libvirt is there from now on (None), or is not, and why."""


class LibvirtWatcher:
    """Listens from ``start`` to ``close``."""

    def __init__(self, uri: str, listener: Listener, retry_s: float = RETRY_S) -> None:
        self._uri = uri
        self._listener = listener
        self._retry_s = retry_s
        self._end = threading.Event()
        self._wake = threading.Event()
        self._link: _Link | None = None
        self._told: str | None = None
        self._thread = threading.Thread(target=self._watch, name="libvirt-watcher", daemon=True)

    def start(self) -> None:
        """Begins. Before any other connection of this process, so that those are watched, too."""
        _run_event_loop()
        self._thread.start()

    def close(self) -> None:
        """Ends; a libvirt that does not answer is not waited for."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _watch(self) -> None:
        while not self._end.is_set():
            problem = self._connect()
            if problem is None:
                self._tell(None)
                problem = self._stay()
            if not self._end.is_set():
                self._tell(problem)
            self._end.wait(self._retry_s)

    def _tell(self, problem: str | None) -> None:
        if problem is None or problem != self._told:
            self._told = problem
            self._listener.hear_libvirt(problem)

    def _connect(self) -> str | None:
        """Makes the connection; what stands in the way, if anything does. A try that hangs is not
        joined by another one: it goes on when libvirt does.
        """
        self._wake.clear()
        link = _Link(self._uri, self._listener, self._wake)
        done = threading.Event()
        opening = partial(link.try_open, done)
        threading.Thread(target=opening, name="libvirt-connect", daemon=True).start()
        if not done.wait(CONNECT_TIMEOUT_S):
            self._tell(f"{self._uri}: no answer in {CONNECT_TIMEOUT_S:g} s")
        while not done.wait(_LOOK_S) and not self._end.is_set():
            pass
        if self._end.is_set():
            link.abandon()
            return "ends"
        if link.failure is None:
            self._link = link
        return link.failure and f"{self._uri}: {link.failure}"

    def _stay(self) -> str:
        """Until the connection breaks or the end; why it broke."""
        link, self._link = self._link, None
        assert link is not None
        while link.is_alive() and not self._end.is_set():
            self._wake.wait(_LOOK_S)
        link.abandon()
        with contextlib.suppress(LateCallError):
            run_with_deadline(link.close, _END_S)
        return f"{self._uri}: the connection broke ({link.reason})"


class _Link:
    """One connection with its callbacks. Abandoned, it reports nothing any more."""

    def __init__(self, uri: str, listener: Listener, wake: threading.Event) -> None:
        self._lib = load_libvirt()
        self._uri = uri
        self._listener = listener
        self._wake = wake
        self._connection: Any = None
        self._callbacks: list[int] = []
        self._abandoned = False
        self._broken = False
        self.reason = "closed"
        self.failure: str | None = None

    def try_open(self, done: threading.Event) -> None:
        """Connects and asks for events; may never come back. ``failure`` says why it could not."""
        try:
            self._open()
        except self._lib.libvirtError as error:
            self.failure = str(error)
            self.close()
        if self._abandoned:
            self.close()
        done.set()

    def _open(self) -> None:
        lib = self._lib
        connection = self._connection = lib.open(self._uri)
        connection.registerCloseCallback(self._on_close, None)
        with contextlib.suppress(lib.libvirtError):  # drivers without a daemon have none
            connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
        for number, callback in (
            (lib.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle),
            (lib.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._on_device_removed),
        ):
            self._callbacks.append(connection.domainEventRegisterAny(None, number, callback, None))

    def is_alive(self) -> bool:
        """Whether it still stands, as far as known without a call."""
        try:
            return not self._broken and bool(self._connection.isAlive())
        except self._lib.libvirtError:
            return False

    def abandon(self) -> None:
        """From now on nothing of it is passed on."""
        self._abandoned = True

    def close(self) -> None:
        """Closes it; libvirt keeps a connection alive for as long as it has callbacks."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        for callback in self._callbacks:
            with contextlib.suppress(self._lib.libvirtError):
                connection.domainEventDeregisterAny(callback)
        for end in (connection.unregisterCloseCallback, connection.close):
            with contextlib.suppress(self._lib.libvirtError):
                end()

    def _on_close(self, _connection: Any, reason: int, _opaque: Any) -> None:
        words = {
            self._lib.VIR_CONNECT_CLOSE_REASON_ERROR: "error",
            self._lib.VIR_CONNECT_CLOSE_REASON_EOF: "its daemon ended",
            self._lib.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "its daemon does not answer",
        }
        self.reason = words.get(reason, "closed")
        self._broken = True
        if not self._abandoned:
            self._wake.set()

    def _on_lifecycle(
        self, _connection: Any, domain: Any, event: int, detail: int, _opaque: Any
    ) -> None:
        table = _translate(self._lib)
        change = table.get((event, detail), table.get((event, -1)))
        if change is not None:
            self._tell(domain, change)

    def _on_device_removed(self, _connection: Any, domain: Any, alias: str, _opaque: Any) -> None:
        self._tell(domain, VmChange.DEVICE_REMOVED, alias)

    def _tell(self, domain: Any, change: VmChange, device: str | None = None) -> None:
        if not self._abandoned:
            self._listener.hear_vm(VmEvent(change, domain.name(), domain.UUIDString(), device))


#: libvirt's names of an event, with its detail where that matters
_CHANGES = {
    "DEFINED_RENAMED": VmChange.RENAMED,
    "DEFINED_FROM_SNAPSHOT": VmChange.REVERTED,
    "DEFINED": VmChange.DEFINED,
    "UNDEFINED_REMOVED": VmChange.UNDEFINED,
    "STARTED_FROM_SNAPSHOT": VmChange.REVERTED,
    "STARTED": VmChange.STARTED,
    "STOPPED_MIGRATED": VmChange.MIGRATED,
    "STOPPED_CRASHED": VmChange.CRASHED,
    "STOPPED_FAILED": VmChange.CRASHED,
    "STOPPED_FROM_SNAPSHOT": VmChange.REVERTED,
    "STOPPED": VmChange.STOPPED,
    "CRASHED": VmChange.CRASHED,
    "SUSPENDED_FROM_SNAPSHOT": VmChange.REVERTED,
    "RESUMED_FROM_SNAPSHOT": VmChange.REVERTED,
}


@cache
def _translate(lib: Any) -> dict[tuple[int, int], VmChange]:
    """libvirt's event and detail to ours; detail -1: any other. What is not here does not matter.

    A rename comes as two events; the definition under the new name is the one that is reported.
    """
    changes: dict[tuple[int, int], VmChange] = {}
    for name, change in _CHANGES.items():
        event, _, detail = name.partition("_")
        number = getattr(lib, f"VIR_DOMAIN_EVENT_{event}")
        changes[number, getattr(lib, f"VIR_DOMAIN_EVENT_{name}") if detail else -1] = change
    return changes


@cache
def _run_event_loop() -> None:
    """libvirt has one event loop for a process. It runs from here on; nothing can end it."""
    lib = load_libvirt()
    lib.virEventRegisterDefaultImpl()
    # it comes round at least this often, whatever is lost
    lib.virEventAddTimeout(1000, lambda _timer, _opaque: None, None)
    pause = threading.Event()

    def run() -> None:
        while True:
            try:
                lib.virEventRunDefaultImpl()
            except lib.libvirtError:
                pause.wait(_LOOK_S)

    threading.Thread(target=run, name="libvirt-events", daemon=True).start()
