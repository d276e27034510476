"""The picture: a view as lines of text, for a terminal of any size and for ``--once``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from textwrap import wrap
from typing import Any

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_size
from vgpumgr.tui.rows import Column, Row
from vgpumgr.tui.view import TEXTS, Page, View

_LABEL = 24

HELP = """\
vgpumgr top shows what the GPUs of this host do and for whom.

  up, down, k, j        one row up or down
  Page Up, Page Down    a page; Ctrl+B, Ctrl+F do the same
  Home, End, g, G       first or last row
  right, l, Return      details of the row; unfold a folded GPU
  left, h               fold the GPU; from details back to the list
  Space                 fold or unfold the GPU of the row
  Tab, v                from GPUs to VMs and back
  /                     filter: rows that contain the text; Escape drops it
  s, S                  sort by the next column; the other way round
  r                     read the machine now
  ?                     this page
  q                     quit

Commands for the row; each shows its plan first and is done with y alone:

  d                     vgpumgr detach VM
  D                     vgpumgr gpu drain GPU, or resume
  R                     vgpumgr virtio restart VM

LOAD      a GPU: its utilisation as the driver gives it, and in MIG mode, where
          it gives none, the calls per second of the VMs on it.
          a slice, a VM: calls per second that its programs forward
HISTORY   the last loads, the newest at the right; per cent against 100, calls
          against the highest shown
HEALTH    uncorrectable ECC errors since the driver was loaded, or the last Xid;
          shown with POWER and TEMP where the terminal is wide enough
!         a problem; its words are in the details""".splitlines()


def describe(row: Row) -> Iterator[str]:
    """Everything that the application says about the row."""
    yield f"{row.title} {row.label}"
    yield ""
    yield from _describe(row.data, "")


def _describe(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        label = f"{indent}{key.removesuffix('_bytes').replace('_', ' ')}"
        if isinstance(value, Mapping) and value:
            yield label
            yield from _describe(value, indent + "  ")
        elif isinstance(value, list) and value:
            yield label
            for number, entry in enumerate(value):
                yield from _describe_entry(entry, indent + "  ", number)
        else:
            yield f"{label:{_LABEL}} {_format(key, value)}".rstrip()


def _describe_entry(entry: Any, indent: str, number: int) -> Iterator[str]:
    if isinstance(entry, Mapping):
        yield f"{indent}{number}"
        yield from _describe(entry, indent + "  ")
    else:
        yield f"{indent}{_format('', entry)}"


def _format(key: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if key.endswith("bytes") or key.startswith("bytes_"):
        return format_size(value)
    if key.endswith("_ratio"):
        return f"{value:.0%}"
    return json.dumps(value)


#: narrower than this, lines are cut at the right
MIN_WIDTH = 60
_NAMES = ("GPU, SLICE, PROCESS", "USED BY")
_VM_NAMES = ("VM", "SLICE")
_FOOTER = "q quit  ? help  / filter  s sort  d detach  D drain  R restart  Tab {other}"
_TEXT_FOOTER = "q quit  h back  j k scroll"
#: on less than that a plan cannot be read
_MIN_ASKING = (40, 6)


class Tone(StrEnum):
    """What a line is, for its colour."""

    TITLE = "title"
    HEADER = "header"
    PLAIN = "plain"
    STRONG = "strong"
    FREE = "free"
    ALERT = "alert"
    CURSOR = "cursor"
    FOOTER = "footer"


@dataclass(frozen=True, slots=True)
class Line:
    """One line, exactly as wide as the picture."""

    text: str
    tone: Tone = Tone.PLAIN


#: columns right of the load, and from which width of the terminal on each is shown
_MORE = ((Column.TEMPERATURE, 5, 80), (Column.POWER, 8, 92), (Column.HEALTH, 8, 100))


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns of a list; all but the names are right-aligned."""

    name: int
    used_by: int
    memory: int
    load: int
    #: of those that a narrow terminal leaves out
    more: Mapping[Column, int]
    history: int

    @classmethod
    def of(cls, width: int, page: Page = Page.TREE) -> Widths:
        """At 80 columns what fits; more goes to history, users and names alike."""
        shown = _MORE if page is not Page.VMS else ()
        columns = {column: size for column, size, least in shown if width >= least}
        more = max(width, MIN_WIDTH) - 80 - sum(size + 1 for size in columns.values())
        if more < 0:
            history = max(13 + more, 0)
            return cls(24, 20 + min(more + 13, 0), 12, 7, columns, history)
        name, used_by = more // 4, more // 2
        return cls(24 + name, 20 + used_by, 12, 7, columns, 13 + more - name - used_by)


