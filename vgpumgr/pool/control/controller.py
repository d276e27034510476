"""The controller: observes the pool, and writes what follows. Any number may run; the one that leads writes.

Each write compares what it was decided by: the election's key, the claim, the host, that it is heard, and of each GPU
the revision, which every grant moves. So a controller that has paused, or was replaced, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from vgpumgr.errors import PoolStoreError
from vgpumgr.pool.control.ending import Ending, plan_reservations
from vgpumgr.pool.control.placing import Grant, Placing
from vgpumgr.pool.control.preempting import (
    find_lowest,
    find_nominated,
    find_preemption,
    list_ending,
    plan_preemption,
)
from vgpumgr.pool.control.records import (
    LEADER,
    ROOT,
    ClaimRecord,
    HostRecord,
    HostState,
    IfLost,
    LeaseRecord,
    Timing,
    View,
    alive_key,
    apart_key,
    lease_key,
    put,
    want_key,
)
from vgpumgr.pool.control.tenants import Usage, list_queue
from vgpumgr.pool.control.times import find_end_s, format_moment
from vgpumgr.pool.store.election import Election
from vgpumgr.pool.store.interface import At, Change, Compare, Delete, Put, Transaction
from vgpumgr.pool.store.steps import Steps, transacting


class Observer(Protocol):
    """Who sees what a controller that leads sees and does."""

    def see(self, view: View) -> None:
        """The pool, before a round's changes."""

    def wrote(self, transaction: Transaction) -> None:
        """A change of this round was made."""


