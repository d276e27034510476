"""What a pool's queue, leases and events look like to who only shows them: metrics, events, bindings and top."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.support.boards import A100, make_gpu
from tests.support.clock import FakeClock
from tests.support.pool_host import PoolHost, choose_machine
from tests.support.screen import read_screen
from vgpumgr.app.metrics import Collected, format_exposition, list_samples
from vgpumgr.app.metrics_source import MetricsSource
from vgpumgr.app.pool_metrics import MAX_LEASES, POOL_METRICS, sample_leases, sample_pool
from vgpumgr.cli.daemon import describe
from vgpumgr.errors import PoolStoreError
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.lock import lock_file
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.records import ClaimRecord, put
from vgpumgr.pool.membership import LOCK_NAME, open_pool, read_seen
from vgpumgr.pool.queue import MAX_SHOWN, QueueWatch
from vgpumgr.pool.store.interface import Transaction
from vgpumgr.server.pool_events import MAX_EVENTS, list_events
from vgpumgr.state.leases import SeenLease, SeenPool, SeenQueue, SeenTenant, SeenWait
from vgpumgr.tui.pool import ORDERS, PoolView, draw_once
from vgpumgr.tui.pool_app import PoolApp

SHARE = "share:8GiB,30%"


class Queued(PoolHost):
    """A host whose leader watches the queue, by a clock of the test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [make_gpu(A100, number, None) for number in range(2)])
        self.clock = FakeClock()
        self.waits: list[tuple[str, str, float]] = []
        self.restart_leader()

    def restart_leader(self, boot: str = "boot") -> None:
        """Another process of this host serves and leads."""
        seen = read_seen(self.machine)
        before = seen.queue if seen else None
        self.queue = QueueWatch(
            boot, self.clock.monotonic_s, lambda *wait: self.waits.append(wait), before
        )

    def seen(self) -> SeenPool:
        found = read_seen(self.machine)
        assert found is not None
        return found

    def read_oldest(self, boot: str = "boot") -> dict[str, float]:
        samples = sample_pool(self.seen(), {"hostname": "h"}, (boot, self.clock.monotonic_s()))
        return {
            one.labels["tenant"]: one.value
            for one in samples
            if one.name == "pool_queue_oldest_wait_seconds"
        }


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queued:
    choose_machine(tmp_path / "a", monkeypatch)
    return Queued(tmp_path / "a")


def test_waits_last_from_the_first_sight_to_the_grant(host: Queued) -> None:
    host.ask("upgrade")
    host.claim("big", "whole", gpus=2)
    host.claim("next", SHARE)
    assert [one.claim for one in host.seen().queue.waiting] == ["next"]  # type: ignore[union-attr]
    assert "all are in use" in host.seen().queue.waiting[0].why  # type: ignore[union-attr]
    host.clock.sleep(100)
    host.round()
    assert host.read_oldest() == {"": 100}
    # the process that serves is another one: the wait goes on, unless the machine has booted
    host.restart_leader()
    host.clock.sleep(20)
    host.round()
    assert host.read_oldest() == {"": 120}
    assert host.read_oldest("another boot") == {"": 0}
    host.ask("delete", "big")
    for _ in range(3):
        host.round()
    assert ("next", "", 120.0) in host.waits
    assert host.read_oldest() == {"": 0}
    assert host.seen().queue.waiting == ()  # type: ignore[union-attr]
    host.restart_leader("another boot")
    host.claim("big", "whole", gpus=2)
    host.clock.sleep(5)
    host.round()
    assert host.read_oldest("another boot") == {"": 5}


def test_what_is_granted_in_the_round_that_sees_it_has_not_waited(host: Queued) -> None:
    with open_pool(None) as pool:
        pool.store.transact(
            Transaction((), (put(ClaimRecord("train", "default", 1, 8 << 30, 30.0)),))
        )
    host.round()
    assert host.ask("show", "train")["state"] == "granted"
    assert (host.waits, host.seen().queue.waiting) == ([("train", "", 0.0)], ())  # type: ignore[union-attr]
    host.round()
    assert len(host.waits) == 1


