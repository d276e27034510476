"""The frame of the command line: help, wrong words, global options, what is imported."""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.machine import NAME, simulated
from tests.support.boards import make_gpu
from tests.support.cli import Cli
from tests.support.commands import find_command, list_verbs
from tests.support.fake_nvml import FakeNvml
from vgpumgr import __version__
from vgpumgr.cli.commands import NOUNS, VERBS, Entry
from vgpumgr.cli.main import format_error, main, wants_json
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import NvmlInUseError

ROOT = Path(__file__).parents[2]
PATHS = [path for path, _ in list_verbs()]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(FakeNvml([make_gpu()]), tmp_path)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=env, check=False
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["--machine", "m"], ["help"]])
def test_help_lists_the_commands(
    cli: Cli, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.run(*words).code == 0
    text = capsys.readouterr().out
    for entry in (*VERBS, *NOUNS):
        line = f"  {entry.name} "
        assert (line in text) is not entry.hidden
        assert (entry.help in text) is not entry.hidden


@pytest.mark.parametrize("noun", [entry.name for entry in NOUNS])
def test_a_noun_alone_lists_its_verbs(
    cli: Cli, capsys: pytest.CaptureFixture[str], noun: str
) -> None:
    assert cli.run(noun).code == 0
    text = capsys.readouterr().out
    for name, command in find_command([noun])[0].commands.items():
        assert (f"\n  {name} " in text) is not command.hidden


def test_a_noun_below_a_noun_lists_its_verbs(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run("mig", "layout").code == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in ("plan", "apply", "assert", "export"))


@pytest.mark.parametrize("path", PATHS)
def test_every_verb_has_help_with_examples(
    cli: Cli, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    assert cli.run(*path.split(), "--help").code == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert f"vgpumgr {path}" in " ".join(text.split())


@pytest.mark.parametrize("path", PATHS)
def test_the_first_sentence_of_a_help_fits_a_line_of_its_nouns_help(path: str) -> None:
    command, _ = find_command(path.split())
    (first, *_) = str(command.help).split("\n\n")
    assert command.get_short_help_str(59) == first
    assert first.endswith(".")


PRIVATE = (
    r"\b(somebody|whoever|nobody|settles?|tells?|look(s|ed)? at|made good|lets go|he|his|him)\b"
)


@pytest.mark.parametrize("path", PATHS)
def test_help_uses_the_words_of_the_field(path: str) -> None:
    command, _ = find_command(path.split())
    told = re.sub(r"vgpumgr sim tell", "", str(command.help))
    texts = [told, *(str(getattr(one, "help", "")) for one in command.params)]
    assert [text for text in texts if re.search(PRIVATE, text, re.IGNORECASE)] == []


@pytest.mark.parametrize("entry", VERBS, ids=lambda entry: entry.name)
def test_the_list_of_commands_says_what_the_verb_says(entry: Entry) -> None:
    command, _ = find_command([entry.name])
    assert command.help.partition("\n")[0] == entry.help


def list_single_verbs() -> list[str]:
    """Verbs that answer one thing: they have ``-o``, but no columns."""
    names = {path: {one.name for one in command.params} for path, command in list_verbs()}
    return [path for path in PATHS if "output" in names[path] and "columns" not in names[path]]


@pytest.mark.parametrize("path", list_single_verbs())
def test_what_answers_one_thing_refuses_the_formats_of_lists_before_it_does_anything(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: object) -> Any:
        raise AssertionError("it asked before it refused")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()  # a file, for those that want one
    monkeypatch.setattr("vgpumgr.sim.lifecycle.start", ask)
    command, _ = find_command(path.split())
    words = path.split()
    for one in command.params:
        if one.required:
            words += ["x"] if one.param_type_name == "argument" else [one.opts[0], "x"]
    if path.startswith("op "):
        words[-1] = "3f2a"
    options = GlobalOptions()
    assert main([*words, "-o", "csv"], Session(options, Streams(options), ask)) == 2
    assert " no csv output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error", "why", "hint"),
    [
        (["gup", "list"], "no such command 'gup'", "did you mean 'gpu'?", "vgpumgr --help"),
        (["gpu", "lst"], "no such command 'lst'", "did you mean 'list'?", "vgpumgr gpu --help"),
        (
            ["gpu", "list", "--colums", "x"],
            "no such option: --colums",
            "did you mean --columns?",
            "vgpumgr gpu list --help",
        ),
        # dashes make no options alike
        (
            ["config", "check", "--file", "x"],
            "no such option: --file",
            None,
            "vgpumgr config check --help",
        ),
        (
            ["mig", "create", "1g.10gb", "--gpu", "0"],
            "no such option: --gpu",
            "did you mean GPU without --gpu?",
            "vgpumgr mig create --help",
        ),
        (
            ["mig", "layot"],
            "no such command 'layot'",
            "did you mean 'layout'?",
            "vgpumgr mig --help",
        ),
        (
            ["mig", "layout", "plna", "x"],
            "no such command 'plna'",
            "did you mean 'plan'?",
            "vgpumgr mig layout --help",
        ),
        (["mig", "layout", "plan"], "missing argument", None, "vgpumgr mig layout plan --help"),
        (["gpu", "show"], "missing argument", None, "vgpumgr gpu show --help"),
        (["gpu", "list", "-o", "jsn"], "'jsn' is not one of", None, "vgpumgr gpu list --help"),
        (["xyzzy"], "no such command 'xyzzy'", None, "vgpumgr --help"),
        (["--color", "red", "gpu"], "'red' is not one of 'auto'", None, "vgpumgr --help"),
        (
            ["gpu", "list", "--machine"],
            "option '--machine' requires an argument",
            None,
            "vgpumgr gpu list --help",
        ),
        (["attach", "vm01"], "missing option '--profile'", None, "vgpumgr attach --help"),
        (["run", "--", "true"], "missing option '--profile'", None, "vgpumgr run --help"),
    ],
)
def test_wrong_words(
    cli: Cli, words: list[str], error: str, why: str | None, hint: str | None
) -> None:
    result = cli.run(*words)
    assert (result.code, result.out) == (2, "")
    lines = result.err.splitlines()
    assert error in lines[0]
    assert "(VG100, exit 2)" in lines[-1]
    assert (f"why:     {why}" in lines) == (why is not None)
    assert hint is None or lines[-1].startswith(f"try:     {hint} ")


