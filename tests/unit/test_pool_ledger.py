"""What leases had, counted by clocks that jump, processes that die, and counters that begin anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_store import MemoryStore
from vgpumgr.errors import PoolStoreError
from vgpumgr.host.machine import Machine
from vgpumgr.pool import ledger as ledgers
from vgpumgr.pool.control.records import HostRecord, put
from vgpumgr.pool.ledger import Day, Held, Ledger, Moment, classify_wait, estimate_wait, find_wait
from vgpumgr.pool.recorder import LEDGER, LEDGER_NAME, Recorder, ledger_key
from vgpumgr.pool.store.interface import MOST_BYTES, Put, Transaction

HOUR = 3600.0
DAY = 24 * HOUR
#: noon of a day, so that a scene has no midnight unless it wants one
NOON = 20_000 * DAY + 12 * HOUR
SHARE = Held("vision", 1, 300)


class Time:
    """The clock of the boot, and that on the wall, which somebody sets."""

    def __init__(self) -> None:
        self.boot = "boot-1"
        self.boot_s = 1000.0
        self.wall_s = NOON

    def pass_s(self, seconds: float) -> Time:
        self.boot_s += seconds
        self.wall_s += seconds
        return self

    @property
    def now(self) -> Moment:
        return Moment(self.boot, self.boot_s, self.wall_s)


def add_up(ledger: Ledger, claim: str = "train") -> tuple[float, float, float, float]:
    """Granted, allocated, known and used seconds of a claim, of all hours."""
    found = [
        one
        for day in ledger.days.values()
        for (name, _), hours in day.amounts.items()
        if name == claim
        for one in hours.values()
    ]
    return (
        sum(one.granted_s for one in found), sum(one.allocated_s for one in found),
        sum(one.known_s for one in found), sum(one.used_s for one in found),
    )  # fmt: skip


def add_gpus(ledger: Ledger) -> float:
    return sum(sum(day.gpus_s.values()) for day in ledger.days.values())


def test_a_lease_counts_from_its_grant_to_its_end() -> None:
    time, ledger = Time(), Ledger("p", "a")
    ledger.follow({}, 8, time.now)
    ledger.follow({"train": SHARE}, 8, time.pass_s(60).now)
    # two GPUs from then on: what was before counts with the size of before
    ledger.follow({"train": Held("vision", 2, 500)}, 8, time.pass_s(100).now)
    ledger.follow({}, 8, time.pass_s(50).now)
    ledger.follow({}, 8, time.pass_s(1000).now)
    assert add_up(ledger)[:2] == (100 + 2 * 50, 30 + 50)
    assert add_gpus(ledger) == 8 * 1210


def test_hours_and_days_get_their_parts() -> None:
    time, ledger = Time(), Ledger("p", "a")
    time.wall_s = NOON + 11 * HOUR + 1800
    ledger.follow({"train": SHARE}, 1, time.now)
    ledger.follow({"train": SHARE}, 1, time.pass_s(2 * HOUR).now)
    parts = {
        (day, hour): one.granted_s
        for day, found in ledger.days.items()
        for hour, one in found.amounts["train", "vision"].items()
    }
    assert parts == {(20_000, 23): 1800, (20_001, 0): 3600, (20_001, 1): 1800}


@pytest.mark.parametrize("jump_s", [365 * DAY, -365 * DAY, 40.0, -NOON])
def test_a_clock_that_is_set_changes_no_sum_and_forgets_nothing(jump_s: float) -> None:
    time, ledger = Time(), Ledger("p", "a")
    ledger.follow({"train": SHARE}, 8, time.now)
    for _ in range(10):
        ledger.follow({"train": SHARE}, 8, time.pass_s(10).now)
    time.wall_s += jump_s
    for _ in range(10):
        ledger.follow({"train": SHARE}, 8, time.pass_s(10).now)
    time.wall_s -= jump_s
    ledger.follow({"train": SHARE}, 8, time.pass_s(10).now)
    granted_s, allocated_s, _, _ = add_up(ledger)
    # before 1970 there is no hour: there only, some are lost
    lost_s = 100 if jump_s == -NOON else 0
    assert granted_s == pytest.approx(210, abs=lost_s)
    assert allocated_s == pytest.approx(63, abs=lost_s)
    assert 20_000 in ledger.days


def test_what_another_process_counts_begins_where_this_one_was_killed() -> None:
    time, ledger = Time(), Ledger("p", "a")
    ledger.follow({"train": SHARE, "other": SHARE}, 8, time.now)
    ledger.use("train", {"at": 0.0})
    kept = json.loads(json.dumps(ledger.encode()))
    ledger.follow({"train": SHARE, "other": SHARE}, 8, time.pass_s(30).now)  # and killed
    again = Ledger.decode(kept, "p", "a")
    again.follow({"train": SHARE}, 8, time.pass_s(90).now)
    again.use("train", {"at": 12.0})
    assert add_up(again) == (120, 36, 36, 12)
    # of another pool, or of no form that is known, it is nothing
    for broken in ({**kept, "pool": "q"}, {**kept, "form": 9}, {**kept, "days": 3}, {}, [], None):
        other = Ledger.decode(broken, "p", "a")
        assert (other.days, other.pool) == ({}, "p")
    # a host that was off had no GPU; what its leases used just before is not known
    again.follow({"train": SHARE}, 8, time.pass_s(10).now)
    time.boot, time.boot_s = "boot-2", 5.0
    time.wall_s += 5 * HOUR
    before, known = (add_up(again)[0], add_gpus(again)), add_up(again)[2:]
    again.follow({"train": SHARE}, 8, time.now)
    again.use("train", {"at": 2.0})
    assert add_up(again)[2:] == known
    assert (add_up(again)[0], add_gpus(again)) == before
    again.follow({"train": SHARE}, 8, time.pass_s(10).now)
    assert (add_up(again)[0], add_gpus(again)) == (before[0] + 10, before[1] + 80)


def play(*counters: Mapping[str, float | None]) -> tuple[float, float]:
    """Ten seconds between two readings: known and used seconds."""
    time, ledger = Time(), Ledger("p", "a")
    ledger.follow({"train": Held("", 1, 1000)}, 1, time.now)
    for one in counters:
        ledger.follow({"train": Held("", 1, 1000)}, 1, time.pass_s(10).now)
        ledger.use("train", one)
    return add_up(ledger)[2:]


def test_used_is_what_counters_grew_by_and_nothing_is_invented() -> None:
    assert play({}, {}) == (20, 0)  # nothing has it
    assert play({}, {"a": 4.0}, {"a": 9.0}) == (30, 9)
    # a keeper that begins anew counts from 0
    assert play({"a": 4.0}, {"a": 9.0}, {"a": 2.0}) == (30, 11)
    # a counter that does not answer, and the time until it does again
    assert play({"a": 4.0}, {"a": None}, {"a": 15.0}, {"a": 16.0}) == (20, 5)
    # one that was there long before anything was counted
    assert play({"a": 5000.0}, {"a": 5003.0}) == (10, 3)
    # what an attachment had at its end is not known
    assert play({"a": 4.0}, {}, {}) == (20, 4)
    assert play({"a": 4.0}, {"b": 1.0}, {"b": 3.0}) == (20, 6)
    # a GPU each
    assert play({"a": 4.0, "b": 10.0}, {"a": 5.0, "b": 20.0}) == (20, 25)


def test_a_day_is_bounded_whatever_is_claimed() -> None:
    time, ledger = Time(), Ledger("p", "a")
    time.wall_s = 20_000 * DAY
    for number in range(200):  # names as long as they may be
        name = f"{number:04}".ljust(63, "x")
        tenant = f"{number % 70:02}".ljust(63, "y")
        for hour in range(24):
            amount = ledger._open(20_000).find(name, tenant, hour)
            amount.granted_s = amount.allocated_s = amount.known_s = amount.used_s = 99_999.9
        for at in range(131):
            wait_s = estimate_wait(at)
            assert classify_wait(wait_s) == at
            ledger._open(20_000).add_wait(name, tenant, at, 99_999)
    day = ledger.days[20_000]
    text = json.dumps({"form": 1, "pool": "x" * 36} | day.encode(), separators=(",", ":"))
    assert len(text) < MOST_BYTES
    others = [key for key in day.amounts if key[0] == ledgers.OTHERS]
    assert len(day.amounts) == ledgers.MAX_CLAIMS + len(others)
    assert ("", "") in others  # further tenants
    # nothing is lost, and what is read again is the same
    assert sum(one.granted_s for hours in day.amounts.values() for one in hours.values()) > 0
    assert Day.decode(json.loads(text)).encode() == day.encode()


def test_claims_beyond_the_bound_are_counted_together() -> None:
    time, ledger = Time(), Ledger("p", "a")
    leases = {f"c{number}": Held("t", 1, 10) for number in range(500)}
    ledger.follow(leases, 8, time.now)
    ledger.follow(leases, 8, time.pass_s(60).now)
    (day,) = ledger.days.values()
    assert len(day.amounts) == ledgers.MAX_CLAIMS + 1
    total_s = sum(one.granted_s for hours in day.amounts.values() for one in hours.values())
    assert total_s == pytest.approx(500 * 60)
    assert day.amounts["", "t"]


def test_waits_are_right_to_eight_percent() -> None:
    for wait_s in (0.2, 1.0, 7.5, 60.0, 3600.0, 1e6, 7e6):
        assert estimate_wait(classify_wait(wait_s)) == pytest.approx(wait_s, rel=0.08)
    assert estimate_wait(classify_wait(0.05)) == 0.0
    assert classify_wait(1e300) == classify_wait(1e9)
    counts = dict.fromkeys((classify_wait(float(wait)) for wait in range(1, 101)), 0)
    for wait in range(1, 101):
        counts[classify_wait(float(wait))] += 1
    assert find_wait(counts, 0.5) == pytest.approx(50, rel=0.16)
    assert find_wait(counts, 0.95) == pytest.approx(95, rel=0.16)
    assert find_wait({}, 0.5) is None


class Scene:
    """A host whose recorder is called by hand; ``store`` may fail."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.machine = Machine("fakes", directory, directory / "state", directory / "run", "none")
        self.clock = FakeClock()
        self.clock.set_s = NOON
        self.store = MemoryStore(self.clock.monotonic_s)
        self.fails_after = -1
        self.uses: Mapping[str, Mapping[str, float | None]] = {}
        self.recorder = self.open()

    def open(self, host: str = "a") -> Recorder:
        return Recorder(self.machine, "p", host, self.clock, self.open_store, lambda _: self.uses)

    def open_store(self) -> Any:
        scene, store = self, self.store

        class Failing:
            def __getattr__(self, name: str) -> Any:
                if name == "close":
                    return lambda: None
                if scene.fails_after == 0:
                    raise PoolStoreError("the pool's store does not answer")
                scene.fails_after -= 1
                return getattr(store, name)

        return Failing()

    def count(self, seconds: float) -> None:
        self.recorder.follow({"train": SHARE}, 8)
        self.clock.sleep(seconds)
        self.recorder.follow({"train": SHARE}, 8)

    def read(self, day: int, host: str = "a") -> float:
        """Seconds that the store says the claim had."""
        entry = self.store.entries[ledger_key(day, host)]
        found = Day.decode(json.loads(entry.value)).amounts["train", "vision"]
        return sum(one.granted_s for one in found.values())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_store_gets_absolute_figures_however_often(scene: Scene) -> None:
    for _ in range(3):
        scene.count(100)
        assert scene.recorder.publish()
        assert scene.recorder.publish()
    assert scene.read(20_000) == 300
    # another process of the host goes on with them
    scene.recorder = scene.open()
    scene.count(100)
    scene.recorder.publish()
    assert scene.read(20_000) == 400


