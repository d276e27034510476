"""``mig layout`` and its neighbours: text and JSON side by side in tests/golden."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import TypeAdapter

from tests.support.boards import A30_NAME, A100, make_gpu, make_uuid
from tests.support.cli import Cli, Owners, make_parts
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.application import Application
from vgpumgr.app.documents.layouts import (
    LayoutAssertDocument,
    LayoutFileDocument,
    LayoutPlanDocument,
)
from vgpumgr.app.operations import layout_apply
from vgpumgr.app.operations.layout_apply import LayoutOutcome
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.layout import read_file
from vgpumgr.errors import LayoutFileError
from vgpumgr.host.machine import Machine
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.gpu import GpuProcess, LostGpu, ProcessKind
from vgpumgr.model.mig import MigMode

Golden = Callable[[str, str], None]

WEB = """schema: vgpumgr/mig-layout/v1
layouts:
  web:
    - gpus: 0
      instances:
        - {profile: 3g.40gb, placement: 4:4}
        - {profile: 1g.10gb, count: 2}
        - {profile: 2g.20gb, compute: [1c, 1c]}
    - gpus: 1
      instances: [4g.24gb]
  busy:
    - {gpus: 0, instances: [7g.80gb]}
"""


@dataclass
class Recorder:
    """Keeps the plans in the place of executing them."""

    done: list[LayoutPlan]
    transaction: Any = None

    def run(self, plan: LayoutPlan, *, partial: bool) -> LayoutOutcome:
        assert not partial
        self.done.append(plan)
        return LayoutOutcome(plan, (), ("what the driver said",))


class ChangingCli(Cli):
    """Records the plans that it is asked to carry out."""

    done: list[LayoutPlan]

    def open_backend(self, _options: Any) -> Any:
        machine = Machine("test", self.root, self.root, self.root, "test:///default")
        parts = make_parts(machine, self.nvml, self.owners)
        return nullcontext(LocalBackend(Application(machine, parts)))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingCli:
    """An A100 with a VM's slice and another; an A30 with MIG off; an L40S."""
    a100 = make_gpu(A100, 0, [("3g.40gb", 4), ("2g.20gb", 2), ("1g.10gb", 0)])
    a30 = make_gpu(A30_NAME, 1, None)
    l40s = replace(make_gpu(A100, 2, None), model="NVIDIA L40S", mig=MigMode(False), profiles=())
    gpus = [replace(g, pci_device_id=0x20B00000 + g.index) for g in (a100, a30, l40s)]
    owner = SliceOwner(a100.uuid, 1, 0, "build7", "a1b2c3d4")
    cli = ChangingCli(FakeNvml(gpus), tmp_path, Owners([owner]))
    cli.done = []
    monkeypatch.setattr(
        layout_apply, "open_layout_change", lambda _: nullcontext(Recorder(cli.done))
    )
    (tmp_path / "web.yaml").write_text(WEB)
    return cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as they are typed, without a directory."""
    monkeypatch.chdir(tmp_path)


def test_plan_in_words_and_as_json(cli: ChangingCli, golden: Golden) -> None:
    told = cli.run("mig", "layout", "plan", "web.yaml", "-c", "web")
    assert told.code == 3
    golden("layout-plan.txt", told.out)
    data = cli.run("mig", "layout", "plan", "web.yaml", "-c", "web", "-o", "json")
    assert data.code == 3
    golden("layout-plan.json", data.out)
    for step in json.loads(data.out)["steps"]:
        assert set(step) >= {"kind", "gpu", "profile", "placement"}
    assert not cli.done


@pytest.mark.parametrize(
    "words",
    [
        "layout plan web.yaml -c web",
        "layout assert web.yaml -c web",
        "layout export",
        "checkpoint --out -",
        "list",
    ],
)
def test_a_user_who_sees_no_instances_is_not_told_that_there_are_none(
    cli: ChangingCli, words: str
) -> None:
    """NVML hides places and instances from all but root."""
    for gpu in list(cli.nvml.gpus.values()):
        hidden = tuple(replace(p, placements=(), remaining=None) for p in gpu.profiles)
        cli.nvml.gpus[gpu.uuid] = replace(gpu, profiles=hidden, instances=())
    told = cli.run("mig", *words.split())
    assert (told.code, told.out) == (4, "")
    assert "as this user" in told.err
    assert "sudo" in told.err


def test_a_refusal_names_holder_place_and_way_around(cli: ChangingCli, golden: Golden) -> None:
    refused = cli.run("mig", "layout", "plan", "web.yaml", "-c", "busy")
    assert (refused.code, refused.out) == (6, "")
    golden("layout-refused.txt", refused.err)
    told = cli.run(
        *("mig", "layout", "plan", "web.yaml", "-c", "busy", "--allow-disruptive", "build7")
    )
    assert told.code == 3
    golden("layout-disruptive.txt", told.out)


def test_differences_in_words_and_as_json(cli: ChangingCli, golden: Golden) -> None:
    told = cli.run("mig", "layout", "assert", "web.yaml", "-c", "web")
    assert told.code == 3
    golden("layout-assert.txt", told.out)
    data = cli.run("mig", "layout", "assert", "web.yaml", "-c", "web", "-o", "json")
    assert data.code == 3
    golden("layout-assert.json", data.out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layout-export.yaml", ("layout", "export")),
        ("layout-export-counts.yaml", ("layout", "export", "--no-placements", "-l", "site")),
        ("layout-export-parted.yaml", ("layout", "export", "--format", "mig-parted")),
        ("layout-export.json", ("layout", "export", "-o", "json")),
        ("checkpoint.json", ("checkpoint",)),
    ],
)
def test_exports(cli: ChangingCli, golden: Golden, name: str, words: tuple[str, ...]) -> None:
    result = cli.run("mig", *words)
    assert result.code == 0
    golden(name, result.out)
    (cli.root / "again").write_text(result.out)
    verb = ("restore", "--dry-run") if words[0] == "checkpoint" else ("layout", "plan")
    again = cli.run("mig", *verb, "again")
    assert (again.code, again.out.splitlines()[-1]) == (0, "nothing to do")


def test_what_mig_parted_cannot_say_is_told(cli: ChangingCli) -> None:
    gpu = cli.nvml.gpus[make_uuid("GPU", 0)]  # type: ignore[index]
    bare = replace(gpu.instances[0], compute_instances=())
    cli.nvml.gpus[gpu.uuid] = replace(gpu, instances=(bare, *gpu.instances[1:]))
    result = cli.run("mig", "layout", "export", "--format", "mig-parted")
    assert "1g.10gb at 0:1 has no compute instance" in result.err


def test_apply_asks_before_it_destroys(cli: ChangingCli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("mig", "layout", "apply", "web.yaml", "-c", "busy", "--allow-disruptive", "build7")
    refused = cli.run(*words)
    assert (refused.code, refused.out, cli.done) == (2, "", [])
    assert 'held by: vm "build7"' in refused.err
    asked: list[str] = []

    def confirm(question: str, *, abort: bool, err: bool) -> None:
        assert abort
        assert err
        asked.append(question)
        if len(asked) == 1:
            raise typer.Abort

    monkeypatch.setattr(typer, "confirm", confirm)
    assert cli.run(*words, terminal=True).code == 130
    assert not cli.done
    assert cli.run(*words, terminal=True).code == 0
    assert len(cli.done) == 1
    assert 'vm "build7" will lose what they use' in asked[0]
    assert cli.run(*words, "--yes").code == 0
    assert len(cli.done) == 2


def test_apply_without_loss_does_not_ask(cli: ChangingCli) -> None:
    (cli.root / "more.yaml").write_text(
        WEB.partition("  busy:")[0]
        .replace("count: 2", "count: 1")
        .replace(", compute: [1c, 1c]", "")
    )
    done = cli.run("mig", "layout", "apply", "more.yaml")
    assert done.code == 0
    assert "note: what the driver said" in done.err
    assert "done: 1 created, 0 destroyed, 3 kept" in done.out


def test_dry_runs_do_nothing(cli: ChangingCli) -> None:
    words = ("mig", "layout", "apply", "web.yaml", "-c", "web", "--dry-run")
    told = cli.run(*words)
    assert (told.code, told.out.splitlines()[-1].startswith("plan: ")) == (0, True)
    assert cli.run("mig", "enable", "1", "--dry-run").code == 0
    assert cli.run("mig", "disable", "1", "--dry-run").code == 0
    assert not cli.done


def test_mode_of_boards_without_mig(cli: ChangingCli) -> None:
    assert cli.run("mig", "enable", "2").code == 7
    assert cli.run("mig", "enable", "7").code == 5


def test_mode_of_a_gpu_in_use_says_what_will_be(cli: ChangingCli) -> None:
    user = GpuProcess(815, "Xorg", ProcessKind.GRAPHICS, None)
    gpu = cli.nvml.gpus[make_uuid("GPU", 1)]  # type: ignore[index]
    cli.nvml.gpus[gpu.uuid] = replace(gpu, processes=(user,))
    told = cli.run("mig", "enable", "1", "--dry-run")
    assert told.code == 0
    assert "process 815 (Xorg) uses it, so it is pending until a reset" in told.out


def test_one_layout_needs_no_name_and_near_names_are_offered(cli: ChangingCli) -> None:
    which = cli.run("mig", "layout", "plan", "web.yaml")
    assert (which.code, "it has web, busy" in which.err) == (2, True)
    near = cli.run("mig", "layout", "plan", "web.yaml", "-c", "wep")
    assert (near.code, "did you mean web?" in near.err) == (5, True)


def test_files_that_cannot_be_read(cli: ChangingCli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.run("mig", "layout", "plan", "nothing.yaml").code == 5
    assert cli.run("mig", "layout", "plan", ".").code == 5
    (cli.root / "latin.yaml").write_bytes(b"version: v1 # \xe9\n")
    assert cli.run("mig", "layout", "plan", "latin.yaml").code == 2
    (cli.root / "marked.yaml").write_bytes(b"\xef\xbb\xbf" + WEB.encode())
    assert cli.run("mig", "layout", "plan", "marked.yaml", "-c", "web").code == 3

    def refuse(_path: Path, _mode: str) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # what runs after a test opens files, too
        patch.setattr(Path, "open", refuse)
        assert cli.run("mig", "layout", "plan", "web.yaml").code == 4


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(50 << 20)
    with pytest.raises(LayoutFileError, match="too large"):
        read_file(str(path))


def test_standard_input_is_a_file(cli: ChangingCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WEB.encode())))
    assert cli.run("mig", "layout", "plan", "-", "-c", "web").code == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"version: v3\nmig-configs: 1")))
    assert "standard input:1: version" in cli.run("mig", "layout", "plan", "-").err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("cost"), "cost"),
        (lambda d: d["targets"][0].update(mig_enabled="maybe"), "targets.0.mig_enabled"),
        (lambda d: d["steps"][0].update(kind="mig.gpu.sell"), "steps.0.kind"),
    ],
)
def test_a_saved_plan_that_was_spoilt(
    cli: ChangingCli, change: Callable[[Any], object], words: str
) -> None:
    cli.run("mig", "layout", "plan", "web.yaml", "-c", "web", "--out", "p.json")
    data = json.loads((cli.root / "p.json").read_text())
    change(data)
    (cli.root / "p.json").write_text(json.dumps(data))
    result = cli.run("mig", "layout", "apply", "p.json", "--yes")
    assert (result.code, f"p.json: {words}" in result.err) == (2, True)


def test_a_saved_plan_keeps_what_was_allowed(cli: ChangingCli) -> None:
    words = ("-c", "busy", "--allow-disruptive", "build7", "--out", "p.json")
    assert cli.run("mig", "layout", "plan", "web.yaml", *words).code == 3
    assert cli.run("mig", "layout", "apply", "p.json", "--yes").code == 0
    assert cli.done[0].is_disruptive
    both = cli.run("mig", "layout", "apply", "p.json", "--allow-disruptive", "build7")
    assert both.code == 2


def test_a_lost_gpu_and_a_board_without_mig(cli: ChangingCli) -> None:
    cli.nvml.lost = (LostGpu(3, 15, "GPU is lost"),)
    (cli.root / "all.yaml").write_text(
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {}}]}"
    )
    assert cli.run("mig", "layout", "plan", "all.yaml").code == 1
    cli.nvml.lost = ()
    told = cli.run("mig", "layout", "plan", "all.yaml", "--allow-disruptive", "build7")
    assert told.code == 3
    assert "NVIDIA L40S has no MIG" in told.err


@pytest.mark.parametrize(
    "document",
    [LayoutPlanDocument, LayoutAssertDocument, LayoutFileDocument],
    ids=lambda d: d.__name__,
)
def test_schemas(document: Any, golden: Golden) -> None:
    schema = TypeAdapter[Any](document).json_schema(mode="serialization")
    golden(f"schema/{document.__name__}.json", json.dumps(schema, indent=1) + "\n")


@pytest.mark.parametrize("words", [("layout", "export"), ("checkpoint",)])
def test_a_file_is_named_by_out_and_by_nothing_else(
    cli: ChangingCli, words: tuple[str, ...]
) -> None:
    printed = cli.run("mig", *words)
    assert cli.run("mig", *words, "--out", "-").out == printed.out
    assert cli.run("mig", *words, "--out", "now.yaml").out == ""
    assert (cli.root / "now.yaml").read_text() == printed.out
    refused = cli.run("mig", *words, "new.yaml")
    assert (refused.code, "did you mean --out new.yaml?" in refused.err) == (2, True)
    empty = cli.run("mig", *words, "--out", "")
    assert (empty.code, "--out needs a value" in empty.err) == (2, True)
    nowhere = cli.run("mig", *words, "--out", "no/such.yaml")
    assert (nowhere.code, "cannot write" in nowhere.err) == (1, True)
    assert not (cli.root / "new.yaml").exists()


def test_a_plan_on_standard_output_is_what_apply_takes(cli: ChangingCli) -> None:
    plan = cli.run("mig", "layout", "plan", "web.yaml", "-c", "web", "--out", "-")
    assert (plan.code, json.loads(plan.out)["steps"] != []) == (3, True)
    (cli.root / "plan.json").write_text(plan.out)
    assert cli.run("mig", "layout", "apply", "plan.json", "--yes").code == 0
    assert len(cli.done) == 1


@pytest.mark.parametrize(
    "words",
    ["plan web.yaml -c web", "assert web.yaml -c web", "apply web.yaml -c web --yes", "export", "plan x.yaml"],
)  # fmt: skip
def test_both_names_of_layouts_do_the_same(cli: ChangingCli, words: str) -> None:
    by_mig = cli.run("mig", "layout", *words.split())
    by_gpu = cli.run("gpu", "layout", *words.split())
    assert by_gpu == by_mig
    assert len(cli.done) == (2 if "apply" in words else 0)


def test_help_of_layouts_has_both_names(
    cli: ChangingCli, capsys: pytest.CaptureFixture[str]
) -> None:
    for noun, other in (("mig", "gpu"), ("gpu", "mig")):
        cli.run(noun, "--help")
        assert f"also: {other} layout" in capsys.readouterr().out
