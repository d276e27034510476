"""The last hour's figures: what a point has, gaps, workers that start anew, and bounds."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.clock import FakeClock
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.history import MAX_SERIES, POINTS, History
from vgpumgr.app.metrics import Collected, Observation
from vgpumgr.errors import PoolStoreError, VgpumgrError
from vgpumgr.model.gpu import Inventory, Sensors
from vgpumgr.model.pci import PciAddress
from vgpumgr.server import sampling
from vgpumgr.server.audit import AuditLog
from vgpumgr.virtio.channel import ChannelStatus, ShareUse

ROOT = Path(__file__).parents[2]
CHANNEL = ChannelStatus("a1", 10, 11, True, True, True, 1 << 20)


def observe(calls: int | None = None, throttled_s: float = 0.0, number: int = 0) -> Observation:
    """Two GPUs, and one channel of vm01 that has made so many calls; None: it does not answer."""
    gpus = [make_gpu(A100, index, []) for index in range(2)]
    inventory: Inventory = FakeNvml(gpus).read_inventory()
    share = ShareUse(25.0, "burst", throttled_s=throttled_s)
    status = None
    if calls is not None:
        status = replace(CHANNEL, calls=calls, bytes_in=calls * 100, bytes_out=1, share=share)
    return Observation(inventory, channels={("vm01", number): status})


def read(history: History, vm: str = "vm01") -> dict[str, list[float | None]]:
    return {one.figure: one.values for one in history.describe(vm=vm).series}


def test_rates_are_of_the_time_between_two_points() -> None:
    history = History()
    history.add(observe(100, 1.0), 1000.0, 10.0)
    history.add(observe(300, 3.5), 1010.0, 20.0)
    # the wall clock was set back, which changes no rate
    history.add(observe(300, 100.0), 500.0, 25.0)
    found = read(history)
    assert found["calls_per_second"] == [None, 20, 0]
    assert found["bytes_per_second"] == [None, 2000, 0]
    assert found["throttled_ratio"] == [None, 0.25, 1]
    assert history.describe().times_s == [1000.0, 1010.0, 500.0]


def test_a_new_worker_and_one_that_does_not_answer_are_gaps() -> None:
    history = History()
    for at, calls in enumerate([100, 200, 50, 60, None, 70, 80]):
        history.add(observe(calls), at * 10.0, at * 10.0)
    assert read(history)["calls_per_second"] == [None, 10, None, 1, None, None, 1]
    hangs = Observation(
        observe().inventory, channels={("vm01", 0): replace(CHANNEL, keeper_hangs=True)}
    )
    history.add(hangs, 70.0, 70.0)
    assert read(history)["calls_per_second"][-1] is None


def test_series_of_gpus_are_those_of_the_drivers() -> None:
    history = History()
    seen = observe()
    address = PciAddress.parse("0000:65:00.0")
    sensors = {address: Sensors(temperature_c=40.5, power_w=12.25, gpu_ratio=0.5)}
    history.add(replace(seen, sensors=sensors), 1.0, 1.0)
    gpu = seen.inventory.gpus[0]
    found = {one.figure: one.values for one in history.describe(gpu=gpu.uuid).series}
    assert found["memory_used_bytes"] == [gpu.memory.used_bytes]
    other = history.describe(gpu=str(address)).series
    assert {one.figure: one.values for one in other} == {
        "temperature_celsius": [40.5], "power_watts": [12.25], "utilisation_ratio": [0.5],
    }  # fmt: skip
    assert history.describe(gpu="none").series == []
    every = history.describe().series
    assert [one.gpu for one in every] == sorted(one.gpu or "" for one in every)


def test_an_hour_is_kept_and_what_is_gone_is_forgotten() -> None:
    history = History(points=3)
    for at in range(5):
        history.add(observe(at), float(at), float(at))
    assert history.describe().times_s == [2.0, 3.0, 4.0]
    assert read(history)["calls_per_second"] == [1, 1, 1]
    bare = Observation(observe().inventory)
    for at in range(5, 7):
        history.add(bare, float(at), float(at))
    assert read(history)["calls_per_second"] == [1, None, None]
    history.add(bare, 7.0, 7.0)
    assert read(history) == {}


FIGURES = {"gpu_free_milli": 500.0, "claims_waiting": 2.0}


def test_the_pools_figures_stand_beside_the_gpus() -> None:
    history = History(points=3)
    history.add(observe(), 0.0, 0.0)
    history.add(observe(), 1.0, 1.0, FIGURES)
    found = {one.figure: one.values for one in history.describe(pool=True).series}
    assert found == {"gpu_free_milli": [None, 500], "claims_waiting": [None, 2]}
    for one in history.describe(pool=True).series:
        assert (one.gpu, one.vm, one.attachment) == (None, None, None)
    assert len(history.describe().series) > len(found)
    assert not {one.figure for one in history.describe(vm="vm01").series} & set(found)
    for at in range(2, 5):
        history.add(observe(), float(at), float(at))
    assert history.describe(pool=True).series == []
    # they are there however many channels there are
    full = History(points=3, max_series=3)
    full.add(observe(), 0.0, 0.0, FIGURES)
    assert len(full.describe(pool=True).series) == 2
    assert len(full.describe().series) == 3


def test_there_are_no_more_series_than_the_bound() -> None:
    history = History(points=4, max_series=10)
    for number in range(100):
        figures = {f"figure {other}": 1.0 for other in range(number % 20)}
        history.add(observe(number, number=number), float(number), float(number), figures)
        history.add(observe(number + 1, number=number), number + 0.5, number + 0.5)
    assert len(history._series) <= 10
    assert all(len(values) == 4 for values in history._series.values())
    # an answer is what JSON has: no infinity, and no number that is none
    json.loads(json.dumps(history.describe().as_data(), allow_nan=False))


def test_a_series_that_is_gone_gives_its_place() -> None:
    bare = History()
    bare.add(observe(1), 0.0, 0.0)
    bare.add(observe(2), 1.0, 1.0)
    history = History(points=100, max_series=len(bare._series))
    for number in range(3):
        for at in (0.0, 0.5):
            history.add(observe(number + int(at > 0), number=number), number + at, number + at)
        found = {(one.vm, one.attachment) for one in history.describe(vm="vm01").series}
        assert found == {("vm01", number)}
        # a series that exists keeps its place
        assert read(history)["calls_per_second"][-1] is not None
        assert all(key.gpu or key.attachment == number for key in history._series)


def test_a_copy_stays_as_it_was() -> None:
    """It is written in a thread, while points are added."""
    history = History()
    history.add(observe(1), 0.0, 0.0)
    taken, before = history.take(), history.describe()
    history.add(observe(2), 1.0, 1.0)
    assert taken.describe() == before
    assert {len(one.values) for one in before.series} == {len(before.times_s)} == {1}


def test_a_full_history_has_the_size_that_the_documentation_says() -> None:
    history = History()
    seen = observe(1)
    # three series each: some more than there may be
    places = [("vm01", number) for number in range(MAX_SERIES // 3 + 1)]
    seen = replace(seen, channels=dict.fromkeys(places, seen.channels["vm01", 0]))
    for at in range(POINTS + 1):
        history.add(seen, float(at), float(at))
    assert len(history._series) == MAX_SERIES
    arrays = [history._times, *history._series.values()]
    assert {len(values) for values in arrays} == {POINTS}
    (size,) = re.findall(r"at most ([0-9.]+) MB, (\d+) series", (ROOT / "docs/web.md").read_text())
    assert sum(map(sys.getsizeof, arrays)) <= float(size[0]) * 1e6
    assert int(size[1]) == MAX_SERIES


class Collector:
    """The metrics' service."""

    def __init__(self) -> None:
        self.answers = [
            Collected(),
            Collected(observe(1), True, 5.0, 0.1),
            Collected(observe(1), True, 5.0, 0.1),
            Collected(observe(1), False, 5.0, 0.1),
            Collected(observe(2), True, 15.0, 0.1),
        ]
        self.clock = FakeClock()
        self.history = History()

    def sample(self, wait_s: float) -> Collected:
        self.clock.now_s += wait_s
        return self.answers.pop(0) if self.answers else Collected()


