"""The frame of the command line: help, wrong words, global options, what is imported."""

from __future__ import annotations

import importlib
import inspect
import json
import os
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
from tests.support.fake_nvml import FakeNvml
from vgpumgr import __version__
from vgpumgr.cli.arguments import Color, GlobalOptions, split_global, wants_json
from vgpumgr.cli.commands import GROUPS, TOP_LEVEL, Verb
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.output import Format
from vgpumgr.cli.report import format_error
from vgpumgr.cli.session import Session
from vgpumgr.cli.streams import Streams
from vgpumgr.errors import NvmlInUseError, UsageError

ROOT = Path(__file__).parents[2]
ALL_VERBS: list[tuple[list[str], Verb]] = [
    *(([], verb) for verb in TOP_LEVEL),
    *(([group.name], verb) for group in GROUPS for verb in group.verbs),
    *(
        ([group.name, inner.name], verb)
        for group in GROUPS
        for inner in group.groups
        for verb in inner.verbs
    ),
]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(FakeNvml([make_gpu()]), tmp_path)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=env, check=False
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], *[[group.name] for group in GROUPS]])
def test_help_lists_what_there_is(
    cli: Cli, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.run(*words).code == 0
    text = capsys.readouterr().out
    group = next((g for g in GROUPS if g.name in words), None)
    for entry in group.verbs if group else (*TOP_LEVEL, *GROUPS):
        assert entry.name in text


def test_a_noun_below_a_noun_lists_its_verbs(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run("mig", "layout").code == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in ("plan", "apply", "assert", "export"))


@pytest.mark.parametrize(("path", "verb"), ALL_VERBS, ids=lambda value: getattr(value, "name", ""))
def test_every_verb_has_help_with_examples(
    cli: Cli, capsys: pytest.CaptureFixture[str], path: list[str], verb: Verb
) -> None:
    name = verb.name
    assert cli.run(*path, name, "--help").code == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert f"vgpumgr {' '.join([*path, name])}" in " ".join(text.split())


@pytest.mark.parametrize(("path", "verb"), ALL_VERBS, ids=lambda value: getattr(value, "name", ""))
def test_help_lines_say_what_the_verb_says(path: list[str], verb: Verb) -> None:
    module = importlib.import_module(verb.module)
    assert module.command.__doc__, f"{path} has no help"
    assert len(verb.help) < 70
    assert verb.help.endswith(".")


def list_single_verbs() -> list[Verb]:
    """Verbs that answer one thing: they have ``-o``, but no columns."""
    found = []
    for _, verb in ALL_VERBS:
        parameters = inspect.signature(importlib.import_module(verb.module).command).parameters
        if "output" in parameters and "columns" not in parameters:
            found.append(verb)
    return found


@pytest.mark.parametrize("verb", list_single_verbs(), ids=lambda verb: verb.module)
def test_what_answers_one_thing_refuses_the_formats_of_lists_before_it_does_anything(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> Any:
        raise AssertionError("it asked before it refused")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()  # a file, for those that want one
    monkeypatch.setattr(os, "execv", ask)
    module = importlib.import_module(verb.module)
    if hasattr(module, "open_daemon"):
        monkeypatch.setattr(module, "open_daemon", ask)
    options = GlobalOptions()
    session = Session(options, Streams(options), ask)
    needed = {
        name: "x"
        for name, parameter in inspect.signature(module.command).parameters.items()
        if parameter.default is parameter.empty and name != "context"
    }
    with pytest.raises(UsageError, match=" no csv output"):
        module.command(Context(session), **needed, output=Format.CSV)


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
        (["--color", "red", "gpu"], "--color takes one of", None, None),
        (["gpu", "list", "--machine"], "--machine needs a value", None, "vgpumgr --help"),
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
    "words",
    [
        ["--machine", "m", "gpu", "list"],
        ["gpu", "--machine=m", "list"],
        ["gpu", "list", "--machine", "m"],
    ],
)
def test_global_options_stand_anywhere(words: list[str]) -> None:
    assert split_global(words, {}) == (GlobalOptions(machine="m"), ["gpu", "list"])


def test_global_options_in_full() -> None:
    words = ["-v", "a", "--color=never", "--debug", "--", "--machine", "m"]
    options, rest = split_global(words, {"VGPUMGR_MACHINE": "env"})
    assert options == GlobalOptions("env", Color.NEVER, 1, True)
    assert rest == ["a", "--", "--machine", "m"]
    assert split_global(["-q"], {})[0].verbosity == -1
    with pytest.raises(UsageError):
        split_global(["--machine", "-q"], {})


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


# pydantic is not among them: typer may load it to parse what is not plain
HEAVY = ("rich", "yaml", "lxml", "libvirt", "pynvml", "jinja2", "paramiko", "sqlite3")
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
    heavy = (*HEAVY, "typer", "pydantic") if words == ["version"] else HEAVY
    layers = ("daemon", "nvml", "mig", "host")
    code = TELL_LOADED.format(words=words, heavy=heavy, layers=layers)
    assert run_python("-c", code).stderr.splitlines()[-2:] == ["[]", "[]"]


def test_a_client_of_the_daemon_is_thin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a listing costs when a daemon answers is mostly what is loaded for it."""
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(tmp_path))
    document = {"schema": "vgpumgr/v1", "machine": {}, "gpus": [], "lost": [], "others": []}
    with answering(tmp_path / "vgpumgr.sock", json.dumps(document).encode()):
        heavy = (*HEAVY, "typer", "pydantic", "fastapi", "asyncio")
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


def test_only_the_typed_verb_is_imported() -> None:
    code = (
        "import sys; from vgpumgr.cli.main import main\n"
        "main(['gpu', 'list', '--help'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('vgpumgr.cli.gpu_')), file=sys.stderr)"
    )
    loaded = run_python("-c", code).stderr.splitlines()[-1]
    assert loaded == "['vgpumgr.cli.gpu_list', 'vgpumgr.cli.gpu_text']"


@pytest.mark.native
def test_a_listing_without_a_daemon_opens_nothing_but_nvml_and_the_store() -> None:
    code = (
        "import sys; from vgpumgr.cli.main import main\n"
        f"code = main(['--machine', {NAME!r}, 'gpu', 'list'])\n"
        "heavy = ('pydantic', 'typer', 'libvirt', 'lxml', 'yaml', 'vgpumgr.daemon.attachments',"
        " 'vgpumgr.daemon.pci_documents', 'vgpumgr.daemon.vgpu_documents')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    with simulated():
        done = run_python("-c", code)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]"), done.stderr


def measure_cpu_s(*arguments: str) -> float:
    """Processor time of one run of Python: other people's load makes it wait, not work more."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_costs_at_most_eight_bare_pythons() -> None:
    """The budget of ``--help``, as a ratio of the best runs; a loaded machine gets more tries."""
    bare, help_ = [], []
    for _ in range(40):
        bare.append(measure_cpu_s("-c", "pass"))
        help_.append(measure_cpu_s("-m", "vgpumgr", "--help"))
        if len(help_) > 3 and min(help_) <= 8 * min(bare):
            return
    pytest.fail(f"--help takes {min(help_) / min(bare):.1f} times as long as python -c pass")


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
