"""The tree of commands as a typer application: help, suggestions, and every line that is not plain."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from vgpumgr.cli.commands import (
    GROUPS,
    TOP_LEVEL,
    Group,
    Verb,
    find_group,
    find_verb,
    list_names,
    load,
)
from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.plain_line import list_parameters
from vgpumgr.cli.session import Session
from vgpumgr.errors import UsageError

_HELP = """GPUs of a KVM host for its virtual machines: slices, attachments, who has what.

Options for every command: --machine NAME (a simulated machine), --host ssh://USER@HOST (another
host), --hosts A,B (lists of several), --color auto|always|never, -q, -v, --debug. They may stand
anywhere on the line.
"""
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def run_typer(words: list[str], session: Session) -> Any:
    """Parses and runs; what typer refuses becomes a usage error."""
    words = _add_help(words)
    app = build_app(words)
    try:
        return app(args=words, prog_name="vgpumgr", standalone_mode=False, obj=session)
    except typer.TyperException as error:
        raise _explain_usage(error, words) from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:
        # how typer reports that nobody reads the output any more (EPIPE)
        raise BrokenPipeError from error


def _add_help(words: list[str]) -> list[str]:
    """A noun alone asks what can be done with it."""
    group, rest = find_group(words)
    if not words or (group is not None and not rest):
        return [*words, "--help"]
    if words in (["--version"], ["-V"]):
        return ["version"]
    if words[0] == "help":
        return [*words[1:], "--help"]
    return words


def build_app(words: Sequence[str]) -> typer.Typer:
    """The typer application in which only the verb that ``words`` names has its real function."""
    app = _make_typer(_HELP)
    _fill(app, TOP_LEVEL, GROUPS, list_names(words))
    return app


def _fill(
    app: typer.Typer, verbs: Sequence[Verb], groups: Sequence[Group], names: list[str]
) -> None:
    """Adds verbs and, level after level, groups; ``names`` are the words that are left here."""
    for verb in verbs:
        _add_verb(app, verb, chosen=names[:1] == [verb.name])
    for group in groups:
        below = _make_typer(group.help)
        if names[:1] == [group.name]:  # of the others nobody sees more than their name and help
            _fill(below, group.verbs, group.groups, names[1:])
        app.add_typer(below, name=group.name, help=group.help, hidden=group.hidden)


def _make_typer(help_text: str) -> typer.Typer:
    app = typer.Typer(
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_CONTEXT,
    )
    app.callback()(_nothing)
    return app


def _add_verb(app: typer.Typer, verb: Verb, *, chosen: bool) -> None:
    function = load(verb) if chosen else _nothing
    help_text = None if chosen else verb.help
    app.command(
        verb.name,
        help=help_text,
        short_help=verb.help,
        context_settings=make_settings(function) if chosen else _CONTEXT,
    )(declare(function) if chosen else function)


def make_settings(function: Callable[..., Any]) -> dict[str, Any]:
    """How a verb's line is read; where words of another's are in it, options that we do not know are such."""
    declared = (parameter.declared for parameter in list_parameters(function))
    verbatim = any(isinstance(d, Argument) and d.verbatim for d in declared)
    return {**_CONTEXT, "ignore_unknown_options": verbatim}


def _nothing() -> None:
    """Stands for a verb that is only listed."""


def declare(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with its parameters declared as typer wants them."""
    hints = typing.get_type_hints(function, include_extras=True)
    assert isinstance(function, types.FunctionType)
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    copy.__doc__ = function.__doc__
    copy.__annotations__ = {name: _translate(hint) for name, hint in hints.items()}
    return copy


def _translate(hint: Any) -> Any:
    if hint is Context:
        return typer.Context
    declared = getattr(hint, "__metadata__", (None,))[0]
    kind = typing.get_args(hint)[0] if declared is not None else None
    if isinstance(declared, Option):
        return Annotated[kind, declared.for_typer(kind)]
    if isinstance(declared, Argument):
        return Annotated[kind, declared.for_typer()]
    return hint


_WORDS = (
    (r"Value error, ", ""),
    (r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", r"not expected here: \1"),
)
#: what other programs call it
_HABITS = {"--json": "-o json", "--dumpjson": "-o json", "--format": "-o", "--force": "--yes"}


def _reword(message: str) -> str:
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message[:1].lower() + message[1:].rstrip(".")


def _guess(message: str, verb: Verb | None) -> str | None:
    _, extra, words = message.rpartition("not expected here: ")
    if extra and verb and "gpu" in typing.get_type_hints(load(verb)):
        return f"--gpu {words}"
    option = message.removeprefix("no such option: ").partition("=")[0]
    return _HABITS.get(option)


def _explain_usage(error: Any, words: Sequence[str]) -> UsageError:
    message, _, near = str(error.format_message()).strip().partition(" Did you mean ")
    message, _, options = message.partition(" (Possible options: ")
    message = _reword(message)
    nouns = list_names(words)
    _, rest = find_group(nouns)
    verb, _ = find_verb(nouns)
    guess = near.rstrip("?") or options.rstrip(")") or _guess(message, verb)
    known = nouns[: len(nouns) - len(rest)]
    known += [verb.name] if verb else []
    return UsageError(
        message,
        why=f"did you mean {guess}?" if guess else None,
        hint=" ".join(["vgpumgr", *known, "--help"]),
    )