def test_wrong_words_in_json(cli: Cli) -> None:
    document = json.loads(cli.run("gpu", "lst", "-o", "json").err)
    assert document["error"]["id"] == "VG100"
    assert document["error"]["try"] == "vgpumgr gpu --help"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-o", "json"], True),
        (["--output=json"], True),
        (["-ojson"], True),
        (["-o", "csv", "json"], False),
        (["-o"], False),
    ],
)
def test_json_is_noticed_before_parsing(words: list[str], expected: bool) -> None:
    assert wants_json(words) is expected


def test_version(cli: Cli) -> None:
    assert cli.run("version").out == f"vgpumgr {__version__}\n"
    assert cli.run("--version").out == f"vgpumgr {__version__}\n"
    document = json.loads(cli.run("version", "-o", "json").out)
    assert document == {"schema": "vgpumgr/v1", "version": __version__}


def test_the_version_is_the_packages() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_the_full_form_of_an_error(golden: Callable[[str, str], None]) -> None:
    error = NvmlInUseError(
        "cannot destroy GPU instance 3",
        cause="nvmlGpuInstanceDestroy: In use by another client (NVML 19)",
        why="a process still uses it",
        held_by=["process 1 (a)", "process 2 (b)"],
        hint="stop the holders, then repeat",
    )
    golden("error-full.txt", format_error(error) + "\n")
    assert format_error(error, color=True).startswith("\x1b[1;31merror:")


@pytest.mark.parametrize(
    ("hint", "addressed"),
    [
        ("vgpumgr gpu list", "vgpumgr --machine m gpu list"),
        ("vgpumgr recover, or vgpumgr detach vm01", "vgpumgr --machine m recover, or vgpumgr --machine m detach vm01"),
        ("sudo vgpumgr attach ...", "sudo vgpumgr --machine m attach ..."),
        ("vgpumgr sim start m", "vgpumgr sim start m"),
        ("ls -l /run/vgpumgr status", "ls -l /run/vgpumgr status"),
        ("install vgpumgr listed above", "install vgpumgr listed above"),
        ("vgpumgr --help", "vgpumgr --help"),
    ],
)  # fmt: skip
def test_commands_of_a_hint_are_for_the_machine_of_the_line(hint: str, addressed: str) -> None:
    assert Streams(GlobalOptions(machine="m"), environ={}).address(hint) == addressed
    assert Streams(GlobalOptions(), environ={}).address(hint) == hint
    there = Streams(GlobalOptions(machine="m"), environ={"VGPUMGR_MACHINE": "m"})
    assert there.address(hint) == hint
    remote = Streams(GlobalOptions(host="gpu7"), environ={}).address(hint)
    assert remote == addressed.replace("--machine m", "--host gpu7")


