"""Reservations in time, and leases that end: who gets a GPU when, and what clocks that jump do not end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.memory_store import MemoryStore
from tests.unit.test_pool_claims import claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_tenants import list_granted, make_store, share, write
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.keeping import choose_places
from vgpumgr.pool.control.records import (
    ROOT,
    ClaimRecord,
    GpuRecord,
    LeaseRecord,
    TenantRecord,
    Timing,
    View,
    WantRecord,
    put,
)
from vgpumgr.pool.control.times import (
    WARN_S,
    WEEK_S,
    ReservationRecord,
    count_warning_s,
    do_meet,
    format_moment,
)
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.moments import read_moment
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.interface import At, Delete, Transaction
from vgpumgr.pool.store.steps import drive

HOUR_S = 3600.0
NOW_S = 1_800_000_000.0
WHOLE = (None, None)


class Clocks:
    """A controller whose clocks the test sets: one only grows, and that of the day may jump."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.now_s = 0.0
        self.wall_s = NOW_S
        self.controller = self.make()

    def make(self) -> Controller:
        return Controller("c", Timing(), lambda: self.now_s, lambda: self.wall_s)

    def go_on(self, duration_s: float = 0.0) -> View:
        """Both clocks go on; then two rounds of a controller, and of hosts, which end what is to end."""
        self.now_s += duration_s
        self.wall_s += duration_s
        for _ in range(3):
            drive(self.store, self.controller.step())
            view = View(self.store.range(ROOT))
            for lease in view.leases.values():
                if lease.is_ending and not view.uses:
                    self.store.transact(Transaction((), (Delete(lease.key),)))
        return View(self.store.range(ROOT))


def make_clocks(gpus: int = 1, **more: Any) -> Clocks:
    store = make_store(gpus=gpus, **more)
    write(store, put(TenantRecord("t")), put(TenantRecord("u")))
    return Clocks(store)


def reserve(clocks: Clocks, begin_s: float, end_s: float, **more: Any) -> ReservationRecord:
    asked = ReservationRecord("r", NOW_S + begin_s, NOW_S + end_s, tenant="t", **more)
    places, _ = choose_places(View(clocks.store.range(ROOT)), asked, clocks.wall_s)
    made = replace(asked, places=places)
    write(clocks.store, put(made))
    return made


def whole(name: str, tenant: str = "", **more: Any) -> ClaimRecord:
    return ClaimRecord(name, "default", tenant=tenant, **more)


def test_before_and_in_its_time_a_reservation_keeps_its_gpus() -> None:
    clocks = make_clocks()
    assert reserve(clocks, HOUR_S, 2 * HOUR_S).places == ("h0/0",)
    write(clocks.store, put(whole("endless", "u")))
    write(clocks.store, put(whole("long", "u", for_s=HOUR_S + 1)))
    view = clocks.go_on()
    assert list_granted(view) == []
    assert (
        "GPU 0 of host h0 is reserved for tenant t from 2027-01-15 09:00" in view.claims["long"].why
    )
    # one that ends before is not in its way
    write(clocks.store, put(whole("short", "u", for_s=HOUR_S / 2)))
    assert list_granted(clocks.go_on()) == ["short"]
    # in its time the tenant has it, and after it anything
    write(clocks.store, Delete("p/claim/short"), Delete("p/lease/h0/short"))
    clocks.go_on(HOUR_S + 1)
    write(clocks.store, put(whole("late", "u", for_s=1)), put(whole("own", "t", for_s=HOUR_S / 2)))
    assert list_granted(clocks.go_on()) == ["own"]
    write(clocks.store, Delete("p/claim/own"), Delete("p/lease/h0/own"), Delete("p/end/h0/own"))
    assert list_granted(clocks.go_on(HOUR_S)) == ["endless"]


def test_a_part_of_a_gpu_is_reserved_and_the_rest_is_not() -> None:
    clocks = make_clocks()
    reserve(clocks, -1, HOUR_S, memory_bytes=1, compute_percent=60.0)
    write(clocks.store, *(put(share(f"u{n}", "u", 30)) for n in range(2)))
    write(clocks.store, *(put(share(f"t{n}", "t", 30)) for n in range(2)))
    # of the tenant's own claims both are within it
    assert list_granted(clocks.go_on()) == ["t0", "t1", "u0"]


