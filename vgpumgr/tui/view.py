"""What the user sees: page, cursor, filter, order, folded GPUs, and the command that is asked about. No terminal in
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from shlex import join
from typing import NamedTuple

from vgpumgr.tui.rows import (
    Column,
    Order,
    Row,
    Symbols,
    keep_matching,
    list_gpu_keys,
    list_tree,
    list_vms,
)
from vgpumgr.tui.sample import History, Sample


class Page(StrEnum):
    """What fills the screen."""

    TREE = "GPUs"
    VMS = "VMs"
    DETAILS = "details"
    HELP = "help"
    #: the plan of a command, and whether to do it
    QUESTION = "question"
    #: what a command has answered that failed
    ERROR = "error"


#: rows that a key scrolls a plan by
SCROLLING = {"up": -1, "down": 1, "pageup": -5, "pagedown": 5}
#: what only has text
TEXTS = (Page.DETAILS, Page.HELP, Page.QUESTION, Page.ERROR)
_VM_COLUMNS = (Column.NAME, Column.USED_BY, Column.MEMORY, Column.LOAD)


class Outcome(NamedTuple):
    """The end of a command: exit code and what it printed."""

    code: int
    text: str


#: runs the words of a command line
Run = Callable[[Sequence[str]], Outcome]


class Phase(StrEnum):
    """How far a command is."""

    PLANNING = "planning"
    ASKING = "asking"
    RUNNING = "running"


@dataclass
class Command:
    """A command of the command line: words of the verb, and what follows them."""

    verb: tuple[str, ...]
    names: tuple[str, ...]
    #: the equal line in a shell
    text: str = ""
    phase: Phase = Phase.PLANNING
    plan: str = ""
    #: whether it is asked anew, because the machine has changed
    changed: bool = False
    #: how many lines the question has at this size of the screen, and how many of them have been on it
    size: tuple[int, int] = (0, 0)
    lines: int = 0
    seen: int = 0

    def note_shown(self, size: tuple[int, int], lines: int, end: int) -> None:
        """What is on the screen now. On another size it is to be read anew."""
        if (self.size, self.lines) != (size, lines):
            self.size, self.lines, self.seen = size, lines, 0
        self.seen = max(self.seen, end)

    def line(self, option: str | None = None) -> list[str]:
        """The words of the line, with an option of the verb."""
        options = [option] if option else []
        # a name may begin with a dash
        dashes = ["--"] if any(name.startswith("-") for name in self.names[:1]) else []
        return [*self.verb, *options, *dashes, *self.names]

    def is_planned(self, plan: str) -> bool:
        """Whether the plan still is what was shown. Notes may change: they name who uses the slice at the moment."""
        steps = [
            [line for line in text.splitlines() if not line.startswith("  note: ")]
            for text in (self.plan, plan)
        ]
        return steps[0] == steps[1]


def choose_command(key: str, row: Row) -> Command | str:
    """What a key does with a row, or why it does nothing."""
    if key == "drain":
        if row.title != "GPU":
            return "select a GPU to drain or to resume"
        index = row.data.get("index")
        name = row.data["pci"] if index is None else str(index)
        return Command(("gpu", "resume" if row.data.get("drained") else "drain"), (name,))
    vm = row.data if row.title == "VM" else row.data.get("of_vm")
    if not vm or not vm["attachments"]:
        return "select a VM that has a slice, or its slice"
    if key == "restart":
        return Command(("virtio", "restart"), (vm["name"],))
    attachment = row.data.get("attachment") if row.title != "VM" else None
    which = ("--attachment", attachment) if attachment and len(vm["attachments"]) > 1 else ()
    return Command(("detach",), (vm["name"], *which))


@dataclass
class View:
    """The state between keys; ``sample`` None: the machine has not answered yet."""

    symbols: Symbols
    sample: Sample | None = None
    history: History = field(default_factory=History)
    page: Page = Page.TREE
    cursor: str | None = None
    top: int = 0
    wanted: str = ""
    closed: set[str] = field(default_factory=set)
    #: the list that details and help go back to
    behind: Page = Page.TREE
    #: seconds for which the running collection is late; 0: it is not
    late_s: float = 0.0
    order: Order = field(default_factory=Order)
    #: names the machine or the host in a command, as the line of ``top`` did
    address: Callable[[str], str] = str
    command: Command | None = None
    #: what a failed command has said
    error: Sequence[str] = ()
    #: at the foot, until the next key
    message: str = ""

    def show(self, sample: Sample) -> None:
        """Takes in what the machine answered; GPUs and VMs that could not be read stay as they
        were, and the problem says so.
        """
        self.history.add(sample)
        if self.sample is not None:
            sample = _keep_old(self.sample, sample)
        self.sample = sample

    def list_rows(self) -> Sequence[Row]:
        """The rows of the list on this page, or of the one behind it."""
        if self.sample is None:
            return ()
        page = self.page if self.page in (Page.TREE, Page.VMS) else self.behind
        if page is Page.VMS:
            rows = list_vms(self.sample, self.history, self.order)
        else:
            # a filter finds what is folded, too
            closed = () if self.wanted else self.closed
            rows = list_tree(self.sample, self.history, closed, self.order, self.symbols)
        return keep_matching(rows, self.wanted) if self.wanted else rows

    def find_cursor(self, rows: Sequence[Row]) -> int:
        """Where the cursor is; at the first row if its own has gone."""
        return next((i for i, row in enumerate(rows) if row.key == self.cursor), 0)

    def move(self, rows_down: int) -> None:
        """Moves the cursor, or on a page of text the text."""
        if self.page in TEXTS:
            self.top = max(0, self.top + rows_down)
            return
        rows = self.list_rows()
        if rows:
            at = self.find_cursor(rows) + rows_down
            self.cursor = rows[min(max(at, 0), len(rows) - 1)].key

    def open(self) -> None:
        """To the right: unfolds a folded GPU, else shows the details of the row."""
        row = self.current()
        if row is not None and row.key in self.closed and self.page is Page.TREE:
            self.closed.discard(row.key)
        else:
            self.show_details()

    def back(self) -> None:
        """To the left: from details to the list; in the tree folds the GPU that the row is of."""
        if self.page in TEXTS:
            self.page, self.top = self.behind, 0
        elif self.page is Page.TREE and (row := self.current()) is not None:
            self._fold(row)

    def leave(self) -> None:
        """Escape: from text to the list; then drops what is being planned; then the filter."""
        if self.page in TEXTS:
            self.back()
        elif self.command is not None and self.command.phase is Phase.PLANNING:
            self.drop(f"not done: {self.command.text}")
        else:
            self.wanted = ""

    def toggle(self) -> None:
        """Folds or unfolds the GPU of the row."""
        row = self.current()
        if self.page is Page.TREE and row is not None:
            if row.key in self.closed:
                self.closed.discard(row.key)
            else:
                self._fold(row)

    def switch(self) -> None:
        """From the GPUs to the VMs and back."""
        self.page = Page.VMS if self.page is Page.TREE else Page.TREE
        self.top = 0

    def show_details(self) -> None:
        """The page about the row."""
        if self.page in (Page.TREE, Page.VMS) and self.current() is not None:
            self._show_text(Page.DETAILS)

    def show_help(self) -> None:
        """The page about the keys."""
        self._show_text(Page.HELP)

    def _show_text(self, page: Page) -> None:
        if self.page not in TEXTS:
            self.behind = self.page
        if self.page is not page:
            self.page, self.top = page, 0

    def sort(self) -> None:
        """By the next column."""
        is_vms = self.page is Page.VMS
        self._sort(self.order.follow(_VM_COLUMNS if is_vms else tuple(Column)))

    def reverse(self) -> None:
        """The other way round, where a column is chosen."""
        if self.order.column is None:
            self.message = "s chooses the column to sort by"
        else:
            self._sort(replace(self.order, reverse=not self.order.reverse))

    def _sort(self, order: Order) -> None:
        self.order = order
        first = "largest" if order.reverse else "smallest"
        column = order.column
        self.message = f"sorted by {column}, {first} first" if column else "not sorted"

    def choose(self, key: str) -> Command | None:
        """The command of a key and the row at the cursor, to be planned; None: there is none, or one is under way."""
        row = self.current()
        if self.page in TEXTS or row is None:
            return None
        if self.command is not None:
            self.message = f"{self.command.phase} already: {self.command.text}"
            return None
        chosen = choose_command(key, row)
        if isinstance(chosen, str):
            self.message = chosen
            return None
        chosen.text = self.address(f"vgpumgr {join(chosen.line())}")
        self.command = chosen
        return chosen

    def ask(self, command: Command, plan: Outcome) -> None:
        """Shows a plan and asks; or why there is none. A plan that is no longer wanted is dropped."""
        if self.command is not command:
            return
        if plan.code:
            self._fail(plan.text)
            return
        command.changed = command.phase is Phase.RUNNING
        command.plan, command.phase, command.size = plan.text, Phase.ASKING, (0, 0)
        self._show_text(Page.QUESTION)

    def answer(self, key: str) -> bool:
        """A key while it is asked: whether it says yes. Keys that scroll do only that; all others say no."""
        command = self.command
        if command is None or self.page is not Page.QUESTION:
            return False
        if key in SCROLLING:
            self.move(SCROLLING[key])
        elif key == "y":
            if self.has_seen_all():
                command.phase = Phase.RUNNING
                self.back()
                return True
        else:
            self.drop(f"not done: {command.text}")
        return False

    def has_seen_all(self) -> bool:
        """Whether all of the plan was on the screen, at its present size."""
        return self.command is not None and 0 < self.command.lines <= self.command.seen

    def drop(self, message: str) -> None:
        """Ends the question."""
        self.command, self.message = None, message
        if self.page is Page.QUESTION:
            self.back()

    def finish(self, end: Outcome) -> None:
        """The command has ended."""
        if end.code:
            self._fail(end.text)
        else:
            self.drop(f"done: {(end.text.splitlines() or [''])[0]}")

    def _fail(self, text: str) -> None:
        self.command, self.error = None, text.splitlines()
        self._show_text(Page.ERROR)

    def current(self) -> Row | None:
        """The row at the cursor."""
        rows = self.list_rows()
        return rows[self.find_cursor(rows)] if rows else None

    def _fold(self, row: Row) -> None:
        gpu = row.key.partition("/")[0]
        uuids = set(list_gpu_keys(self.sample)) if self.sample else set()
        if gpu not in uuids:
            # a process in a VM: its GPU is the next one above
            rows = self.list_rows()
            above = [r.key for r in rows[: self.find_cursor(rows)] if not r.depth]
            gpu = above[-1] if above else ""
        if gpu in uuids:
            self.closed.add(gpu)
            self.cursor = gpu


def _keep_old(old: Sample, new: Sample) -> Sample:
    if new.gpus is None:
        new = replace(new, machine=old.machine, gpus=old.gpus, others=old.others, lost=old.lost)
    return replace(new, vms=old.vms) if new.vms is None else new