def test_no_color_counts() -> None:
    from tests.support.cli import Terminal

    terminal = Terminal()
    streams = Streams(GlobalOptions(), terminal, terminal, {"NO_COLOR": "1"})
    assert not streams.has_color(terminal)
    assert Streams(GlobalOptions(), terminal, terminal, {}).has_color(terminal)
    assert not Streams(GlobalOptions(), terminal, terminal, {"TERM": "dumb"}).has_color(terminal)


HEAVY = ("rich", "pydantic", "yaml", "lxml", "libvirt", "pynvml", "jinja2", "paramiko", "sqlite3")
NO_GPUS = b'{"schema": "vgpumgr/v1", "machine": {}, "gpus": [], "lost": [], "others": []}'
TELL_LOADED = (
    "import sys; from vgpumgr.cli.main import main\n"
    "code = main({words!r})\n"
    "print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)\n"
    "print([m for m in sys.modules if m.startswith('vgpumgr.') and"
    " m.split('.')[1] in {layers!r}], file=sys.stderr)\n"
    "sys.exit(code)"
)


@pytest.mark.parametrize(
    "words", [["--help"], ["gpu", "--help"], ["gpu", "list", "--help"], ["version"], ["gup"]]
)
def test_nothing_heavy_is_imported_for_help(words: list[str]) -> None:
    layers = ("daemon", "nvml", "mig", "host", "sim")
    code = TELL_LOADED.format(words=words, heavy=HEAVY, layers=layers)
    assert run_python("-c", code).stderr.splitlines()[-2:] == ["[]", "[]"]


def test_a_client_of_the_daemon_is_thin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a listing costs when a daemon answers is mostly what is loaded for it."""
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(tmp_path))
    with answering(tmp_path / "vgpumgr.sock", NO_GPUS):
        heavy = (*HEAVY, "fastapi", "asyncio")
        code = TELL_LOADED.format(
            words=["gpu", "list", "-o", "csv"], heavy=heavy, layers=("daemon", "nvml", "mig")
        )
        result = run_python("-c", code)
    assert (result.returncode, result.stderr.splitlines()) == (0, ["[]", "[]"])
    assert result.stdout.startswith("index,")


@contextmanager
def answering(path: Path, body: bytes) -> Iterator[None]:
    """A socket that gives every request this answer."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if self.rfile.readline():
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                )

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--help"], set()), (["gpu", "list", "--help"], {"gpu"}), (["version"], {"program"})],
)
def test_only_the_named_noun_is_imported(words: list[str], expected: set[str]) -> None:
    code = (
        "import sys; from vgpumgr.cli.main import main\n"
        f"main({words!r})\n"
        "print(*(m for m in sys.modules if m.startswith('vgpumgr.cli.')), file=sys.stderr)"
    )
    loaded = run_python("-c", code).stderr.splitlines()[-1].split()
    assert {f"vgpumgr.cli.{name}" for name in expected} == {
        entry.module for entry in (*VERBS, *NOUNS) if entry.module in loaded
    }


@pytest.mark.native
def test_a_listing_without_a_daemon_opens_nothing_but_nvml_and_the_store() -> None:
    code = (
        "import sys; from vgpumgr.cli.main import main\n"
        f"code = main(['--machine', {NAME!r}, 'gpu', 'list'])\n"
        "heavy = ('pydantic', 'libvirt', 'lxml', 'yaml', 'vgpumgr.app.operations.attachments',"
        " 'vgpumgr.app.documents.functions', 'vgpumgr.app.documents.vgpus')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    with simulated():
        done = run_python("-c", code)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]"), done.stderr


def measure_cpu_s(*arguments: str) -> float:
    """Processor time of one run of Python: other people's load makes it wait, not work more."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def check_cpu(most: float, *words: str) -> None:
    """A command's budget as a ratio of the best runs; a loaded machine gets more tries."""
    bare, run = [], []
    for _ in range(40):
        bare.append(measure_cpu_s("-c", "pass"))
        run.append(measure_cpu_s("-m", "vgpumgr", *words))
        if len(run) > 3 and min(run) <= most * min(bare):
            return
    pytest.fail(f"{words} takes {min(run) / min(bare):.1f} times as long as python -c pass")


def test_help_costs_at_most_ten_bare_pythons() -> None:
    check_cpu(10, "--help")


def test_completion_costs_at_most_eleven_bare_pythons() -> None:
    check_cpu(11, "completion", "--line", "vgpumgr attach vm01 --numa s")


def test_a_listing_of_a_daemon_costs_at_most_thirteen_bare_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(tmp_path))
    with answering(tmp_path / "vgpumgr.sock", NO_GPUS):
        check_cpu(13, "gpu", "list")


def test_a_closed_pipe_is_no_error() -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "vgpumgr", "version"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=env,
        check=False,
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, b"")