def draw(view: View, width: int, height: int) -> list[Line]:
    """The whole picture of an interactive terminal: exactly ``height`` lines."""
    body_height = max(height - 3, 0)
    if view.page in TEXTS:
        body = _draw_text(view, width, body_height + 1)
    else:
        body = [_draw_header(view, width), *_draw_list(view, width, body_height)]
    lines = [_draw_title(view, width), *body[: max(height - 2, 0)]]
    lines += [Line(" " * width)] * (height - 1 - len(lines))
    footer = view.symbols.cut(_describe_keys(view), width)
    lines.append(Line(footer, Tone.STRONG if view.command or view.message else Tone.FOOTER))
    return lines[:height]


def _describe_keys(view: View) -> str:
    """The last line: what runs or is asked, else what was just done, else the keys of the page."""
    if view.page is Page.QUESTION:
        if view.has_seen_all():
            return "y does it   any other key does not"
        return "the plan goes on: Page Down   any other key drops it"
    if view.message:
        return view.message
    if view.command is not None:
        return f"{view.command.phase}: {view.command.text}"
    if view.page in TEXTS:
        return _TEXT_FOOTER
    if view.wanted:
        return f"filter: {view.wanted}  (Escape drops it)"
    return _FOOTER.format(other="VMs" if view.page is Page.TREE else "GPUs")


def draw_once(view: View, width: int) -> list[str]:
    """Everything at once, for scripts: all GPUs, then all VMs, nothing cut at the bottom."""
    lines = [_draw_title(view, width)]
    for page in (Page.TREE, Page.VMS):
        view.page = page
        rows = view.list_rows()
        lines += [Line(""), _draw_header(view, width)]
        lines += [_draw_row(view, row, width, at_cursor=False) for row in rows]
    problems = view.sample.problems if view.sample else ()
    return [line.text.rstrip() for line in lines] + [f"! {problem}" for problem in problems]


def describe_title(view: View) -> str:
    """The machine and what is on it; or that it does not answer."""
    sample = view.sample
    if sample is None or sample.gpus is None:
        return f"vgpumgr top{_describe_problems(view) or '  asking the machine'}"
    machine = sample.machine or {}
    name = machine.get("name")
    where = f"{name} (simulated)  " if name else ""
    slices = sum(len(gpu["instances"]) + len(gpu["devices"]) for gpu in sample.gpus)
    slices += sum(len(gpu["devices"]) for gpu in sample.others)
    vms = "? VMs" if sample.vms is None else _count(len(sample.vms), "VM")
    counts = (
        f"{_count(len(sample.gpus) + len(sample.others), 'GPU')}, {_count(slices, 'slice')}, {vms}"
    )
    version = machine.get("driver_version")
    driver = f"  driver {version}" if version else ""
    # problems first: a narrow terminal cuts at the right
    return f"vgpumgr top{_describe_problems(view)}  {where}{counts}{driver}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _describe_problems(view: View) -> str:
    late = [f"no answer for {view.late_s:.0f} s"] if view.late_s else []
    problems = view.sample.problems if view.sample else ()
    return "".join(f"  ! {problem}" for problem in (*late, *problems))


def _draw_title(view: View, width: int) -> Line:
    text = describe_title(view)
    tone = Tone.ALERT if "  ! " in text else Tone.TITLE
    return Line(view.symbols.cut(text, width), tone)


