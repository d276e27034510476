"""``vgpumgr top``."""

from __future__ import annotations

import locale
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from typer import Context, Option

from vgpumgr.cli.options import number
from vgpumgr.cli.reader import App
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import Exit, UsageError

app = App()
_ONCE_WIDTH = 80


@app.command("top")
def watch(
    context: Context,
    once: Annotated[bool, Option("--once", help="Print one picture as text, for scripts.")] = False,
    interval: Annotated[
        float,
        Option(
            "--interval",
            metavar="SECONDS",
            parser=number(float, 0.2),
            help="How often to observe the machine.",
        ),
    ] = 2.0,
    ascii_only: Annotated[bool, Option("--ascii", help="Draw with ASCII alone.")] = False,
) -> int:
    """Watch GPUs, slices and VMs.

    Shows users and utilisation; changes nothing. ? lists the keys; q quits. --once exits 1 if
    something could not be read.

    \b
    Examples:
      vgpumgr top
      vgpumgr top --interval 0.5
      vgpumgr top --once --ascii
    """
    ascii_only = ascii_only or not _has_unicode()
    return _run(get_session(context), once=once, interval_s=interval, ascii_only=ascii_only)


def _run(session: Session, *, once: bool, interval_s: float, ascii_only: bool) -> int:
    """Shows the machine once, or until the user quits."""
    from vgpumgr.tui.run import TerminalMissingError, print_once, run_terminal

    @contextmanager
    def open_call() -> Iterator[Callable[[str], dict[str, Any]]]:
        with session.open_backend(session.options) as backend:
            yield backend.call

    if session.options.hosts:
        raise UsageError("top shows one host", hint="--host NAME")
    if once:
        width = session.streams.width if session.streams.is_terminal else _ONCE_WIDTH
        lines, complete = print_once(open_call, width, ascii_only=ascii_only)
        for line in lines:
            session.streams.print(line)
        return int(Exit.OK if complete else Exit.ERROR)
    if not session.streams.is_terminal:
        raise TerminalMissingError(
            "top needs a terminal", why="standard output is none", hint="vgpumgr top --once"
        )
    run_terminal(open_call, interval_s, ascii_only=ascii_only)
    return int(Exit.OK)


def _has_unicode() -> bool:
    return "utf" in locale.getpreferredencoding(False).lower()
