"""The real exposition of a machine with attachments: what the table promises, what board and alerts ask for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.attached_machine import Attached, attached_machine
from tests.support.programs import find_program
from vgpumgr.app.metric_spec import MIG_SHARE_METRICS, SHARE_METRICS
from vgpumgr.app.metrics import METRICS as TABLE
from vgpumgr.app.pool_metrics import POOL_METRICS
from vgpumgr.cli.http import HttpBackend
from vgpumgr.model.routes import METRICS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "templates/prometheus/vgpumgr.rules.yml"
#: each with its variables
BOARDS = {
    ROOT / "templates/grafana/vgpumgr.json": {"instance", "gpu"},
    ROOT / "templates/grafana/vgpumgr-pool.json": {"instance", "tenant"},
}
pytestmark = [pytest.mark.native, pytest.mark.xdist_group("attached-machine")]

#: of vGPUs and of functions that need no vGPU type, which a DGX has not: ``test_overviews`` has them
ELSEWHERE = {
    "vgpu_info",
    "vgpu_framebuffer_bytes",
    "vgpu_creatable",
    "vf_info",
    "channel_refused_calls_total",
    # tests/sim/test_share_commands.py
    *(spec.name for spec in (*SHARE_METRICS, *MIG_SHARE_METRICS)),
    # tests/unit/test_pool_metrics.py
    *(spec.name for spec in POOL_METRICS),
}
Series = dict[str, list[dict[str, str]]]
#: Prometheus gives these to every series; aggregation makes ``kind`` and the like out of the rest
SCRAPE_LABELS = {"instance", "job"}
SERIES = re.compile(r"\b(vgpumgr_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


@pytest.fixture(scope="module")
def attached() -> Iterator[Attached]:
    with attached_machine() as scene:
        yield scene


@pytest.fixture(scope="module")
def exposition(attached: Attached) -> str:
    return str(attached.call("read_metrics", wait_s=60)["text"])


@pytest.fixture(scope="module")
def series(exposition: str) -> Series:
    """Labels of every series, by its name."""
    found: Series = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def find_value(text: str, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_every_metric_of_the_table_is_there_with_its_labels(series: Series) -> None:
    expected = {name for spec in TABLE if spec.name not in ELSEWHERE for name in spec.list_series()}
    assert set(series) == expected
    for spec in TABLE:
        for name in spec.list_series() if spec.name not in ELSEWHERE else ():
            allowed = {*spec.labels, "le"} if name.endswith("_bucket") else set(spec.labels)
            assert all(set(labels) == allowed for labels in series[name]), name


def test_the_values_are_those_of_the_machine(attached: Attached, exposition: str) -> None:
    listing = attached.call("list_gpus")
    for gpu in listing["gpus"]:
        used = find_value(exposition, "vgpumgr_gpu_framebuffer_bytes", UUID=gpu["uuid"])
        assert used == [gpu["memory_total_bytes"]]
        for name, key in (("temperature_celsius", "temperature_c"), ("power_watts", "power_w")):
            known = find_value(exposition, f"vgpumgr_gpu_{name}", UUID=gpu["uuid"])
            assert known == [gpu["health"][key]]
        if gpu["mig"]["current"]:
            taken = {"kind": "compute", "state": "used", "gpu": str(gpu["index"])}
            assert find_value(exposition, "vgpumgr_mig_slices", **taken) == [4]
            # the driver gives no utilisation in MIG mode, and we invent none
            assert not find_value(exposition, "vgpumgr_gpu_utilization_ratio", UUID=gpu["uuid"])
        else:
            assert not find_value(exposition, "vgpumgr_mig_slices", UUID=gpu["uuid"])
    assert find_value(
        exposition, "vgpumgr_mig_instance_info", domain="vm01", GPU_I_PROFILE="1g.10gb"
    ) == [1]
    assert find_value(exposition, "vgpumgr_operations_total", op="attach", outcome="done") == [3]
    assert find_value(
        exposition, "vgpumgr_operations_total", op="attach", outcome="rolled-back"
    ) == [1]
    assert find_value(exposition, "vgpumgr_operations_total", op="detach", outcome="done") == [1]
    assert find_value(exposition, "vgpumgr_operation_duration_seconds_count", op="attach") == [4]
    assert find_value(exposition, "vgpumgr_channel_lanes") == [0, 0]
    assert find_value(exposition, "vgpumgr_last_collect_success") == [1]
    assert set(find_value(exposition, "vgpumgr_desired_state_drift")) == {0.0}


def test_labels_are_written_as_dcgm_exporter_writes_them(series: Series) -> None:
    labels = next(found for found in series["vgpumgr_gpu_info"] if found["gpu"] == "0")
    assert labels["pci_bus_id"] == "00000000:07:00.0"
    assert labels["device"] == "nvidia0"
    assert labels["modelName"] == "NVIDIA A100-SXM4-80GB"
    assert labels["UUID"].startswith("GPU-")


def test_openmetrics_is_valid_and_says_the_same(attached: Attached, series: Series) -> None:
    document = attached.call("read_metrics", openmetrics=True, wait_s=60)
    assert document["content_type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {s.name for family in parse_openmetrics(document["text"]) for s in family.samples}
    assert names == set(series)


@contextmanager
def serving(attached: Attached) -> Iterator[str]:
    """A daemon of this machine, in a process of its own; answers where it listens."""
    machine = attached.machine
    root = machine.state_dir.parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr", "--machine", "dgx-a100", "daemon"],
        env=os.environ | {"VGPUMGR_SIM_ROOT": str(root), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    try:
        path = machine.run_dir / "vgpumgr.sock"
        for _ in range(3000):
            with contextlib.suppress(OSError), contextlib.closing(connect(path)):
                break
            assert process.poll() is None
            PAUSE.wait(0.02)
        yield str(path)
    finally:
        process.terminate()
        process.wait(60)


PAUSE = threading.Event()


def connect(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.connect(str(path))
    except OSError:
        stream.close()
        raise
    return stream


def test_the_daemon_serves_the_text_itself(attached: Attached, series: Series) -> None:
    """What a scraper gets over the socket: no envelope, the content type that it needs."""
    with serving(attached) as path:
        backend = HttpBackend(lambda: connect(Path(path)))
        answer = backend.request("GET", METRICS)
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        names = {
            s.name for f in text_string_to_metric_families(answer.body.decode()) for s in f.samples
        }
        assert set(series) - names <= {"vgpumgr_desired_state_drift"}
        openmetrics = backend.read_metrics(openmetrics=True)
        assert openmetrics["content_type"].startswith("application/openmetrics-text")
        assert list(parse_openmetrics(openmetrics["text"]))


def list_board_expressions(board: Path | None = None) -> list[tuple[str, str, str]]:
    """Of all boards, or of one."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for path in ([board] if board else BOARDS)
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def list_rules() -> list[dict[str, Any]]:
    rules = yaml.safe_load(RULES.read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def check_expression(expr: str, shown: str, series: Series, *, values: bool) -> None:
    """Each series of the expression exists with the labels that it is asked for."""
    asked = SERIES.findall(expr)
    assert asked, expr
    known: set[str] = set(SCRAPE_LABELS)
    for name, matchers in asked:
        assert name in series, f"{name} in {expr}"
        labels = {label for found in series[name] for label in found}
        known |= labels
        for label, operator, value in MATCHER.findall(matchers):
            assert label in labels | SCRAPE_LABELS, f"{name} has no label {label}: {expr}"
            if values and operator == "=":
                assert any(found[label] == value for found in series[name]), f"{label}={value}"
    for group in GROUPING.findall(expr):
        assert {word.strip() for word in group.split(",")} <= known, expr
    assert set(SHOWN.findall(shown)) <= known, shown


@pytest.mark.parametrize(("title", "expr", "legend"), list_board_expressions())
def test_each_panel_asks_for_what_there_is(
    title: str, expr: str, legend: str, series: Series
) -> None:
    assert title
    check_expression(expr, legend, series | list_elsewhere(), values=True)


def list_elsewhere() -> Series:
    """What this machine has none of."""
    others = [spec for spec in TABLE if spec.name in ELSEWHERE]
    return {name: [dict.fromkeys(s.labels, "")] for s in others for name in s.list_series()}


@pytest.mark.parametrize("rule", list_rules(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_asks_for_what_there_is(rule: dict[str, Any], series: Series) -> None:
    # the outcome "incomplete" is not one that this machine has had
    text = " ".join(rule["annotations"].values())
    known = series | list_elsewhere()
    check_expression(rule["expr"], text.replace("{{ $value", "{{"), known, values=False)


def test_a_wrong_name_or_label_would_be_found(series: Series) -> None:
    for expr in (
        "vgpumgr_gpu_inf",
        'vgpumgr_gpu_info{uuid="x"}',
        "sum by (node) (vgpumgr_gpu_info)",
    ):
        with pytest.raises(AssertionError):
            check_expression(expr, "", series, values=True)
    with pytest.raises(AssertionError):
        check_expression("vgpumgr_gpu_info", "{{nobody}}", series, values=True)


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: str(path.stem))
def test_board_variables_and_queries_belong_together(path: Path, series: Series) -> None:
    board = json.loads(path.read_text())
    variables = {v["name"]: v for v in board["templating"]["list"]}
    assert {*BOARDS[path], "datasource"} == set(variables)
    used = {
        name for _, expr, _ in list_board_expressions(path) for name in re.findall(r"\$(\w+)", expr)
    }
    assert used - {"__rate_interval"} == BOARDS[path]
    for name in BOARDS[path]:
        known = series | list_elsewhere()
        check_expression(variables[name]["definition"], "", known, values=True)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_every_metric_has_a_panel_and_no_two_boards_are_one() -> None:
    shown = {name for _, expr, _ in list_board_expressions() for name, _ in SERIES.findall(expr)}
    families = {spec.name for spec in TABLE for name in spec.list_series() if name in shown}
    assert families == {spec.name for spec in TABLE}, "a metric that no panel shows"
    heads = [json.loads(path.read_text()) for path in BOARDS]
    assert len({head["uid"] for head in heads}) == len({head["title"] for head in heads}) == 2


def promtool(*arguments: str, stdin: str | None = None, status: int = 0) -> str:
    program = find_program("promtool", "VGPUMGR_PROMTOOL")
    done = subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_exposition(exposition: str) -> None:
    """It lints names and units as well; dcgm-exporter's ``modelName`` is the one thing it dislikes."""
    said = promtool("check", "metrics", stdin=exposition, status=3).splitlines()
    wrong = [line for line in said if not line.endswith("'snake_case' not 'camelCase'")]
    assert (wrong, bool(said)) == ([], True)


def test_promtool_accepts_the_rules_and_the_boards_queries(tmp_path: Path) -> None:
    assert f"{len(list_rules())} rules found" in promtool("check", "rules", str(RULES))
    exprs = [expr.replace("$__rate_interval", "5m") for _, expr, _ in list_board_expressions()]
    records = [{"record": f"board:{i}", "expr": expr} for i, expr in enumerate(exprs)]
    path = tmp_path / "board.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": records}]}))
    promtool("check", "rules", str(path))


