"""The terminal's part of ``vgpumgr top``: keys in, picture out."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Input

from vgpumgr.host.clock import Clock
from vgpumgr.tui.frame import Tone, draw
from vgpumgr.tui.sample import OpenCall, Poller, Sample
from vgpumgr.tui.view import Page, View

#: a running question is mentioned from here on
_LATE_S = 3.0
_STYLES = {
    Tone.TITLE: Style(bold=True),
    Tone.HEADER: Style(reverse=True, dim=True),
    Tone.PLAIN: Style(),
    Tone.STRONG: Style(bold=True),
    Tone.FREE: Style(dim=True),
    Tone.ALERT: Style(color="red", bold=True),
    Tone.CURSOR: Style(reverse=True),
    Tone.FOOTER: Style(dim=True),
}


class Board(Widget, can_focus=True):
    """The picture of a view, and its keys: while a filter is typed they are letters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "app.quit"),
        Binding("down,j", "app.move(1)"),
        Binding("up,k", "app.move(-1)"),
        Binding("pagedown,ctrl+f", "app.page(1)"),
        Binding("pageup,ctrl+b", "app.page(-1)"),
        Binding("home,g", "app.move(-1000000)"),
        Binding("end,G", "app.move(1000000)"),
        Binding("right,l,enter", "app.do('open')"),
        Binding("left,h", "app.do('back')"),
        Binding("space", "app.do('toggle')"),
        Binding("tab,v", "app.switch"),
        Binding("escape", "app.do('leave')"),
        Binding("question_mark", "app.do('show_help')"),
        Binding("slash", "app.filter"),
        Binding("r", "app.hurry"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(id="board")
        self.view = view

    def render(self) -> Text:
        """The lines of this moment, as large as the terminal."""
        width, height = self.size
        lines = draw(self.view, width, height)
        text = Text(no_wrap=True, end="")
        for number, line in enumerate(lines):
            text.append(line.text, _STYLES[line.tone])
            if number < len(lines) - 1:
                text.append("\n")
        return text


class TopApp(App[None]):
    """``vgpumgr top``."""

    CSS = """
    Screen { background: ansi_default; }
    #board { width: 1fr; height: 1fr; }
    #filter { dock: bottom; height: 1; border: none; padding: 0; display: none; }
    """
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, view: View, open_call: OpenCall, clock: Clock, interval_s: float) -> None:
        super().__init__()
        self.view = view
        self.board = Board(view)
        self.poller = Poller(open_call, clock, interval_s, self._deliver)

    def compose(self) -> ComposeResult:
        """The picture, and the line to type a filter in."""
        yield self.board
        yield Input(id="filter", placeholder="rows that contain ...", compact=True)

    def on_mount(self) -> None:
        """Starts to ask."""
        self.board.focus()
        self.poller.start()
        self.set_interval(1.0, self._report_late)

    def on_unmount(self) -> None:
        """Stops to ask; who is stuck is left alone."""
        self.poller.stop()

    def action_move(self, rows_down: int) -> None:
        """Cursor up or down."""
        self._change(lambda: self.view.move(rows_down))

    def action_page(self, pages_down: int) -> None:
        """Cursor a page up or down."""
        self.action_move(pages_down * max(self.board.size.height - 4, 1))

    def action_do(self, name: str) -> None:
        """One of the view's commands without parameters."""
        self._change(getattr(self.view, name))

    def action_switch(self) -> None:
        """GPUs or VMs."""
        if self.view.page in (Page.TREE, Page.VMS):
            self._change(self.view.switch)

    def action_hurry(self) -> None:
        """A sample now."""
        self.poller.hurry()

    def action_filter(self) -> None:
        """Opens the line to type in."""
        if self.view.page in (Page.TREE, Page.VMS):
            line = self.query_one("#filter", Input)
            line.value = self.view.wanted
            line.display = True
            line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters while one types."""
        self.view.wanted = event.value.strip()
        self.board.refresh()

    def on_input_submitted(self) -> None:
        """Back to the list, which stays filtered."""
        self._close_filter()

    def on_key(self, event: Key) -> None:
        """Escape while typing drops the filter."""
        line = self.query_one("#filter", Input)
        if event.key == "escape" and line.has_focus:
            event.stop()
            line.value = ""
            self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.board.focus()

    def _change(self, command: Callable[[], None]) -> None:
        command()
        self.board.refresh()

    def _deliver(self, sample: Sample) -> None:
        """In the poller's thread."""
        if self.is_running:
            self.call_later(self._show, sample)

    def _show(self, sample: Sample) -> None:
        self.view.late_s = 0.0
        self._change(lambda: self.view.show(sample))

    def _report_late(self) -> None:
        waiting_s = self.poller.waiting_s()
        late_s = waiting_s if waiting_s >= _LATE_S else 0.0
        if late_s or self.view.late_s:
            self.view.late_s = late_s
            self.board.refresh()
