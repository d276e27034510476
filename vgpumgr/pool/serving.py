"""A host's rounds: a heartbeat, its leases, a controller, and then a wait for a change."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from vgpumgr.errors import PoolStoreError, StoreError, VgpumgrError
from vgpumgr.host.clock import SleeplessClock
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import Action, End, HostAgent
from vgpumgr.pool.control.records import (
    CLOSED_GPUS,
    POOL,
    ROOT,
    ClaimRecord,
    GpuRecord,
    IfLost,
    LeaseRecord,
    PoolRecord,
    WantRecord,
    lease_key,
    list_use_keys,
    put,
    read_record,
    want_key,
)
from vgpumgr.pool.control.times import EndRecord, end_key
from vgpumgr.pool.ledger import Held
from vgpumgr.pool.queue import QueueWatch
from vgpumgr.pool.recorder import Recorder
from vgpumgr.pool.store.interface import At, Delete, Store, Transaction, Watch
from vgpumgr.pool.store.steps import drive
from vgpumgr.state.leases import SeenLease, SeenPool

#: between two tries of a watch that fails
_WATCH_S = 1.0
#: so late a wait sees that it is over
_END_S = 0.25
#: a store that hangs is not waited for longer at the end
_JOIN_S = 2.0


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

    def wait(self, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Until something changes that is not known here, the deadline, or the end of all rounds."""
        if self._thread.ident is None:
            self._thread.start()
        while (
            timeout_s > 0 and not is_over() and not self._has_changed.wait(min(timeout_s, _END_S))
        ):
            timeout_s -= _END_S
        self._has_changed.clear()

    def close(self) -> None:
        """The thread ends soon."""
        self._is_over.set()

    def join(self) -> None:
        """Waits a moment for the thread: a process that ends while it reads a store may crash."""
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

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
            if watch.read(_END_S):
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
        keep: Callable[[SeenPool], None] = lambda _seen: None,
        is_over: Callable[[], bool] = lambda: False,
        before: SeenPool | None = None,
        read_closed: Callable[[], Mapping[str, str]] = dict,
        has_ended: Callable[[WantRecord], bool] = lambda _want: False,
        queue: QueueWatch | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self._agent = agent
        self._controller = controller
        self._sleep = sleep
        self._report = report
        self._keep = keep
        self._is_over = is_over
        self._read_closed = read_closed
        self._has_ended = has_ended
        #: what the controller observes
        self._queue = queue
        self._recorder = recorder
        self._gpus = 0
        #: whose a lease's claim is, by claim and token
        self._tenants: dict[tuple[str, int], str] = {}
        self._said = ""
        #: at first what the process before this one knew
        self._kept = before
        self._clock = SleeplessClock()
        self._changes = Changes(store, lambda: agent.revision)

    def run_round(self, wait_s: float) -> None:
        """Ends with a wait for a change or the next heartbeat. Without an answer of the store what runs stays."""
        try:
            refused = self._agent.refused
            drive(self._store, self._agent.step(self._act))
            self._close_gpus()
            self._forget_ended()
            leads = drive(self._store, self._controller.step())
            if self._queue is not None and not leads:
                self._queue.lose()
            self._say(self._describe(leads, self._agent.refused > refused), self._list_leases())
            self._record(leads)
            self._changes.wait(wait_s, self._is_over)
        except PoolStoreError as error:
            text = f"{error.error}: {error.cause or error.why}"
            self._say(f"goes on without the store, and nothing new is granted: {text}", None)
            self._record(False)
            self._sleep(min(wait_s, 1.0))

    def _record(self, leads: bool) -> None:
        """Counts what the leases of this host have. Where it is cut off they are those that stay."""
        if self._recorder is None or not self._agent.revision:
            return
        self._recorder.leads = leads
        is_heard = self._agent.is_heard
        leases = {
            claim: Held(self._tenants.get((claim, token), ""), len(lease.gpus), lease.milli)
            for claim, (lease, token) in self._agent.leases.items()
            if is_heard or lease.if_lost is IfLost.KEEP
        }
        self._recorder.follow(leases, self._gpus)

    def _close_gpus(self) -> None:
        """Writes which GPUs of this host take nothing new, and why. A grant that is under way compares their
        revisions, which move.
        """
        if not self._agent.is_heard:
            return
        try:
            closed = self._read_closed()
        except StoreError:
            return  # every command on this host says so
        entries = self._store.range(f"{ROOT}gpu/{self._host}/").entries.values()
        gpus = [(read_record(GpuRecord, entry), entry) for entry in entries]
        self._gpus = len(gpus)
        changed = [one for one in gpus if one[0].closed != closed.get(one[0].uuid, "")]
        if not changed or not self._can_close():
            return
        for gpu, entry in changed:
            put_it = put(replace(gpu, closed=closed.get(gpu.uuid, "")))
            self._store.transact(Transaction((At(entry.key, entry.revision),), (put_it,)))

    def _forget_ended(self) -> None:
        """Removes what processes of this host want that have ended, unless it is used: who gives that back does it."""
        if not self._agent.is_heard:
            return
        for entry in self._store.range(want_key("")).entries.values():
            want = read_record(WantRecord, entry)
            if want.host != self._host or want.pid is None or not self._has_ended(want):
                continue
            key = lease_key(self._host, want.claim)
            found = self._store.get(key)
            gpus = len(read_record(LeaseRecord, found).gpus) if found else 0
            uses = list_use_keys(self._host, want.claim, gpus)
            compares = [At(key, found.revision if found else 0), *(At(use, 0) for use in uses)]
            change = Transaction((At(entry.key, entry.revision), *compares), (Delete(entry.key),))
            self._store.transact(change)

    def _can_close(self) -> bool:
        """Whether all hosts of the pool read that."""
        pool = self._store.get(POOL)
        return pool is not None and read_record(PoolRecord, pool).version >= CLOSED_GPUS

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

    def _list_leases(self) -> tuple[SeenLease, ...]:
        """Those that this host follows. The GPUs are read again where a lease is not the one of before."""
        known = {lease.claim: lease for lease in self._kept.leases} if self._kept else {}
        if not self._agent.is_heard:
            return tuple(known.values())  # none were followed yet, or not any more
        now = self._agent.leases
        # what an older program has kept says less
        if self._tenants.keys() == {(claim, token) for claim, (_, token) in now.items()} and {
            claim: token for claim, (_, token) in now.items()
        } == {claim: lease.token for claim, lease in known.items()}:
            return self._add_notices(tuple(known.values()))
        found = self._store.range(f"{ROOT}gpu/{self._host}/").entries.values()
        uuids = {gpu.index: gpu.uuid for gpu in (read_record(GpuRecord, one) for one in found)}
        self._tenants = {
            (claim, token): self._find_tenant(claim, token) for claim, (_, token) in now.items()
        }
        return self._add_notices(
            tuple(
                self._see(
                    lease,
                    token,
                    tuple(uuids[i] for i in lease.gpus if i in uuids),
                    known.get(claim),
                )
                for claim, (lease, token) in sorted(now.items())
            )
        )

    def _find_tenant(self, claim: str, token: int) -> str:
        """Whose a claim is, which never changes; it is read once for each lease."""
        known = self._tenants.get((claim, token))
        if known is not None:
            return known
        entry = self._store.get(f"{ROOT}claim/{claim}")
        return "" if entry is None else read_record(ClaimRecord, entry).tenant

    def _see(
        self, lease: LeaseRecord, token: int, gpus: tuple[str, ...], before: SeenLease | None
    ) -> SeenLease:
        since_s = self._clock.monotonic_s() if lease.is_ending else None
        if since_s is not None and before is not None and before.ending_since_s is not None:
            since_s = before.ending_since_s
        return SeenLease(
            lease.claim, token, gpus, lease.is_ending, self._tenants[lease.claim, token], lease.milli,
            lease.memory_bytes, lease.compute_percent, ending_since_s=since_s,
        )  # fmt: skip

    def _add_notices(self, leases: tuple[SeenLease, ...]) -> tuple[SeenLease, ...]:
        """Why leases are to end."""
        if not leases:
            return leases
        found = self._store.range(end_key(self._host, "")).entries.values()
        ends = {end.claim: end.why for end in (read_record(EndRecord, one) for one in found)}
        return tuple(replace(one, notice=ends.get(one.claim, "")) for one in leases)

    def _say(self, text: str, leases: tuple[SeenLease, ...] | None) -> None:
        """Once for each change. ``leases`` None: the store does not answer, and they are those of before."""
        before = self._kept
        queue = self._queue.describe() if self._queue is not None else None
        is_new = text != self._said
        if is_new:
            self._said = text
            self._report(f"host {self._host} {text}")
        known = before.leases if before else ()
        is_same_queue = before is not None and before.queue == queue
        if not is_new and leases in (None, known) and (leases is None or is_same_queue):
            return
        self._kept = SeenPool(
            self._host,
            text,
            self._clock.wall_s() if before is None or is_new else before.since_s,
            is_answering=leases is not None,
            leases=known if leases is None else leases,
            revision=self._agent.revision,
            queue=queue,
        )
        self._keep(self._kept)

    def stop(self) -> None:
        """Another controller may lead at once."""
        self._changes.close()
        with contextlib.suppress(PoolStoreError):
            drive(self._store, self._controller.resign())
        self._changes.join()
