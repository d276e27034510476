"""The terminal's part of ``vgpumgr pool top``. Reads in a thread, so that a store that is slow holds up no key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.tui.pool import FOOTER, PoolView, draw_header, draw_line, draw_title

_STYLES = {"host": Style(bold=True), "gpu": Style(), "lease": Style(dim=True)}
_ALERT = Style(color="red", bold=True)
Read = Callable[[], Mapping[str, Any]]


class PoolBoard(Widget, can_focus=True):
    """The picture, from the line ``top`` on."""

    def __init__(self, view: PoolView) -> None:
        super().__init__(id="board")
        self.view = view
        self.top = 0

    def move(self, lines: int) -> None:
        """Scrolls; the last line stays in sight."""
        self.top = min(max(self.top + lines, 0), max(len(self.view.list_lines()) - 1, 0))
        self.refresh()

    def render(self) -> Text:
        """As large as the terminal."""
        width, height = self.size
        shown = self.view.list_lines()[self.top : self.top + max(height - 3, 0)]
        text = Text(no_wrap=True, end="")
        text.append(draw_title(self.view)[:width] + "\n", Style(bold=True))
        text.append(f"{draw_header(width)[:width]:<{width}}\n", Style(reverse=True, dim=True))
        for line in shown:
            style = _ALERT if line.alert else _STYLES[line.kind]
            text.append(draw_line(line, width)[:width] + "\n", style)
        text.append("\n" * max(height - 3 - len(shown), 0))
        if self.view.problem:  # what is shown is what was read last
            text.append(f"! {self.view.problem}"[:width], _ALERT)
        else:
            text.append(f"{FOOTER}   sorted by {self.view.order}"[:width], Style(dim=True))
        return text


class PoolApp(App[None]):
    """``vgpumgr pool top``."""

    CSS = """
    Screen { background: ansi_default; }
    #board { width: 1fr; height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit"),
        Binding("down,j", "move(1)"),
        Binding("up,k", "move(-1)"),
        Binding("pagedown", "move(20)"),
        Binding("pageup", "move(-20)"),
        Binding("home,g", "move(-1000000)"),
        Binding("s", "sort"),
        Binding("r", "hurry"),
    ]

    def __init__(
        self,
        view: PoolView,
        first: Mapping[str, Any],
        read: Read,
        clock: Clock,
        interval_s: float,
    ) -> None:
        super().__init__()
        self._view, self._read, self._clock = view, read, clock
        self._interval_s = interval_s
        self._wake, self._is_over = threading.Event(), threading.Event()
        self.board = PoolBoard(view)
        view.show(first, clock.monotonic_s(), clock.wall_s())

    def compose(self) -> ComposeResult:
        """The picture."""
        yield self.board

    def on_mount(self) -> None:
        """Begins to read."""
        self.board.focus()
        threading.Thread(target=self._poll, name="pool-top", daemon=True).start()

    def on_unmount(self) -> None:
        """A read that hangs ends with the process."""
        self._is_over.set()
        self._wake.set()

    def action_move(self, lines: int) -> None:
        """Scrolls."""
        self.board.move(lines)

    def action_sort(self) -> None:
        """By the next column."""
        self._view.sort()
        self.board.refresh()

    def action_hurry(self) -> None:
        """Reads now."""
        self._wake.set()

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if self._is_over.is_set():
                return
            change = self._take()
            if self.is_running:
                self.call_later(self._show, change)

    def _take(self) -> Callable[[], None]:
        try:
            found = self._read()
        except VgpumgrError as error:
            return partial(self._view.fail, str(error))
        return partial(self._view.show, found, self._clock.monotonic_s(), self._clock.wall_s())

    def _show(self, change: Callable[[], None]) -> None:
        change()
        self.board.refresh()
