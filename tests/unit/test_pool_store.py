"""What a pool expects of its store, on each engine: SQLite, a real etcd, and the model in memory that both are compared
with.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.etcd import Etcd
from tests.support.memory_store import MemoryStore
from vgpumgr.errors import PoolHistoryError, PoolLeaseError
from vgpumgr.host.clock import SleeplessClock, SystemClock
from vgpumgr.pool.store.election import Election
from vgpumgr.pool.store.interface import (
    MOST_BYTES,
    MOST_CHANGES,
    At,
    Change,
    Compare,
    Delete,
    Event,
    Holds,
    Put,
    Store,
    Transaction,
    Watch,
)
from vgpumgr.pool.store.sqlite import SqliteStore
from vgpumgr.pool.store.steps import drive

Open = Callable[[], Store]
ENGINES = ("memory", "sqlite", "etcd")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")).running() as running:
        yield running


@pytest.fixture(params=ENGINES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store each time, which is empty at first."""
    with contextlib.ExitStack() as stack:

        def keep(store: Store) -> Store:
            stack.callback(store.close)
            return store

        if request.param == "memory":
            memory = MemoryStore(SystemClock().monotonic_s)
            yield lambda: memory
        elif request.param == "sqlite":
            yield lambda: keep(SqliteStore(tmp_path / "pool.sqlite", SleeplessClock(), "boot"))
        else:
            running: Etcd = request.getfixturevalue("etcd")
            clear(running)
            yield lambda: keep(running.open())


def clear(etcd: Etcd) -> None:
    store = etcd.open()
    keys = list(store.range("k").entries)
    while keys:
        store.transact(Transaction((), tuple(Delete(key) for key in keys[:100])))
        keys = keys[100:]
    store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()


def write(store: Store, *changes: Change, compares: tuple[Compare, ...] = ()) -> int | None:
    return store.transact(Transaction(compares, changes))


def done(revision: int | None) -> int:
    assert revision is not None
    return revision


def test_an_entry_has_the_revisions_of_its_writes(store: Store) -> None:
    assert store.get("k") is None
    first = done(write(store, Put("k", "ä\n")))
    second = done(write(store, Put("k", "2"), Put("k2", "")))
    assert second == first + 1
    found = store.get("k")
    assert found is not None
    assert (found.value, found.created, found.revision, found.lease) == ("2", first, second, 0)
    write(store, Delete("k"))
    third = done(write(store, Put("k", "3")))
    found = store.get("k")
    assert found is not None
    assert (found.created, found.revision) == (third, third)


def test_a_range_has_the_entries_of_its_prefix_at_one_revision(store: Store) -> None:
    write(store, *(Put(key, key) for key in ("ka/1", "ka/2", "ka0", "kb", "k")))
    found = store.range("ka/")
    assert list(found.entries) == ["ka/1", "ka/2"]
    last = store.get("kb")
    assert last is not None
    assert found.revision == last.revision
    assert store.range("kz").entries == {}


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (At("k", 0), False),
        (At("k-none", 0), True),
        (At("k-none", 5), False),
        (Holds("k", "1"), True),
        (Holds("k", "2"), False),
        (Holds("k-none", ""), False),
    ],
)
def test_changes_are_made_where_every_comparison_holds(
    store: Store, compare: Compare, holds: bool
) -> None:
    first = done(write(store, Put("k", "1")))
    found = write(store, Put("k", "3"), Put("k-new", "3"), compares=(At("k", first), compare))
    assert (found is not None) is holds
    assert (store.get("k-new") is not None) is holds
    assert store.range("k").revision == first + holds


def test_what_changes_nothing_has_no_revision(store: Store) -> None:
    first = done(write(store, Put("k", "1")))
    assert write(store, Delete("k-none")) == first
    assert write(store) == first


