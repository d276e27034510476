"""Rows and documents as text: tables for people, everything else for scripts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from typer import Context

from vgpumgr.cli.session import DOCUMENTS, Format, Streams, get_format, get_layout, get_session
from vgpumgr.errors import FileWriteError, NotPermittedError, UsageError, VgpumgrError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_size, list_near

Row = dict[str, Any]
_GAP = 2
# what a column that wraps is content with
_WRAPPED = 20
# characters of a UUID, and of the shortest beginning that is shown of one
_UUID = 36
_SHORTEST = 8
# characters of the shortest beginning that names something
_SHORTEST_NAME = 2
_UNLIMITED = 1 << 20
#: stands in a cell without a value
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``text`` for people, ``raw`` for csv (bytes, ratios); wide ones come with ``-o wide``.

    Where the terminal is too narrow, ``spare`` columns are left out, UUIDs in a ``short`` one are given
    by their beginnings, as far as these are unique (commands take them), and cells that ``wrap`` take
    several lines. A column ``below`` stands in lines under the table unless --columns names it.
    """

    name: str
    text: Callable[[Row], str]
    raw: Callable[[Row], object] | None = None
    wide: bool = False
    right: bool = False
    wraps: bool = False
    spare: bool = False
    short: bool = False
    below: bool = False

    def csv_value(self, row: Row) -> str:
        """The value without units; empty where there is none."""
        value = self.raw(row) if self.raw else self.text(row)
        return "" if value is None or value == ABSENT else str(value)


def or_absent(value: object) -> str:
    """The value, or a dash where the host does not report it."""
    return ABSENT if value is None else str(value)


def size_or_absent(size: int | None) -> str:
    """A number of bytes as people read it."""
    return ABSENT if size is None else format_size(size)


def value_column(name: str, key: str | None = None, **settings: bool) -> Column:
    """A column with a value as it is in the document, by default under the column's name."""
    at = key or name
    return Column(name, lambda row: or_absent(row[at]), lambda row: row[at], **settings)


def size_column(name: str, key: str, *, right: bool = True, **settings: bool) -> Column:
    """A column with a number of bytes."""
    return Column(
        name, lambda row: size_or_absent(row[key]), lambda row: row[key], right=right, **settings
    )


#: leads where the rows come from several hosts
HOST = value_column("host")


def format_document(document: dict[str, Any], format_: Format | None) -> str:
    """The whole document as JSON or YAML."""
    if format_ is Format.YAML:
        import yaml

        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    import json

    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_out(streams: Streams, text: str, out: str | None) -> None:
    """Text to the file that ``--out`` names; to standard output for ``-`` and without it. Raises what
    ``write_file`` does.
    """
    if out is None or out == "-":
        streams.out.write(text)
    else:
        write_file(_read_target(out), text)


def _read_target(out: str) -> Path:
    # Path leaves the slash out, and a file would take the directory's name
    if out.endswith("/"):
        raise FileWriteError(f"cannot write {out}", cause="it names a directory")
    return Path(out).absolute()


@contextmanager
def open_archive(streams: Streams, out: str) -> Iterator[Path]:
    """Where to write an archive that ``--out`` names. What is written for ``-`` goes to standard output.
    Raises UsageError for a terminal, FileWriteError.
    """
    if out != "-":
        yield _read_target(out)
        return
    if streams.is_terminal:
        raise UsageError("an archive is nothing for a terminal", hint="--out FILE, or a pipe")
    import shutil
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as directory:
        path = Path(directory, "archive")
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, streams.out.buffer)


class FileErrors(NamedTuple):
    """The errors of files of a kind, and the most bytes that one may have."""

    missing: type[VgpumgrError]
    forbidden: type[VgpumgrError]
    malformed: type[VgpumgrError]
    noun: str
    max_bytes: int
    why_too_large: str