GPU = '{UUID="GPU-1",gpu="0",hostname="h",pci_bus_id="0",device="nvidia0",modelName="m"'
#: by alert: series over the minutes, and the minute at which it must fire; it must not at minute 0
STORIES: dict[str, tuple[dict[str, str], int]] = {
    "VgpumgrCollectFailing": ({'vgpumgr_last_collect_success{hostname="h"}': "1 0x30"}, 10),
    "VgpumgrValuesStale": ({'vgpumgr_last_collect_timestamp_seconds{hostname="h"}': "0x40"}, 30),
    "VgpumgrGpuGone": (
        {
            f'vgpumgr_gpu_info{GPU},framework="mig"}}': "1x5 _x30",
            'vgpumgr_last_collect_success{hostname="h"}': "1x40",
        },
        18,
    ),
    "VgpumgrGpuUnhealthy": ({f"vgpumgr_gpu_healthy{GPU}}}": "1 0x30"}, 10),
    "VgpumgrDrift": ({'vgpumgr_desired_state_drift{hostname="h",kind="slice-gone"}': "0 2x30"}, 20),
    "VgpumgrOperationIncomplete": (
        {'vgpumgr_operations_total{hostname="h",op="attach",outcome="incomplete"}': "0 0 1x30"},
        5,
    ),
    "VgpumgrOperationsFailing": (
        {
            'vgpumgr_operations_total{hostname="h",op="attach",outcome="failed"}': "0+2x60",
            'vgpumgr_operations_total{hostname="h",op="attach",outcome="done"}': "0+1x60",
        },
        40,
    ),
    "VgpumgrGuestBreaksProtocol": (
        {'vgpumgr_channel_protocol_errors_total{hostname="h",domain="vm01"}': "0 0 3x30"},
        5,
    ),
    "VgpumgrPoolStoreSilent": ({'vgpumgr_pool_store_answers{hostname="h"}': "1 0x30"}, 7),
    "VgpumgrPoolClaimWaits": (
        {'vgpumgr_pool_queue_oldest_wait_seconds{hostname="h",tenant="t"}': "0+60x90"},
        80,
    ),
    "VgpumgrPoolHostSuspect": ({'vgpumgr_pool_hosts{hostname="h",state="suspect"}': "0 1x30"}, 10),
    "VgpumgrShareUncharged": (
        {'vgpumgr_channel_share_uncharged_seconds_total{hostname="h",domain="vm01"}': "0 0 3x30"},
        5,
    ),
    "VgpumgrSessionStuck": (
        {'vgpumgr_channel_sessions{hostname="h",domain="vm01",state="stuck"}': "0 1x30"},
        10,
    ),
    "VgpumgrKeeperHangs": (
        {'vgpumgr_channel_keeper_hangs{hostname="h",domain="vm01"}': "0 1x30"},
        10,
    ),
    "VgpumgrMemoryFull": (
        {
            f"vgpumgr_gpu_framebuffer_used_bytes{GPU}}}": "50 99x40",
            f"vgpumgr_gpu_framebuffer_bytes{GPU}}}": "100x40",
        },
        30,
    ),
}


