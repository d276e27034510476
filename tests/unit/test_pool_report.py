"""``vgpumgr pool report`` from outside: what hosts have counted, in the store and in this host's file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli, Result
from tests.support.clock import FakeClock
from tests.support.fake_nvml import FakeNvml
from tests.support.pool_host import PoolHost, choose_machine
from vgpumgr.pool.ledger import Day, Held
from vgpumgr.pool.membership import STORE_NAME, open_pool
from vgpumgr.pool.queue import QueueWatch
from vgpumgr.pool.recorder import Recorder, ledger_key
from vgpumgr.pool.report import make_report
from vgpumgr.pool.store.interface import Put, Store, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore

HOUR = 3600.0
DAY = 24 * HOUR
SHARE = "share:8GiB,30%"
NOW = 20_000 * DAY + 18.5 * HOUR


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    choose_machine(tmp_path / "a", monkeypatch)
    monkeypatch.setattr("vgpumgr.host.clock.SystemClock.wall_s", lambda _: NOW)
    return PoolHost(tmp_path / "a", [make_gpu(A100, number) for number in range(2)])


def run(host: PoolHost, *words: str, terminal: bool = False) -> Result:
    cli = Cli(FakeNvml([make_gpu()]), host.machine.state_dir.parent)
    return cli.run("pool", "report", *words, terminal=terminal)


def read(host: PoolHost, *words: str) -> Any:
    done = run(host, *words, "-o", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def write_day(name: str, day: int, text: str | dict[str, Any], pool: str | None = None) -> None:
    """What another host has written."""
    with open_pool(None) as opened:
        own = opened.record(opened.view()).id
        if isinstance(text, dict):
            text = json.dumps({"form": 1, "pool": pool or own, **text})
        opened.store.transact(Transaction((), (Put(ledger_key(day, name), text),)))


def make_day(claim: str, tenant: str, hours: dict[int, float], gpus: int = 4) -> dict[str, Any]:
    """A share of 300 thousandths, of which a tenth was used; one grant after a wait of ten seconds."""
    day = Day()
    for hour, seconds in hours.items():
        day.gpus_s[hour] = gpus * seconds
        amount = day.find(claim, tenant, hour)
        amount.granted_s, amount.allocated_s = seconds, 0.3 * seconds
        amount.known_s, amount.used_s = amount.allocated_s, 0.03 * seconds
    day.add_wait(claim, tenant, 34)
    return day.encode()


def open_recorder(host: PoolHost, clock: FakeClock) -> Recorder:
    with open_pool(None) as pool:
        id_ = pool.record(pool.view()).id

    def open_store() -> Store:
        return SqliteStore(host.machine.state_dir / STORE_NAME, clock, "boot")

    return Recorder(host.machine, id_, "a", clock, open_store)


def test_a_pool_without_figures_says_who_has_counted_nothing(host: PoolHost) -> None:
    done = run(host)
    assert (done.code, done.out) == (0, "")
    assert "0.00 GPU-hours in the pool" in done.err
    assert "nothing is counted by a" in done.err
    found = read(host)
    assert (found["reuse_factor"], found["used_gpu_hours"], found["claims"]) == (None, None, [])


def test_hosts_are_added_up_by_tenant_and_by_claim(host: PoolHost) -> None:
    host.ask("upgrade")
    write_day("b", 20_000, make_day("train", "vision", {10: 3600, 11: 3600}))
    write_day("c", 20_000, make_day("train", "vision", {11: 1800}))
    write_day("c", 19_999, make_day("web", "", {23: 3600}))
    found = read(host, "--since", "2d")
    assert found["gpu_hours"] == 4 * 3.5
    assert found["granted_gpu_hours"] == 3.5
    assert found["reuse_factor"] == 0.25
    assert found["allocated_percent"] == 7.5
    (web, train) = found["claims"]
    assert (web["tenant"], web["name"], web["granted_gpu_hours"]) == (None, "web", 1)
    assert (train["tenant"], train["name"], train["granted"]) == ("vision", "train", 2)
    assert (train["allocated_gpu_hours"], train["used_gpu_hours"]) == (0.75, 0.075)
    assert (train["idle_gpu_hours"], train["unknown_gpu_hours"]) == (0.675, 0)
    assert train["wait_median_s"] == pytest.approx(10, rel=0.16)
    assert {row["name"]: row["gpu_hours"] for row in found["hosts"]} == {"a": 0, "b": 8, "c": 6}
    tenants = {row["tenant"]: row["allocated_gpu_hours"] for row in found["tenants"]}
    assert tenants == {None: 0.3, "vision": 0.75}
    # as people and spreadsheets read it
    table = run(host, "--by", "tenant", "--since", "2d", terminal=True).out.splitlines()
    assert table[0].split()[:4] == ["TENANT", "ALLOCATED", "USED", "IDLE"]
    assert table[2].split()[:4] == ["vision", "0.75", "0.07", "0.68"]
    rows = list(csv.DictReader(io.StringIO(run(host, "--since", "2d", "-o", "csv").out)))
    assert [(row["name"], row["allocated"]) for row in rows] == [("web", "0.3"), ("train", "0.75")]


def test_since_begins_with_an_hour(host: PoolHost) -> None:
    write_day("b", 20_000, make_day("train", "vision", dict.fromkeys(range(24), 3600.0)))
    write_day("b", 19_999, make_day("train", "vision", dict.fromkeys(range(24), 3600.0)))
    # at 18:30; what a clock that was set has written of the future does not count
    for since, hours in (("1h", 2), ("6h", 7), ("18h", 19), ("24h", 25), ("1d", 25), ("1w", 43)):
        assert read(host, "--since", since)["granted_gpu_hours"] == hours, since


def test_one_tenant(host: PoolHost) -> None:
    write_day("b", 20_000, make_day("train", "vision", {10: 3600}))
    write_day("c", 20_000, make_day("web", "shop", {10: 3600}))
    found = read(host, "--tenant", "shop")
    assert [row["name"] for row in found["claims"]] == ["web"]
    # the pool's GPUs are not the tenant's
    assert (found["granted_gpu_hours"], found["gpu_hours"], found["reuse_factor"]) == (1, 8, None)
    done = run(host, "--tenant", "shopp")
    assert (done.code, "no tenant shopp" in done.err) == (5, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--since", "x"), "no duration"),
        (("--since", "0d"), "no duration"),
        (("--since", "-1d"), "no duration"),
        (("--since", "36d"), "hosts keep 35 days"),
        (("--since", "9999999d"), "no duration"),
        (("--by", "host"), "neither claim nor tenant"),
    ],
)
def test_bad_options(host: PoolHost, words: tuple[str, ...], text: str) -> None:
    done = run(host, *words)
    assert (done.code, text in done.err, done.out) == (2, True, "")


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "\x7f", '{"form":1}',
        {"gpus_s": {"24": 1}, "claims": []},
        {"gpus_s": {"1": -1}, "claims": []},
        {"gpus_s": {"1": 1e999}, "claims": []},
        {"gpus_s": {}, "claims": [["x", "y", {"1": [1, 2, 3]}]]},
        {"gpus_s": {}, "claims": [["x", "y", {"1": [1, 2, 3, "z"]}, {}]]},
    ],
)  # fmt: skip
def test_what_no_program_of_this_version_has_written_is_left_out(
    host: PoolHost, text: str | dict[str, Any]
) -> None:
    write_day("b", 20_000, text)
    write_day("c", 20_000, make_day("web", "shop", {10: 3600}))
    write_day("d", 20_000, make_day("old", "shop", {10: 3600}), pool="another pool")
    assert [row["name"] for row in read(host)["claims"]] == ["web"]


def test_this_hosts_own_file_is_newer_than_what_the_store_has(host: PoolHost) -> None:
    clock = FakeClock()
    clock.set_s = NOW - HOUR - clock.now_s
    recorder = open_recorder(host, clock)
    recorder.follow({"train": Held("vision", 1, 300)}, 2)
    clock.sleep(600)
    recorder.follow({"train": Held("vision", 1, 300)}, 2)
    recorder.save()
    assert read(host)["granted_gpu_hours"] == round(600 / HOUR, 4)
    assert recorder.publish()
    assert read(host)["granted_gpu_hours"] == round(600 / HOUR, 4)
    clock.sleep(600)
    recorder.follow({"train": Held("vision", 1, 300)}, 2)
    recorder.save()
    assert read(host)["granted_gpu_hours"] == round(1200 / HOUR, 4)
    # begun anew without the file, it is added to what the store has
    (host.machine.state_dir / "pool-ledger.json").unlink()
    recorder = open_recorder(host, clock)
    recorder.follow({"train": Held("vision", 1, 300)}, 2)
    clock.sleep(600)
    recorder.follow({"train": Held("vision", 1, 300)}, 2)
    recorder.save()
    assert read(host)["granted_gpu_hours"] == round(1200 / HOUR, 4)
    # who leaves the pool leaves no file of it
    with open_pool(None) as pool:
        assert make_report(pool, pool.view(), HOUR, None)["hosts"]
    (host.machine.state_dir / "pool-ledger.json").write_text("{")
    assert read(host)["granted_gpu_hours"] == round(600 / HOUR, 4)


def test_the_process_that_serves_counts_leases_tenants_and_waits(host: PoolHost) -> None:
    """Claims are made by commands, and rounds by hand; the figures are read from outside."""
    clock = FakeClock()
    clock.set_s = NOW - HOUR - clock.now_s
    recorder = open_recorder(host, clock)
    host.recorder = recorder
    host.queue = QueueWatch("boot", clock.monotonic_s, recorder.note_wait)
    cli = Cli(FakeNvml([make_gpu()]), host.machine.state_dir.parent)
    assert cli.run("tenant", "create", "vision").code == 0
    host.round()
    host.claim("big", "whole", gpus=2, tenant="vision")
    host.claim("next", SHARE)
    clock.sleep(40)
    host.round()
    cli.run("claim", "delete", "big")
    for _ in range(4):
        host.round()
    clock.sleep(60)
    host.round()
    recorder.count_uses()
    recorder.save()
    rows = {row["name"]: row for row in read(host)["claims"]}
    assert rows["big"]["tenant"] == "vision"
    assert rows["big"]["granted_gpu_hours"] == round(2 * 40 / HOUR, 4)
    assert rows["next"]["granted_gpu_hours"] == round(60 / HOUR, 4)
    # nothing has it: all of it was idle
    assert (rows["next"]["used_gpu_hours"], rows["next"]["unknown_gpu_hours"]) == (0, 0)
    assert rows["next"]["wait_median_s"] == pytest.approx(40, rel=0.16)
    assert rows["big"]["wait_median_s"] in (None, 0)