def test_a_lost_file_loses_and_doubles_nothing_that_the_store_has(scene: Scene) -> None:
    scene.count(100)
    scene.recorder.publish()
    (scene.machine.state_dir / LEDGER_NAME).unlink()
    scene.recorder = scene.open()
    scene.count(50)
    # killed after it has read the store's, before it has written its own
    scene.fails_after = 1
    assert not scene.recorder.publish()
    scene.fails_after = -1
    scene.recorder = scene.open()
    assert scene.recorder.publish()
    assert scene.read(20_000) == 150


def test_a_store_that_does_not_answer_gets_all_days_later(scene: Scene) -> None:
    for _ in range(3):
        scene.count(100)
        scene.fails_after = 0
        assert not scene.recorder.publish()
        scene.clock.set_s += DAY
    scene.fails_after = -1
    scene.recorder.publish()
    assert [scene.read(20_000 + day) for day in range(3)] == [100, 100, 100]
    assert scene.recorder.ledger.days.keys() <= {20_003}


def test_days_beyond_the_bound_go_in_the_order_of_their_making(scene: Scene) -> None:
    for _ in range(ledgers.DAYS):
        scene.count(10)
        scene.recorder.publish()
        scene.clock.set_s += DAY
    # a clock that jumps by ten years takes one place, and not all others
    scene.clock.set_s += 3650 * DAY
    scene.count(10)
    scene.recorder.publish()
    days = sorted(int(key.split("/")[1]) for key in scene.store.entries)
    assert len(days) == ledgers.DAYS
    assert (days[0], days[-2]) == (20_001, 20_000 + ledgers.DAYS - 1)


