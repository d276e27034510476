"""``vgpumgr top`` for the command: one picture as text, or the terminal's program."""

from __future__ import annotations

from vgpumgr.errors import Exit, VgpumgrError
from vgpumgr.host.clock import SystemClock
from vgpumgr.tui.frame import draw_once
from vgpumgr.tui.poller import OpenCall
from vgpumgr.tui.sample import take_sample
from vgpumgr.tui.symbols import ASCII, UNICODE
from vgpumgr.tui.view import View


class TerminalMissingError(VgpumgrError):
    """The Python package that draws on terminals is not installed, or there is no terminal."""

    id = "VG391"
    exit_code = Exit.USAGE
    http_status = 501


def print_once(open_call: OpenCall, width: int, *, ascii_only: bool) -> tuple[list[str], bool]:
    """The picture of now, and whether everything could be read. Needs no textual."""
    view = View(ASCII if ascii_only else UNICODE)
    with open_call() as call:
        sample = take_sample(call, SystemClock())
    view.show(sample)
    return draw_once(view, width), not sample.problems


def run_terminal(open_call: OpenCall, interval_s: float, *, ascii_only: bool) -> None:
    """Runs until the user quits. Raises TerminalMissingError."""
    try:
        from vgpumgr.tui.app import TopApp
    except ImportError as error:
        raise TerminalMissingError(
            "cannot show top on the terminal",
            cause=str(error),
            hint="pip install 'vgpumgr[tui]'; or vgpumgr top --once, which needs nothing",
        ) from error
    view = View(ASCII if ascii_only else UNICODE)
    TopApp(view, open_call, SystemClock(), interval_s).run()
