"""Where the program starts: global options, which verb, and every way to end.

Only the module of the verb that was typed is imported; help needs none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from vgpumgr.cli.arguments import GlobalOptions, split_global, wants_json
from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.commands import find_verb, load
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.report import print_error
from vgpumgr.cli.session import Session
from vgpumgr.cli.streams import Streams
from vgpumgr.errors import Exit, VgpumgrError, explain_unexpected


def main(arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    streams = session.streams if session else Streams(GlobalOptions())
    unreached: list[VgpumgrError] = []
    debug = "--debug" in words or bool(os.environ.get("VGPUMGR_DEBUG"))
    try:
        options, rest = split_global(words)
        session = session or Session(
            options, Streams(options), partial(open_backend, tell=unreached.append)
        )
        streams = session.streams
        result = _run(rest, session)
        return _tell_unreached(streams, unreached, words) or _finish(streams, result)
    except BrokenPipeError:
        # the reader has enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except KeyboardInterrupt as error:
        streams.note(str(error) or "interrupted")
        return int(Exit.INTERRUPTED)
    except VgpumgrError as error:
        if debug:
            raise
        return _fail(streams, error, words)
    except Exception as error:
        if debug:
            raise
        return _fail(streams, explain_unexpected(error, "vgpumgr"), words)


def _run(words: list[str], session: Session) -> Any:
    """Runs the verb at once if the line is plain; typer reads all others."""
    verb, rest = find_verb(words)
    if verb is not None:
        from vgpumgr.cli.plain_line import NotPlainError, read_plain

        function = load(verb)
        try:
            values = read_plain(function, rest)
        except NotPlainError:
            pass
        else:
            return function(Context(session), **values)
    from vgpumgr.cli.typer_app import run_typer

    return run_typer(words, session)


def _finish(streams: Streams, result: Any) -> int:
    streams.out.flush()
    return int(result) if isinstance(result, int) else int(Exit.OK)


def _tell_unreached(streams: Streams, errors: Sequence[VgpumgrError], words: Sequence[str]) -> int:
    """Some of several hosts have not answered: what the others said stands there, and this is the
    exit code of the first.
    """
    streams.out.flush()
    for error in errors:
        _fail(streams, error, words)
    return int(errors[0].exit_code) if errors else 0


def _fail(streams: Streams, error: VgpumgrError, words: Sequence[str]) -> int:
    print_error(streams, error, as_json=wants_json(words))
    return int(error.exit_code)