def test_what_is_leased_without_an_end_is_not_reserved() -> None:
    clocks = make_clocks(gpus=3)
    write(clocks.store, put(whole("endless", "u")), put(whole("soon", "u", for_s=60.0)))
    view = clocks.go_on()
    asked = ReservationRecord("r", NOW_S + HOUR_S, NOW_S + 2 * HOUR_S, tenant="t", gpus=3)
    places, held_by = choose_places(view, asked, clocks.wall_s)
    assert len(places) == 2
    assert held_by == ["claim endless"]
    # its own claims do not stand in its way; another reservation of the same time does
    own = replace(asked, tenant="u")
    assert len(choose_places(view, own, clocks.wall_s)[0]) == 3
    write(clocks.store, put(replace(asked, name="other", places=places)))
    view = View(clocks.store.range(ROOT))
    assert choose_places(view, asked, clocks.wall_s)[0] == ()
    later = replace(asked, begin_s=asked.end_s, end_s=asked.end_s + 1)
    assert len(choose_places(view, later, clocks.wall_s)[0]) == 2


def test_each_week_at_the_same_time_of_day() -> None:
    """Daylight saving time ends on the last Sunday of October in Berlin."""
    begin_s = read_moment("2026-10-19T08:00", "--from", "Europe/Berlin")
    one = ReservationRecord("r", begin_s, begin_s + 4 * HOUR_S, "Europe/Berlin", weekly=True)
    spans = one.list_spans(begin_s - 1)
    shown = [format_moment(next(spans).begin_s, "Europe/Berlin") for _ in range(3)]
    assert shown == ["2026-10-19 08:00", "2026-10-26 08:00", "2026-11-02 08:00"]
    second = one.find_next(begin_s + WEEK_S)
    assert second is not None
    assert second.begin_s == begin_s + WEEK_S + HOUR_S
    # in its time it is that time, and after years still the next one
    assert one.find_next(begin_s + HOUR_S) == (begin_s, begin_s + 4 * HOUR_S)
    later = one.find_next(begin_s + 500 * WEEK_S)
    assert later is not None
    assert later.end_s > begin_s + 500 * WEEK_S >= later.begin_s - WEEK_S
    tuesday = replace(one, begin_s=begin_s + 24 * HOUR_S, end_s=begin_s + 28 * HOUR_S)
    assert not do_meet(one, tuesday, begin_s)
    far = replace(one, begin_s=begin_s + 50 * WEEK_S, end_s=begin_s + 50 * WEEK_S + 1, weekly=False)
    assert do_meet(one, far, begin_s)


def test_a_lease_with_an_end_is_announced_and_then_ends() -> None:
    clocks = make_clocks()
    write(clocks.store, put(whole("c", "u", until_s=NOW_S + HOUR_S)))
    write(clocks.store, put(whole("next", "t")))
    clocks.go_on()
    assert clocks.go_on(HOUR_S - WARN_S - 1).ends == {}
    view = clocks.go_on(2)
    assert view.ends["h0/c"].why == "its time ends at " + format_moment(NOW_S + HOUR_S)
    assert list_granted(clocks.go_on(WARN_S - 2)) == ["c"]
    view = clocks.go_on(2)
    assert (list_granted(view), "c" in view.claims, view.ends) == (["next"], False, {})


def test_a_lease_of_a_claim_that_binds_late_ends_and_the_claim_is_idle() -> None:
    clocks = make_clocks()
    write(clocks.store, put(whole("c", "u", late=True, for_s=HOUR_S)), put(WantRecord("c", "h0")))
    lease = clocks.go_on().leases["h0/c"]
    assert (lease.granted_s, lease.until_s) == (NOW_S, NOW_S + HOUR_S)
    clocks.go_on(HOUR_S - WARN_S + 1)
    view = clocks.go_on(WARN_S)
    assert (list_granted(view), view.wants) == ([], {})
    assert view.find_state(view.claims["c"]) == "idle"
    # the next one has its whole time again
    write(clocks.store, put(WantRecord("c", "h0")))
    assert clocks.go_on().leases["h0/c"].until_s == clocks.wall_s + HOUR_S