def test_every_alert_has_its_story() -> None:
    assert set(STORIES) == {rule["alert"] for rule in list_rules()}


@pytest.mark.parametrize("alert", STORIES)
def test_alert_fires_in_its_story_and_not_before(alert: str, tmp_path: Path) -> None:
    """Prometheus' own rule engine runs the story; a healthy one, and the wrong minute, stay silent."""
    inputs, minute = STORIES[alert]
    story = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in inputs.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": f"{at}m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                    for at, fires in ((0, False), (minute, True))
                ],
            }
        ],
    }
    path = tmp_path / "story.yml"
    path.write_text(yaml.safe_dump(story))
    promtool("test", "rules", str(path))


UNIT = ROOT / "templates/systemd/vgpumgr-metrics.service"


def run_unit(attached: Attached, directory: Path) -> subprocess.CompletedProcess[bytes] | None:
    """What systemd would run, by the unit's own words and with its capabilities; None: its condition skips it."""
    text = UNIT.read_text()
    lines = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    default, *other = re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE)
    assert (other, default) == ([], ("TEXTFILE_DIRECTORY", "/var/lib/prometheus/node-exporter"))
    kept = "".join(f",+{c.lower()[4:]}" for c in lines["CapabilityBoundingSet"].split())
    confined = ["setpriv", "--no-new-privs", f"--bounding-set=-all{kept}", f"--inh-caps=-all{kept}"]
    words = {
        key: lines[key].replace("${TEXTFILE_DIRECTORY}", str(directory)).split()
        for key in ("ExecCondition", "ExecStart")
    }
    if subprocess.run(words["ExecCondition"], check=False).returncode:
        return None
    program, *arguments = words["ExecStart"]
    assert program == "/usr/bin/vgpumgr"
    return subprocess.run(
        ["sh", "-c", f'umask {lines["UMask"]}; exec "$@"', "unit", *(confined if os.geteuid() == 0 else []),
         sys.executable, "-m", "vgpumgr", *arguments],
        env=os.environ | attached.machine.variables, timeout=120, check=False, capture_output=True,
    )  # fmt: skip


