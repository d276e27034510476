"""Classes of a pool, and why a claim is where it is: each host with its score, or with the reason that excludes it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.cli import Cli
from tests.unit.test_pool_claims import claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_tenants import list_granted, make_store, run, share, write
from vgpumgr.model.text import format_gpus
from vgpumgr.pool.control.candidates import Candidate, list_candidates
from vgpumgr.pool.control.records import (
    ROOT,
    ClaimRecord,
    ClassRecord,
    GpuRecord,
    HostRecord,
    HostState,
    TenantRecord,
    View,
    alive_key,
    put,
)
from vgpumgr.pool.scheduler.choosing import POLICY_NAMES
from vgpumgr.pool.store.interface import Delete, Put

GIB = 1 << 30


def explain(view: View, name: str) -> dict[str, Candidate]:
    return {f"{one.host} {one.model}": one for one in list_candidates(view, view.claims[name])}


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_the_host_with_the_least_score_is_the_one_that_is_granted(policy: str) -> None:
    store = make_store(hosts=3)
    write(store, put(ClassRecord("default", policy)), put(share("first", percent=30)))
    write(store, put(GpuRecord("h1", 2, "GPU-x", "V100", 80 * GIB)))
    run(store)
    write(store, put(share("next", percent=60)))
    view = View(store.range(ROOT))
    found = list_candidates(view, view.claims["next"])
    assert len(found) == 3
    assert [one.chosen for one in found] == [True, False, False]
    scores = [one.score for one in found]
    assert None not in scores
    assert scores[0] == min(scores)  # type: ignore[type-var]
    if policy != "random":
        assert run(store).claims["next"].host == found[0].host
    # once it is granted it is explained as it was
    view = run(store)
    again = list_candidates(view, view.claims["next"])
    assert again[0].host == view.claims["next"].host


def test_every_host_has_its_reason() -> None:
    store = make_store(hosts=5)
    write(store, put(ClassRecord("default", models=("V100",))), put(TenantRecord("t", 600)))
    for host in ("h0", "h1"):
        write(store, *(put(replace(share(f"{host}-{n}", percent=90))) for n in range(2)))
    write(store, put(GpuRecord("h4", 0, "GPU-y", "A100", 80 * GIB)))
    write(store, Delete("p/gpu/h4/0001"))
    for n in range(4):
        write(store, put(replace(share(f"full-{n}", percent=90))))
    view = run(store)
    full = {lease.host for lease in view.leases.values()}
    assert len(full) == 4  # 8 claims on 4 hosts of V100s
    write(store, Delete(alive_key("h3")))
    write(store, put(replace(view.hosts["h2"], state=HostState.FENCED)))
    for name in ("h0-0", "h0-1", "full-0"):
        lease = next(one for one in view.leases.values() if one.claim == name)
        write(store, Delete(lease.key), Delete(f"p/claim/{name}"))
    write(store, put(replace(share("late", "t", 60), anti_affinity="x")))
    view = View(store.range(ROOT))
    found = explain(view, "late")
    reasons = {key.split()[0]: one.why for key, one in found.items()}
    assert reasons["h2"] == "the host is fenced"
    assert reasons["h3"] == "the host is suspect"
    assert reasons["h4"] == "its GPUs are too small, or not of class default"
    assert all(one.score is None for key, one in found.items() if key[:2] in ("h2", "h3", "h4"))
    # a quota excludes it everywhere
    write(store, put(TenantRecord("t", 500)))
    why = {one.why for one in explain(View(store.range(ROOT)), "late").values()}
    assert why == {"tenant t has less than 0.6 left of its quota of 0.5 GPUs"}


def test_a_quota_and_sizes_of_gpus_are_told_apart() -> None:
    """A share takes another part of GPUs of another size: what the quota excludes is not called full."""
    store = make_store(hosts=1, gpus=1, memory=16 * GIB)
    write(store, put(HostRecord("big", "machine-big", HostState.READY)))
    write(store, Put(alive_key("big"), "machine "), put(TenantRecord("t", 200)))
    write(store, *(put(GpuRecord("big", n, f"GPU-big-{n}", "V100", 80 * GIB)) for n in range(2)))
    for n in range(2):
        write(store, put(ClaimRecord(f"full-{n}", "default", 1, 80 * GIB, 1.0)))
    run(store)
    write(store, put(ClaimRecord("late", "default", 1, 8 * GIB, 5.0, tenant="t")))
    view = run(store)
    assert set(list_granted(view)) == {"full-0", "full-1"}
    assert view.claims["late"].why == "tenant t has less than 0.5 left of its quota of 0.2 GPUs"
    found = {one.host: one for one in list_candidates(view, view.claims["late"])}
    assert found["h0"].score is None
    assert found["h0"].why == view.claims["late"].why
    # two GPUs: the small host can never hold it, and the big one is in use
    write(store, put(ClaimRecord("two", "default", 2, 8 * GIB, 5.0)))
    assert run(store).claims["two"].why.startswith("all are in use: ")
    # granted above a quota that is smaller now: it is where it is
    write(store, put(TenantRecord("t")))
    write(store, put(TenantRecord("t", 100)) if run(store).claims["late"].host else Put("p/x", ""))
    view = View(store.range(ROOT))
    (chosen,) = [one for one in list_candidates(view, view.claims["late"]) if one.chosen]
    assert chosen.host == "h0"


def test_what_stands_before_it_in_the_queue_gets_its_gpus_first() -> None:
    store = make_store(gpus=1)
    write(store, put(TenantRecord("high", priority=1)))
    write(store, put(share("low", percent=60)), put(share("first", "high", 60)))
    view = View(store.range(ROOT))
    assert [one.chosen for one in list_candidates(view, view.claims["low"])] == [False]
    assert [one.chosen for one in list_candidates(view, view.claims["first"])] == [True]


@pytest.mark.parametrize("percent", [16.1, 32.2, 32.7, 64.4, 64.9, 65.4, 12.5, 0.1, 33.3])
def test_a_percentage_is_its_thousandths(percent: float) -> None:
    assert share("x", percent=percent).count_milli(80 * GIB) == round(percent * 10)


def test_quotas_are_printed_as_they_are() -> None:
    assert [format_gpus(milli) for milli in (1234567, 1_000_000_000, 500, 0, 125)] == [
        "1234.567", "1000000", "0.5", "0", "0.125"
    ]  # fmt: skip


def test_a_group_excludes_the_hosts_that_have_a_claim_of_it() -> None:
    store = make_store(hosts=2)
    write(store, put(replace(share("one"), anti_affinity="g")))
    host = run(store).claims["one"].host
    write(store, put(replace(share("two"), anti_affinity="g")))
    found = {one.host: one for one in explain(View(store.range(ROOT)), "two").values()}
    assert found[str(host)].why == "it has a claim of anti-affinity g"
    assert not found[str(host)].chosen
    assert sum(one.chosen for one in found.values()) == 1


def test_by_command(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        claim(cli, "train", "share:8GiB,30%")
        document = ok(cli.run("claim", "explain", "train", "-o", "json"))
        (row,) = document["hosts"]
        assert row["name"] == "a"
        assert row["chosen"]
        assert row["free_milli"] == {"0": 1000, "1": 1000}  # its own lease counts as free
        assert row["score"]
        claim(cli, "large", "whole", "--gpus", "2")
        result = cli.run("claim", "explain", "large", terminal=True)
        assert re.search(r"^a .* 1 GPU of 2 idle, and the claim", result.out, re.M)
        assert "claim large waits: all are in use" in result.err
    refused(cli.run("claim", "explain", "lrage", "-o", "json"), "VG383", 5)


def test_classes_by_command(cli: Cli) -> None:
    make_pool(cli)
    words = ("-o", "json")
    rows = ok(cli.run("pool", "class", "list", *words))["classes"]
    assert [(row["name"], row["policy"], row["whole"]) for row in rows] == [
        ("default", "fgd", False), ("spread", "spread", False), ("whole", "fgd", True)
    ]  # fmt: skip
    (model,) = {gpu["model"] for gpu in ok(cli.run("pool", "status", *words))["hosts"][0]["gpus"]}
    made = ok(cli.run("pool", "class", "create", "big", "--whole", "--model", model, *words))
    assert made["class"] == {
        "name": "big", "policy": "fgd", "whole": True, "models": [model], "gpus": 2, "claims": 0,
        "preemptible": False,
    }  # fmt: skip
    with serving():
        one = claim(cli, "one", "share:8GiB,30%", "--class", "big")
        assert one["lease"]["gpu_milli"] == 1000
        error = refused(cli.run("pool", "class", "delete", "big", *words), "VG395", 6)
        assert error["held_by"] == ["claim one"]
        ok(cli.run("claim", "delete", "one", *words))
    assert ok(cli.run("pool", "class", "delete", "big", *words))["deleted"]


def test_what_a_claim_has_itself_is_no_reason_against_it() -> None:
    """Neither its own lease on the GPU nor its part of the quota."""
    store = make_store(hosts=1, gpus=1)
    write(store, put(TenantRecord("t", 800)), put(share("one", "t", 80)))
    view = run(store)
    (found,) = list_candidates(view, view.claims["one"])
    assert found.score is not None
    assert dict(found.free_milli) == {0: 1000}