def test_who_does_not_lead_says_nothing_of_the_queue(host: Queued) -> None:
    host.claim("big", "whole", gpus=2)
    assert host.queue is not None
    host.queue.lose()
    assert host.queue.describe() is None
    seen = replace(host.seen(), queue=None)
    names = {one.name for one in sample_pool(seen, {"hostname": "h"}, ("boot", 0.0))}
    assert names == {"pool_store_answers", "pool_leases"}
    # one that is cut off does not repeat what it knew as the leader
    cut = replace(host.seen(), is_answering=False)
    names = {one.name for one in sample_pool(cut, {"hostname": "h"}, ("boot", 0.0))}
    assert names == {"pool_store_answers", "pool_leases"}


def test_every_metric_of_the_pool_is_there_with_its_labels(host: Queued) -> None:
    host.ask("upgrade")
    host.claim("train", SHARE)
    host.service.attach(AttachRequest("vm01", claim="train"))
    host.round()
    host.round()
    seen = host.seen()
    assert seen.queue is not None
    tenant = SeenTenant("vision", 4000, 300, 1, host.clock.now_s - 60)
    seen = replace(seen, queue=replace(seen.queue, tenants=(tenant,)))
    (record,) = host.bench.store.list_attachments()
    host.bench.channels.share_more = {"used_s": 7.5, "throttled_s": 0.5}
    host.bench.channels.used[record.id] = 5
    status = host.bench.channels.read_status(record.id)
    inventory = host.bench.nvml.read_inventory()
    samples = [
        *sample_pool(seen, {"hostname": "h"}, ("boot", host.clock.now_s)),
        *sample_leases(seen, {"hostname": "h"}, inventory, [record], {("vm01", 0): status}),
    ]
    values = {one.name: one.value for one in samples if one.name != "pool_hosts"}
    assert {one.name for one in samples} == {spec.name for spec in POOL_METRICS}
    assert values["pool_lease_memory_bytes"] == 8 << 30
    assert values["pool_lease_memory_used_bytes"] == 5
    assert values["pool_lease_compute_ratio"] == 0.3
    assert values["pool_lease_used_seconds_total"] == 7.5
    assert values["pool_lease_throttled_seconds_total"] == 0.5
    assert (values["pool_tenant_quota_gpus"], values["pool_tenant_allocated_gpus"]) == (4, 0.3)
    assert (values["pool_queue_claims"], values["pool_queue_oldest_wait_seconds"]) == (1, 60)
    hosts = {one.labels["state"]: one.value for one in samples if one.name == "pool_hosts"}
    assert hosts == {"ready": 1, "suspect": 0, "fenced": 0}
    lease = next(one for one in samples if one.name == "pool_lease_compute_ratio")
    assert lease.labels == {
        "claim": "train", "tenant": "", "gpu": "0", "hostname": "h",
        "UUID": str(inventory.gpus[0].uuid),
    }  # fmt: skip
    format_exposition(samples)  # refuses labels that the table has not


def test_the_collection_reads_what_the_serving_process_has_kept(host: Queued) -> None:
    host.claim("train", SHARE)
    host.round()
    source = MetricsSource(
        host.parts.read_inventory, host.bench.store, host.bench.channels,
        LateRecords(host.machine.run_dir), leases=host.leases, boot="boot",
    )  # fmt: skip
    with lock_file(host.machine.run_dir / LOCK_NAME, 0, what="pool serve"):
        samples = list(list_samples(Collected(source.observe(), True), (), "1", "h"))
    found = {one.name for one in samples if one.name.startswith("pool_")}
    assert {"pool_lease_memory_bytes", "pool_hosts", "pool_queue_claims"} <= found
    # nothing uses it: how much is used is no zero
    assert "pool_lease_used_seconds_total" not in found