def read_text_file(name: str, errors: FileErrors) -> dict[str, str]:
    """Text and name of a file; - is standard input. Raises the errors of its kind."""
    source = "standard input" if name == "-" else name
    try:
        if name == "-":
            data = sys.stdin.buffer.read(errors.max_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(errors.max_bytes + 1)
    except PermissionError as error:
        raise errors.forbidden(f"cannot read {name}", cause=str(error)) from error
    except (OSError, ValueError) as error:
        raise errors.missing(f"cannot read {name}", cause=str(error)) from error
    if len(data) > errors.max_bytes:
        raise errors.malformed(f"{source}: too large for a {errors.noun}", why=errors.why_too_large)
    try:
        return {"text": data.decode("utf-8-sig"), "source": source}
    except UnicodeDecodeError as error:
        raise errors.malformed(f"{source}: not UTF-8 text", cause=str(error)) from error


def write_file(path: Path, text: str) -> None:
    """Replaces a file: a reader gets the old or the new one, never half of it. Raises FileWriteError,
    NotPermittedError.
    """
    from vgpumgr.host.files import replace_file

    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a terminal or a pipe
            return
        replace_file(path, text)
    except OSError as error:
        kind = NotPermittedError if isinstance(error, PermissionError) else FileWriteError
        raise kind(f"cannot write {path}", cause=str(error)) from error


def print_single(
    context: Context,
    document: dict[str, Any],
    lines: Iterable[str],
    name: Callable[[], str] | None = None,
) -> None:
    """One thing in the format that the line asks for; ``lines`` are for people."""
    streams, output = get_session(context).streams, get_format(context)
    if output in DOCUMENTS:
        streams.out.write(format_document(document, output))
    elif output is Format.NAME and name is not None:
        streams.print(name())
    else:
        streams.print("\n".join(lines))


def find_row(
    rows: Sequence[Row],
    names: Callable[[Row], Iterable[str]],
    text: str,
    missing: Callable[..., VgpumgrError],
    noun: str,
    hint: str,
) -> Row:
    """The row that one of its names, or a unique beginning of one, is. Raises ``missing`` with near names, and
    UsageError where several begin so.
    """
    wanted = text.strip().lower()
    known = [([name.lower() for name in names(row)], row) for row in rows]
    found = [row for all_names, row in known if wanted in all_names]
    if not found and len(wanted) >= _SHORTEST_NAME:
        found = [row for some, row in known if any(name.startswith(wanted) for name in some)]
    if len(found) == 1:
        return found[0]
    if found:
        fits = ", ".join(next(iter(names(row))) for row in found[:4])
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise UsageError(f'"{text}" is not one {noun}', why=f"it fits {fits}{more}", hint=hint)
    near = list_near(wanted, [name for all_names, _ in known for name in all_names], n=2)
    why = f"did you mean {' or '.join(near)}?" if near else None
    raise missing(f'no {noun} is "{text}"', why=why, hint=hint)


def print_row(
    context: Context,
    document: dict[str, Any],
    title: str,
    row: Row,
    columns: Sequence[Column],
    name: str,
) -> None:
    """One row of a list with all its columns, a line each."""
    width = max(len(column.name) for column in columns) + _GAP
    cells = [f"  {c.name.replace('_', ' '):<{width}}{c.text(row)}" for c in columns]
    print_single(context, document, [title, *cells], lambda: name)


def print_notes(context: Context, document: dict[str, Any]) -> None:
    """A document's notes on standard error, unless they go out with the document itself."""
    for note in document["notes"] if get_format(context) not in DOCUMENTS else ():
        get_session(context).streams.note(f"note: {note}")


def print_list(
    context: Context,
    document: dict[str, Any],
    rows: Sequence[Row],
    columns: Sequence[Column],
    name: str | Callable[[Row], str],
    where: Callable[[Row], str] | None = None,
    sources: Sequence[Row] | None = None,
) -> Sequence[Row]:
    """A list in the format that the line asks for; returns the rows that the line's filters leave.

    ``-o name`` prints ``name``, which other commands accept: the row's value of that name, or what the function makes
    of the row. ``where`` distinguishes rows of one name in lines under a table. ``sources`` are what the document has
    for each row, where that is not the row itself.
    """
    streams, layout = get_session(context).streams, get_layout(context)
    name_row = name if callable(name) else lambda row: str(row[name])
    chosen = layout.format or Format.TABLE
    if rows and "host" in rows[0]:
        columns = (HOST, *columns)
    if layout.sort_by is not None or layout.filters:
        order = choose_rows(rows, columns, layout.sort_by, layout.filters or ())
        if chosen in DOCUMENTS:
            document = choose_parts(document, rows if sources is None else sources, order)
        rows = [rows[place] for place in order]
    if chosen in DOCUMENTS:
        streams.out.write(format_document(document, chosen))
    elif chosen is Format.NAME:
        for row in rows:
            streams.print(name_row(row))
    else:
        shown = choose_columns(columns, layout.columns, wide=chosen is Format.WIDE)
        if rows and "host" in rows[0] and HOST not in shown:
            shown = [HOST, *shown]
        # who asks for a table gets one, even in a pipe
        tabular = chosen in (Format.TABLE, Format.WIDE) and (
            streams.is_terminal or layout.format is not None
        )
        below = [c for c in shown if c.below and tabular and layout.columns is None]
        shown = [c for c in shown if c not in below]
        _print_rows(streams, rows, shown, chosen, header=not layout.no_header, tabular=tabular)
        for line in _render_below(rows, below, name_row, where):
            streams.note(line)
    return rows


def _render_below(
    rows: Sequence[Row],
    columns: Sequence[Column],
    name: Callable[[Row], str],
    where: Callable[[Row], str] | None,
) -> Iterator[str]:
    """Whose text is the same stand in one line."""
    for column in columns:
        told: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            host = f"{row['host']}: " if "host" in row else ""
            place = f" on {where(row)}" if where else ""
            if (text := column.text(row)) not in ("", ABSENT):
                told.setdefault((place, text), []).append(f"{host}{name(row)}")
        yield from (f"{', '.join(names)}{place}: {text}" for (place, text), names in told.items())


def choose_columns(
    columns: Sequence[Column], wanted: str | None, *, wide: bool
) -> Sequence[Column]:
    """The asked-for columns in the asked-for order, else the usual ones. Raises UsageError."""
    if wanted is None:
        return [column for column in columns if wide or not column.wide]
    by_name = {column.name: column for column in columns}
    return [_find_column(by_name, name.strip()) for name in wanted.split(",")]


def choose_rows(
    rows: Sequence[Row], columns: Sequence[Column], sort_by: str | None, filters: Sequence[str]
) -> list[int]:
    """The places of the rows that fit all filters, in the asked-for order. Rows without a value come last, and equal
    ones stay in their order. Raises UsageError.
    """
    by_name = {column.name: column for column in columns}
    order = list(range(len(rows)))
    for text in filters:
        name, equals, value = text.partition("=")
        if not equals:
            hint = f"--filter COLUMN=VALUE, COLUMN is one of {','.join(by_name)}"
            raise UsageError(f'--filter needs COLUMN=VALUE, and has "{text}"', hint=hint)
        column = _find_column(by_name, name.strip(), "--filter ")
        order = [place for place in order if _fits(column, rows[place], value.strip())]
    for name in reversed((sort_by or "").split(",") if sort_by is not None else []):
        column = _find_column(by_name, name.strip().removeprefix("-"), "--sort ")
        found = ((place, _sort_key(column, rows[place])) for place in order)
        keys = {place: key for place, key in found if key is not None}
        there = [place for place in order if place in keys]
        there.sort(key=keys.__getitem__, reverse=name.strip().startswith("-"))
        order = there + [place for place in order if place not in keys]
    return order


def _fits(column: Column, row: Row, wanted: str) -> bool:
    """As a person or a script reads the cell, or one of the things in it."""
    texts = {column.text(row), column.csv_value(row)}
    if not wanted:
        return texts <= {"", ABSENT}
    texts |= {part for text in texts for part in re.split(r"[,;] ", text)}
    return any(fnmatchcase(text.lower(), wanted.lower().replace("[", "[[]")) for text in texts)


def _sort_key(column: Column, row: Row) -> tuple[Any, ...] | None:
    """Numbers by their value, also those inside names; None for no value."""
    value = column.raw(row) if column.raw else column.text(row)
    if value is None or value in ("", ABSENT):
        return None
    if isinstance(value, int | float):
        return (0, value)
    parts = re.split(r"([0-9]+)", str(value).lower())
    return (1, *(int(part) if place % 2 else part for place, part in enumerate(parts)))


def choose_parts(
    document: dict[str, Any], sources: Sequence[Row], order: Sequence[int]
) -> dict[str, Any]:
    """The document with those of the sources, wherever they stand in it, that have a place in the order."""
    ranks: dict[int, int | None] = {id(source): None for source in sources}
    ranks |= {id(sources[place]): rank for rank, place in enumerate(order)}
    found: dict[str, Any] = _choose_in(document, ranks)[0]
    return found


def _choose_in(value: Any, ranks: Mapping[int, int | None]) -> tuple[Any, int | None, bool]:
    """What is left of a value, its rank, and whether it is a source or has some."""
    if id(value) in ranks:
        return value, ranks[id(value)], True
    if isinstance(value, dict):
        parts = {key: _choose_in(one, ranks) for key, one in value.items()}
        left: Any = {key: one[0] for key, one in parts.items()}
        inside = list(parts.values())
    elif isinstance(value, list):
        inside = [_choose_in(one, ranks) for one in value]
        kept = [one for one in inside if one[1] is not None or not one[2]]
        left = [one[0] for one in sorted(kept, key=lambda one: -1 if one[1] is None else one[1])]
    else:
        return value, None, False
    found = [rank for _, rank, _ in inside if rank is not None]
    return left, min(found, default=None), any(has for _, _, has in inside)


def _find_column(by_name: dict[str, Column], name: str, option: str = "--columns ") -> Column:
    try:
        return by_name[name.lower()]
    except KeyError:
        near = list_near(name.lower(), by_name, n=1)
        why = f"did you mean {near[0]}?" if near else None
        hint = option + ",".join(by_name)
        raise UsageError(f'there is no column "{name}"', why=why, hint=hint) from None


def _print_rows(
    streams: Streams,
    rows: Sequence[Row],
    columns: Sequence[Column],
    format_: Format,
    *,
    header: bool,
    tabular: bool,
) -> None:
    if format_ is Format.CSV:
        _print_csv(streams, rows, columns, header=header)
    elif format_ is Format.MARKDOWN:
        _print_markdown(streams, rows, columns)
    elif tabular:
        if format_ is Format.TABLE and streams.is_terminal:
            columns = _drop_spare(columns, rows, streams.width)
            if not _is_within(columns, rows, streams.width):
                columns = [_shorten(c, rows) if c.short else c for c in columns]
        _print_table(streams, rows, columns, header=header)
    else:
        for row in rows:
            streams.print("\t".join(column.text(row) for column in columns))


def _drop_spare(columns: Sequence[Column], rows: Sequence[Row], width: int) -> Sequence[Column]:
    """Leaves out spare columns, the last first, until the rest fits."""
    kept = list(columns)
    for column in reversed(columns):
        if column.spare and not _is_within(kept, rows, width):
            kept.remove(column)
    return kept


def _is_within(columns: Sequence[Column], rows: Sequence[Row], width: int) -> bool:
    return sum(_width(c, rows) + _GAP for c in columns) <= width


def _shorten(column: Column, rows: Sequence[Row]) -> Column:
    """With the shortest beginnings of its UUIDs that are unique among all its values."""
    values = {column.text(row) for row in rows}
    length = next(
        (n for n in range(_SHORTEST, _UUID) if len({v[:n] for v in values}) == len(values)), _UUID
    )
    full = column.text

    def shorten(row: Row) -> str:
        text = full(row)
        return text[:length].rstrip("-") if len(text) == _UUID else text

    return replace(column, text=shorten)


def _width(column: Column, rows: Sequence[Row]) -> int:
    from rich.cells import cell_len

    widest = max((cell_len(column.text(row)) for row in rows), default=0)
    return max(len(column.name), min(widest, _WRAPPED) if column.wraps else widest)


def _fit(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """How wide each column is. Those that wrap give way, the widest first, but no word is cut: where
    that is not enough the terminal wraps.
    """
    from rich.cells import cell_len

    def measure(column: Column, texts: Iterable[str]) -> int:
        return max(len(column.name), max(map(cell_len, texts), default=0))

    cells = [[column.text(row) for row in rows] for column in columns]
    words = [[word for cell in column for word in cell.split()] for column in cells]
    pairs = list(zip(columns, cells, words, strict=True))
    widths = [measure(column, texts) for column, texts, _ in pairs]
    least = [measure(c, parts if c.wraps else texts) for c, texts, parts in pairs]
    while sum(widths) + _GAP * len(widths) > width:
        room = [(wide, at) for at, wide in enumerate(widths) if wide > least[at]]
        if not room:
            break
        widths[max(room)[1]] -= 1
    return widths


def _print_csv(
    streams: Streams, rows: Sequence[Row], columns: Sequence[Column], *, header: bool
) -> None:
    import csv

    writer = csv.writer(streams.out, lineterminator="\n")
    if header:
        writer.writerow([column.name for column in columns])
    writer.writerows([column.csv_value(row) for column in columns] for row in rows)


def _print_markdown(streams: Streams, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    streams.print(line([column.name for column in columns]))
    streams.print(line(["--:" if column.right else "---" for column in columns]))
    for row in rows:
        streams.print(line([column.text(row) for column in columns]))


def _print_table(
    streams: Streams, rows: Sequence[Row], columns: Sequence[Column], *, header: bool
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=header, pad_edge=False, padding=(0, _GAP, 0, 0))
    # in a pipe a row is a line: nothing wraps and nothing is left out
    width = streams.width if streams.is_terminal else _UNLIMITED
    widths = _fit(columns, rows, width)
    for column, wide in zip(columns, widths, strict=True):
        justify = "right" if column.right else "left"
        table.add_column(
            column.name.upper(),
            justify=justify,  # type: ignore[arg-type]
            no_wrap=not column.wraps,
            width=wide,
        )
    for row in rows:
        table.add_row(*(Text(column.text(row)) for column in columns))
    color = streams.has_color(streams.out)
    # a name or an address that is cut off is of no use to the next command: the terminal may wrap
    console = Console(
        file=streams.out,
        width=max(streams.width if streams.is_terminal else 0, sum(widths) + _GAP * len(widths)),
        no_color=not color,
        force_terminal=color,
        highlight=False,
        legacy_windows=False,
    )
    console.print(table)