class Controller:
    """``read_clock_s`` only grows; ``read_wall_s`` is the time of day, which only reservations and leases with an end
    ask for. It remembers since when each host is suspect; another begins to wait anew.
    """

    def __init__(
        self,
        name: str,
        timing: Timing,
        read_clock_s: Callable[[], float],
        read_wall_s: Callable[[], float] = lambda: 0.0,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer
        self._timing = timing
        self._read_clock_s = read_clock_s
        self._election = Election(LEADER, name, timing.ttl_s)
        self._suspects: dict[str, tuple[int, float]] = {}
        self._ending = Ending(read_clock_s, read_wall_s)
        self._now_s = 0.0
        #: what this round has written: the pool that it decides by has these as they were
        self._written: set[str] = set()
        #: the lowest priority of leases that can be preempted
        self._lowest: int | None = None

    def step(self) -> Steps[bool]:
        """One round; whether this controller leads. Raises PoolStoreError: the next round decides anew."""
        if not (yield from self._election.campaign()):
            self._suspects.clear()
            self._ending.clear()
            return False
        view = View((yield lambda store: store.range(ROOT)))
        if self._observer is not None:
            self._observer.see(view)
        # a GPU that an earlier grant of this round has written is compared as that has left it
        moved: dict[Compare, Compare] = {}
        for planned in self.plan(view):
            compares = tuple(moved.get(one, one) for one in planned.compares)
            revision = yield transacting(self.guard(replace(planned, compares=compares)))
            if revision is None:
                break  # what follows was decided by it, too
            if self._observer is not None:
                self._observer.wrote(planned)
            written = {change.key for change in planned.changes}
            moved |= {one: At(one.key, revision) for one in planned.compares if one.key in written}
        return True

    def resign(self) -> Steps[None]:
        """Another may lead at once."""
        return self._election.resign()

    def guard(self, transaction: Transaction) -> Transaction:
        """With the comparison that this controller still leads. Raises PoolStoreError where it does not."""
        guard = self._election.guard
        if guard is None:
            raise PoolStoreError("this controller does not lead")
        return replace(transaction, compares=(guard, *transaction.compares))

    def plan(self, view: View) -> Iterator[Transaction]:
        """What follows from a pool as it is: in the order in which it is to be written."""
        self._written = set()
        for transaction in self._plan(view):
            self._written.update(change.key for change in transaction.changes)
            yield transaction

    def _plan(self, view: View) -> Iterator[Transaction]:
        self._now_s = self._ending.read_wall_s()
        for host in view.hosts.values():
            yield from self._plan_host(view, host)
        for name in self._suspects.keys() - view.hosts.keys():
            del self._suspects[name]
        for key in (*view.list_apart(), *view.list_forgotten()):
            # a grant that is under way compares its claim, too, which is gone
            yield Transaction((view.at(key),), (Delete(key),))
        yield from self._ending.plan_leases(view, self._now_s)
        is_moved = False
        for transaction in plan_reservations(view, self._now_s):
            yield transaction
            is_moved = True
        if is_moved:
            return  # what this round would grant does not know the GPUs that are reserved now
        placing, usage = Placing(view, now_s=self._now_s), Usage(view)
        self._lowest = find_lowest(view)
        queue = []
        for claim in sorted(view.claims.values(), key=view.age):
            lease = view.find_lease(claim)
            if not claim.is_ending and _is_unwanted(view, claim, lease):
                yield from _plan_unwanted(view, claim, lease)
            # what grows waits in the queue as what has nothing yet; what gives back does not
            elif claim.host is None or (lease is not None and _grows(view, claim, lease, placing)):
                queue.append(claim)
            else:
                yield from self._plan_granted(view, claim, placing, usage)
        for claim in list_queue(view, queue, usage):
            if claim.host is None:
                yield from self._plan_waiting(view, claim, placing, usage)
            else:
                yield from self._plan_granted(view, claim, placing, usage)

    def _plan_host(self, view: View, host: HostRecord) -> Iterator[Transaction]:
        is_alive = host.name in view.alive
        then = host.state
        since_s = None
        if is_alive:
            then = HostState.READY
        elif host.state is HostState.READY:
            then = HostState.SUSPECT
        elif host.state is HostState.SUSPECT:
            since_s = self._note_suspect(host.name, view.at(host.key).revision)
            if self._read_clock_s() - since_s > self._timing.away_s:
                then = HostState.FENCED
        if since_s is None:
            self._suspects.pop(host.name, None)
        compares = (view.at(host.key), view.at(alive_key(host.name)))
        if then is not host.state:
            yield Transaction(compares, (put(replace(host, state=then)),))
        if not is_alive and host.state is HostState.FENCED:
            for lease in view.leases.values():
                if lease.host == host.name and lease.if_lost is IfLost.MOVE:
                    yield Transaction((*compares, view.at(lease.key)), (Delete(lease.key),))

    def _note_suspect(self, name: str, revision: int) -> float:
        """Since when this controller sees a host suspect without a break."""
        known, since_s = self._suspects.get(name, (0, 0.0))
        if known != revision:
            since_s = self._read_clock_s()
            self._suspects[name] = (revision, since_s)
        return since_s

    def _plan_granted(
        self, view: View, claim: ClaimRecord, placing: Placing, usage: Usage
    ) -> Iterator[Transaction]:
        lease = view.find_lease(claim)
        own = (view.at(claim.key),)
        if lease is not None and lease.key in self._written:
            return
        if lease is None:
            assert claim.host is not None
            gone = At(f"{ROOT}lease/{claim.host}/{claim.name}", 0)
            why = f"its lease on host {claim.host} has ended"
            yield Transaction((*own, gone), (put(replace(claim, host=None, why=why)),))
        elif claim.is_ending:
            if not lease.is_ending:
                yield Transaction(
                    (*own, view.at(lease.key)), (put(replace(lease, is_ending=True)),)
                )
        elif not lease.is_ending and not is_as_claimed(claim, lease):
            yield from self._plan_resize(view, claim, lease, placing, usage)

    def _plan_resize(
        self, view: View, claim: ClaimRecord, lease: LeaseRecord, placing: Placing, usage: Usage
    ) -> Iterator[Transaction]:
        found: Grant | str = "its class is gone"
        if claim.class_name in view.classes:
            left, more = usage.read_left(claim), placing.find_growth(claim, lease)
            is_over = left is not None and more > left
            found = usage.explain(claim, more) if is_over else placing.resize(claim, lease)
        if isinstance(found, str):
            yield from _explain(view, claim, f"it keeps what it has: {found}")
            return
        usage.add(claim, found.total_milli - lease.total_milli)
        yield self._grant(view, claim, found, (view.at(lease.key),), lease.gpus)

    def _plan_waiting(
        self, view: View, claim: ClaimRecord, placing: Placing, usage: Usage
    ) -> Iterator[Transaction]:
        if claim.is_ending:
            yield Transaction((view.at(claim.key),), (Delete(claim.key),))
            return
        found = decide(view, claim, placing, usage)
        if isinstance(found, str):
            yield from self._plan_refused(view, claim, placing, usage, found)
        else:
            absent = At(f"{ROOT}lease/{found.host}/{claim.name}", 0)
            yield self._grant(view, claim, found, (absent,), ())

    def _plan_refused(
        self, view: View, claim: ClaimRecord, placing: Placing, usage: Usage, why: str
    ) -> Iterator[Transaction]:
        """A claim that gets nothing now: others may make way for it, or do so already."""
        may_preempt = self._lowest is not None and self._lowest < view.find_tenant(claim).priority
        is_hopeful = bool(claim.nominated) or may_preempt
        if is_hopeful and find_exclusion(view, claim, placing, usage) is None:
            nominated = find_nominated(view, claim, placing)
            if nominated is not None:
                placing.hold_back(claim, nominated)
                names = list_ending(view, nominated)
                if names:
                    why = f"it waits until what was preempted for it has ended: claim {names}"
                yield from _explain(view, claim, why)
                return
            found = find_preemption(view, claim, placing, usage, self._now_s, self._written)
            if found is not None:
                placing.hold_back(claim, found.grant)
                yield from plan_preemption(view, claim, found)
                return
        if claim.preempted_by:
            why = f"{why}; claim {claim.preempted_by} has preempted it"
        if claim.nominated:
            lost = replace(claim, nominated="", nominated_gpus=(), why=why)
            yield Transaction((view.at(claim.key),), (put(lost),))
        else:
            yield from _explain(view, claim, why)

    def _grant(
        self,
        view: View,
        claim: ClaimRecord,
        grant: Grant,
        lease_is: tuple[Compare, ...],
        before: tuple[int, ...],
    ) -> Transaction:
        host = view.hosts[grant.host]
        gpus = [
            gpu
            for gpu in view.gpus.values()
            if gpu.host == host.name and gpu.index in {*grant.gpus, *before}
        ]
        lease = LeaseRecord(
            claim.name,
            host.name,
            grant.gpus,
            grant.milli,
            claim.memory_bytes,
            claim.compute_percent,
            claim.if_lost,
        )
        granted = replace(
            claim, host=host.name, why="", nominated="", nominated_gpus=(), preempted_by=""
        )
        if view.has_times:
            before_it = view.find_lease(claim)
            lease = _add_times(claim, lease, before_it, self._now_s)
            if not claim.late and lease.until_s:
                granted = replace(granted, until_s=lease.until_s)
        compares: list[Compare] = [view.at(claim.key)]
        changes: list[Change] = [put(lease), put(granted)]
        # A grant that arrives late has to find that another one of its tenant, or of its group, was written
        # meanwhile: each moves their revisions.
        if claim.tenant in view.tenants:
            tenant = view.tenants[claim.tenant]
            compares.append(view.at(tenant.key))
            changes.append(put(tenant))
        if claim.late:  # what wants it has not gone
            compares.append(view.at(want_key(claim.name)))
        if claim.anti_affinity:
            compares.append(view.at(apart_key(claim.anti_affinity)))
            changes.append(Put(apart_key(claim.anti_affinity), claim.name))
        return Transaction(
            (
                *compares,
                view.at(host.key),
                view.at(alive_key(host.name)),
                *lease_is,
                *(view.at(gpu.key) for gpu in gpus),
            ),
            (*changes, *(put(replace(gpu, grants=gpu.grants + 1)) for gpu in gpus)),
        )


def _add_times(
    claim: ClaimRecord, lease: LeaseRecord, before: LeaseRecord | None, now_s: float
) -> LeaseRecord:
    """When it was granted, and when it ends; of another size it keeps both."""
    if before is not None:
        return replace(lease, granted_s=before.granted_s, until_s=before.until_s)
    end_s = find_end_s(claim, now_s)
    return replace(lease, granted_s=now_s, until_s=0.0 if math.isinf(end_s) else end_s)


def _is_unwanted(view: View, claim: ClaimRecord, lease: LeaseRecord | None) -> bool:
    """Whether nothing wants it, or something of another host than its lease's."""
    if not view.is_wanted(claim):
        return True
    return claim.late and lease is not None and lease.host not in view.find_where(claim)


def _plan_unwanted(
    view: View, claim: ClaimRecord, lease: LeaseRecord | None
) -> Iterator[Transaction]:
    """A claim that binds late, and that nothing wants there: its lease ends, and it waits for nothing."""
    compares = (view.at(claim.key), view.at(want_key(claim.name)))
    if lease is not None and not lease.is_ending:
        yield Transaction((*compares, view.at(lease.key)), (put(replace(lease, is_ending=True)),))
    elif lease is None and (claim.host is not None or claim.why or claim.nominated):
        gone = (view.at(lease_key(claim.host, claim.name)),) if claim.host else ()
        idle = replace(claim, host=None, why="", nominated="", nominated_gpus=())
        yield Transaction((*compares, *gone), (put(idle),))


def _grows(view: View, claim: ClaimRecord, lease: LeaseRecord, placing: Placing) -> bool:
    """Whether its new size takes more of the GPUs than it has."""
    if (
        claim.is_ending
        or lease.is_ending
        or is_as_claimed(claim, lease)
        or claim.class_name not in view.classes
    ):
        return False
    return placing.find_growth(claim, lease) > 0


def decide(view: View, claim: ClaimRecord, placing: Placing, usage: Usage) -> Grant | str:
    """What a claim without a lease gets, which is taken then, or why it waits."""
    if excluded := find_exclusion(view, claim, placing, usage):
        return excluded
    grant = placing.place(claim, usage.read_left(claim))
    if grant is None:
        return placing.explain(claim, usage)
    usage.add(claim, grant.total_milli)
    return grant


def find_exclusion(view: View, claim: ClaimRecord, placing: Placing, usage: Usage) -> str | None:
    """What keeps a claim without a lease from every host, whatever is free there."""
    if claim.class_name not in view.classes:
        return f"there is no class {claim.class_name}"
    if claim.tenant and claim.tenant not in view.tenants:
        return f"there is no tenant {claim.tenant}"
    if claim.until_s is not None and placing.now_s is not None and claim.until_s <= placing.now_s:
        return f"its time has ended at {format_moment(claim.until_s)}"
    left, least = usage.read_left(claim), placing.find_least(claim)
    return usage.explain(claim, least) if left is not None and least > left else None


def is_as_claimed(claim: ClaimRecord, lease: LeaseRecord) -> bool:
    """Whether a lease gives what its claim asks for."""
    return (
        len(lease.gpus) == claim.gpus
        and lease.memory_bytes == claim.memory_bytes
        and lease.compute_percent == claim.compute_percent
    )


def _explain(view: View, claim: ClaimRecord, why: str) -> Iterator[Transaction]:
    """Nothing is written where it is known already."""
    if claim.why != why:
        yield Transaction((view.at(claim.key),), (put(replace(claim, why=why)),))