def _draw_header(view: View, width: int) -> Line:
    widths = Widths.of(width, view.page)
    name, used_by = _VM_NAMES if view.page is Page.VMS else _NAMES
    names = {Column.NAME: name, Column.USED_BY: used_by}
    shown = {column: names.get(column, str(column)) for column in Column}
    if (by := view.order.column) is not None:
        shown[by] += view.symbols.falling if view.order.reverse else view.symbols.rising
    cells = [view.symbols.cut(shown[Column.NAME], widths.name)]
    cells.append(view.symbols.cut(shown[Column.USED_BY], widths.used_by))
    cells.append(shown[Column.MEMORY].rjust(widths.memory))
    cells.append(shown[Column.LOAD].rjust(widths.load))
    cells += [shown[column].rjust(size) for column, size in widths.more.items()]
    text = " ".join([*cells, "HISTORY".rjust(widths.history)])
    return Line(text[:width].ljust(width), Tone.HEADER)


def _draw_list(view: View, width: int, height: int) -> Iterator[Line]:
    rows = view.list_rows()
    at = view.find_cursor(rows)
    # the cursor stays in sight
    view.top = min(view.top, at, max(len(rows) - height, 0))
    view.top = max(view.top, at - height + 1, 0)
    for number, row in enumerate(rows[view.top : view.top + height], view.top):
        yield _draw_row(view, row, width, at_cursor=number == at)
    if not rows:
        yield Line(view.symbols.cut(_describe_empty(view), width), Tone.FREE)


def _describe_empty(view: View) -> str:
    if view.sample is None:
        return ""
    if view.wanted:
        return f"nothing contains {view.wanted!r}"
    known = view.sample.vms if view.page is Page.VMS else view.sample.gpus
    what = "VMs" if view.page is Page.VMS else "GPUs"
    return f"{what} cannot be read" if known is None else f"no {what}"


def _draw_row(view: View, row: Row, width: int, *, at_cursor: bool) -> Line:
    widths, symbols = Widths.of(width, view.page), view.symbols
    more = {
        Column.TEMPERATURE: row.temperature, Column.POWER: row.power, Column.HEALTH: row.health
    }  # fmt: skip
    text = " ".join(
        (
            symbols.cut(row.name, widths.name),
            symbols.cut(row.used_by, widths.used_by),
            symbols.cut(row.memory, widths.memory).strip().rjust(widths.memory),
            row.load.rjust(widths.load),
            *(symbols.cut(more[c], size).strip().rjust(size) for c, size in widths.more.items()),
            _draw_history(view, row, widths.history),
        )
    )
    return Line(text[:width].ljust(width), Tone.CURSOR if at_cursor else _choose_tone(row))


def _draw_history(view: View, row: Row, width: int) -> str:
    loads = view.history.read(row.history) if row.history else ()
    shown = [load for load in loads[-width:] if load is not None] if width else []
    full = 1.0 if row.ratio else max(shown, default=0.0)
    return view.symbols.draw_history(loads, width, full)


def _choose_tone(row: Row) -> Tone:
    if row.alert:
        return Tone.ALERT
    if row.title == "GPU":
        return Tone.STRONG
    return Tone.FREE if row.used_by in ("free", "no GPU") else Tone.PLAIN


def _draw_text(view: View, width: int, height: int) -> list[Line]:
    text = _list_text(view, width)
    view.top = min(view.top, max(len(text) - height, 0))
    if view.page is Page.QUESTION and view.command is not None:
        is_large = width >= _MIN_ASKING[0] and height >= _MIN_ASKING[1]
        end = view.top + height if is_large else 0
        view.command.note_shown((width, height), len(text), end)
    return [Line(view.symbols.cut(line, width)) for line in text[view.top : view.top + height]]


def _list_text(view: View, width: int) -> Sequence[str]:
    if view.page is Page.DETAILS:
        row = view.current()
        return list(describe(row)) if row else ["it has gone"]
    if view.page is Page.ERROR:
        return list(_wrap(view.error, width))
    if view.page is Page.QUESTION and view.command is not None:
        changed = ("The machine has changed since; now it is:", "") if view.command.changed else ()
        plan = view.command.plan.splitlines()
        return list(_wrap((*changed, view.command.text, "", *plan), width))
    return HELP


def _wrap(lines: Sequence[str], width: int) -> Iterator[str]:
    """Nothing of a plan or an error is cut off."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        options: Any = {"subsequent_indent": indent} if width > 2 * len(indent) else {}
        yield from wrap(line, max(width, 1), **options) or [""]
