"""Writes of a pool that arrive late, or at the same time as others': quotas and groups hold, and no claim is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.memory_store import MemoryStore
from tests.unit.test_pool_claims import claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_tenants import list_granted, make_store, run, share, write
from vgpumgr.errors import PoolOutcomeError, PoolStoreError, VgpumgrError
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.records import ROOT, TenantRecord, Timing, View, put
from vgpumgr.pool.control.tenants import Usage
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.operations import PoolOperations

Call = Callable[[MemoryStore], Any]


class Leader:
    """A controller that leads on while one of its writes is still under way."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.controller = Controller("c", Timing(), lambda: 0.0)
        self.late: list[Call] = []

    def step(self, hold: str = "") -> None:
        """One round. The write of the lease of claim ``hold`` is not answered, and comes later."""
        steps = self.controller.step()
        call = next(steps)
        while True:
            try:
                if hold and self._writes(call, hold):
                    self.late.append(call)
                    call = steps.throw(PoolOutcomeError("no answer"))
                else:
                    call = steps.send(call(self.store))
            except (StopIteration, PoolStoreError):
                return

    def _writes(self, call: Call, name: str) -> bool:
        probe = Probe()
        try:
            call(probe)  # type: ignore[arg-type]
        except AttributeError:
            return False
        return any(key.endswith(f"/{name}") and "/lease/" in key for key in probe.keys)

    def deliver(self) -> None:
        for call in self.late:
            call(self.store)