def test_a_lease_ends_its_entries_when_it_is_revoked(store: Store) -> None:
    lease, other = store.grant_lease(60), store.grant_lease(60)
    write(
        store, Put("k1", "1", lease), Put("k2", "2", lease), Put("k3", "3", other), Put("k4", "4")
    )
    write(store, Put("k2", "2"))
    before = store.range("k").revision
    store.keep_alive(lease)
    store.revoke_lease(lease)
    found = store.range("k")
    assert list(found.entries) == ["k2", "k3", "k4"]
    assert found.revision == before + 1
    store.revoke_lease(lease)
    with pytest.raises(PoolLeaseError):
        store.keep_alive(lease)
    with pytest.raises(PoolLeaseError):
        write(store, Put("k5", "5"), Put("k1", "1", lease))
    assert store.range("k") == found


def test_keeping_a_lease_alive_writes_nothing(store: Store) -> None:
    lease = store.grant_lease(60)
    before = done(write(store, Put("k1", "1", lease)))
    for _ in range(5):
        store.keep_alive(lease)
    assert store.range("k").revision == before


def test_a_watch_has_each_event_once_and_in_order(open_store: Open) -> None:
    store, other = open_store(), open_store()
    first = done(write(store, Put("k/a", "1")))
    watch = other.watch("k/", first)
    lease = store.grant_lease(60)
    second = done(write(store, Put("k/b", "2", lease), Put("kx", "no")))
    third = done(write(store, Delete("k/a")))
    store.revoke_lease(lease)
    wanted = [
        Event("k/a", "1", first),
        Event("k/b", "2", second),
        Event("k/a", None, third),
        Event("k/b", None, third + 1),
    ]
    found: list[Event] = []
    while len(found) < len(wanted):
        events = watch.read(10)
        assert events, found
        found += events
    assert found == wanted
    assert watch.read(0.05) == []
    watch.close()


def test_a_watch_wakes_up(open_store: Open) -> None:
    store = open_store()
    watch = open_store().watch("k/", store.range("k").revision + 1)
    timer = threading.Timer(0.1, lambda: write(open_store(), Put("k/a", "1")))
    timer.start()
    if isinstance(store, MemoryStore):
        timer.join()  # it never waits
    assert [event.key for event in watch.read(20)] == ["k/a"]
    timer.join()
    watch.close()


def test_the_election_has_one_leader(open_store: Open) -> None:
    one, two = Election("k-leader", "one", 60), Election("k-leader", "two", 60)
    first, second, store = open_store(), open_store(), open_store()
    assert drive(first, one.campaign())
    assert not drive(second, two.campaign())
    assert not two.await_turn(second, 0.05)
    assert drive(first, one.campaign())
    guard = one.guard
    assert guard is not None
    assert two.guard is None
    leader = store.get("k-leader")
    assert leader is not None
    assert leader.value == "one"
    assert write(store, Put("k", "1"), compares=(guard,))
    drive(first, one.resign())
    assert one.guard is None
    assert two.await_turn(second, 10)
    # the guard of one that has led
    assert write(store, Put("k", "2"), compares=(guard,)) is None
    drive(second, two.resign())


def test_a_leader_whose_lease_has_ended_has_to_be_elected_again(open_store: Open) -> None:
    one, store = Election("k-leader", "one", 60), open_store()
    assert drive(store, one.campaign())
    before, leader = one.guard, store.get("k-leader")
    assert leader is not None
    store.revoke_lease(leader.lease)
    assert drive(store, one.campaign())
    assert one.guard != before


def test_values_of_the_largest_size(store: Store) -> None:
    value = "x" * MOST_BYTES
    write(store, Put("k", value))
    found = store.get("k")
    assert found is not None
    assert found.value == value
    write(store, *(Put(f"k{number}", "") for number in range(MOST_CHANGES)))
    assert len(store.range("k").entries) == MOST_CHANGES + 1


@pytest.mark.parametrize(
    "changes",
    [
        [Put("k", "1"), Delete("k")],
        [Put(f"k{number}", "") for number in range(MOST_CHANGES + 1)],
        [Put("k", "x" * (MOST_BYTES + 1))],
        [Put("", "1")],
        [Put("k\n", "1")],
        [Put("kä", "1")],
    ],
)
def test_what_no_engine_takes_is_refused_before(changes: list[Change]) -> None:
    with pytest.raises(ValueError):
        Transaction((), tuple(changes))


