"""Tenants of a pool: quotas that hold, an order that is fair, and a pool that is divided without a rest."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pool_histories.world import BrokenError, World
from tests.support.cli import Cli
from tests.support.memory_store import MemoryStore
from tests.unit.test_pool_claims import await_true, claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from vgpumgr.cli.tenant import _read_quota
from vgpumgr.pool.control import controller as controlling
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.records import (
    ROOT,
    ClaimRecord,
    ClassRecord,
    GpuRecord,
    HostRecord,
    HostState,
    TenantRecord,
    Timing,
    View,
    alive_key,
    put,
)
from vgpumgr.pool.control.tenants import Usage, divide, list_queue
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.scheduler.choosing import POLICY_NAMES, open_chooser
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import Demand, Host
from vgpumgr.pool.store.interface import Delete, Put, Transaction
from vgpumgr.pool.store.steps import drive

GIB = 1 << 30


def make_store(hosts: int = 1, gpus: int = 2, memory: int = 80 * GIB) -> MemoryStore:
    store = MemoryStore(lambda: 0.0)
    write(store, put(ClassRecord("default")))
    for host in range(hosts):
        name = f"h{host}"
        write(store, put(HostRecord(name, f"machine-{name}", HostState.READY)))
        write(store, Put(alive_key(name), "machine "))
        for n in range(gpus):
            write(store, put(GpuRecord(name, n, f"GPU-{name}-{n}", "V100", memory)))
    return store


def write(store: MemoryStore, *changes: Put | Delete) -> None:
    store.transact(Transaction((), changes))


def share(name: str, tenant: str = "", percent: float = 50.0) -> ClaimRecord:
    return ClaimRecord(name, "default", memory_bytes=1, compute_percent=percent, tenant=tenant)


def run(store: MemoryStore) -> View:
    controller = Controller("c", Timing(), lambda: 0.0)
    for _ in range(2):
        drive(store, controller.step())
    drive(store, controller.resign())
    return View(store.range(ROOT))


def list_granted(view: View) -> list[str]:
    return sorted(lease.claim for lease in view.leases.values())


def test_a_quota_holds_and_is_the_reason_given() -> None:
    store = make_store()
    write(store, put(TenantRecord("a", 1000)))
    write(store, *(put(share(f"a{n}", "a")) for n in range(3)), put(share("free")))
    view = run(store)
    assert list_granted(view) == ["a0", "a1", "free"]
    assert view.claims["a2"].why == ("tenant a has less than 0.5 left of its quota of 1 GPUs")
    # more is allowed, and then it is granted
    write(store, put(replace(view.tenants["a"], gpu_milli=1500)))
    assert list_granted(run(store)) == ["a0", "a1", "a2", "free"]


def test_a_smaller_quota_takes_nothing_and_gives_nothing() -> None:
    store = make_store()
    write(store, put(TenantRecord("a", 1000)))
    write(store, *(put(share(f"a{n}", "a")) for n in range(2)))
    view = run(store)
    write(store, put(replace(view.tenants["a"], gpu_milli=500)), put(share("late", "a", 10)))
    view = run(store)
    assert list_granted(view) == ["a0", "a1"]
    assert "of its quota of 0.5 GPUs" in view.claims["late"].why


def test_a_claim_grows_within_the_quota_only_and_shrinks_at_any_time() -> None:
    store = make_store()
    write(store, put(TenantRecord("a", 800)), put(share("x", "a", 50)))
    view = run(store)
    write(store, put(replace(view.claims["x"], compute_percent=90)))
    view = run(store)
    assert view.leases["h0/x"].milli == 500
    assert (
        "it keeps what it has: tenant a has less than 0.4 left of its quota of 0.8 GPUs"
        in view.claims["x"].why
    )
    write(store, put(replace(view.claims["x"], compute_percent=80)))
    assert run(store).leases["h0/x"].milli == 800
    write(store, put(TenantRecord("a", 100)), put(replace(view.claims["x"], compute_percent=20)))
    assert run(store).leases["h0/x"].milli == 200


def test_a_claim_of_several_gpus_counts_all_of_them() -> None:
    store = make_store()
    write(store, put(TenantRecord("a", 1500)), put(ClaimRecord("two", "default", 2, tenant="a")))
    view = run(store)
    assert not view.leases
    assert "less than 2 left" in view.claims["two"].why


def test_higher_priority_goes_first_and_then_the_older() -> None:
    store = make_store(gpus=1)
    write(store, put(TenantRecord("low", priority=-1)), put(TenantRecord("high", priority=3)))
    for name, tenant in (("a", "low"), ("b", ""), ("c", "high"), ("d", "high")):
        write(store, put(share(name, tenant)))
    assert list_granted(run(store)) == ["c", "d"]
    write(store, Delete("p/claim/d"), Delete("p/lease/h0/d"))
    assert list_granted(run(store)) == ["b", "c"]


def test_who_has_least_for_its_weight_goes_first() -> None:
    store = make_store(gpus=4)
    write(store, put(TenantRecord("one")), put(TenantRecord("three", weight=3)))
    for n in range(8):
        write(store, put(share(f"one-{n}", "one")))
    for n in range(8):
        write(store, put(share(f"three-{n}", "three")))
    granted = Counter(name.partition("-")[0] for name in list_granted(run(store)))
    assert granted == {"one": 2, "three": 6}


def test_claims_of_one_group_are_on_different_hosts() -> None:
    store = make_store(hosts=3, gpus=2)
    for n in range(4):
        write(store, put(replace(share(f"web-{n}"), anti_affinity="web")))
    write(store, put(share("other")), put(replace(share("db"), anti_affinity="db")))
    view = run(store)
    hosts = [lease.host for lease in view.leases.values() if lease.claim.startswith("web")]
    assert sorted(hosts) == ["h0", "h1", "h2"]
    assert {"other", "db"} <= set(list_granted(view))
    (late,) = [name for name in view.claims if view.claims[name].host is None]
    assert view.claims[late].why == (
        "anti-affinity web has a claim on each host already: h0, h1, h2"
    )
    # a host is free of the group again: the one that waits gets it
    first = view.leases[next(key for key in view.leases if key.endswith("web-0"))]
    write(store, Delete(f"p/claim/{first.claim}"), Delete(first.key))
    assert run(store).claims[late].host == first.host


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_leaves_out_what_it_may_not_take(policy: str) -> None:
    cluster = Cluster([Host(f"h{n}", 0, 0, 2, "A") for n in range(4)])
    chooser = open_chooser(policy, cluster, Mix([]))
    demand = Demand(0, 0, 1, 500, ("A",))
    for without in ((), (0,), (0, 1), (1, 2, 3)):
        choice = chooser.choose(demand, without)
        assert choice is not None
        assert choice.host not in without
    assert chooser.choose(demand, (0, 1, 2, 3)) is None


def test_a_tenant_that_is_gone_gets_nothing() -> None:
    store = make_store()
    write(store, put(share("x", "gone")))
    view = run(store)
    assert not view.leases
    assert view.claims["x"].why == "there is no tenant gone"


def test_a_quota_that_was_changed_meanwhile_is_compared() -> None:
    """A controller that has decided by the quota of before writes nothing."""
    store = make_store()
    write(store, put(TenantRecord("a", 1000)), put(share("x", "a")))
    controller = Controller("c", Timing(), lambda: 0.0)
    drive(store, controller.step())  # it leads, and has granted x
    write(store, put(share("y", "a")))
    steps = controller.step()
    call = next(steps)
    while True:
        answer = call(store)
        if hasattr(answer, "entries"):
            write(store, put(TenantRecord("a", 500)))
        try:
            call = steps.send(answer)
        except StopIteration:
            break
    assert list_granted(View(store.range(ROOT))) == ["x"]


def test_sixteen_gpus_for_twenty_eight_users_exactly() -> None:
    """16 x V100 as 128 x 4 GB: each user gets 4 or 5 of them, and nothing is left over."""
    parts = divide(128, [1] * 28)
    assert Counter(parts) == {5: 16, 4: 12}
    store = make_store(hosts=2, gpus=8, memory=32 * GIB)
    for user, part in enumerate(parts):
        write(store, put(TenantRecord(f"u{user:02}", part * 125)))
        # everyone asks for more, and the first ask before the others are there
        for n in range(6):
            one = ClaimRecord(f"u{user:02}-{n}", "default", 1, 4 * GIB, 12.5, tenant=f"u{user:02}")
            write(store, put(one))
        if user % 9 == 0:
            run(store)
    granted = Counter(name.partition("-")[0] for name in list_granted(run(store)))
    assert [granted[f"u{user:02}"] for user in range(28)] == parts
    # without quotas the order alone is fair, where all wait
    store = make_store(hosts=2, gpus=8, memory=32 * GIB)
    for user in range(28):
        write(store, put(TenantRecord(f"u{user:02}")))
        for n in range(6):
            one = ClaimRecord(f"u{user:02}-{n}", "default", 1, 4 * GIB, 12.5, tenant=f"u{user:02}")
            write(store, put(one))
    granted = Counter(name.partition("-")[0] for name in list_granted(run(store)))
    assert Counter(granted.values()) == {5: 16, 4: 12}


@given(st.integers(0, 1000), st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_parts_are_whole_and_fair(units: int, weights: list[int]) -> None:
    parts = divide(units, weights)
    assert sum(parts) == units
    for part, weight in zip(parts, weights, strict=True):
        exact = units * weight / sum(weights)
        assert exact - 1 < part < exact + 1


def test_a_controller_without_quotas_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Generous(Usage):
        def read_left(self, claim: ClaimRecord) -> int | None:  # noqa: ARG002
            return None

    monkeypatch.setattr(controlling, "Usage", Generous)
    with pytest.raises(BrokenError, match="tenant"):
        run_histories(60)


def used(cli: Cli) -> int:
    """How much tenant vision has."""
    milli: int = ok(cli.run("tenant", "show", "vision", "-o", "json"))["tenant"]["used_milli"]
    return milli


def run_histories(count: int) -> None:
    for seed in range(count):
        World(seed).run()


def test_tenants_by_command(cli: Cli) -> None:
    make_pool(cli)
    words = ("-o", "json")
    made = ok(cli.run("tenant", "create", "vision", "--gpus", "0.5", "--priority", "3", *words))
    assert made["tenant"] == {
        "name": "vision", "quota_milli": 500, "used_milli": 0, "priority": 3, "weight": 1,
        "claims": {"granted": 0, "waiting": 0, "ending": 0, "idle": 0}, "preemptible": False,
    }  # fmt: skip
    with serving():
        first = claim(cli, "one", "share:8GiB,30%", "--tenant", "vision")
        assert (first["tenant"], first["state"]) == ("vision", "granted")
        second = claim(cli, "two", "share:8GiB,30%", "--tenant", "vision")
        assert second["why"] == "tenant vision has less than 0.3 left of its quota of 0.5 GPUs"
        error = refused(
            cli.run("claim", "create", "x", "--profile", "whole", "--tenant", "vision", *words), "VG386", 7
        )  # fmt: skip
        assert error["why"] == "it needs 1 GPUs, and the quota is 0.5"
        assert error["held_by"] == ["tenant vision"]
        error = refused(cli.run("tenant", "delete", "vision", *words), "VG394", 6)
        assert error["held_by"] == ["claim one", "claim two"]
        ok(cli.run("tenant", "set", "vision", "--gpus", "none", *words))
        ok(cli.run("claim", "resize", "two", "--profile", "share:8GiB,40%", *words))
        await_true(lambda: used(cli) == 700)
        table = cli.run("tenant", "list", terminal=True).out.splitlines()
        assert table[0].split() == [
            "NAME",
            "USED",
            "QUOTA",
            "PRIORITY",
            "WEIGHT",
            "PREEMPTIBLE",
            "CLAIMS",
        ]
        assert table[1].split()[:5] == ["vision", "0.7", "-", "3", "1"]
        for name in ("one", "two"):
            assert ok(cli.run("claim", "delete", name, *words))["deleted"]
    assert ok(cli.run("tenant", "delete", "vision", *words))["deleted"]
    assert ok(cli.run("tenant", "list", *words))["tenants"] == []


def test_split_by_command(cli: Cli) -> None:
    make_pool(cli)
    words = ("tenant", "split", "a", "b", "c", "--profile", "share:8GiB,12.5%", "-o", "json")
    planned = ok(cli.run(*words, "--dry-run"))
    assert ok(cli.run("tenant", "list", "-o", "json"))["tenants"] == []
    done = ok(cli.run(*words))
    assert [row["shares"] for row in done["tenants"]] == [6, 5, 5]
    assert (done["shares"], planned["tenants"]) == (16, done["tenants"])
    assert [row["quota_milli"] for row in done["tenants"]] == [750, 625, 625]
    ok(cli.run("tenant", "set", "c", "--weight", "2", "-o", "json"))
    assert [row["shares"] for row in ok(cli.run(*words))["tenants"]] == [4, 4, 8]
    error = refused(
        cli.run("tenant", "split", "a", "b", "c", "--profile", "whole", "-o", "json"), "VG100", 2
    )
    assert error["why"] == "tenant b would get none"
    error = refused(
        cli.run("tenant", "split", "a", "--profile", "whole", "--class", "spraed", "-o", "json"), "VG385", 5
    )  # fmt: skip
    assert "did you mean spread?" in error["why"]
    assert [row["weight"] for row in ok(cli.run("tenant", "list", "-o", "json"))["tenants"]] == [
        1,
        1,
        2,
    ]


def test_a_tenant_is_not_removed_while_a_claim_of_it_is_made(cli: Cli) -> None:
    """Both read the pool first; the one that writes last is refused."""
    make_pool(cli)
    ok(cli.run("tenant", "create", "t", "-o", "json"))
    with open_pool(None) as pool:
        stale = pool.view()
        claim(cli, "x", "whole", "--tenant", "t")
        pool.view = lambda: stale  # type: ignore[method-assign]
        with pytest.raises(Exception, match="changed at the same time"):
            PoolOperations(pool).tenants.delete("t")
    assert ok(cli.run("tenant", "show", "t", "-o", "json"))["tenant"]["claims"]["waiting"] == 1


def test_records_of_before_are_of_no_tenant() -> None:
    """A pool that was made before there were tenants goes on."""
    store = make_store()
    text = put(share("x")).value
    old = json.loads(text)
    old.pop("tenant", None)
    write(store, Put("p/claim/x", json.dumps(old)))
    assert list_granted(run(store)) == ["x"]


def test_quotas_are_thousandths_of_a_gpu() -> None:
    assert [_read_quota(text) for text in ("4", "2.5", "0.125", "0", "none")] == [
        4000,
        2500,
        125,
        0,
        None,
    ]


def test_of_equal_tenants_the_older_claim_goes_first() -> None:
    for names in (("a", "b"), ("b", "a")):
        store = make_store(gpus=1)
        write(store, *(put(TenantRecord(name)) for name in names))
        for name in names:  # one after the other: the second is younger
            write(store, put(share(f"of-{name}", name, 60)))
        assert list_granted(run(store)) == [f"of-{names[0]}"]


def test_only_gpus_of_the_class_are_divided(cli: Cli) -> None:
    make_pool(cli)
    with open_pool(None) as pool:
        gpu = pool.view().gpus["a/0001"]
        kind = ClassRecord("of-one", models=(gpu.model,))
        other = replace(gpu, model="another")
        pool.store.transact(Transaction((), (put(other), put(kind))))
    words = ("tenant", "split", "t", "--profile", "whole", "-o", "json")
    assert ok(cli.run(*words, "--class", "of-one"))["tenants"][0]["shares"] == 1
    assert ok(cli.run(*words))["tenants"][0]["shares"] == 2


def test_the_list_has_those_last_that_their_quota_holds_up() -> None:
    """By the least that each takes: of a class's largest GPUs, and a whole one of a class of whole GPUs."""
    store = make_store(hosts=1, gpus=1, memory=16 * GIB)
    write(store, put(GpuRecord("h0", 1, "GPU-big", "A100", 80 * GIB)))
    write(store, put(ClassRecord("whole", whole=True)), put(ClassRecord("v", models=("V100",))))
    write(store, put(TenantRecord("small", 400)))
    claims = {
        "fits": ClaimRecord("fits", "default", 1, 8 * GIB, 5.0, tenant="small"),  # 0.1 of 80 GiB
        "whole": ClaimRecord("whole", "whole", 1, 8 * GIB, 5.0, tenant="small"),
        "of-v": ClaimRecord("of-v", "v", 1, 8 * GIB, 5.0, tenant="small"),  # 0.5 of 16 GiB
        "free": share("free"),
    }
    for name in ("whole", "of-v", "fits", "free"):
        write(store, put(claims[name]))
    view = View(store.range("p/"))
    assert [one.name for one in list_queue(view, view.claims.values())] == [
        "fits", "free", "whole", "of-v"
    ]  # fmt: skip
