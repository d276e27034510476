"""``vgpumgr top``."""

from __future__ import annotations

import locale
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option

from vgpumgr.cli.main import App, main
from vgpumgr.cli.session import Session, Streams, get_session, number
from vgpumgr.errors import Exit, UsageError, VgpumgrError

if TYPE_CHECKING:
    from vgpumgr.tui.view import Outcome

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

    Shows users, utilisation, temperature, power and health. ? lists the keys, q quits. d detaches the
    VM of a row, D drains its GPU, R restarts its channel: each shows the plan and the equal command
    first, and only y does it. --once has no keys, and exits 1 if something could not be read.

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
    from vgpumgr.tui.view import Phase, View

    @contextmanager
    def open_call() -> Iterator[Callable[[str], dict[str, Any]]]:
        with session.open_backend(session.options) as backend:
            yield backend.call

    if session.options.hosts:
        raise UsageError("top shows one host", hint="--host NAME")
    view = View(ASCII if ascii_only else UNICODE, address=session.streams.address)
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
    TopApp(view, open_call, partial(_run_line, session), SystemClock(), interval_s).run()
    if view.command is not None and view.command.phase is Phase.RUNNING:
        line = session.streams.address("vgpumgr status")
        session.streams.note(f"left while it ran: {view.command.text}; how it ended says {line}")
    return int(Exit.OK)


def _run_line(session: Session, words: Sequence[str]) -> Outcome:
    """A line of the command line as a shell would run it, with what it prints. Quiet: the frame has the terminal."""
    from vgpumgr.tui.view import Outcome

    options, out = replace(session.options, verbosity=-1), StringIO()
    inner = Session(options, Streams(options, out, out), session.open_backend)
    try:
        return Outcome(main(words, inner), out.getvalue())
    except Exception as error:  # --debug
        return Outcome(int(Exit.ERROR), f"{out.getvalue()}{error!r}")


def _has_unicode() -> bool:
    return "utf" in locale.getpreferredencoding(False).lower()