class Reader:
    """The daemon's reads of its pool."""

    def __init__(self, answers: list[VgpumgrError | None], *, hangs: bool = False) -> None:
        self.answers, self.hangs = answers, hangs
        self.ages: list[float] = []

    def is_member(self) -> bool:
        return bool(self.answers)

    async def read(self, max_age_s: float, *, after_changes: bool) -> SimpleNamespace:
        assert not after_changes
        self.ages.append(max_age_s)
        if self.hangs:
            await asyncio.Event().wait()
        error = self.answers[min(len(self.ages), len(self.answers)) - 1]
        if error is not None:
            raise error
        found = {"claims_waiting": len(self.ages)}
        return SimpleNamespace(operations=SimpleNamespace(measure=lambda: found))


@pytest.mark.parametrize("keep", [True, False])
def test_each_good_collection_is_one_point(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "STEP_S", 0.01)
    collector = Collector()
    settings = SimpleNamespace(history=SimpleNamespace(keep=keep))
    context = SimpleNamespace(
        metrics=collector, clock=collector.clock, history=collector.history, pool=(reader := Reader([None])),
        configuration=SimpleNamespace(settings=settings),
    )  # fmt: skip

    async def run() -> None:
        async with sampling.keep_history(context):  # type: ignore[arg-type]
            while keep and collector.answers:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)

    asyncio.run(run())
    assert collector.history.describe().times_s == ([5.0, 15.0] if keep else [])
    assert bool(reader.ages) == keep