@contextmanager
def run_server(*words: str | Path, port: int, path: str) -> Iterator[Callable[[str], str]]:
    """A server of this machine's own, until the context ends; how to get a page of it."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def get(name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{name}", timeout=10) as answer:
            return str(answer.read().decode())

    try:
        wait_until(lambda: get(path), process)
        yield get
    finally:
        process.kill()
        process.communicate()


def wait_until(ask: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            if found := ask():
                return found
        ended = process is not None and process.poll() is not None
        assert not ended, process and process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


def choose_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def node_exporter(directory: Path) -> Iterator[tuple[int, Callable[[str], str]]]:
    """Debian's, as a user who is nobody, with the textfile collector alone."""
    port = choose_port()
    program: list[str | Path] = [find_program("prometheus-node-exporter")]
    if os.geteuid() == 0:
        program = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *program]
    with run_server(
        *program, "--collector.disable-defaults", "--collector.textfile", "--web.disable-exporter-metrics",
        f"--collector.textfile.directory={directory}", f"--web.listen-address=127.0.0.1:{port}",
        port=port, path="/metrics",
    ) as get:  # fmt: skip
        yield port, get


@pytest.fixture
def textfiles() -> Iterator[Path]:
    """As Debian's package makes it: root's, and readable by everybody."""
    with tempfile.TemporaryDirectory(prefix="vgt") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def test_node_exporter_serves_what_the_unit_writes(attached: Attached, textfiles: Path) -> None:
    done = run_unit(attached, textfiles)
    assert done is not None
    assert (done.returncode, done.stderr) == (0, b"")
    assert [path.name for path in textfiles.iterdir()] == ["vgpumgr.prom"]
    with node_exporter(textfiles) as (_, get):
        scraped = get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(scraped)}
    assert families["node_textfile_scrape_error"].samples[0].value == 0
    assert families["vgpumgr_last_collect_success"].samples[0].value == 1
    assert len(families["vgpumgr_gpu_info"].samples) == 8
    written = list(text_string_to_metric_families((textfiles / "vgpumgr.prom").read_text()))
    assert {family.name for family in written} <= set(families)
    said = promtool("check", "metrics", stdin=scraped, status=3).splitlines()
    ours = [line for line in said if line.startswith("vgpumgr_")]
    assert [line for line in ours if not line.endswith("'snake_case' not 'camelCase'")] == []


