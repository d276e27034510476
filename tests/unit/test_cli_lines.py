"""The two readers of command lines: what the quick one reads, typer reads the same."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpumgr.cli.arguments import split_global
from vgpumgr.cli.commands import GROUPS, TOP_LEVEL, Group, Verb, find_verb, load
from vgpumgr.cli.declarations import Option
from vgpumgr.cli.plain_line import NotPlainError, list_parameters, read_plain
from vgpumgr.cli.typer_app import declare, make_settings
from vgpumgr.sim.__main__ import build_parser


def _list_verbs(groups: tuple[Group, ...] = GROUPS) -> Iterator[Verb]:
    for group in groups:
        yield from group.verbs
        yield from _list_verbs(group.groups)


VERBS = [*TOP_LEVEL, *_list_verbs()]


class Reader:
    """A verb's line as typer reads it; the verb itself is not run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._seen: list[dict[str, Any]] = []
        declared = declare(function)

        def record(context: typer.Context, **values: Any) -> None:  # noqa: ARG001
            self._seen.append(values)

        record.__signature__ = inspect.signature(declared)  # type: ignore[attr-defined]
        record.__annotations__ = declared.__annotations__
        self._app = typer.Typer(add_completion=False)
        self._app.command(context_settings=make_settings(function))(record)

    def read(self, words: list[str]) -> dict[str, Any]:
        """Raises typer's errors."""
        self._app(args=words, standalone_mode=False)
        return self._seen.pop()


@cache
def make_reader(verb: Verb) -> Reader:
    return Reader(load(verb))


def list_examples(verb: Verb) -> list[list[str]]:
    """The lines below ``Examples:``, without the program and the global options."""
    lines = (load(verb).__doc__ or "").partition("Examples:")[2].splitlines()
    # up to what is the shell's
    simple = [line.partition(" > ")[0] for line in lines if line.strip().startswith("vgpumgr ")]
    simple = [line for line in simple if "|" not in line]
    return [split_global(shlex.split(line, comments=True)[1:], {})[1] for line in simple]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.module)
def test_every_example_in_the_help_is_plain(verb: Verb) -> None:
    """And means the same to typer."""
    for line in list_examples(verb):
        found, words = find_verb(line)
        if found is None:
            continue
        if "$" not in " ".join(words):
            assert read_plain(load(found), words) == make_reader(found).read(words), line


@st.composite
def lines(draw: st.DrawFn) -> tuple[Verb, list[str]]:
    """A verb with a line of its own options, likely values, and some that are none."""
    verb = draw(st.sampled_from(VERBS))
    values = [
        "json",
        "table",
        "auto",
        "0",
        "2",
        "15",
        "1.5",
        "x",
        "-1",
        "",
        "a=b",
        "vm01",
        "no such",
    ]
    words = ["--", "-y", "-h", "--nothing", "-ojson", "-o=json", "--output=json", "--output="]
    for parameter in list_parameters(load(verb)):
        if isinstance(parameter.declared, Option):
            for name in (*parameter.list_names(), *parameter.list_off_names()):
                words += [name, f"{name}=1", f"{name}5", name]
    return verb, draw(st.lists(st.sampled_from([*words, *values]), max_size=6))


@settings(max_examples=600, deadline=None)
@given(lines())
def test_what_is_read_without_typer_is_what_typer_reads(drawn: tuple[Verb, list[str]]) -> None:
    verb, words = drawn
    try:
        values = read_plain(load(verb), words)
    except NotPlainError:
        return
    assert values == make_reader(verb).read(words)


@pytest.mark.parametrize("said", ["driver -vfio-pci", "driver -snd_hda_intel", "sriov -e ALL"])
def test_words_for_the_simulator_are_passed_on_with_their_dashes(said: str) -> None:
    verb, words = find_verb(["sim", "tell", "intel-flex", *said.split()])
    assert verb is not None
    values = read_plain(load(verb), words)
    assert [values["what"], *values["words"]] == said.split()
    options = build_parser().parse_args(["tell", "intel-flex", *said.split()])
    assert [options.what, *options.words] == said.split(), (
        "nor does the simulator take them for its own"
    )


@pytest.mark.parametrize(
    "line",
    [
        "sim tell intel-flex driver --help",
        "gpu list --help",
        "gpu list extra",
        "gpu show",
        "gpu list -o",
        "gpu list -o jsn",
        "gpu list -o json -o csv",
        "gpu list --no-header=1",
        "attach vm01",
        "attach vm01 --profile -1",
        "attach vm01 --profile 1g.10gb --hello-timeout soon",
        "attach -- vm01 --profile x",
        "top --interval 0.1",
        "events --count -3",
    ],
)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    verb, words = find_verb(line.split())
    assert verb is not None
    with pytest.raises(NotPlainError):
        read_plain(load(verb), words)
