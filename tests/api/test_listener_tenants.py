"""Tenants over the network: each sees and changes its own claims, and learns of no other's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import needs_root
from tests.api.test_access_matrix import list_paths
from tests.api.test_pool import ask, await_true, choose, make_pool, serves
from tests.support.network import Answer, Network, listening
from vgpumgr.model.routes import FOR_TENANTS, POOL, SYSTEM_ROUTES
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.operations import PoolOperations

pytestmark = needs_root
SHARE = "share:8GiB,10%"
CLAIMS = f"{POOL}/claims"
BODIES = {
    "create_claim": '{"name": "more", "profile": "share:1GiB,1%"}',
    "resize_claim": '{"profile": "share:1GiB,1%"}',
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Network]:
    """Two tenants with claims, and a claim of none."""
    with pytest.MonkeyPatch.context() as patch:
        yield from list_listening(patch)


def list_listening(patch: pytest.MonkeyPatch) -> Iterator[Network]:
    with listening() as network:
        choose(network.daemon, patch)
        make_pool(network.daemon)
        await_true(lambda: serves(network.daemon))
        with open_pool(None) as pool:
            for name, milli in (("red", 300), ("blue", None)):
                PoolOperations(pool).tenants.create(name, milli, 0, 1)
            operations = PoolOperations(pool)
            operations.create("blue-train", "default", SHARE, 1, "keep", "blue", "blue-group")
            operations.create("blue-late", "default", SHARE, 1, "keep", "blue", late=True)
            operations.create("lone", "default", SHARE, 1, "keep")
            operations.create("red-train", "default", SHARE, 1, "keep", "red")
        yield network


@pytest.fixture(scope="module")
def red(pool: Network) -> str:
    return pool.give("tenant", "red", name="red-token")


def read_claims() -> list[dict[str, Any]]:
    claims: list[dict[str, Any]] = ask("list_claims")
    return claims


def read(answer: Answer) -> Any:
    assert answer.status == 200, answer
    return json.loads(answer.body)


def test_it_sees_its_own_alone(pool: Network, red: str) -> None:
    assert [one["name"] for one in read(pool.ask("GET", CLAIMS, red))["claims"]] == ["red-train"]
    assert [one["name"] for one in read(pool.ask("GET", f"{POOL}/tenants", red))["tenants"]] == [
        "red"
    ]
    seen = [
        pool.ask("GET", CLAIMS, red),
        pool.ask("GET", f"{CLAIMS}/red-train", red),
        pool.ask("GET", f"{CLAIMS}/red-train/explain", red),
        pool.ask("GET", f"{POOL}/tenants", red),
        pool.ask("GET", f"{POOL}/tenants/red", red),
        pool.ask("GET", "/1.0/access", red),
    ]
    for answer in seen:
        assert answer.status == 200
        assert not any(word in answer.body for word in ("blue", "lone", "batch"))
    # an answer that was made for one is not another's
    everything = pool.ask("GET", CLAIMS, pool.give("viewer"))
    assert len(read(everything)["claims"]) == 4
    blue = pool.give("tenant", "blue")
    assert {one["tenant"] for one in read(pool.ask("GET", CLAIMS, blue))["claims"]} == {"blue"}
    assert [one["name"] for one in read(pool.ask("GET", CLAIMS, red))["claims"]] == ["red-train"]
    none = pool.give("tenant", "green")
    assert read(pool.ask("GET", CLAIMS, none)) == {"schema": "vgpumgr/v1", "claims": []}


ROUTES = [one for one in SYSTEM_ROUTES if one.operation in FOR_TENANTS and "{" in one.path]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_anothers_is_as_one_that_there_is_not(pool: Network, red: str, route: Any) -> None:
    """By each route, and by names that are near to it."""
    before = read_claims()
    body = BODIES.get(route.operation, "{}" if route.method == "POST" else "")
    pairs = [
        ("blue-train", "grey-train"),
        ("blue-late", "grey-late"),
        ("lone", "zone"),
        ("blue-trai", "grey-trai"),
    ]
    if "{tenant}" in route.path:
        pairs = [("blue", "zzzz"), ("blu", "zzz")]
    for name, none in pairs:
        found, missing = (
            pool.ask(
                route.method, route.path.replace("{claim}", one).replace("{tenant}", one), red, body
            )
            for one in (name, none)
        )
        assert found.status == missing.status == 404
        assert found.body == missing.body.replace(none, name)
    assert read_claims() == before


def test_it_makes_claims_of_its_own_alone(pool: Network, red: str) -> None:
    def create(**more: object) -> Answer:
        body = {"name": "red-more", "profile": SHARE, **more}
        return pool.ask("POST", CLAIMS, red, json.dumps(body))

    before = read_claims()
    for tenant in ("blue", "none", "Red"):
        refused = create(tenant=tenant)
        assert (refused.status, json.loads(refused.body)["error"]["id"]) == (403, "VG353")
    assert create(tenant="").status == create(owner="blue").status == create(gpus=0).status == 400
    assert read_claims() == before
    # without a tenant it is its own, also within its quota
    made = read(create())["claim"]
    assert (made["tenant"], made["state"]) == ("red", "granted")
    larger = create(name="red-large", profile="whole")
    assert larger.status == 422
    assert "quota of tenant red" in larger.body
    # a name that another has cannot be had
    taken = create(name="blue-train")
    assert (taken.status, json.loads(taken.body)["error"]["id"]) == (409, "VG384")
    assert [one["name"] for one in read(pool.ask("GET", CLAIMS, red))["claims"]] == [
        "red-train",
        "red-more",
    ]
    resized = pool.ask("PATCH", f"{CLAIMS}/red-more", red, '{"profile": "share:4GiB,5%"}')
    assert read(resized)["claim"]["compute_percent"] == 5
    assert read(pool.ask("DELETE", f"{CLAIMS}/red-more", red))["deleted"] is True
    assert read_claims() == before


def test_a_claim_that_binds_late_is_held_and_released(pool: Network, red: str) -> None:
    body = json.dumps({"name": "red-late", "profile": SHARE, "binding": "late"})
    assert read(pool.ask("POST", CLAIMS, red, body))["claim"]["state"] == "idle"
    assert read(pool.ask("POST", f"{CLAIMS}/red-late/hold", red))["claim"]["state"] == "granted"
    assert read(pool.ask("POST", f"{CLAIMS}/red-late/release", red))["claim"]["state"] == "idle"
    assert read(pool.ask("DELETE", f"{CLAIMS}/red-late", red))["deleted"] is True


def test_a_path_to_anothers_claim_has_no_other_form(pool: Network, red: str) -> None:
    before = read_claims()
    forms = [
        *list_paths(f"{CLAIMS}/blue-train"), f"{CLAIMS}/red-train%2f..%2fblue-train",
        f"{CLAIMS}/red-train/../blue-train", f"{CLAIMS}/red-train%0Ablue-train",
        f"{CLAIMS}/blue%2Dtrain", f"{CLAIMS}/red-train?claim=blue-train",
    ]  # fmt: skip
    for path in forms:
        raw = f"DELETE {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {red}\r\n\r\n"
        if "?claim=" in path:
            raw = raw.replace("DELETE", "GET")
        answer = pool.send(raw.encode("latin-1"))
        assert answer.status in (400, 404, 405) or (
            "?claim=" in path and "blue" not in answer.body
        ), path
    assert read_claims() == before


def test_tenants_are_changed_by_administrators_alone(pool: Network, red: str) -> None:
    body = '{"name": "green", "quota_milli": 500}'
    for token in (red, pool.give("operator"), pool.give("viewer")):
        assert pool.ask("POST", f"{POOL}/tenants", token, body).status == 403
        assert pool.ask("PATCH", f"{POOL}/tenants/red", token, '{"weight": 9}').status == 403
        assert pool.ask("DELETE", f"{POOL}/tenants/red", token).status == 403
    admin = pool.give("admin")
    assert read(pool.ask("POST", f"{POOL}/tenants", admin, body))["tenant"]["quota_milli"] == 500
    changed = pool.ask("PATCH", f"{POOL}/tenants/green", admin, '{"quota_milli": null}')
    assert read(changed)["tenant"]["quota_milli"] is None
    assert pool.ask("PATCH", f"{POOL}/tenants/green", admin, "{}").status == 400
    assert read(pool.ask("DELETE", f"{POOL}/tenants/green", admin))["deleted"] is True
    held = pool.ask("DELETE", f"{POOL}/tenants/blue", admin)
    assert (held.status, "claim blue-late" in held.body) == (409, True)


def test_what_was_changed_is_read_at_once_and_stands_in_the_audit_log(pool: Network) -> None:
    operator = pool.give("operator", name="day-shift")
    for number in range(3):
        body = json.dumps({"name": f"one-{number}", "profile": "share:1GiB,1%", "tenant": "blue"})
        assert pool.ask("POST", CLAIMS, operator, body).status == 200
        listed = read(pool.ask("GET", CLAIMS, operator))["claims"]
        assert f"one-{number}" in [one["name"] for one in listed]
        assert pool.ask("DELETE", f"{CLAIMS}/one-{number}", operator).status == 200
        listed = read(pool.ask("GET", CLAIMS, operator))["claims"]
        assert f"one-{number}" not in [one["name"] for one in listed]
    pool.ask("DELETE", f"{CLAIMS}/one-9", operator)
    lines = (pool.daemon.directory / "audit.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    mine = [one for one in entries if one.get("token") == "day-shift"]
    ends = {one["id"]: one for one in entries if one["event"] == "end"}
    assert [one["operation"] for one in mine] == ["create_claim", "delete_claim"] * 3 + [
        "delete_claim"
    ]
    assert mine[0]["params"]["name"] == "one-0"
    outcomes = [(ends[one["id"]]["outcome"], ends[one["id"]]["error"]) for one in mine]
    assert outcomes == [("succeeded", None)] * 6 + [("failed", "VG383")]