def test_the_file_is_replaced_at_once_and_kept_when_nothing_can_be_read(
    attached: Attached, textfiles: Path
) -> None:
    file = textfiles / "vgpumgr.prom"
    file.write_text("old 1\n")
    with file.open() as reader:
        done = run_unit(attached, textfiles)
        assert done is not None
        assert done.returncode == 0
        assert reader.read() == "old 1\n"
    assert file.read_text().startswith("# HELP vgpumgr")
    # a program that dies on its way leaves the values, whose time says how old they are
    (textfiles / ".vgpumgr.prom.new").mkdir()
    before = file.read_text()
    done = run_unit(attached, textfiles)
    assert done is not None
    assert (done.returncode != 0, file.read_text()) == (True, before)


def test_where_a_daemon_runs_the_unit_asks_it(attached: Attached, textfiles: Path) -> None:
    """Its cache answers, with the time of one collection; a process of its own collects each time."""
    name = "vgpumgr_last_collect_timestamp_seconds{"

    def read_time() -> str:
        done = run_unit(attached, textfiles)
        assert done is not None
        assert (done.returncode, done.stderr) == (0, b"")
        lines = (textfiles / "vgpumgr.prom").read_text().splitlines()
        return next(line for line in lines if line.startswith(name))

    assert read_time() != read_time()
    with serving(attached):
        times = [read_time() for _ in range(5)]
    assert len(set(times)) < len(times)


def test_without_node_exporter_the_unit_is_skipped(attached: Attached, textfiles: Path) -> None:
    assert run_unit(attached, textfiles / "node-exporter") is None
    assert list(textfiles.iterdir()) == []


def test_prometheus_scrapes_it_and_notices_that_nobody_renews_it(
    attached: Attached, textfiles: Path, tmp_path: Path
) -> None:
    """Debian's Prometheus with our rules, but for the minutes that an alert waits."""
    done = run_unit(attached, textfiles)
    assert done is not None
    file, rules = textfiles / "vgpumgr.prom", tmp_path / "rules.yml"
    rules.write_text(re.sub(r"\bfor: \d+m", "for: 0s", RULES.read_text()))
    port = choose_port()
    with node_exporter(textfiles) as (target, _):
        scrape = {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": [str(rules)], "scrape_configs": [scrape]}
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        with run_server(
            find_program("prometheus"), f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}",
            port=port, path="/-/ready",
        ) as get:  # fmt: skip

            def list_alerts() -> set[str]:
                alerts = json.loads(get("/api/v1/alerts"))["data"]["alerts"]
                return {alert["labels"]["alertname"] for alert in alerts}

            asked = "/api/v1/query?query=vgpumgr_gpu_info"
            wait_until(lambda: len(json.loads(get(asked))["data"]["result"]) == 8)
            assert "VgpumgrValuesStale" not in list_alerts()
            name = "vgpumgr_last_collect_timestamp_seconds"
            line = next(x for x in file.read_text().splitlines() if x.startswith(f"{name}{{"))
            old = f"{line.rpartition(' ')[0]} {time.time() - 1000}"
            file.write_text(file.read_text().replace(line, old))
            wait_until(lambda: "VgpumgrValuesStale" in list_alerts())
