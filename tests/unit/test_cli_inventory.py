"""``gpu`` and ``mig`` listings: text and JSON side by side in tests/golden."""

from __future__ import annotations

import csv
import json
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