GONE = PoolStoreError("etcd does not answer")


@pytest.mark.parametrize(
    ("reader", "waiting"),
    [
        (Reader([None, GONE, None]), [1, None, 3]),
        (Reader([GONE]), None),
        (Reader([None], hangs=True), None),
        (Reader([]), None),
    ],
    ids=["outage", "gone", "hangs", "none"],
)
def test_a_pool_that_does_not_answer_is_a_gap(
    reader: Reader, waiting: list[int | None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "STEP_S", 0.01)
    monkeypatch.setattr(sampling, "_POOL_S", 0.05)
    collector = Collector()
    collector.answers = [Collected(observe(1), True, float(at), 0.1) for at in range(3)]
    settings = SimpleNamespace(history=SimpleNamespace(keep=True))
    context = SimpleNamespace(
        metrics=collector, clock=collector.clock, history=collector.history, pool=reader,
        configuration=SimpleNamespace(settings=settings),
    )  # fmt: skip

    async def run() -> None:
        async with sampling.keep_history(context):  # type: ignore[arg-type]
            while len(collector.history.describe().times_s) < 3:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert collector.history.describe().times_s == [0.0, 1.0, 2.0]
    found = {one.figure: one.values for one in collector.history.describe(pool=True).series}
    assert found.get("claims_waiting") == waiting
    assert set(reader.ages) <= {0.01}


def test_the_last_entries_of_the_audit_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", FakeClock(), max_bytes=700)
    assert log.read_last(5) == []
    for number in range(9):
        log.append({"event": f"e{number}"})
    assert (tmp_path / "audit.jsonl.1").exists()
    assert [one["event"] for one in log.read_last(2)] == ["e7", "e8"]
    # also behind the place where the file was changed
    assert len(log.read_last(3)) == 3
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b"torn\n")
    assert [one["event"] for one in log.read_last(2)] == ["e8"]
