"""Command lines as typer reads them: every example of the help, and what a line may not say."""

from __future__ import annotations

import inspect
import io
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.commands import find_command, list_verbs
from vgpumgr.app.application import find_operation
from vgpumgr.cli.main import build_root, main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import UsageError, VgpumgrError

VERBS = dict(list_verbs())


def never(*_: object) -> Any:
    raise AssertionError("a line is only read here")


def read(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The verb of a line and its values, the verb itself is not run. Raises typer's errors and ours."""
    options = GlobalOptions()
    session = Session(options, Streams(options), never)
    context: Any = build_root().make_context("vgpumgr", words, obj=session)
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("vgpumgr "), context.params


def list_examples(path: str) -> list[list[str]]:
    """The lines below ``Examples:``, without the program."""
    lines = str(VERBS[path].help).partition("Examples:")[2].splitlines()
    # up to what is the shell's
    simple = [line.partition(" > ")[0] for line in lines if line.strip().startswith("vgpumgr ")]
    return [shlex.split(line, comments=True)[1:] for line in simple if "|" not in line]


@pytest.mark.parametrize("path", VERBS)
def test_every_example_in_the_help_can_be_read(path: str) -> None:
    for line in list_examples(path):
        verb, _ = read(line)
        assert verb in " ".join(line)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A verb with a line of its own options, likely values, and some that are none."""
    path, command = draw(st.sampled_from(sorted(VERBS.items())))
    values = ["json", "table", "auto", "0", "2", "1.5", "x", "-1", "", "a=b", "vm01", "no such"]
    words = ["--", "-y", "-h", "--nothing", "-ojson", "-o=json", "--output=json", "--output="]
    for one in command.params:
        for name in (*one.opts, *one.secondary_opts):
            words += [name, f"{name}=1", f"{name}5"] if name.startswith("-") else []
    return [*path.split(), *draw(st.lists(st.sampled_from([*words, *values]), max_size=6))]


@settings(max_examples=300, deadline=None)
@given(lines())
def test_a_line_is_read_or_refused_in_our_form(words: list[str]) -> None:
    """No line is a bug: what typer refuses has a text, and the command whose help is next."""
    from vgpumgr.cli.main import explain_usage

    try:
        read(words)
    except typer.Exit:
        assert {"-h", "--help", "--version"} & set(words)
    except typer.TyperException as error:
        ours = explain_usage(error)
        assert ours.error[0].islower() or ours.error[0] in "'\""
        assert not ours.error.endswith(".")
        assert str(ours.hint).startswith("vgpumgr ")
        assert str(ours.hint).endswith(" --help")
    except VgpumgrError as error:
        assert error.hint


@pytest.mark.parametrize("said", ["driver -vfio-pci", "driver -snd_hda_intel", "sriov -e ALL"])
def test_words_for_the_simulator_are_passed_on_with_their_dashes(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, ...]] = []
    monkeypatch.setattr("vgpumgr.sim.lifecycle.send_request", lambda *words: heard.append(words))
    assert main(["sim", "tell", "intel-flex", *said.split()]) == 0
    what, _, rest = said.partition(" ")
    assert heard == [("intel-flex", what, rest)]


@pytest.mark.parametrize(
    "line",
    [
        "gpu list extra",
        "gpu show",
        "gpu list -o",
        "gpu list -o jsn",
        "gpu list --no-header=1",
        "attach vm01 --profile 1g.10gb --hello-timeout soon",
        "attach vm01 --profile 1g.10gb --hello-timeout nan --count 0",
        "top --interval 0.1",
        "top --interval nan",
        "events --count -3",
        "sim tell intel-flex",
    ],
)
def test_what_a_line_may_not_say(line: str) -> None:
    with pytest.raises((typer.TyperException, UsageError)):
        read(line.split())


@pytest.mark.parametrize("path", VERBS)
def test_no_option_of_a_verb_hides_one_of_all(path: str) -> None:
    command, _ = find_command(path.split())
    names = [name for one in command.params for name in (*one.opts, *one.secondary_opts)]
    assert sorted(names) == sorted(set(names))


#: what the dry runs of all verbs print
DRY_RUN = {
    "schema": "vgpumgr/v1",
    "dry_run": True,
    "change": "vf enable",
    "subject": "0000:01:00.0",
    "name": "GPU 0 (0000:01:00.0)",
    "steps": [],
    "explanations": [],
    "cost": {},
    "concerns": [],
    "actions": [],
    "drift": [],
    "done": [],
    "problems": [],
    "notes": [],
    "plan": {
        "operation": "create vGPU",
        "subject": "vm01",
        "steps": [],
        "notes": [],
        "result": {
            "vm": "vm01",
            "run": "train",
            "transport": "ring",
            "profile": "1g.10gb",
            "gpu_index": 0,
            "attachment": "a1b2c3d4",
            "vgpu": "6f1c2a2e",
            "type": "A100-4C",
            "parent": "0000:01:00.0",
        },
    },
}


class DryRunBackend:
    """Keeps each call; answers every dry run, and that no program uses a channel."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "show_channel":
            return {"channels": []}
        self.calls.append((operation, params))
        return DRY_RUN


@pytest.mark.parametrize(
    "path",
    # doctor needs --fix, and checks first: test_doctor_fix.py; the others are the pool's: test_pool_tenants.py,
    # test_pool_preemption.py
    [
        path
        for path, verb in VERBS.items()
        if "dry_run" in {p.name for p in verb.params}
        and path not in ("doctor", "tenant split", "claim create")
    ],
)
def test_a_dry_run_of_every_changing_verb_reaches_its_operation(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("{}")
    words = [*path.split(), "--dry-run"]
    for parameter in VERBS[path].params:
        if parameter.required:
            words += [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
            words.append(str(parameter.metavar))
    # or --equal
    words += ["--profile", "1g.10gb"] if path in ("attach", "run") else []
    words += ["--", "true"] if path == "run" else []
    options, backend, out, err = GlobalOptions(), DryRunBackend(), io.StringIO(), io.StringIO()
    session = Session(options, Streams(options, out, err), lambda _: nullcontext(backend))
    assert (main(words, session), err.getvalue()) == (0, "")
    assert out.getvalue()
    ((operation, params),) = backend.calls
    assert params["dry_run"] is True
    inspect.signature(find_operation(operation)).bind(None, **params)
