"""Metrics without a machine: the cache in front of a stuck one, counts that survive, the page of the table."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.boards import A100, make_gpu
from tests.support.clock import FakeClock
from tests.support.fake_channels import FakeChannels
from tests.support.fake_nvml import FakeNvml
from tests.support.service import make_bench
from vgpumgr.app.metrics import (
    GPU_LABELS,
    METRICS,
    Collected,
    MetricsService,
    Observation,
    Sample,
    format_exposition,
    list_samples,
)
from vgpumgr.app.metrics_source import TTL_S, MetricsCache, MetricsSource, count_drift
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import FileWriteError, HelperLateError, NvmlError, VgpumgrError
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.process import read_identity
from vgpumgr.host.statistics import open_statistics
from vgpumgr.model.gpu import Inventory
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.drift import DriftKind

LONG_S = 60.0


def make_inventory() -> Inventory:
    return FakeNvml([make_gpu(A100, 0, [("3g.40gb", 4)])]).read_inventory()


class Machine:
    """Something to observe that can be made to fail or to hang."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def observe(self) -> Observation:
        self.calls += 1
        self.gate.wait(LONG_S)
        if self.error:
            raise self.error
        return Observation(make_inventory())


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(machine: Machine, clock: FakeClock) -> MetricsCache:
    return MetricsCache(machine.observe, clock)


def test_scrapes_within_the_time_cost_one_collection(
    cache: MetricsCache, machine: Machine, clock: FakeClock
) -> None:
    first = cache.read(LONG_S)
    clock.sleep(TTL_S - 0.1)
    assert cache.read(LONG_S) is first
    assert machine.calls == 1
    clock.sleep(0.2)
    assert cache.read(LONG_S).observed_s == clock.wall_s()
    assert machine.calls == 2


def test_the_history_shares_what_a_scrape_has_and_a_scrape_is_as_new_as_before(
    cache: MetricsCache, machine: Machine, clock: FakeClock
) -> None:
    scraped = cache.read(LONG_S)
    assert cache.sample(LONG_S) is scraped
    clock.sleep(TTL_S)
    sampled = cache.sample(LONG_S)
    assert (sampled is scraped, machine.calls) == (False, 2)
    # what a command has changed since then is to be seen
    again = cache.read(LONG_S)
    assert (again is sampled, machine.calls) == (False, 3)
    assert (cache.read(LONG_S), cache.sample(LONG_S)) == (again, again)
    assert machine.calls == 3


def test_a_failed_collection_leaves_the_last_good_values(
    cache: MetricsCache, machine: Machine, clock: FakeClock
) -> None:
    good = cache.read(LONG_S)
    machine.error = NvmlError("GPU is lost")
    clock.sleep(TTL_S)
    bad = cache.read(LONG_S)
    assert (bad.success, bad.observation, bad.observed_s) == (False, good.observation, 1000.0)
    # a machine that fails is not asked at every scrape either
    cache.read(LONG_S)
    assert machine.calls == 2
    machine.error = None
    clock.sleep(TTL_S)
    assert cache.read(LONG_S).success


def test_a_stuck_collection_holds_up_no_scrape(
    cache: MetricsCache, machine: Machine, clock: FakeClock
) -> None:
    good = cache.read(LONG_S)
    machine.gate.clear()
    clock.sleep(TTL_S)
    bad = cache.read(0.01)
    assert (bad.success, bad.observation, bad.observed_s) == (False, good.observation, 1000.0)
    clock.sleep(3600)
    # patience is for collections that may yet come; this would wait a minute
    assert not cache.read(LONG_S * 60).success
    assert machine.calls == 2, "one stuck call is enough"
    machine.gate.set()
    wait_for(lambda: cache.read(0.01).success)
    assert machine.calls == 2


def test_nothing_good_yet_is_no_value(cache: MetricsCache, machine: Machine) -> None:
    machine.gate.clear()
    text = MetricsService(cache.read, open_statistics(Path("/nowhere")), "h").read_metrics(wait_s=0)
    names = {f.name for f in text_string_to_metric_families(text.text)}
    assert names == {"vgpumgr_build_info", "vgpumgr_last_collect_success"}
    machine.gate.set()


