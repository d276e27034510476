"""Errors as text of five lines, or as JSON."""

from __future__ import annotations

import re

from vgpumgr.cli.streams import Streams
from vgpumgr.errors import VgpumgrError

_RED, _RESET = "\033[1;31m", "\033[0m"
_WIDTH = 9
#: how Python spells an error of the system; its words say the same
_ERRNO = re.compile(r"\[Errno (-?\d+|None)\] ")


def print_error(streams: Streams, error: VgpumgrError, *, as_json: bool) -> None:
    """Tells what happened on standard error; the hint's commands name the machine of this run."""
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