KEYS = st.sampled_from(["k/a", "k/b", "k/c", "kd"])
#: of the last writes, some before, and none
REVISIONS = st.integers(0, 6)
VALUES = st.sampled_from(["", "1", "2"])
COMPARES = st.one_of(
    st.builds(lambda key, back: ("at", key, back), KEYS, REVISIONS),
    st.builds(Holds, KEYS, VALUES),
)
CHANGES = st.one_of(st.builds(Put, KEYS, VALUES), st.builds(Delete, KEYS))
STEPS = st.lists(
    st.tuples(
        st.lists(COMPARES, max_size=2),
        st.lists(CHANGES, max_size=3, unique_by=lambda change: change.key),
    ),
    min_size=1,
    max_size=12,
)


@given(steps=STEPS)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_histories_are_those_of_a_dictionary(open_store: Open, steps: list) -> None:
    store = open_store()
    if isinstance(store, MemoryStore):
        store = MemoryStore(lambda: 0.0)
    write(store, *(Delete(key) for key in store.range("k").entries))
    base = store.range("k").revision
    model: dict[str, tuple[str, int, int]] = {}
    revision, events = base, list[Event]()
    for raw_compares, changes in steps:
        compares = tuple(make_compare(one, model, base) for one in raw_compares)
        found = write(store, *changes, compares=compares)
        if not all(holds(one, model) for one in compares):
            assert found is None
            continue
        new = list[Event]()
        for change in changes:
            if isinstance(change, Put):
                created = model[change.key][1] if change.key in model else revision + 1
                model[change.key] = (change.value, created, revision + 1)
                new.append(Event(change.key, change.value, revision + 1))
            elif model.pop(change.key, None):
                new.append(Event(change.key, None, revision + 1))
        revision += bool(new)
        events += new
        assert found == revision
    snapshot = store.range("k")
    assert snapshot.revision == revision
    assert {key: (e.value, e.created, e.revision) for key, e in snapshot.entries.items()} == model
    watch = store.watch("k", base + 1)
    seen: list[Event] = []
    while len(seen) < len(events):
        more = watch.read(10)
        assert more
        seen += more
    watch.close()
    assert sorted(seen, key=rank) == sorted(events, key=rank)


def rank(event: Event) -> tuple[int, str]:
    return event.revision, event.key


def make_compare(
    raw: Holds | tuple[str, str, int], model: dict[str, tuple[str, int, int]], base: int
) -> Compare:
    """A comparison with the revision that an entry has, or with another one."""
    if isinstance(raw, Holds):
        return raw
    _, key, back = raw
    current = model[key][2] if key in model else 0
    return At(key, current if back > 2 else max(0, base + back) if back else 0)


def holds(compare: Compare, model: dict[str, tuple[str, int, int]]) -> bool:
    entry = model.get(compare.key)
    if isinstance(compare, At):
        return compare.revision == (entry[2] if entry else 0)
    return entry is not None and entry[0] == compare.value


def read_often(watch: Watch) -> None:
    for _ in range(100):
        watch.read(0.1)


def test_events_that_are_forgotten_are_an_error(open_store: Open) -> None:
    store = open_store()
    first = done(write(store, Put("k", "0")))
    if isinstance(store, MemoryStore):
        store.forget()
    elif isinstance(store, SqliteStore):
        for number in range(80):
            write(store, *(Put(f"k{one}", str(number)) for one in range(MOST_CHANGES)))
        for number in range(256):
            write(store, Put("k", str(number)))
    else:
        write(store, Put("k", "1"))
        last = store.range("k").revision
        store._gateway.request("/v3/kv/compaction", {"revision": str(last)}, changes=True)  # type: ignore[attr-defined]
    watch = store.watch("k", first)
    with pytest.raises(PoolHistoryError):
        read_often(watch)
    watch.close()
    # from what is read now on, nothing is missing
    watch = store.watch("k", store.range("k").revision + 1)
    write(store, Put("k", "new"))
    assert [event.value for event in watch.read(10)] == ["new"]
    watch.close()
