"""Where the program starts: global options, the tree of commands, and every way to end.

Only the module of the verb that was typed is imported; help needs none of them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from vgpumgr.cli.arguments import GlobalOptions, split_global, wants_json
from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.commands import GROUPS, TOP_LEVEL, Group, Verb
from vgpumgr.cli.report import print_error
from vgpumgr.cli.session import Session
from vgpumgr.cli.streams import Streams
from vgpumgr.errors import Exit, InternalError, UsageError, VgpumgrError

_HELP = """GPUs of a KVM host for its virtual machines: slices, attachments, who has what.

Options for every command: --machine NAME (a simulated machine), --host ssh://USER@HOST (another
host), --hosts A,B (lists of several), --color auto|always|never, -q, -v, --debug. They may stand
anywhere on the line.
"""
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def main(arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    streams = session.streams if session else Streams(GlobalOptions())
    debug = "--debug" in words or bool(os.environ.get("VGPUMGR_DEBUG"))
    try:
        options, rest = split_global(words)
        session = session or Session(options, Streams(options), open_backend)
        streams = session.streams
        return _finish(streams, _run(rest, session))
    except BrokenPipeError:
        # the reader has enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except VgpumgrError as error:
        if debug:
            raise
        return _fail(streams, error, words)
    except Exception as error:
        if debug:
            raise
        return _fail(streams, _explain_bug(error), words)


def _run(words: list[str], session: Session) -> Any:
    """Parses and runs; what typer refuses becomes a usage error."""
    import typer

    app = build_app(_add_help(words))
    try:
        return app(args=_add_help(words), prog_name="vgpumgr", standalone_mode=False, obj=session)
    except typer.TyperException as error:
        raise _explain_usage(error, words) from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:
        # how typer reports that nobody reads the output any more (EPIPE)
        raise BrokenPipeError from error


def _add_help(words: list[str]) -> list[str]:
    """A noun alone asks what can be done with it."""
    if not words or (len(words) == 1 and words[0] in {group.name for group in GROUPS}):
        return [*words, "--help"]
    if words == ["--version"]:
        return ["version"]
    return words


def build_app(words: Sequence[str]) -> Any:
    """The typer application in which only the verb that ``words`` names has its real function."""
    import typer

    names = [word for word in words if not word.startswith("-")][:2]
    app = _make_typer(typer, _HELP)
    for verb in TOP_LEVEL:
        _add_verb(app, verb, chosen=names[:1] == [verb.name])
    for group in GROUPS:
        chosen = names[1:] if names[:1] == [group.name] else []
        app.add_typer(
            _build_group(typer, group, chosen),
            name=group.name,
            help=group.help,
            hidden=group.hidden,
        )
    return app


def _build_group(typer: Any, group: Group, chosen: list[str]) -> Any:
    app = _make_typer(typer, group.help)
    for verb in group.verbs:
        _add_verb(app, verb, chosen=chosen == [verb.name])
    return app


def _make_typer(typer: Any, help_text: str) -> Any:
    app = typer.Typer(
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_CONTEXT,
    )
    app.callback()(_nothing)
    return app


def _add_verb(app: Any, verb: Verb, *, chosen: bool) -> None:
    function = _load(verb.module) if chosen else _nothing
    help_text = None if chosen else verb.help
    app.command(
        verb.name,
        help=help_text,
        short_help=verb.help,
        hidden=verb.hidden,
        context_settings=_CONTEXT,
    )(function)


def _nothing() -> None:
    """Stands for a verb that is only listed."""


def _load(module: str) -> Callable[..., Any]:
    function: Callable[..., Any] = importlib.import_module(module).command
    return function


def _finish(streams: Streams, result: Any) -> int:
    streams.out.flush()
    return int(result) if isinstance(result, int) else int(Exit.OK)


def _fail(streams: Streams, error: VgpumgrError, words: Sequence[str]) -> int:
    print_error(streams, error, as_json=wants_json(words))
    return int(error.exit_code)


def _explain_usage(error: Any, words: Sequence[str]) -> UsageError:
    message, _, near = str(error.format_message()).strip().partition(" Did you mean ")
    message, _, options = message.partition(" (Possible options: ")
    message = message.replace("Value error, ", "")
    message = message[:1].lower() + message[1:].rstrip(".")
    guess = near.rstrip("?") or options.rstrip(")")
    nouns = [word for word in words if not word.startswith("-")]
    known = nouns[:1] if nouns and nouns[0] in {g.name for g in GROUPS} else []
    if known:
        verbs = next(g.verbs for g in GROUPS if g.name == known[0])
        known += [word for word in nouns[1:2] if word in {verb.name for verb in verbs}]
    elif nouns and nouns[0] in {verb.name for verb in TOP_LEVEL}:
        known = nouns[:1]
    return UsageError(
        message,
        why=f"did you mean {guess}?" if guess else None,
        hint=" ".join(["vgpumgr", *known, "--help"]),
    )


def _explain_bug(error: Exception) -> InternalError:
    return InternalError(
        "vgpumgr has a bug",
        cause=f"{type(error).__name__}: {error}",
        hint="the same with --debug shows where; please report it",
    )
