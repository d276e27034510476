"""What people type who see the program for the first time: one clear error each, nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.boards import make_gpu
from tests.support.cli import Cli
from tests.support.fake_nvml import FakeNvml
from tests.support.unprivileged import as_nobody
from vgpumgr.__main__ import main as start
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Color, GlobalOptions, Session, Streams

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(FakeNvml([make_gpu()]), tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpu list --json", "did you mean -o json?"),
        ("mig profiles 0", "did you mean --gpu 0?"),
        ("sim list 0", "not expected here: 0"),
        ("attach vm01 --profile x --count z", "'z' is not a whole number"),
        ("attach vm01 --profile x --count 99", "99 is not from 1 to 16"),
        ("mdev create x --placement -1", "-1 is less than 0"),
        ("attach vm01 --profile x --hello-timeout z", "'z' is not a number"),
        ("detach vm01 --all --attachment 1g.10gb", "--all and --attachment contradict"),
        ("passthrough bind 0 --driver=", 'no driver is called ""'),
        ("attach vm01 --profile 1g.10gb --limit=", "--limit needs a value"),
        ("run --profile 1g.10gb -- ", "no command to run"),
        ("detach ", "VM needs a value, and this one is empty"),
        ("audit ", "FILE needs a value"),
        ("config check ", "FILE needs a value"),
        ("mig layout plan ", "FILE needs a value"),
        ("mig layout export --label=", "--label needs a value"),
        ("vm xml vm01 --profile=", "--profile needs a value"),
        ("detach \udcff", "VM needs UTF-8, and has '\\udcff'"),
        ("detach -- vm\udcff", "VM needs UTF-8, and has 'vm\\udcff'"),
        ("passthrough unbind 0 --driver ../x", 'no driver is called "../x"'),
        ("api POST /1.0/attachments --data @/nowhere", "cannot read /nowhere"),
        ("--host= gpu list", "--host needs a value"),
        ("--hosts , gpu list", "--hosts needs a value"),
        ("--machine= gpu list", "--machine needs a value"),
        ("--host a --hosts b gpu list", "contradict each other"),
        ("--hosts b gpu list --host a", "contradict each other"),
        ("--host gpu1 daemon", "about this host only"),
        ("--host gpu1 sim list", "about this host only"),
        ("--hosts a,b top --once", "top shows one host"),
        ("completion", "which shell?"),
    ],
)
def test_wrong_lines_are_usage_errors(cli: Cli, line: str, words: str) -> None:
    done = cli.run(*line.split(" "))
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "line", ["{}", "gpu show {}", "why {}", "gpu list --{}", "gpu list --filter {}=1", "doctor explain {}"]
)  # fmt: skip
@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_a_very_long_word_is_not_repeated(cli: Cli, line: str, form: tuple[str, ...]) -> None:
    done = cli.run(*line.format("x" * 20_000).split(), *form)
    assert done.code in (2, 5)
    assert 0 < len(done.err) < 2_000
    assert "x" * 150 in done.err
    assert re.search(r"\.\.\. \(20\d\d\d characters\)", done.err)


@pytest.mark.parametrize("bad", ["\x1b[31m", "a\rb", "\u202e", "\x9b31m"])
def test_no_error_commands_the_terminal(cli: Cli, bad: str) -> None:
    done = cli.run("gpu", "show", bad)
    assert done.code == 5
    assert f'no GPU is "{bad.encode("unicode_escape").decode()}"' in done.err


def test_what_cannot_be_an_operation_is_not_found(cli: Cli) -> None:
    for verb in ("show", "wait", "cancel"):
        done = cli.run("op", verb, "../nope")
        assert done.code == 5
        assert "VG355" in done.err


def read_options(line: str, environ: dict[str, str] | None = None) -> GlobalOptions:
    """The global options with which the application is opened."""
    seen: list[GlobalOptions] = []

    def open_backend(options: GlobalOptions) -> NoReturn:
        seen.append(replace(options))
        raise KeyboardInterrupt

    options = GlobalOptions.from_environ(environ or {})
    assert main(line.split(), Session(options, Streams(options), open_backend)) == 130
    return seen[0]


@pytest.mark.parametrize(
    "line", ["--machine m gpu list", "gpu --machine=m list", "gpu list --machine m"]
)
def test_global_options_stand_anywhere(line: str) -> None:
    assert read_options(line) == GlobalOptions(machine="m")


def test_global_options_in_full() -> None:
    options = read_options("-v --color=never --debug gpu list", {"VGPUMGR_MACHINE": "env"})
    assert options == GlobalOptions("env", Color.NEVER, 1, debug=True)
    assert read_options("-q gpu list").verbosity == -1
    assert read_options("-v gpu list -vv").verbosity == 3
    assert read_options("gpu list", {"VGPUMGR_DEBUG": "1", "VGPUMGR_HOST": "h"}) == GlobalOptions(
        debug=True, host="h"
    )
    behind = read_options("vf list -- --machine")
    assert behind.machine is None, "what follows -- is no option"


def test_hosts_of_the_line_precede_the_environment() -> None:
    options = read_options("--hosts a,b gpu list", {"VGPUMGR_HOST": "c"})
    assert (options.host, options.hosts) == (None, ("a", "b"))
    options = read_options("gpu list --host d", {"VGPUMGR_HOST": "c"})
    assert (options.host, options.hosts) == ("d", ())


def test_help_is_a_word_too(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run("help", "gpu", "list").code == 0
    assert "Usage: vgpumgr gpu list" in capsys.readouterr().out
    assert cli.run("help").code == 0
    assert "Commands:" in capsys.readouterr().out


def test_a_narrow_terminal_cuts_no_names(cli: Cli) -> None:
    cli.width = 40
    for line in ("gpu list", "mig profiles", "mig list"):
        done = cli.run(*line.split(), terminal=True)
        assert done.code == 0
        assert "…" not in done.out
    (gpu,) = cli.nvml.gpus.values()
    assert str(gpu.pci) in cli.run("gpu", "list", terminal=True).out


def test_people_see_no_errno(cli: Cli) -> None:
    done = cli.run("mig", "layout", "plan", "/nowhere.yaml")
    assert done.code == 5
    assert "No such file or directory" in done.err
    assert "Errno" not in done.err


@pytest.mark.parametrize("line", ["config defaults", "virtio guest-package", "mig checkpoint"])
def test_a_file_is_not_made_in_the_place_of_a_directory(
    cli: Cli, tmp_path: Path, line: str
) -> None:
    done = cli.run(*line.split(), "--out", f"{tmp_path}/new/")
    assert done.code == 1
    assert f"cannot write {tmp_path}/new/" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["start", "stop", "env", "reboot", "serve", "tell"])
def test_a_name_of_any_length_is_no_simulated_machine(cli: Cli, verb: str) -> None:
    words = ("gone", "0000:07:00.0") if verb == "tell" else ()
    for name in ("x" * 5000, "nowhere"):
        done = cli.run("sim", verb, name, *words)
        assert (done.code, "VG091" in done.err) == (5, True), done.err


def test_a_closed_output_is_no_bug() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m vgpumgr version >&-"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_early_interrupt_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            if name == "main":
                raise KeyboardInterrupt
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "vgpumgr.cli.main", Interrupted("vgpumgr.cli.main"))
    assert start() == 130
    assert capsys.readouterr().err == ""


def test_machines_of_another_user_are_refused_in_words(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    place = tmp_path / "sim"
    place.mkdir(mode=0o755)

    def run() -> int:
        os.environ["VGPUMGR_SIM_ROOT"] = str(place)
        return main(["sim", "start", "a30-pair"])

    assert as_nobody(run) == 4
