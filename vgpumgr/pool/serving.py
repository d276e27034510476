"""A host's rounds: a heartbeat, its leases, a controller, and then a wait for a change."""

from __future__ import annotations

import threading
from collections.abc import Callable

from vgpumgr.errors import PoolStoreError, VgpumgrError
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import Action, End, HostAgent
from vgpumgr.pool.control.records import ROOT
from vgpumgr.pool.store.interface import Store, Watch
from vgpumgr.pool.store.steps import drive

#: so long one read of the watch waits; between two tries where it fails, too
_WATCH_S = 1.0


class Changes:
    """Wakes who waits when the pool changes. A thread of its own watches: a slow member, or a name that no server
    resolves, costs a heartbeat nothing, and changes are found by the next round.
    """

    def __init__(self, store: Store, read_revision: Callable[[], int]) -> None:
        self._store = store
        self._read_revision = read_revision
        self._has_changed = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def wait(self, timeout_s: float) -> None:
        """Until something changes that is not known here, or the deadline."""
        if self._thread.ident is None:
            self._thread.start()
        self._has_changed.wait(timeout_s)
        self._has_changed.clear()

    def close(self) -> None:
        """Does not wait for what the thread still does."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            watch = None
            try:
                watch = self._store.watch(ROOT, self._read_revision() + 1)
                self._follow(watch)
            except VgpumgrError:
                self._is_over.wait(_WATCH_S)
            finally:
                if watch is not None:
                    watch.close()

    def _follow(self, watch: Watch) -> None:
        while not self._is_over.is_set():
            if watch.read(_WATCH_S):
                self._has_changed.set()


class Server:
    """One host's rounds, and what they report once."""

    def __init__(
        self,
        store: Store,
        host: str,
        agent: HostAgent,
        controller: Controller,
        sleep: Callable[[float], None],
        report: Callable[[str], None],
    ) -> None:
        self._store = store
        self._host = host
        self._agent = agent
        self._controller = controller
        self._sleep = sleep
        self._report = report
        self._said = ""
        self._changes = Changes(store, lambda: agent.revision)

    def run_round(self, wait_s: float) -> None:
        """Ends with a wait for a change or the next heartbeat. Without an answer of the store what runs stays."""
        try:
            refused = self._agent.refused
            drive(self._store, self._agent.step(self._act))
            leads = drive(self._store, self._controller.step())
            self._say(self._describe(leads, self._agent.refused > refused))
            self._changes.wait(wait_s)
        except PoolStoreError as error:
            self._say(
                "goes on without the store, and nothing new is granted: "
                f"{error.error}: {error.cause or error.why}"
            )
            self._sleep(min(wait_s, 1.0))

    def _describe(self, leads: bool, is_refusing: bool) -> str:
        if not self._agent.is_heard:
            return "waits until what it was before has ended"
        if is_refusing:
            return (
                "refuses what the store says: it is older than what this host has seen. After a restore of etcd start "
                "vgpumgr pool serve again on each host"
            )
        return "leads the pool" if leads else "is heard; another host leads the pool"

    def _act(self, actions: list[Action]) -> None:
        """A claim's session is what a VM or a process has by it; a lease by itself only reserves."""
        for action in actions:
            if isinstance(action, End):
                self._agent.ended(action.claim)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._report(f"host {self._host} {text}")

    def stop(self) -> None:
        """Another controller may lead at once."""
        self._changes.close()
        try:
            drive(self._store, self._controller.resign())
        except PoolStoreError:
            return
