"""What the user sees: page, cursor, filter, folded GPUs. No terminal in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vgpumgr.tui.rows import Row, Symbols, keep_matching, list_gpu_keys, list_tree, list_vms
from vgpumgr.tui.sample import History, Sample


class Page(StrEnum):
    """What fills the screen."""

    TREE = "GPUs"
    VMS = "VMs"
    DETAILS = "details"
    HELP = "help"


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
            rows = list(list_vms(self.sample, self.history))
        else:
            # a filter finds what is folded, too
            closed = () if self.wanted else self.closed
            rows = list(list_tree(self.sample, self.history, closed, self.symbols))
        return keep_matching(rows, self.wanted) if self.wanted else rows

    def find_cursor(self, rows: Sequence[Row]) -> int:
        """Where the cursor is; at the first row if its own has gone."""
        return next((i for i, row in enumerate(rows) if row.key == self.cursor), 0)

    def move(self, rows_down: int) -> None:
        """Moves the cursor, or on a page of text the text."""
        if self.page in (Page.DETAILS, Page.HELP):
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
        if self.page in (Page.DETAILS, Page.HELP):
            self.page, self.top = self.behind, 0
        elif self.page is Page.TREE and (row := self.current()) is not None:
            self._fold(row)

    def leave(self) -> None:
        """Escape: from text to the list, then drops the filter."""
        if self.page in (Page.DETAILS, Page.HELP):
            self.back()
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
            self.behind, self.page, self.top = self.page, Page.DETAILS, 0

    def show_help(self) -> None:
        """The page about the keys."""
        if self.page is not Page.HELP:
            if self.page is not Page.DETAILS:
                self.behind = self.page
            self.page, self.top = Page.HELP, 0

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
            above = [r.key for r in rows[: self.find_cursor(rows)] if r.parent]
            gpu = above[-1] if above else ""
        if gpu in uuids:
            self.closed.add(gpu)
            self.cursor = gpu


def _keep_old(old: Sample, new: Sample) -> Sample:
    if new.gpus is None:
        new = replace(new, machine=old.machine, gpus=old.gpus, others=old.others, lost=old.lost)
    return replace(new, vms=old.vms) if new.vms is None else new
