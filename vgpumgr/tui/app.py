"""The terminal's part of ``vgpumgr top``: keys in, picture out."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import ClassVar, cast

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
from vgpumgr.tui.view import Command, Page, Phase, Run, View

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
        Binding("s", "app.do('sort')"),
        Binding("S", "app.do('reverse')"),
        Binding("d", "app.act('detach')"),
        Binding("D", "app.act('drain')"),
        Binding("R", "app.act('restart')"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(id="board")
        self.view = view

    def on_key(self, event: Key) -> None:
        """While it is asked, a key is an answer and nothing else."""
        self.view.message = ""
        if self.view.page is Page.QUESTION:
            event.stop()
            event.prevent_default()
            self.app.call_later(cast("TopApp", self.app).answer, event.key)

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

    def __init__(
        self, view: View, open_call: OpenCall, run: Run, clock: Clock, interval_s: float
    ) -> None:
        super().__init__()
        self.view = view
        self._run_line = run
        #: to be left when the command that runs has ended
        self.leaving = False
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

    async def action_quit(self) -> None:
        """Leaves, but for a command that runs: of it the second time."""
        command = self.view.command
        if self.view.page is Page.QUESTION:
            self.answer("q")
        elif command is None or command.phase is not Phase.RUNNING or self.leaving:
            self.exit()
        else:
            self.leaving = True
            self.view.message = f"ends after {command.text}; q again leaves it alone"
            self.board.refresh()

    def action_act(self, key: str) -> None:
        """Plans a command for the row."""
        command = self.view.choose(key)
        self.board.refresh()
        if command is not None:
            self._begin(lambda: self._plan(command))

    def answer(self, key: str) -> None:
        """Does what was planned, if that is the key."""
        command = self.view.command
        if self.view.answer(key) and command is not None:
            self._begin(lambda: self._perform(command))
        self.board.refresh()

    def _begin(self, work: Callable[[], Callable[[], None]]) -> None:
        """In a thread of its own: the frame goes on."""

        def run() -> None:
            change = work()
            if self.is_running:
                self.call_later(self._end, change)

        Thread(target=run, name="command", daemon=True).start()

    def _plan(self, command: Command) -> Callable[[], None]:
        plan = self._run_line(command.line("--dry-run"))
        return lambda: self.view.ask(command, plan)

    def _perform(self, command: Command) -> Callable[[], None]:
        """Only what was shown is done: where the machine has changed since, it is asked again."""
        plan = self._run_line(command.line("--dry-run"))
        if plan.code or not command.is_planned(plan.text):
            return lambda: self.view.ask(command, plan)
        end = self._run_line(command.line("--yes"))
        return lambda: self.view.finish(end)

    def _end(self, change: Callable[[], None]) -> None:
        self._change(change)
        self.poller.hurry()
        if self.leaving:
            self.exit()

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