@pytest.mark.parametrize("is_other", [False, True])
def test_a_clock_that_jumps_ends_nothing_without_the_warning(is_other: bool) -> None:
    clocks = make_clocks()
    write(clocks.store, put(whole("c", "u", until_s=NOW_S + 10 * HOUR_S)))
    clocks.go_on()
    clocks.wall_s += 20 * HOUR_S
    assert set(clocks.go_on().ends) == {"h0/c"}
    assert list_granted(clocks.go_on(WARN_S - 1)) == ["c"]
    if is_other:  # it begins to wait anew
        drive(clocks.store, clocks.controller.resign())
        clocks.controller = clocks.make()
        assert list_granted(clocks.go_on(WARN_S / 2)) == ["c"]
    # it is set right again: the announcement is taken back, and a later one waits anew
    clocks.wall_s -= 20 * HOUR_S
    assert clocks.go_on(2).ends == {}
    clocks.wall_s += 20 * HOUR_S
    clocks.go_on()
    assert list_granted(clocks.go_on(WARN_S - 1)) == ["c"]
    assert list_granted(clocks.go_on(2)) == []


def test_a_short_lease_is_announced_at_half_of_its_time() -> None:
    lease = LeaseRecord("c", "h", (0,), 1000, granted_s=NOW_S, until_s=NOW_S + 60)
    assert count_warning_s(lease) == 30
    assert count_warning_s(replace(lease, until_s=NOW_S + 7 * HOUR_S)) == WARN_S


def test_a_reservation_gets_other_gpus_where_its_own_are_not_there() -> None:
    clocks = make_clocks(hosts=2, gpus=1)
    first = reserve(clocks, HOUR_S, 2 * HOUR_S).places
    gpu = View(clocks.store.range(ROOT)).gpus[first[0][:2] + "/0000"]
    write(clocks.store, put(replace(gpu, closed="drained")), put(whole("c", "u")))
    view = clocks.go_on()
    moved = view.reservations["r"]
    assert (set(moved.places) & set(first), moved.why, list_granted(view)) == (set(), "", [])
    # without another one it says so, and keeps the place for its return
    other = view.gpus[moved.places[0][:2] + "/0000"]
    write(clocks.store, put(replace(other, closed="drained")))
    kept = clocks.go_on().reservations["r"]
    assert (kept.places, kept.why) == (moved.places, "1 of its 1 GPUs are not there now")
    write(clocks.store, put(replace(other, closed="")))
    assert clocks.go_on().reservations["r"].why == ""


def test_a_grant_that_is_under_way_finds_the_gpu_reserved(cli: Cli) -> None:
    """The reservation moves the revision of its GPUs, which each grant compares."""
    make_pool(cli)
    ok(cli.run("tenant", "create", "t", "-o", "json"))
    with serving(), open_pool(None) as pool:
        claim(cli, "small", "share:1GiB,1%")
        before = pool.view()
        row = PoolOperations(pool).reservations.create(
            "r", "2099-01-01T08:00", "2099-01-01T12:00", "share:8GiB,30%", 2, tenant="t"
        )
        assert row["places"] == ["a/0", "a/1"]
        for gpu in before.gpus.values():
            late = Transaction((before.at(gpu.key),), (put(gpu),))
            assert isinstance(late.compares[0], At)
            assert pool.store.transact(late) is None


