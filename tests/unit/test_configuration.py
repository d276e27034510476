"""``vgpumgr config``: which value counts and where it comes from, and files that cannot be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vgpumgr.cli.main import main
from vgpumgr.server.settings import KEYS, Settings, format_defaults, read_configuration

ROOT = Path(__file__).resolve().parents[2]


class Files:
    """The files of a configuration, and the command line on them."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.first = directory / "vgpumgr.toml"
        self.more = directory / "conf.d"
        self.more.mkdir()
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["config", *words])
        return code, *self._capsys.readouterr()

    def show(self) -> dict[str, tuple[str, str]]:
        code, out, err = self.run("show", "-o", "json")
        assert code == 0, err
        rows = json.loads(out)["settings"]
        return {row["key"]: (row["value"], row["origin"]) for row in rows}


@pytest.fixture
def files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Files:
    it = Files(tmp_path, capsys)
    monkeypatch.setenv("VGPUMGR_CONFIG", str(it.first))
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("VGPUMGR_LIBVIRT_URI", raising=False)
    return it


def test_without_files_all_is_as_it_was_made(files: Files) -> None:
    shown = files.show()
    assert set(KEYS) < set(shown)
    assert {shown[key][1] for key in KEYS} == {"default"}
    assert shown["VGPUMGR_CONFIG"] == (f'"{files.first}"', "environment")
    assert shown["VGPUMGR_LIBVIRT_URI"] == ('"qemu:///system"', "default")
    # what the documentation has of the environment of workers is there
    page = (ROOT / "docs/daemon.md").read_text()
    assert set(re.findall(r"^\| `(VGPUMGR_\w+)=", page, re.MULTILINE)) < set(shown)
    assert files.run("check")[:2] == (0, "no files: all defaults\n")


def test_the_later_file_wins_and_each_value_knows_its_line(files: Files) -> None:
    files.first.write_text(
        "# first\n[release]\nstopped = true\ndelay_s = 3\n\n[limits]\nhead_s = 1.5\n"
    )
    (files.more / "20-site.toml").write_text("release.delay_s = 5\n")
    (files.more / "10-model.toml").write_text("release = { delay_s = 4, migrated = false }\n")
    (files.more / "note.txt").write_text("not a file of ours")
    shown = files.show()
    assert shown["release.stopped"] == ("true", f"{files.first}:3")
    assert shown["release.delay_s"] == ("5.0", f"{files.more}/20-site.toml:1")
    assert shown["release.migrated"] == ("false", f"{files.more}/10-model.toml:1")
    assert shown["limits.head_s"] == ("1.5", f"{files.first}:7")
    assert shown["release.undefined"] == ("true", "default")
    code, out, _ = files.run("check")
    assert code == 0
    assert out.splitlines() == [
        f"{files.first}: well",
        f"{files.more}/10-model.toml: well",
        f"{files.more}/20-site.toml: well",
    ]


def test_origin_stands_beside_the_columns_that_are_asked_for(files: Files) -> None:
    files.first.write_text("[release]\nstopped = true\n")
    line = f"{files.first}:2"
    for words in (("--origin",), ("--origin", "-o", "csv"), ("--origin", "--columns", "key")):
        code, out, _ = files.run("show", *words)
        assert (code, line in out) == (0, True), words
    shown = [files.run("show", *words, "--columns", "origin, key") for words in ((), ("--origin",))]
    assert shown[0] == shown[1]
    assert line not in files.run("show", "--columns", "key")[1]


def test_an_option_wins_over_every_file(tmp_path: Path) -> None:
    path = tmp_path / "vgpumgr.toml"
    path.write_text("[release]\nstopped = false\n")
    made = read_configuration(path, ["release.stopped=true", "limits.head_s = 2"])
    assert (made.settings.release.stopped, made.settings.limits.head_s) == (True, 2)
    assert made.find_origin("release.stopped") == "--set"
    assert made.find_origin("limits.body_s") == "default"


