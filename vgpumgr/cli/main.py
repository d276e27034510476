"""Where the program starts, every way in which it ends, and errors as text of five lines or JSON."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import partial

from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import Exit, VgpumgrError, explain_unexpected

_RED, _RESET = "\033[1;31m", "\033[0m"
_WIDTH = 9
#: how Python spells an error of the system; its words say the same
_ERRNO = re.compile(r"\[Errno (-?\d+|None)\] ")


def main(arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    unreached: list[VgpumgrError] = []
    if session is None:
        options = GlobalOptions.from_environ(os.environ)
        session = Session(options, Streams(options), partial(open_backend, report=unreached.append))
    streams = session.streams
    debug = "--debug" in words or bool(os.environ.get("VGPUMGR_DEBUG"))
    try:
        from vgpumgr.cli.reader import run_line

        result = run_line(words, session)
        streams.out.flush()
        if unreached:
            return _report_unreached(streams, unreached, words)
        return int(result) if isinstance(result, int) else int(Exit.OK)
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


def _report_unreached(
    streams: Streams, errors: Sequence[VgpumgrError], words: Sequence[str]
) -> int:
    """Some of several hosts have not answered: the answers of the others are printed, and this is the
    exit code of the first error.
    """
    for error in errors:
        _fail(streams, error, words)
    return int(errors[0].exit_code)


def _fail(streams: Streams, error: VgpumgrError, words: Sequence[str]) -> int:
    print_error(streams, error, as_json=wants_json(words))
    return int(error.exit_code)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the line asks for JSON: errors are then JSON too, even those of reading it."""
    for index, word in enumerate(arguments):
        if word in ("-ojson", "--output=json"):
            return True
        if word in ("-o", "--output") and list(arguments[index + 1 : index + 2]) == ["json"]:
            return True
    return False


def print_error(streams: Streams, error: VgpumgrError, *, as_json: bool) -> None:
    """Prints an error on standard error; the hint's commands name the machine of this run."""
    if error.hint:
        error.hint = streams.address(error.hint)
    if as_json:
        import json

        document = {"schema": "vgpumgr/v1", "error": error.as_dict()}
        streams.err.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        streams.err.write(format_error(error, color=streams.has_color(streams.err)) + "\n")


def format_error(error: VgpumgrError, *, color: bool = False) -> str:
    """``error / cause / why / held by / try``; parts that are not known are left out.

    Number and exit code stand at the end of the last line.
    """
    parts = [("error", error.error)]
    if error.cause:
        parts.append(("cause", _ERRNO.sub("", error.cause)))
    if error.why:
        parts.append(("why", error.why))
    parts += [("held by" if i == 0 else "", holder) for i, holder in enumerate(error.held_by)]
    if error.hint:
        parts.append(("try", error.hint))
    lines = [_line(label, text, color=color) for label, text in parts]
    lines[-1] += f"        ({error.id}, exit {int(error.exit_code)})"
    return "\n".join(lines)


def _line(label: str, text: str, *, color: bool) -> str:
    """Further lines of a long cause are indented below its first."""
    indented = text.rstrip().replace("\n", "\n" + " " * _WIDTH)
    head = f"{label}:" if label else ""
    padded = head.ljust(_WIDTH)
    if color and label == "error":
        padded = _RED + padded + _RESET
    return padded + indented
