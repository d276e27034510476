"""``gpu`` and ``mig`` listings: text and JSON side by side in tests/golden."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from tests.support.boards import A30_NAME, A100, make_gpu
from tests.support.cli import Cli, Owners
from tests.support.fake_nvml import FakeNvml
from tests.unit.test_host import make_function
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.gpus import (
    GpuListDocument,
    GpuShowDocument,
    MigListDocument,
    MigProfilesDocument,
)
from vgpumgr.errors import HelperLateError
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.gpu import GpuProcess, LostGpu, ProcessKind, Utilisation
from vgpumgr.model.mig import MigMode

Golden = Callable[[str, str], None]
GIB = 1 << 30


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """An A100 with a VM, a process and an instance without compute instance; an A30 off; an L40S; a lost one."""
    in_slice = GpuProcess(4711, "python3", ProcessKind.COMPUTE, 2 * GIB, 2, 0)
    busy = make_gpu(A100, 0, [("3g.40gb", 4), ("1g.10gb", 3), ("1g.10gb", 0)], processes=[in_slice])
    bare = replace(busy.instances[0], compute_instances=())
    busy = replace(busy, instances=(bare, *busy.instances[1:]))
    whole = GpuProcess(815, "Xorg", ProcessKind.GRAPHICS, None)
    a30 = replace(
        make_gpu(A30_NAME, 1, None, processes=[whole]), utilisation=Utilisation(0.25, 0.03)
    )
    l40s = replace(
        make_gpu(A100, 2, None),
        model="NVIDIA L40S",
        mig=MigMode(False),
        profiles=(),
        architecture="Ada",
        compute_capability=(8, 9),
    )
    group = tmp_path / "sys/kernel/iommu_groups/47/devices"
    group.mkdir(parents=True)
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    facts = {"vendor": "0x10de", "device": "0x20b2", "class": "0x030200", "numa_node": "3"}
    directory = make_function(tmp_path, busy.pci, **facts)
    (directory / "driver").symlink_to(driver)
    audio = {"vendor": "0x10de", "device": "0x1aef", "class": "0x040300"}
    beside = make_function(tmp_path, replace(busy.pci, function=1), **audio)
    for function in (directory, beside):
        (function / "iommu_group").symlink_to(group.parent)
        (group / function.name).symlink_to(function)
    nvml = FakeNvml([busy, a30, l40s], [LostGpu(3, 15, "GPU is lost")])
    return Cli(nvml, tmp_path, Owners([SliceOwner(busy.uuid, 1, 0, "vm01", "ab12")]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu-list", ["gpu", "list"]),
        ("gpu-show-0", ["gpu", "show", "0"]),
        ("gpu-show-1", ["gpu", "show", "1"]),
        ("gpu-show-2", ["gpu", "show", "0000:17:00.0"]),
        ("mig-list", ["mig", "list"]),
        ("mig-profiles", ["mig", "profiles", "--gpu", "0"]),
    ],
)
def test_listings(cli: Cli, golden: Golden, name: str, words: list[str]) -> None:
    terminal = cli.run(*words, terminal=True)
    plain = cli.run(*words)
    as_json = cli.run(*words, "-o", "json")
    assert (terminal.code, plain.code, as_json.code) == (0, 0, 0)
    golden(f"{name}.txt", terminal.out)
    golden(f"{name}.plain", plain.out)
    golden(f"{name}.json", as_json.out)


def test_wide_and_narrow(cli: Cli, golden: Golden) -> None:
    cli.width = 220
    golden("gpu-list-wide.txt", cli.run("gpu", "list", "-o", "wide", terminal=True).out)
    golden("mig-profiles-wide.txt", cli.run("mig", "profiles", "-o", "wide", terminal=True).out)
    cli.width = 80
    narrow = cli.run("gpu", "list", terminal=True).out
    golden("gpu-list-80.txt", narrow)
    assert max(len(line) for line in narrow.splitlines()) <= 80


@pytest.mark.parametrize("format_", ["csv", "yaml", "markdown", "name"])
def test_other_formats(cli: Cli, golden: Golden, format_: str) -> None:
    golden(f"gpu-list.{format_}", cli.run("gpu", "list", "-o", format_).out)


def test_a_pipe_gets_no_header_and_no_colour(cli: Cli) -> None:
    out = cli.run("gpu", "list").out
    assert len(out.splitlines()) == 3
    assert "\x1b" not in out
    assert out.splitlines()[0].split("\t")[:3] == ["0", "A100-SXM4-80GB", "0000:07:00.0"]


def test_colour_when_asked(cli: Cli) -> None:
    assert "\x1b[" in cli.run("gpu", "list", "--color=always", terminal=True).out
    assert "\x1b[" not in cli.run("gpu", "list", "--color", "never", terminal=True).out


def test_columns_are_chosen_and_ordered(cli: Cli) -> None:
    words = ["gpu", "list", "-o", "csv", "--columns", "memory,index"]
    assert cli.run(*words).out.splitlines()[:2] == ["memory,index", f"{80 * GIB},0"]
    assert cli.run(*words, "--no-header").out.splitlines()[0] == f"{80 * GIB},0"


def test_an_unknown_column_gets_a_suggestion(cli: Cli) -> None:
    result = cli.run("gpu", "list", "--columns", "memry")
    assert result.code == 2
    assert "did you mean memory?" in result.err


def test_csv_has_no_units_and_no_dashes(cli: Cli) -> None:
    words = [
        "gpu",
        "list",
        "-o",
        "csv",
        "--no-header",
        "--columns",
        "numa,iommu,driver,memory_used",
    ]
    lines = cli.run(*words).out.splitlines()
    assert lines[:2] == [f"3,47,nvidia,{GIB // 2}", f",,,{GIB // 2}"]


def test_a_lost_gpu_is_named_and_hides_no_other(cli: Cli) -> None:
    result = cli.run("gpu", "list")
    assert result.code == 0
    assert result.err == "warning: GPU 3 does not answer: GPU is lost (NVML 15)\n"
    assert cli.run("gpu", "list", "-q").err == ""
    document = json.loads(cli.run("gpu", "list", "-o", "json").out)
    assert document["lost"] == [{"index": 3, "nvml_code": 15, "nvml_text": "GPU is lost"}]


def test_json_is_what_the_documents_declare(cli: Cli) -> None:
    listing = json.loads(cli.run("gpu", "list", "-o", "json").out)
    assert listing["schema"] == "vgpumgr/v1"
    GpuListDocument.from_data(listing)
    shown = json.loads(cli.run("gpu", "show", "0", "-ojson").out)
    GpuShowDocument.from_data(shown)
    assert yaml.safe_load(cli.run("gpu", "show", "0", "-o", "yaml").out) == shown
    assert shown["gpu"] == listing["gpus"][0]


@pytest.mark.parametrize(
    "kind", [GpuListDocument, GpuShowDocument, MigListDocument, MigProfilesDocument]
)
def test_the_contract_changes_only_on_purpose(golden: Golden, kind: type[Document]) -> None:
    """The JSON Schema of each document: a field that goes or changes shows in review."""
    schema = TypeAdapter[Any](kind).json_schema(mode="serialization")
    golden(f"schema/{kind.__name__}.json", json.dumps(schema, indent=1) + "\n")


def test_names_can_be_given_back(cli: Cli) -> None:
    for name in cli.run("gpu", "list", "-o", "name").out.split():
        assert cli.run("gpu", "show", name, "-o", "name").out.strip() == name
    for line in cli.run("mig", "list", "-o", "name").out.splitlines():
        if line.startswith("MIG-"):
            assert cli.run("gpu", "show", line).code == 0


def test_a_listing_of_one_gpu(cli: Cli) -> None:
    assert cli.run("mig", "list", "--gpu", "1").out == ""
    rows = cli.run("mig", "profiles", "--gpu", "1").out.splitlines()
    assert {row.split("\t")[0] for row in rows} == {"1"}


def test_formats_that_make_no_sense_are_refused(cli: Cli) -> None:
    result = cli.run("gpu", "show", "0", "-o", "csv")
    assert (result.code, "vgpumgr gpu list -o csv" in result.err) == (2, True)


def test_an_error_in_five_lines(cli: Cli, golden: Golden) -> None:
    result = cli.run("gpu", "show", "7")
    assert (result.code, result.out) == (5, "")
    golden("error-no-gpu.txt", result.err)
    document = json.loads(cli.run("gpu", "show", "7", "-o", "json").err)
    assert document["schema"] == "vgpumgr/v1"
    assert document["error"]["id"] == "VG101"
    assert document["error"]["exit_code"] == 5


def test_a_late_nvml_is_an_error_like_others(cli: Cli) -> None:
    cli.nvml.fail["read_inventory"] = HelperLateError("read_inventory is late", hint="wait")
    result = cli.run("gpu", "list")
    assert (result.code, result.err.splitlines()[-1]) == (1, "try:     wait        (VG120, exit 1)")


def test_a_bug_shows_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.nvml.fail["read_inventory"] = RuntimeError("surprise")
    result = cli.run("gpu", "list")
    assert result.code == 1
    assert "RuntimeError: surprise" in result.err
    assert "(VG190, exit 1)" in result.err
    assert "Traceback" not in result.err
    cli.nvml.fail["read_inventory"] = RuntimeError("surprise")
    with pytest.raises(RuntimeError):
        cli.run("gpu", "list", "--debug")
    monkeypatch.setenv("VGPUMGR_DEBUG", "1")
    cli.nvml.fail["read_inventory"] = RuntimeError("surprise")
    with pytest.raises(RuntimeError):
        cli.run("gpu", "list")


def test_ctrl_c_has_its_code(cli: Cli) -> None:
    cli.nvml.fail["read_inventory"] = KeyboardInterrupt()  # type: ignore[assignment]
    assert cli.run("gpu", "list").code == 130


@pytest.mark.parametrize("format_", ["table", "wide"])
def test_a_table_in_a_pipe_has_a_header_and_a_line_for_each_row(cli: Cli, format_: str) -> None:
    cli.width = 40
    lines = cli.run("gpu", "list", "-o", format_).out.splitlines()
    assert lines[0].split()[:2] == ["INDEX", "MODEL"]
    assert "USED_BY" in lines[0]
    assert len(lines) == 4
    assert "NVIDIA" not in lines[0]


def test_csv_is_empty_where_there_is_no_value(cli: Cli) -> None:
    rows = list(csv.reader(cli.run("gpu", "list", "-o", "csv").out.splitlines()))
    assert not any(cell == "-" for row in rows for cell in row)


def read_column(cli: Cli, *words: str) -> list[str]:
    """The first column of a list."""
    result = cli.run(*words)
    assert result.code == 0, result.err
    return [line.split("\t")[0] for line in result.out.splitlines()]


def test_rows_are_sorted_by_value_and_not_by_text(cli: Cli) -> None:
    profiles = ("mig", "profiles", "--gpu", "0", "--columns", "memory,profile")
    sizes = [
        row["memory_bytes"] for row in json.loads(cli.run(*profiles, "-o", "json").out)["profiles"]
    ]
    for order, sign in ((sorted(sizes), ""), (sorted(sizes, reverse=True), "-")):
        words = (*profiles, "--sort", f"{sign}memory")
        assert [
            int(n)
            for n in read_column(
                cli, *words[:4], "--columns", "memory", *words[-2:], "-o", "csv", "--no-header"
            )
        ] == order
        document = json.loads(cli.run(*words, "-o", "json").out)
        assert [row["memory_bytes"] for row in document["profiles"]] == order
        assert yaml.safe_load(cli.run(*words, "-o", "yaml").out) == document
    # several columns; and where there is no value, the row is last in both directions
    by_two = read_column(
        cli, "mig", "list", "--columns", "instance", "--sort", "profile,-placement"
    )
    rows = json.loads(cli.run("mig", "list", "-o", "json").out)["instances"]
    rows.sort(key=lambda row: (row["profile"], -row["placement"]["start"]))
    assert by_two == [str(row["id"]) for row in rows]
    for sign in ("", "-"):
        last = read_column(cli, "mig", "list", "--columns", "uuid", "--sort", f"{sign}uuid")[-1]
        assert last == "-"


def test_only_rows_that_fit_every_filter(cli: Cli) -> None:
    for value, count in (("1g.10gb", 2), ("3G.*", 1), ("*", 3), ("[", 0), ("", 0)):
        found = read_column(cli, "mig", "list", "--filter", f"profile={value}", "--columns", "uuid")
        assert len(found) == count, value
    one = ("mig", "list", "--filter", "profile=1g.10gb", "--filter", "used_by=", "-o")
    rows = json.loads(cli.run(*one, "json").out)["instances"]
    assert [(row["profile"], row["vm"], row["processes"]) for row in rows] == [
        ("1g.10gb", None, [])
    ]
    (name,) = cli.run(*one, "name").out.splitlines()
    assert name == f"{rows[0]['gpu_uuid']}/{rows[0]['id']}"
    # nothing is left: an empty list, and no error
    assert json.loads(cli.run("gpu", "list", "--filter", "index=7", "-o", "json").out)["gpus"] == []
    assert cli.run("gpu", "list", "--filter", "index=7").out == ""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--sort", "profil"), 'there is no column "profil"'),
        (("--sort", ""), "--sort needs a value"),
        (("--sort", ","), 'there is no column ""'),
        (("--sort", "--profile"), "--sort"),
        (("--filter", "profile"), "--filter needs COLUMN=VALUE"),
        (("--filter", "=x"), 'there is no column ""'),
        (("--filter", "user=x"), 'there is no column "user"'),
        (("--watch=0",), "0 is not from 0.1 to 86400"),
        (("--watch=nan",), "nan is not from 0.1 to 86400"),
        (("--watch", "nan"), "--watch needs a number of seconds, and has 'nan'"),
        (("--watch", "5s"), "--watch needs a number of seconds, and has '5s'"),
    ],
)
def test_wrong_columns_and_values_are_usage_errors(
    cli: Cli, words: tuple[str, ...], error: str
) -> None:
    for format_ in ("table", "json", "name"):
        result = cli.run("mig", "list", *words, "-o", format_)
        assert (result.code, result.out) == (2, "")
        assert error in result.err.replace('\\"', '"')
        if "column" in error:
            assert (
                "gpu,gpu_uuid,instance,profile,placement,memory,shares,uuid,used_by" in result.err
            )


def test_watch_prints_again_until_ctrl_c(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(_clock: object, seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("vgpumgr.host.clock.SystemClock.sleep", wait)
    shown = cli.run("gpu", "list")
    assert shown.code == 0, shown
    once = shown.out
    for words, seconds in ((("--watch",), 2.0), (("--watch", "0.5"), 0.5), (("--watch=7",), 7.0)):
        waited.clear()
        result = cli.run("gpu", "list", *words)
        assert (result.code, result.out, waited) == (130, once * 3, [seconds] * 3)
    waited.clear()
    assert cli.run("gpu", "list", "--watch", "--sort", "-index").out.splitlines()[0].startswith("2")
    # a terminal is cleared each time
    waited.clear()
    assert cli.run("gpu", "list", "--watch", terminal=True).out.count("\x1b[H\x1b[2J") == 3


def test_watch_in_a_pipe_appends_and_ends_with_its_reader() -> None:
    line = [sys.executable, "-m", "vgpumgr", "sim", "list", "-o", "name", "--watch", "0.1"]
    watching = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout
    first, seen = watching.stdout.readline(), 1
    while seen < 3:
        seen += watching.stdout.readline() == first
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert (watching.returncode, err) == (130, "interrupted\n")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        other.stdout.close()
        assert (other.wait(60), other.stderr.read() if other.stderr else None) == (0, b"")


def test_one_instance_by_each_of_its_names(cli: Cli) -> None:
    rows = json.loads(cli.run("mig", "list", "-o", "json").out)["instances"]
    row = next(row for row in rows if row["compute_instances"])
    uuid = row["compute_instances"][0]["uuid"]
    names = (f"0/{row['id']}", f"{row['gpu_uuid']}/{row['id']}", uuid, uuid.upper())
    shown = [cli.run("mig", "show", name) for name in names]
    assert {(one.code, one.out) for one in shown} == {(0, shown[0].out)}
    assert (f"GPU instance 0/{row['id']}" in shown[0].out, uuid in shown[0].out) == (True, True)
    assert json.loads(cli.run("mig", "show", names[0], "-o", "json").out)["instance"] == row
    assert cli.run("mig", "show", uuid, "-o", "name").out == f"0/{row['id']}\n"
    for wrong, code, words in (
        ("0/99", 5, "no GPU instance is"), ("MIG", 2, "is not one GPU instance"), ("0", 5, "no GPU"),
        ("MIG-zz", 5, "vgpumgr mig list"), ("", 2, "INSTANCE needs a value"),
    ):  # fmt: skip
        refused = cli.run("mig", "show", wrong)
        assert (refused.code, refused.out, words in refused.err) == (code, "", True), refused.err
    assert cli.run("mig", "show", names[0], "-o", "csv").code == 2


def test_one_simulated_machine(cli: Cli) -> None:
    shown = cli.run("sim", "show", "dgx-a1")
    assert (shown.code, "machine dgx-a100" in shown.out) == (0, True)
    near = cli.run("sim", "show", "dgx-b100")
    assert (near.code, "did you mean dgx-a100" in near.err) == (5, True)
