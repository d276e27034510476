"""Claims of a higher priority preempt leases that can be preempted: which, in which order, and how what runs ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.unit.test_pool_claims import claim, make_pool, ok, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_reservations import Clocks, whole
from tests.unit.test_pool_tenants import list_granted, make_store, write
from vgpumgr.pool.control.candidates import grant_in_turn
from vgpumgr.pool.control.records import (
    ROOT,
    ClaimRecord,
    ClassRecord,
    TenantRecord,
    UseRecord,
    View,
    put,
)
from vgpumgr.pool.scheduler.preemption import Victim, choose_victims
from vgpumgr.pool.store.interface import Delete


def make_clocks(gpus: int = 1, hosts: int = 1) -> Clocks:
    store = make_store(hosts=hosts, gpus=gpus)
    write(store, put(TenantRecord("high", priority=9)), put(TenantRecord("fixed", priority=-5)))
    write(store, put(TenantRecord("low", priority=-5, preemptible=True)))
    return Clocks(store)


def grant(clocks: Clocks, *claims: ClaimRecord) -> None:
    """One after the other, a minute apart."""
    for one in claims:
        write(clocks.store, put(one))
        clocks.go_on(60)


def use(clocks: Clocks, name: str, noun: str) -> UseRecord:
    view = View(clocks.store.range(ROOT))
    host = view.claims[name].host or ""
    record = UseRecord(name, host, noun, "train", "u", "a1", 1)
    write(clocks.store, put(record))
    return record


def find_victims(clocks: Clocks, wanted: ClaimRecord) -> list[str]:
    view = View(clocks.store.range(ROOT)).add(wanted)
    found = grant_in_turn(view, wanted, clocks.wall_s)[1]
    return [lease.claim for lease in found.victims] if found else []


def test_a_lease_that_nothing_uses_makes_way_at_once() -> None:
    clocks = make_clocks()
    grant(clocks, whole("batch", "low"), whole("more", "fixed"))
    write(clocks.store, put(whole("urgent", "high")))
    view = clocks.go_on()
    assert list_granted(view) == ["urgent"]
    batch, urgent = view.claims["batch"], view.claims["urgent"]
    assert batch.why.startswith("all are in use: ")
    assert batch.why.endswith("claim urgent has preempted it")
    assert (urgent.nominated, urgent.nominated_gpus, view.ends) == ("", (), {})
    # it waits in the queue, and forgets that with its next lease
    write(
        clocks.store, Delete("p/claim/urgent"), Delete("p/lease/h0/urgent"), Delete("p/claim/more")
    )
    assert clocks.go_on().claims["batch"].preempted_by == ""


@pytest.mark.parametrize(
    ("victim", "by"),
    [("fixed", "high"), ("", "high"), ("high", "high"), ("low", "low"), ("low", "fixed")],
)
def test_who_is_not_preempted(victim: str, by: str) -> None:
    """Of no higher priority, or not preemptible."""
    clocks = make_clocks()
    grant(clocks, whole("batch", victim), whole("wants", by))
    view = clocks.go_on()
    assert list_granted(view) == ["batch"]
    assert not view.claims["wants"].nominated


def test_a_class_can_be_preempted() -> None:
    clocks = make_clocks()
    write(clocks.store, put(ClassRecord("spare", preemptible=True)))
    grant(clocks, replace(whole("batch"), class_name="spare"), whole("urgent", "high"))
    assert list_granted(clocks.go_on()) == ["urgent"]


def test_a_command_has_its_grace_and_its_lease_is_kept_for_whom_it_ends() -> None:
    clocks = make_clocks()
    grant(clocks, whole("batch", "low"))
    record = use(clocks, "batch", "run")
    write(clocks.store, put(whole("urgent", "high")), put(whole("other", "fixed")))
    view = clocks.go_on()
    assert view.leases["h0/batch"].is_ending
    assert view.ends["h0/batch"].why == "it is preempted by claim urgent, of priority 9"
    why = view.claims["urgent"].why
    assert why == "it waits until what was preempted for it has ended: claim batch"
    assert (view.claims["urgent"].nominated, view.claims["urgent"].nominated_gpus) == ("h0", (0,))
    write(clocks.store, Delete(record.key))
    assert list_granted(clocks.go_on(30)) == ["urgent"]


def test_what_is_made_free_is_kept_from_claims_behind() -> None:
    """Two halves make way one after the other; a small claim of a lower priority does not get the first one."""
    clocks = make_clocks()
    halves = [replace(whole(name, "low"), compute_percent=50.0, memory_bytes=1) for name in "ab"]
    grant(clocks, *halves)
    records = [use(clocks, name, "run") for name in "ab"]
    write(clocks.store, put(whole("urgent", "high")))
    clocks.go_on()
    write(clocks.store, put(replace(whole("small", "fixed"), compute_percent=10.0, memory_bytes=1)))
    write(clocks.store, Delete(records[0].key), Delete("p/lease/h0/a"), Delete("p/claim/a"))
    assert list_granted(clocks.go_on()) == ["b"]
    write(clocks.store, Delete(records[1].key))
    assert list_granted(clocks.go_on()) == ["urgent"]


def test_a_vm_is_preempted_only_where_its_claim_says_so() -> None:
    clocks = make_clocks(gpus=2)
    grant(clocks, whole("vm", "low"), whole("also", "low", preempt_vm=True))
    for name in ("vm", "also"):
        use(clocks, name, "vm")
    assert find_victims(clocks, whole("urgent", "high")) == ["also"]
    assert find_victims(clocks, whole("urgent", "high", gpus=2)) == []


def test_what_costs_least_goes_first() -> None:
    """Nothing that runs, then commands, then VMs; of equal ones the youngest."""
    clocks = make_clocks(gpus=4)
    grant(clocks, *(whole(name, "low", preempt_vm=True) for name in ("vm", "old", "young", "idle")))
    for name, noun in (("vm", "vm"), ("old", "run"), ("young", "run")):
        use(clocks, name, noun)
    expected = ["idle", "young", "old", "vm"]
    for gpus in range(1, 5):
        assert find_victims(clocks, whole("urgent", "high", gpus=gpus)) == expected[:gpus]


def test_nothing_is_preempted_in_vain() -> None:
    clocks = make_clocks(gpus=2)
    write(clocks.store, put(TenantRecord("held", gpu_milli=500, priority=9)))
    grant(clocks, whole("batch", "low"), whole("keeps", "fixed"))
    # two GPUs are never free, and a quota is not exceeded
    for wanted in (
        whole("w", "high", gpus=2),
        whole("w", "held"),
        whole("w", "high", where=("x",)),
    ):
        assert find_victims(clocks, wanted) == []
    assert find_victims(clocks, whole("w", "high")) == ["batch"]


def test_a_use_that_begins_at_the_same_time_is_not_ended_without_grace() -> None:
    """The preemption compares that nothing uses the lease, where it was planned so."""
    clocks = make_clocks()
    grant(clocks, whole("batch", "low"))
    write(clocks.store, put(whole("urgent", "high")))
    view = View(clocks.store.range(ROOT))
    planned = [
        one
        for one in clocks.controller.plan(view)
        if any(change.key == "p/lease/h0/batch" for change in one.changes)
    ]
    use(clocks, "batch", "run")
    assert [clocks.store.transact(one) for one in planned] == [None]


def test_as_few_victims_as_can_be() -> None:
    def victim(name: str, milli: int, *gpus: int, kind: int = 1, work: float = 1.0) -> Victim:
        return Victim(name, gpus, milli, kind, work)

    small = [victim(name, 300, 0) for name in "abc"]
    found = choose_victims({0: 100}, small, 1, 600)
    assert found is not None
    assert [one.name for one in found.victims] == ["a", "b"]
    # a larger one later makes the smaller ones before it needless
    mixed = [victim("a", 100, 0, work=1), victim("b", 800, 0, work=2)]
    found = choose_victims({0: 100}, mixed, 1, 850)
    assert found is not None
    assert [one.name for one in found.victims] == ["b"]
    # one that is on both GPUs goes once; a GPU whose victims are cheaper is taken instead
    both = [victim("wide", 1000, 0, 1), victim("cheap", 1000, 2, kind=0)]
    found = choose_victims({0: 0, 1: 0, 2: 0}, both, 2, 1000)
    assert found is not None
    assert found.gpus[1] == 2
    found = choose_victims({0: 0, 1: 0, 2: 0}, both, 1, 1000)
    assert found is not None
    assert ([one.name for one in found.victims], found.gpus) == (["cheap"], (2,))
    assert choose_victims({0: 0}, [victim("a", 400, 0)], 1, 500) is None


def test_preemption_by_command(cli: Cli) -> None:
    make_pool(cli)
    ok(cli.run("tenant", "create", "low", "--preemptible", "-o", "json"))
    ok(cli.run("tenant", "create", "high", "--priority", "5", "-o", "json"))
    with serving():
        for name in ("one", "two"):
            claim(cli, name, "whole", "--tenant", "low")
        words = ("claim", "create", "urgent", "--profile", "whole", "--tenant", "high", "--dry-run")
        found = ok(cli.run(*words, "-o", "json"))
        (victim,) = found["preempts"]
        assert (victim["ends"], victim["grace_s"], victim["priority"]) == (
            "nothing uses it",
            0.0,
            0,
        )
        assert found["claim"]["why"] == f"it would preempt claim {victim['name']}"
        text = cli.run(*words).err
        assert f"claim urgent preempts claim {victim['name']} on a:" in text
        # nothing was changed
        rows: list[dict[str, Any]] = ok(cli.run("claim", "list", "-o", "json"))["claims"]
        assert {row["name"] for row in rows} == {"one", "two"}
        assert {row["preemptible"] for row in rows} == {"command"}
        free = ok(
            cli.run("claim", "create", "x", "--profile", "share:1GiB,1%", "--dry-run", "-o", "json")
        )
        assert (free["claim"]["lease"], free["preempts"]) == (None, [])
        urgent = claim(cli, "urgent", "whole", "--tenant", "high")
        if urgent["lease"] is None:
            urgent = ok(cli.run("claim", "wait", "urgent", "--timeout", "30", "-o", "json"))[
                "claim"
            ]
        assert urgent["lease"] is not None
        lost = ok(cli.run("claim", "show", victim["name"], "-o", "json"))["claim"]
        assert (lost["state"], lost["preempted_by"]) == ("waiting", "urgent")
        ok(cli.run("tenant", "set", "low", "--preemptible", "no", "-o", "json"))
        again = ("claim", "create", "next", "--profile", "whole", "--tenant", "high", "--dry-run")
        assert ok(cli.run(*again, "-o", "json"))["preempts"] == []