def test_the_leader_removes_days_of_hosts_that_are_gone(scene: Scene) -> None:
    changes = [put(HostRecord(name, name)) for name in ("a", "b")]
    days = [Put(ledger_key(20_000, name), "{}") for name in ("b", "gone")]
    scene.store.transact(Transaction((), (*changes, *days)))
    for _ in range(ledgers.DAYS + 1):
        scene.recorder.leads = True
        scene.count(1)
        scene.recorder.publish()
        scene.clock.set_s += DAY
    left = [key for key in scene.store.entries if key.startswith(f"{LEDGER}020000/")]
    assert left == [ledger_key(20_000, "b")]


def test_what_cannot_be_read_is_unknown(scene: Scene) -> None:
    def fail(_machine: Machine) -> Any:
        raise PoolStoreError("the state cannot be read")

    scene.uses = {"train": {"at": 0.0}}
    scene.count(10)
    scene.recorder.count_uses()
    scene.recorder._read = fail
    scene.count(10)
    scene.recorder.count_uses()
    scene.recorder._read = lambda _: {"train": {"at": 3.0}}
    scene.count(10)
    scene.recorder.count_uses()
    scene.recorder._read = lambda _: {"train": {"at": 5.0}}
    scene.count(10)
    scene.recorder.count_uses()
    granted_s, _, known_s, used_s = add_up(scene.recorder.ledger)
    assert (granted_s, known_s, used_s) == (40, 6, 2)


def test_the_thread_counts_and_keeps(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    recorder = Recorder(
        scene.machine, "p", "a", scene.clock, scene.open_store, lambda _: {"train": {"at": 1.0}},
        use_s=0.01,
    )  # fmt: skip
    recorder.follow({"train": SHARE}, 8)
    scene.clock.sleep(100)
    recorder.follow({"train": SHARE}, 8)
    recorder.start()
    recorder.close()
    kept = json.loads((scene.machine.state_dir / LEDGER_NAME).read_text())
    assert add_up(Ledger.decode(kept, "p", "a")) == (100, 30, 30, 1)
    # it has served for less than a minute: the store is left alone
    assert scene.store.entries == {}