def test_many_scrapes_at_once_are_one_collection(cache: MetricsCache, machine: Machine) -> None:
    machine.gate.clear()
    found: list[Collected] = []
    threads = [threading.Thread(target=lambda: found.append(cache.read(LONG_S))) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: machine.calls == 1)
    machine.gate.set()
    for thread in threads:
        thread.join(LONG_S)
    assert machine.calls == 1
    assert len(found) == 8
    assert all(collected.success for collected in found)


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def make_source(tmp_path: Path, **changes: object) -> MetricsSource:
    bench = make_bench(tmp_path)
    parts = {
        "read_inventory": make_inventory,
        "store": bench.store,
        "channels": FakeChannels(tmp_path),
        "late": LateRecords(tmp_path),
    }
    return MetricsSource(**{**parts, **changes})  # type: ignore[arg-type]


def test_while_a_read_is_stuck_no_other_is_begun(tmp_path: Path) -> None:
    late = LateRecords(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = read_identity(process.pid)
        assert identity is not None
        late.record(identity, "read_inventory")
        source = make_source(tmp_path, late=late)
        with pytest.raises(HelperLateError, match="earlier read is stuck"):
            source.observe()
        process.communicate(b"\n")
    assert source.observe().inventory.gpus


def test_what_cannot_be_told_is_no_series(tmp_path: Path) -> None:
    def fail(_inventory: Inventory) -> dict[str, int]:
        raise VgpumgrError("libvirt is down")

    def names(source: MetricsSource) -> set[str]:
        collected = Collected(source.observe(), True, 0.0, 0.0)
        return {sample.name for sample in list_samples(collected, (), "1", "h")}

    assert "desired_state_drift" not in names(make_source(tmp_path, count_drift=fail))
    assert "desired_state_drift" not in names(make_source(tmp_path))
    assert "desired_state_drift" in names(
        make_source(tmp_path, count_drift=lambda _: {"vm-gone": 0})
    )


def test_a_gpu_whose_driver_gives_no_temperature_and_power_has_no_series_of_them() -> None:
    def read(temperature_c: int | None, power_mw: int | None) -> dict[str, float]:
        seen = make_inventory()
        gpus = [replace(g, temperature_c=temperature_c, power_mw=power_mw) for g in seen.gpus]
        collected = Collected(Observation(replace(seen, gpus=tuple(gpus))), True, 0.0, 0.0)
        samples = {s.name: s.value for s in list_samples(collected, (), "1", "h")}
        asked = ("gpu_temperature_celsius", "gpu_power_watts")
        return {name: samples[name] for name in asked if name in samples}

    assert read(None, None) == {}
    assert read(0, 61_500) == {"gpu_temperature_celsius": 0, "gpu_power_watts": 61.5}


def test_all_vms_with_shares_of_an_instance_are_in_its_domain(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    for vm in ("vm01", "vm02"):
        bench.service.attach(AttachRequest(vm, "share:2GiB,10%@1g.10gb"))
    seen = Observation(bench.nvml.read_inventory(), owners=tuple(bench.store.list_owners()))
    samples = list_samples(Collected(seen, True, 0.0, 0.0), (), "1", "h")
    found = [s.labels["domain"] for s in samples if s.name == "mig_instance_info"]
    assert [sorted(text.split(",")) for text in found] == [["vm01", "vm02"]]
    (spec,) = [spec for spec in METRICS if spec.name == "mig_instance_info"]
    assert "all of them with commas" in spec.help


def test_drift_is_counted_by_kind(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest(vm="vm01", profile="1g.10gb"))
    parts, inventory = bench.service.parts, bench.nvml.read_inventory()
    before = count_drift(parts, inventory)
    assert set(before) == {str(kind) for kind in DriftKind}
    assert not any(before.values())
    bench.channels.running.clear()
    assert count_drift(parts, inventory) == {**before, "keeper-gone": 1}


def test_a_channel_that_does_not_answer_is_no_series(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest(vm="vm01", profile="1g.10gb"))
    channels = bench.channels
    source = make_source(tmp_path, store=bench.store, channels=channels)
    assert [s is not None for s in source.observe().channels.values()] == [True]
    channels.running.clear()
    collected = Collected(source.observe(), True, 0.0, 0.0)
    assert list(source.observe().channels) == [("vm01", 0)]
    assert not [s for s in list_samples(collected, (), "1", "h") if s.name.startswith("channel")]


def test_operations_are_counted_by_their_end(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest(vm="vm01", profile="1g.10gb"))
    bench.hypervisor.fail["attach_device config"] = VgpumgrError("refused")
    with pytest.raises(VgpumgrError):
        bench.service.attach(AttachRequest(vm="vm02", profile="1g.10gb"))
    bench.service.attach(AttachRequest(vm="vm02", profile="1g.10gb"), dry_run=True)
    bench.service.detach("vm01")
    attach, detach = open_statistics(tmp_path / "run").list_counts()
    assert attach.outcomes == {"done": 1, "rolled-back": 1}
    assert (detach.op, detach.outcomes, sum(detach.buckets)) == ("detach", {"done": 1}, 1)


def test_counts_begin_anew_when_their_file_is_broken(tmp_path: Path) -> None:
    statistics = open_statistics(tmp_path)
    statistics.count("attach", "done", 0.3)
    whole = statistics.path.read_bytes()
    for length in range(len(whole)):
        statistics.path.write_bytes(whole[:length])
        assert statistics.list_counts() == ()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x40
        statistics.path.write_bytes(flipped)
        format_exposition(list_samples(Collected(), statistics.list_counts(), "1", "h"))
        statistics.count("attach", "done", 0.3)
        assert statistics.list_counts()


def test_a_duration_falls_into_its_bucket(tmp_path: Path) -> None:
    statistics = open_statistics(tmp_path)
    for duration_s in (0.1, 0.2, 1000.0):
        statistics.count("attach", "done", duration_s)
    text = format_exposition(list_samples(Collected(), statistics.list_counts(), "1", "h"))
    found = {
        sample.labels["le"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    assert (found["0.1"], found["0.25"], found["120.0"], found["+Inf"]) == (1, 2, 2, 3)


def test_a_sample_with_other_labels_than_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="build_info has labels"):
        format_exposition([Sample("build_info", {"version": "1"}, 1)])


def test_hostile_names_stay_in_their_quotes() -> None:
    """A VM's name is its owner's to choose."""
    name = 'a"} 1\nvgpumgr_last_collect_success{hostname="h'
    labels = {"domain": name, "attachment": "0", "hostname": "h"}
    text = format_exposition([Sample("channel_lanes", labels, 3)])
    (family,) = text_string_to_metric_families(text)
    assert [(s.name, s.labels["domain"]) for s in family.samples] == [
        ("vgpumgr_channel_lanes", name)
    ]


class Recorder:
    """An application that answers one document."""

    def __init__(self, text: str) -> None:
        self.text = text

    def call(self, operation: str, **_params: object) -> dict[str, str]:
        assert operation == "read_metrics"
        return {"text": self.text}


def run_metrics(text: str, path: Path) -> int:
    """``vgpumgr metrics --out``; the exit code."""
    options = GlobalOptions()
    session = Session(options, Streams(options), lambda _options: nullcontext(Recorder(text)))
    return main(["metrics", "--out", str(path)], session)


def test_the_file_for_the_collector_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "vgpumgr.prom"
    path.write_text("old")
    old = path.stat().st_ino
    assert run_metrics("new\n", path) == 0
    assert path.read_text() == "new\n"
    assert path.stat().st_ino != old
    assert list(tmp_path.iterdir()) == [path]
    assert run_metrics("x", tmp_path / "no" / "x.prom") == FileWriteError.exit_code


def test_help_loads_neither_textual_nor_prometheus() -> None:
    code = (
        "import sys; from vgpumgr.cli.main import main; main(['top', '--help']); main(['--help']);"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('textual', 'prometheus_client')];"
        "import json; print(json.dumps(bad), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == []


def test_the_page_is_what_the_table_says(golden: Callable[[str, str], None]) -> None:
    """``pytest --regenerate`` writes docs/metrics.md."""
    gpu = ", ".join(f"`{label}`" for label in GPU_LABELS)
    lines = [
        "# Metrics",
        "",
        "Generated from `vgpumgr/app/metrics.py` by `pytest --regenerate`.",
        "",
        "`vgpumgr metrics` prints them, and the daemon serves them as `GET /1.0/metrics` on its socket;",
        "`vgpumgr metrics --out FILE` replaces the file that node_exporter's textfile",
        "collector reads. Values are at most 8 seconds old; while the driver does not answer they are the last good",
        "ones, and `vgpumgr_last_collect_success` is 0. A value that the host does not give is no series.",
        "",
        f"*GPU* stands for the labels {gpu}, spelled as dcgm-exporter does.",
        "Alert rules are in `templates/prometheus/`, a Grafana board is in `templates/grafana/`.",
        "",
        "| metric | kind | labels | meaning | not there when |",
        "|---|---|---|---|---|",
    ]
    for spec in METRICS:
        own = [label for label in spec.labels if label not in GPU_LABELS]
        labels = ["*GPU*", *own] if set(GPU_LABELS) <= set(spec.labels) else list(spec.labels)
        lines.append(
            f"| `vgpumgr_{spec.name}` | {spec.kind} | {', '.join(labels)} | {spec.help} | {spec.absent} |"
        )
    golden("../../docs/metrics.md", "\n".join(lines) + "\n")