def make_seen(leases: int = 0, waiting: int = 0, **more: Any) -> SeenPool:
    queue = SeenQueue("boot", tuple(SeenWait(f"w{n}", "", 1.0) for n in range(waiting)))
    found = tuple(
        SeenLease(f"c{n}", 5, (f"GPU-{n}",), tenant="t", milli=100) for n in range(leases)
    )
    return SeenPool("a", "leads", 0.0, True, found, 9, queue=replace(queue, **more))


def test_series_and_lists_are_bounded(host: Queued) -> None:
    samples = list(
        sample_leases(
            make_seen(leases=3 * MAX_LEASES),
            {"hostname": "h"},
            host.bench.nvml.read_inventory(),
            (),
            {},
        )
    )
    assert len({one.labels["claim"] for one in samples}) == MAX_LEASES
    events = list_events(make_seen(), make_seen(leases=1000, waiting=1000))
    assert (len(events), events[-1]["state"]) == (MAX_EVENTS + 1, "more")
    assert events[-1]["why"] == f"{2000 - MAX_EVENTS} more claims"
    host.claim("big", "whole", gpus=2)
    for number in range(3):
        host.claim(f"w{number}", SHARE)
    queue = host.seen().queue
    assert queue is not None
    assert (len(queue.waiting), queue.count) == (3, 3)
    assert MAX_SHOWN < 1000


def test_events_say_what_has_become_of_claims() -> None:
    lease = SeenLease("train", 5, ("GPU-1",), tenant="t", milli=300)

    def tell(*changes: tuple[SeenLease, ...]) -> list[str]:
        befores = [replace(make_seen(), leases=one) for one in changes]
        pairs = pairwise(befores)
        return [str(one["state"]) for a, b in pairs for one in list_events(a, b)]

    ending, larger = replace(lease, is_ending=True, token=6), replace(lease, milli=500, token=6)
    assert tell((), (lease,), (lease,)) == ["granted"]
    assert tell((lease,), (larger,), ()) == ["changed", "ended"]
    assert tell((lease,), (ending,), ()) == ["ended"]
    # granted anew before anything was heard of its end
    assert tell((ending,), (replace(lease, token=9),)) == ["ended", "granted"]
    # a token alone is no change for people
    assert tell((lease,), (replace(lease, token=9),)) == []
    # what was there when the daemon came is no news, nor is a store that is silent
    assert list_events(None, replace(make_seen(), leases=(lease,))) == []
    silent = replace(make_seen(), is_answering=False)
    assert list_events(replace(make_seen(), leases=(lease,)), silent) == []
    (waits,) = list_events(make_seen(), make_seen(waiting=1))
    assert (waits["state"], waits["claim"], waits["place"]) == ("waiting", "w0", 1)
    assert list_events(make_seen(waiting=1), make_seen(waiting=1)) == []
    line = describe({"id": 1, "type": "claim", "time_s": 0.0, **waits})
    assert line.endswith("claim w0  waiting, place 1")


def make_row(name: str, index: int, **more: Any) -> dict[str, Any]:
    used_by = {"kind": "vm", "name": "vm01", "attachment": name}
    use = {
        "memory_used_bytes": 1 << 30, "gpu_used_s": 5.0, "throttled_s": 0.0, "charged_percent": None,
        "processes": [{"pid": 7, "name": "python3", "memory_bytes": 1 << 30}],
    }  # fmt: skip
    return {
        "host": "gpu-a", "gpu_index": index, "gpu_uuid": "GPU-0", "model": "T4", "name": name,
        "tenant": None, "gpu_milli": 300, "memory_bytes": 8 << 30, "compute_percent": 30.0,
        "ending": False, "used_by": used_by, "use": use, "use_unknown": None, **more,
    }  # fmt: skip