def test_reservations_by_command(cli: Cli) -> None:
    make_pool(cli)
    ok(cli.run("tenant", "create", "t", "-o", "json"))
    times = ("--from", "2099-12-07T08:00", "--until", "2099-12-07T12:00", "--zone", "Europe/Berlin")
    words = ("reservation", "create", "course", "--profile", "whole", *times, "-o", "json")
    with serving():
        made = ok(cli.run(*words, "--tenant", "t", "--every", "week"))["reservation"]
        assert (made["state"], made["from"], made["every"]) == (
            "planned",
            "2099-12-07 08:00",
            "week",
        )
        (place,) = made["places"]
        rows = ok(cli.run("reservation", "list", "-o", "json"))["reservations"]
        assert [row["name"] for row in rows] == ["course"]
        error = refused(cli.run(*words, "--tenant", "t"), "VG497", 6)
        assert error["try"] == "vgpumgr reservation show course"
        claim(cli, "endless", "whole")
        waits = claim(cli, "more", "whole")
        assert (
            f"GPU {place[-1]} of host a is reserved for tenant t from 2099-12-07 08:00"
            in waits["why"]
        )
        lesson = claim(cli, "lesson", "whole", "--for", "2h", "--tenant", "t")
        assert lesson["lease"]["until_s"] == lesson["until_s"]
        status = cli.run("pool", "status")
        assert "every week (course)" in status.err
        other = ("reservation", "create", "exam", "--claim-pattern", "exam-*", *words[3:])
        error = refused(cli.run(*other), "VG497", 6)
        assert "reservation course" in error["held_by"]
        assert "claim endless" in error["held_by"]
        assert ok(cli.run("reservation", "delete", "course", "-o", "json"))["deleted"] is True
    refused(cli.run("reservation", "show", "course", "-o", "json"), "VG496", 5)


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        ((), "VG100", 2),
        (("--tenant", "t", "--claim-pattern", "x"), "VG100", 2),
        (("--claim-pattern", "A b"), "VG100", 2),
        (("--tenant", "none"), "VG393", 5),
        (("--tenant", "t", "--gpus", "3"), "VG498", 7),
        (("--tenant", "t", "--zone", "Mars/North"), "VG100", 2),
        (("--tenant", "t", "--zone", "../../etc/passwd"), "VG100", 2),
        (("--tenant", "t", "--from", "tomorrow"), "VG100", 2),
        (("--tenant", "t", "--from", "2099-02-30T08:00"), "VG100", 2),
        (("--tenant", "t", "--until", "0001-01-01T00:00"), "VG100", 2),
        (
            ("--tenant", "t", "--from", "2099-02-01T08:00", "--until", "2099-02-01T08:00"),
            "VG100",
            2,
        ),
        (
            ("--tenant", "t", "--from", "2020-02-01T08:00", "--until", "2020-02-01T09:00"),
            "VG100",
            2,
        ),
        (("--tenant", "t", "--every", "week", "--until", "2099-03-01T08:00"), "VG100", 2),
        (("--tenant", "t", "--profile", "1g.10gb"), "VG100", 2),
        (("--tenant", "t", "--class", "gold"), "VG385", 5),
    ],
)
def test_what_cannot_be_reserved(cli: Cli, words: tuple[str, ...], number: str, code: int) -> None:
    make_pool(cli)
    ok(cli.run("tenant", "create", "t", "-o", "json"))
    given = {"--profile": "whole", "--from": "2099-01-01T08:00", "--until": "2099-01-01T12:00"}
    rest = [word for name, value in given.items() if name not in words for word in (name, value)]
    with serving():
        error = refused(
            cli.run("reservation", "create", "r", *words, *rest, "-o", "json"), number, code
        )
    assert error["error"]
    assert ok(cli.run("reservation", "list", "-o", "json"))["reservations"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("--for", "0h"), ("--for", "2"), ("--for", "-2h"), ("--for", "9999999d"), ("--until", "soon"),
        ("--until", "2020-01-01T00:00"), ("--until", "2099-13-01T00:00"),
    ],
)  # fmt: skip
def test_claims_with_an_impossible_end(cli: Cli, words: tuple[str, str]) -> None:
    make_pool(cli)
    result = cli.run("claim", "create", "c", "--profile", "whole", *words, "-o", "json")
    error = refused(result, "VG100", 2)
    assert words[1] in error["error"]
    assert ok(cli.run("claim", "list", "-o", "json"))["claims"] == []


def test_a_gpu_of_another_size_counts_by_its_own_part() -> None:
    clocks = make_clocks(gpus=1)
    write(clocks.store, put(GpuRecord("h0", 1, "GPU-small", "V100", 16 << 30)))
    one = reserve(clocks, HOUR_S, 2 * HOUR_S, gpus=2, memory_bytes=8 << 30)
    assert one.places == ("h0/0", "h0/1")
    # 8 of 16 GiB are kept there, and 8 of 80 here
    write(clocks.store, put(ClaimRecord("c", "default", 1, 60 << 30)))
    write(clocks.store, put(ClaimRecord("d", "default", 1, 12 << 30)))
    granted = clocks.go_on()
    assert list_granted(granted) == ["c", "d"]
    assert {name: lease.gpus for name, lease in granted.leases.items()} == {
        "h0/c": (0,),
        "h0/d": (0,),
    }
