"""Simulated pools in which everything goes wrong: nothing is granted twice, no lease is lost, no claim is forgotten.
And what would break that is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.pool_histories.__main__ import list_lacks, run_history
from tests.pool_histories.actors import TIMING
from tests.pool_histories.world import BrokenError, World
from tests.support.clock import FakeClock
from tests.support.memory_store import MemoryStore
from vgpumgr.errors import PoolLeaseError, PoolMemberError
from vgpumgr.pool.control import ending, keeping, preempting
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import Action, Begin, HostAgent
from vgpumgr.pool.control.keeping import Keeping
from vgpumgr.pool.control.records import (
    ClaimRecord,
    HostRecord,
    HostState,
    IfLost,
    LeaseRecord,
    Timing,
    View,
    alive_key,
    put,
)
from vgpumgr.pool.store.interface import At, Delete, Put, Snapshot, Transaction
from vgpumgr.pool.store.steps import Steps, drive

#: more by ``./run python -m tests.pool_histories``
PARTS, HISTORIES = 17, 120
#: seeds; those from 960 on reach too little together, and others stand in their place
FIRST = [PARTS * HISTORIES if part == 8 else part * HISTORIES for part in range(PARTS)]


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(part: int) -> None:
    counts = Counter[str]()
    for seed in range(FIRST[part], FIRST[part] + HISTORIES):
        _, reached, broken = run_history(seed)
        assert not broken, f"seed {seed}: {broken}"
        counts += reached
    assert not list_lacks(counts, HISTORIES)


def test_a_history_is_always_the_same() -> None:
    assert run_history(7) == run_history(7)


class WithoutCompares(Controller):
    """Writes whatever has happened since it observed."""

    def guard(self, transaction: Transaction) -> Transaction:
        return replace(super().guard(transaction), compares=())


class OnlyElected(Controller):
    """Compares that it leads, and nothing of what it has decided by."""

    def guard(self, transaction: Transaction) -> Transaction:
        guarded = super().guard(transaction)
        return replace(guarded, compares=guarded.compares[:1])


class Hasty(Controller):
    """Gives away what a host has as soon as it is not heard."""

    def __init__(
        self, name: str, timing: Timing, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        super().__init__(name, replace(timing, fence_s=0, grace_s=0), clock, wall)


class Unfenced(HostAgent):
    """Its sessions go on while the host is cut off, though they may move."""

    def _find_until_s(self) -> float:
        return float("inf")


class Deaf(HostAgent):
    """Removes leases that are to end while something runs on them."""

    def list_ended(self, snapshot: Snapshot) -> Iterator[Transaction]:
        for entry in snapshot.entries.values():
            if '"is_ending":true' in entry.value:
                yield Transaction((At(entry.key, entry.revision),), (Delete(entry.key),))


class Trusting(HostAgent):
    """Takes the lease of the store for its entry, which someone has removed."""

    def _heartbeat(self) -> Steps[None]:
        sent_s, lease = self._read_clock_s(), self._lease
        if self._is_registered:
            try:
                yield lambda store: store.keep_alive(lease)
            except PoolLeaseError:
                self._lease, self._is_registered = 0, False
            else:
                self._heard_s = sent_s
                return
        yield from super()._heartbeat()


class Idle(HostAgent):
    """Begins nothing."""

    def observe(self, snapshot: Snapshot) -> list[Action]:  # noqa: ARG002
        return []


@pytest.mark.parametrize(
    ("makers", "says"),
    [
        ({"make_controller": WithoutCompares}, "twice|several|without|neither|back"),
        ({"make_controller": OnlyElected}, "twice|several|without|neither|back"),
        ({"make_controller": Hasty}, "without a lease|runs on"),
        ({"make_agent": Unfenced}, "without a lease|runs on"),
        ({"make_agent": Deaf}, "without a lease"),
        ({"make_agent": Trusting}, "without a lease|runs on"),
        ({"make_agent": Idle}, "nothing runs on it"),
    ],
)
def test_what_would_break_it_is_noticed(makers: Mapping[str, Any], says: str) -> None:
    with pytest.raises(BrokenError, match=says):
        run_all(makers)


@pytest.mark.parametrize(
    ("place", "wrong", "says"),
    [
        (preempting, {"is_preemptible": lambda *_: True}, "may not be"),
        (ending, {"count_warning_s": lambda _lease: 0.0}, "s of warning"),
        (Keeping, {"prepare": lambda *_: None}, "stand in the way"),
        (keeping, {"find_end_s": lambda *_: 0.0}, "stand in the way"),
    ],
)
def test_what_times_and_preemption_must_not_do_is_noticed(
    place: Any, wrong: Mapping[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in wrong.items():
        monkeypatch.setattr(place, name, value)
    with pytest.raises(BrokenError, match=says):
        run_all({})


def run_all(makers: Mapping[str, Any]) -> None:
    for seed in range(120):
        World(seed, **makers).run()


def make_agent(clock: FakeClock, store: MemoryStore) -> HostAgent:
    host = HostRecord("h", "machine")
    store.transact(Transaction((), (put(host),)))
    return HostAgent(host, TIMING, clock.monotonic_s)


def test_a_host_refuses_what_is_older_than_it_knows() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    agent, actions = make_agent(clock, store), list[Action]()
    lease = LeaseRecord("claim", "h", (0,), 500)
    store.transact(Transaction((), (put(lease),)))
    old = store.range("p/lease/h/")
    drive(store, agent.step(actions.extend))
    token = store.transact(Transaction((), (put(replace(lease, milli=300)),)))
    drive(store, agent.step(actions.extend))
    sessions = [action.session for action in actions if isinstance(action, Begin)]
    assert [(one.milli, one.until_s) for one in sessions] == [(500, None), (300, None)]
    assert sessions[-1].token == token
    # late: a whole answer, then an older lease in an answer that looks new
    assert agent.observe(old) == []
    assert agent.observe(replace(old, revision=store.revision + 1)) == []
    assert agent.refused == 2
    assert agent.sessions["claim"].milli == 300
    # not heard: nothing new begins, and what runs stays
    clock.sleep(TIMING.fence_s + 1)
    assert agent.observe(store.range("p/lease/h/")) == []
    assert agent.check_time() == []


def test_a_host_begins_nothing_before_what_was_there_has_become_smaller() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    agent, actions = make_agent(clock, store), list[Action]()
    old, new = LeaseRecord("z", "h", (0,), 800), LeaseRecord("a", "h", (0,), 700)
    store.transact(Transaction((), (put(old),)))
    drive(store, agent.step(actions.extend))
    # the pool counts with what is to be free, and the host with what is
    store.transact(Transaction((), (put(replace(old, milli=300)), put(new))))
    for _ in range(2):
        drive(store, agent.step(actions.extend))
    begun = [(one.session.claim, one.session.milli) for one in actions if isinstance(one, Begin)]
    assert begun == [("z", 800), ("z", 300), ("a", 700)]


def test_two_machines_are_not_one_host() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    drive(store, make_agent(clock, store).step(lambda _: None))
    other = HostAgent(HostRecord("h", "another machine"), TIMING, clock.monotonic_s)
    with pytest.raises(PoolMemberError, match="another machine is host h"):
        drive(store, other.step(lambda _: None))
    unknown = HostAgent(HostRecord("x", "machine"), TIMING, clock.monotonic_s)
    with pytest.raises(PoolMemberError, match="not in the pool"):
        drive(store, unknown.step(lambda _: None))


@pytest.mark.parametrize("change", [Delete(alive_key("h")), Put(alive_key("h"), "machine ")])
def test_a_host_whose_entry_is_gone_writes_it_again(change: Delete | Put) -> None:
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    agent = make_agent(clock, store)
    drive(store, agent.step(lambda _: None))
    first = store.entries[alive_key("h")]
    store.transact(Transaction((), (change,)))
    drive(store, agent.step(lambda _: None))
    again = store.entries[alive_key("h")]
    assert (again.value, again.lease) == (first.value, first.lease)
    assert agent.is_heard


def test_a_copy_of_a_machine_is_not_the_same_host() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    host = HostRecord("h", "machine")
    store.transact(Transaction((), (put(host),)))
    first, copy = (HostAgent(host, TIMING, clock.monotonic_s, boot=boot) for boot in ("1", "2"))

    def serve(agent: HostAgent) -> None:
        drive(store, agent.step(lambda _: None))

    for _ in range(3 * TIMING.ttl_s + 1):
        serve(first)
        serve(copy)
        assert not copy.is_heard
        clock.sleep(1)
    serve(first)
    with pytest.raises(PoolMemberError, match="a copy of this machine"):
        serve(copy)
    # within one boot another process goes on at once
    again = HostAgent(host, TIMING, clock.monotonic_s, boot="1")
    drive(store, again.step(lambda _: None))
    assert again.is_heard
    # a boot after it waits until the entry of the one before has ended
    clock.sleep(TIMING.ttl_s)
    later = HostAgent(host, TIMING, clock.monotonic_s, boot="2")
    drive(store, later.step(lambda _: None))
    assert later.is_heard


@pytest.mark.parametrize("state", [HostState.SUSPECT, HostState.FENCED])
def test_a_life_of_the_host_that_no_controller_has_seen_counts(state: HostState) -> None:
    """What began in it may run for the fence time, however long the host was suspect before."""
    clock = FakeClock()
    store = MemoryStore(clock.monotonic_s)
    agent = make_agent(clock, store)
    lease = LeaseRecord("claim", "h", (0,), 500, if_lost=IfLost.MOVE)
    claim = ClaimRecord("claim", "default", host="h", memory_bytes=1)
    store.transact(
        Transaction((), (put(lease), put(claim), put(HostRecord("h", "machine", state))))
    )
    controller = Controller("c", TIMING, clock.monotonic_s)
    view = View(store.range("p/"))
    if state is HostState.SUSPECT:
        list(controller.plan(view))
        clock.sleep(TIMING.away_s - 1)
    drive(store, agent.step(lambda _: None))
    assert [one.until_s for one in agent.sessions.values()] == [clock.now_s + TIMING.fence_s]
    clock.sleep(TIMING.ttl_s)
    # it is gone again: neither is it fenced, nor is its lease given away, until the whole time has passed
    while clock.now_s < agent.sessions["claim"].until_s:  # type: ignore[operator]
        drive(store, controller.step())
        assert lease.key in store.entries
        clock.sleep(1)
    for _ in range(20):
        drive(store, controller.step())
        clock.sleep(1)
    assert lease.key not in store.entries