BROKEN = [
    ("[release]\nstoped = true\n", ":2: there is no key release.stoped; did you mean release.stopped?"),
    ("stopped = true\n", ":1: there is no key stopped; did you mean release.stopped?"),
    ("[repair]\nstopped = true\n", ":2: there is no key repair.stopped; did you mean release.stopped?"),
    ("[relaese]\nstopped = 1\n", ":2: there is no key relaese.stopped; did you mean release.stopped?"),
    ("[limits]\nxyzzy = 1\n", ":2: there is no key limits.xyzzy; there is: limits.connections, "),
    ("[reconcile]\njitter = inf\n", ":2: reconcile.jitter = Infinity: input should be"),
    ("[x.y.z]\nq = 1\n", ":2: there is no key x.y.z.q; there is: reconcile, release, repair, history, limits"),
    ("release = 5\n", ":1: release is a section: [release]"),
    ("\n[reconcile]\ninterval_s = -1\n", ":3: reconcile.interval_s = -1: input should be greater"),
    ('[reconcile]\ninterval_s = "soon"\n', ':2: reconcile.interval_s = "soon": input should be'),
    ("[reconcile]\njitter = nan\n", ":2: reconcile.jitter = NaN: input should be"),
    ("[reconcile]\ninterval_s = inf\njitter = [1]\n", ":3: reconcile.jitter = [1]: input should be"),
    ("[limits]\nconnections = 20\n", ":2: [limits] of 20 connections 160 are kept"),
    ("[release\n", ":1: no TOML: "),
    ("[release]\nstopped = true\nstopped = false\n", ":3: no TOML: Cannot overwrite a value"),
    ("release = \n", ":1: no TOML: "),
    ("\xff\n", ": not UTF-8 text"),
    ("[release]\nstopped = 1\n", ":2: release.stopped = 1: input should be a valid boolean"),
    ('[release]\nstopped = "yes"\n', ':2: release.stopped = "yes": input should be a valid boolean'),
    ("[limits]\nkept_for_root = true\n", ":2: limits.kept_for_root = true: input should be a valid"),
    ('[limits]\nconnections = "512"\n', ':2: limits.connections = "512": input should be a valid'),
    ("a = " + "[" * 100_000, ": no TOML: nested too deeply"),
    ("# " + "x" * (1 << 20), ": cannot be read: larger than 1 MiB"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), BROKEN, ids=lambda text: text[:40])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_cannot_be_is_named_by_file_line_and_key(
    files: Files, text: str, problem: str, is_first: bool
) -> None:
    path = files.first if is_first else files.more / "10.toml"
    path.write_bytes(text.encode("latin-1"))
    for words in (("check",), ("show",)):
        code, out, err = files.run(*words)
        assert (code, out) == (2, "")
        assert f"{path}{problem}" in err
        assert "VG365" in err


def test_all_that_is_wrong_is_said_at_once(files: Files) -> None:
    files.first.write_text("[release]\nstoped = true\n[limits]\nhead_s = 0\n")
    (files.more / "a.toml").write_text("[\n")
    (files.more / "b.toml").mkdir()
    os.mkfifo(files.more / "c.toml")
    (files.more / "d.toml").symlink_to("/dev/zero")
    code, _, err = files.run("check", "-o", "json")
    cause = json.loads(err)["error"]["cause"].splitlines()
    assert (code, len(cause)) == (2, 6)
    assert f"{files.more}/b.toml: cannot be read: Is a directory" in cause
    assert f"{files.more}/c.toml: cannot be read: no regular file" in cause
    assert f"{files.more}/d.toml: cannot be read: no regular file" in cause


def test_another_file_may_be_checked_and_a_missing_one_is_said(
    files: Files, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "x.toml"
    other.parent.mkdir()
    other.write_text("[release]\nstopped = true\n")
    assert files.run("check", str(other))[:2] == (0, f"{other}: well\n")
    for name, said in (("no.toml", "/no.toml: "), ("x" * 5000, " characters) ")):
        code, _, err = files.run("check", str(tmp_path / name))
        assert (code, f"{said}cannot be read: " in err) == (2, True), err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("release.stoped=true", "there is no key release.stoped; did you mean release.stopped?"),
        ("release.delay_s=soon", 'release.delay_s = "soon": input should be'),
        ("release.stopped", "--set release.stopped: not of the form KEY=VALUE"),
        ("=1", "--set =1: not of the form KEY=VALUE"),
    ],
)
def test_a_daemon_with_a_wrong_option_does_not_start(
    tmp_path: Path, option: str, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vgpumgr", "daemon", "--set", option],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {
            "VGPUMGR_RUN_DIR": str(tmp_path), "VGPUMGR_STATE_DIR": str(tmp_path),
            "VGPUMGR_CONFIG": str(tmp_path / "vgpumgr.toml"),
        },
    )  # fmt: skip
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_defaults_are_a_file_that_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "vgpumgr.toml"
    path.write_text(format_defaults())
    assert read_configuration(path).settings == Settings()
    # and set, each is what it was
    path.write_text(re.sub(r"^# (\w+ = )", r"\1", format_defaults(), flags=re.MULTILINE))
    configuration = read_configuration(path)
    assert configuration.settings == Settings()
    assert {configuration.find_origin(key) == "default" for key in KEYS} == {False}


def test_the_documentation_has_every_key() -> None:
    assert f"```toml\n{format_defaults()}```" in (ROOT / "docs/daemon.md").read_text()
