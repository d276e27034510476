"""``vgpumgr top``."""

from __future__ import annotations

import locale
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from typer import Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.session import Session, get_session, number
from vgpumgr.errors import Exit, UsageError, VgpumgrError

app = App()
_ONCE_WIDTH = 80


class TerminalMissingError(VgpumgrError):
    """The Python package that draws on terminals is not installed, or there is no terminal."""

    id = "VG391"
    exit_code = Exit.USAGE
    http_status = 501


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
    """Shows the machine once, or until the user quits. Raises TerminalMissingError."""
    from vgpumgr.host.clock import SystemClock
    from vgpumgr.tui.rows import ASCII, UNICODE
    from vgpumgr.tui.view import View

    @contextmanager
    def open_call() -> Iterator[Callable[[str], dict[str, Any]]]:
        with session.open_backend(session.options) as backend:
            yield backend.call

    if session.options.hosts:
        raise UsageError("top shows one host", hint="--host NAME")
    view = View(ASCII if ascii_only else UNICODE)
    if once:
        from vgpumgr.tui.frame import draw_once
        from vgpumgr.tui.sample import take_sample

        width = session.streams.width if session.streams.is_terminal else _ONCE_WIDTH
        with open_call() as call:
            sample = take_sample(call, SystemClock())
        view.show(sample)
        session.streams.print("\n".join(draw_once(view, width)))
        return int(Exit.ERROR if sample.problems else Exit.OK)
    if not session.streams.is_terminal:
        raise TerminalMissingError(
            "top needs a terminal", why="standard output is none", hint="vgpumgr top --once"
        )
    try:
        from vgpumgr.tui.app import TopApp
    except ImportError as error:
        raise TerminalMissingError(
            "cannot show top on the terminal",
            cause=str(error),
            hint="pip install 'vgpumgr[tui]'; or vgpumgr top --once, which needs nothing",
        ) from error
    TopApp(view, open_call, SystemClock(), interval_s).run()
    return int(Exit.OK)


def _has_unicode() -> bool:
    return "utf" in locale.getpreferredencoding(False).lower()