class Probe:
    """Reads which keys a transaction would write; every other call of a store is an AttributeError."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def transact(self, transaction: Any) -> int:
        self.keys = [change.key for change in transaction.changes]
        return 1


def test_a_grant_that_arrives_late_exceeds_no_quota() -> None:
    store = make_store(gpus=4)
    write(store, put(TenantRecord("a", 1100)), put(share("z", "a")))
    leader = Leader(store)
    for name, percent in (("y", 50), ("x", 60)):
        leader.step()
        write(store, put(share(name, "a", percent)))
    leader.step()
    view = View(store.range(ROOT))
    assert list_granted(view) == ["y", "z"]
    # y goes, and x is granted by a write that stays under way; its reason is known, so that nothing else writes x
    store.transact(_delete("p/claim/y", "p/lease/h0/y"))
    leader.step(hold="x")
    assert len(leader.late) == 1
    write(store, put(replace(view.claims["z"], compute_percent=100.0)))
    leader.step()
    view = View(store.range(ROOT))
    assert (view.leases["h0/z"].milli, list_granted(view)) == (1000, ["z"])
    leader.deliver()
    assert Usage(View(store.range(ROOT))).read("a") == 1000


def test_a_grant_that_arrives_late_meets_no_claim_of_its_group() -> None:
    store = make_store()
    write(store, put(TenantRecord("high", priority=5)), put(share("f")))
    leader = Leader(store)
    for name, percent in (("old", 100), ("x", 50)):
        leader.step()
        write(store, put(replace(share(name, percent=percent), anti_affinity="g")))
    leader.step()
    assert list_granted(View(store.range(ROOT))) == ["f", "old"]
    store.transact(_delete("p/claim/old", "p/lease/h0/old"))
    leader.step(hold="x")
    assert len(leader.late) == 1
    write(store, put(replace(share("w", "high", 100), anti_affinity="g")))
    leader.step()
    assert list_granted(View(store.range(ROOT))) == ["f", "w"]
    leader.deliver()
    assert list_granted(View(store.range(ROOT))) == ["f", "w"]


def test_a_claim_of_several_shares_gets_all_of_them_at_once() -> None:
    store = make_store(gpus=3)
    write(store, put(replace(share("pair", percent=60), gpus=2)), put(share("one", percent=60)))
    view = run(store)
    assert len(view.leases["h0/pair"].gpus) == 2
    assert not set(view.leases["h0/pair"].gpus) & set(view.leases["h0/one"].gpus)
    write(store, put(replace(share("more", percent=60), gpus=2)))
    assert "more" not in list_granted(run(store))


def test_growth_waits_in_the_queue_as_all_others_do() -> None:
    store = make_store(gpus=1)
    write(store, put(TenantRecord("low", priority=-5)), put(TenantRecord("high", priority=10)))
    write(store, put(share("tiny", "low", 10)), put(share("first", percent=90)))
    view = run(store)
    assert list_granted(view) == ["first", "tiny"]
    write(store, put(replace(view.claims["tiny"], compute_percent=100.0)))
    write(store, put(share("wanted", "high", 60)))
    view = run(store)
    assert "it keeps what it has" in view.claims["tiny"].why
    first = view.leases["h0/first"]
    store.transact(_delete(first.key, "p/claim/first"))
    view = run(store)
    assert list_granted(view) == ["tiny", "wanted"]
    assert view.leases["h0/tiny"].milli == 100


def _delete(*keys: str) -> Any:
    from vgpumgr.pool.store.interface import Delete, Transaction

    return Transaction((), tuple(Delete(key) for key in keys))


def test_many_claims_of_one_tenant_at_the_same_time(cli: Cli) -> None:
    """None is refused because another one of its tenant was made in that moment."""
    make_pool(cli)
    ok(cli.run("tenant", "create", "t", "-o", "json"))
    failed: list[Exception] = []

    def create(name: str) -> None:
        try:
            with open_pool(None) as pool:
                PoolOperations(pool).create(name, "default", "share:1GiB,1%", 1, "keep", "t")
        except VgpumgrError as error:
            failed.append(error)

    with serving():
        threads = [threading.Thread(target=create, args=(f"c{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(ok(cli.run("claim", "list", "-o", "json"))["claims"]) == 8


@pytest.mark.parametrize("noun", ["tenant", "pool class"])
def test_neither_a_tenant_nor_a_class_is_removed_while_a_claim_of_it_is_made(
    cli: Cli, noun: str
) -> None:
    make_pool(cli)
    ok(cli.run(*noun.split(), "create", "k", "-o", "json"))
    words = {"tenant": ("--tenant", "k"), "pool class": ("--class", "k")}[noun]
    with open_pool(None) as pool:
        first, views = pool.view(), []

        def view() -> View:
            views.append(1)
            return first if len(views) == 1 else View(pool.store.range(ROOT))

        claim(cli, "x", "whole", *words)
        pool.view = view  # type: ignore[method-assign]
        operations = PoolOperations(pool)
        delete = operations.tenants.delete if noun == "tenant" else operations.classes.delete
        with pytest.raises(VgpumgrError, match="has claims"):
            delete("k")
        assert len(views) == 2
    assert ok(cli.run("claim", "show", "x", "-o", "json"))["claim"]["state"] == "waiting"


def test_a_claim_above_a_reduced_quota_can_be_made_smaller(cli: Cli) -> None:
    make_pool(cli)
    words = ("-o", "json")
    ok(cli.run("tenant", "create", "t", "--gpus", "1", *words))
    with serving():
        claim(cli, "x", "share:8GiB,50%", "--tenant", "t")
        ok(cli.run("tenant", "set", "t", "--gpus", "0.1", *words))
        smaller = ok(cli.run("claim", "resize", "x", "--profile", "share:8GiB,20%", *words))
        assert smaller["claim"]["lease"]["gpu_milli"] == 200
        refused(cli.run("claim", "resize", "x", "--profile", "share:8GiB,30%", *words), "VG386", 7)


def test_claims_that_their_quota_holds_up_stand_last(cli: Cli) -> None:
    make_pool(cli)
    ok(cli.run("tenant", "create", "full", "--gpus", "0.6", "--priority", "9", "-o", "json"))
    for n in range(3):
        claim(cli, f"held-{n}", "share:8GiB,50%", "--tenant", "full")
    claim(cli, "next", "share:8GiB,50%")
    rows = ok(cli.run("claim", "list", "-o", "json"))["claims"]
    assert [(row["name"], row["place"]) for row in rows] == [
        ("held-0", 1), ("next", 2), ("held-1", 3), ("held-2", 4)
    ]  # fmt: skip