def make_document(*rows: Mapping[str, Any]) -> dict[str, Any]:
    gpus = [
        {"index": n, "uuid": f"GPU-{n}", "model": "NVIDIA T4", "memory_bytes": 16 << 30,
         "free_milli": 400, "closed": "drained: fan" if n else None}
        for n in range(2)
    ]  # fmt: skip
    hosts = [
        {"name": "gpu-a", "state": "ready", "heard": True, "gpus": gpus, "leases": len(rows)},
        {"name": "gpu-b", "state": "suspect", "heard": False, "gpus": [], "leases": 1},
    ]
    return {
        "pool": {"host": "gpu-a"}, "leader": "gpu-a", "gpus": 2, "gpu_free_milli": 800,
        "claims": {"granted": 2, "waiting": 1, "ending": 0, "idle": 0},
        "hosts": hosts, "bindings": [*rows],
    }  # fmt: skip


def test_top_orders_leases_by_their_part_of_the_time() -> None:
    view = PoolView()
    idle = make_row("idle", 0, used_by=None, use=None, tenant="vision")
    view.show(make_document(make_row("slow", 0), make_row("quick", 0), idle), 100.0, 0.0)
    assert view.has_counters()

    def grow(name: str, used_s: float) -> dict[str, Any]:
        row = make_row(name, 0)
        return {**row, "use": {**row["use"], "gpu_used_s": used_s}}

    view.show(make_document(grow("slow", 5.2), grow("quick", 6.5), idle), 102.0, 0.0)
    picture = draw_once(view, 100)
    names = [line.split()[0] for line in picture[2:]]
    assert names == ["gpu-a", "0", "quick", "slow", "idle", "1", "gpu-b"]
    quick = picture[4]
    assert "vm vm01: python3" in quick
    assert quick.split()[-6:] == ["GiB", "of", "8", "GiB", "300", "75%"]
    assert picture[3].endswith("85%")  # the GPU has both
    assert "idle (vision)" in picture[6]
    assert picture[6].endswith("300     -")
    assert "drained: fan" in picture[7]
    assert "gpu-b (suspect)" in picture[8]
    assert all(len(line) <= 100 for line in picture[1:])
    # a keeper that began anew says nothing of the time
    view.show(make_document(grow("slow", 0.1)), 104.0, 0.0)
    assert draw_once(view, 100)[4].endswith("300     -")


def test_top_says_what_could_not_be_read() -> None:
    view = PoolView("name")
    view.show(make_document(make_row("train", 0)), 1.0, 0.0)
    assert not view.has_problem()
    other = make_row("train", 0, host="gpu-b", use=None, use_unknown="its own host knows it")
    view.show(make_document(other), 2.0, 0.0)
    assert not view.has_problem()
    view.show(make_document(make_row("train", 0, use=None, use_unknown="not read: x")), 3.0, 0.0)
    assert view.has_problem()


def test_the_keys_of_top() -> None:
    reads: list[object] = [PoolStoreError("the pool's store does not answer")]
    rows = [make_row(f"claim-{number:02}", 0) for number in range(40)]

    def read() -> Mapping[str, Any]:
        error = reads.pop() if reads else None
        if isinstance(error, PoolStoreError):
            raise error
        return make_document(*rows)

    app = PoolApp(PoolView("name"), make_document(*rows), read, FakeClock(), 3600.0)

    async def play() -> None:
        async with app.run_test(size=(100, 20)) as pilot:
            await pilot.pause()
            assert any("claim-00" in line for line in read_screen(app))
            await press(pilot, "pagedown")
            assert not any("claim-00" in line for line in read_screen(app))
            await press(pilot, "g")
            for order in (*ORDERS[:3], "name"):
                await press(pilot, "s")
                assert read_screen(app)[-1].endswith(f"sorted by {order}")
            await press(pilot, "r")
            await wait_for(pilot, "does not answer")
            assert any("claim-00" in line for line in read_screen(app))  # what was read stays
            await press(pilot, "r")
            await pilot.press("q")

    async def press(pilot: Pilot[None], key: str) -> None:
        await pilot.press(key)
        await pilot.pause()

    async def wait_for(pilot: Pilot[None], text: str) -> None:
        for _ in range(600):
            if any(text in line for line in read_screen(app)):
                return
            await pilot.pause(0.05)
        raise AssertionError(read_screen(app))

    asyncio.run(play())
