"""Hosts and tasks as files, in the form of Alibaba's published traces of 2023 (CSV with a header line).

Columns may stand in any order, and others are ignored: of a task's times and phase, none has a part in a simulation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NoReturn

from vgpumgr.errors import PoolFileError
from vgpumgr.model.text import list_near
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, Task

HOST_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
TASK_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
_NEEDED_OF_TASKS = TASK_COLUMNS[:5]
#: no host has more; a number beyond them is a mistake that would cost memory
_MAX_GPUS = 1024
_MAX = 10**12
#: how the publication's tools write an empty cell
_EMPTY = ("", "nan")


def parse_hosts(text: str, source: str) -> list[Host]:
    """The hosts of a file. Raises PoolFileError."""
    found: dict[str, Host] = {}
    for row in _read_rows(text, source, HOST_COLUMNS):
        name = row.read_name("sn", found)
        cpu, memory = row.read_number("cpu_milli"), row.read_number("memory_mib")
        gpus = row.read_number("gpu", _MAX_GPUS)
        found[name] = Host(name, cpu, memory, gpus, row.read_text("model") if gpus else "")
    if not found:
        raise PoolFileError(f"{source}: no host", why="it has a header line and nothing else")
    return list(found.values())


def parse_tasks(text: str, source: str) -> list[Task]:
    """The tasks of a file, in its order. Raises PoolFileError."""
    found: dict[str, Task] = {}
    for row in _read_rows(text, source, _NEEDED_OF_TASKS):
        name = row.read_name("name", found)
        cpu, memory = row.read_number("cpu_milli"), row.read_number("memory_mib")
        gpus, milli = row.read_number("num_gpu", _MAX_GPUS), row.read_number("gpu_milli", GPU_MILLI)
        if gpus > 1 and milli != GPU_MILLI:
            row.refuse(
                "gpu_milli", f"{milli}, and a task with {gpus} GPUs has whole ones: {GPU_MILLI}"
            )
        if bool(gpus) != bool(milli):
            row.refuse("gpu_milli", f"{milli}, and num_gpu is {gpus}: both are 0, or none")
        models = row.read_text("gpu_spec") if gpus else ""
        accepted = tuple(sorted({one.strip() for one in models.split("|")} - {""}))
        found[name] = Task(name, Demand(cpu, memory, gpus, milli, accepted))
    if not found:
        raise PoolFileError(f"{source}: no task", why="it has a header line and nothing else")
    return list(found.values())


def format_hosts(hosts: Sequence[Host]) -> str:
    """A file of these hosts."""
    rows = ((h.name, h.cpu_milli, h.memory_mib, h.gpus, h.model) for h in hosts)
    return _format(HOST_COLUMNS, rows)


def format_tasks(tasks: Sequence[Task]) -> str:
    """A file of these tasks, one created each second."""
    rows = (
        (t.name, *t.demand[:4], "|".join(t.demand.models), "LS", "Running", second, "", second)
        for second, t in enumerate(tasks)
    )
    return _format(TASK_COLUMNS, rows)


def _format(columns: Sequence[str], rows: Iterator[tuple[object, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


class _Row:
    """A line of a file. What it refuses names file, line and column."""

    def __init__(self, source: str, line: int, cells: dict[str, str]) -> None:
        self._source = source
        self._line = line
        self._cells = cells

    def refuse(self, column: str, text: str) -> NoReturn:
        raise PoolFileError(f"{self._source}, line {self._line}: {column} is {text}")

    def read_text(self, column: str) -> str:
        text = self._cells.get(column, "").strip()
        return "" if text in _EMPTY else text

    def read_name(self, column: str, known: dict[str, Host] | dict[str, Task]) -> str:
        name = self.read_text(column)
        if not name:
            self.refuse(column, "empty, and everything has a name")
        if name in known:
            self.refuse(column, f"{name!r}, as in a line before: names are unique")
        return name

    def read_number(self, column: str, most: int = _MAX) -> int:
        text = self._cells[column].strip()
        if not (text.isascii() and text.isdigit()):
            self.refuse(column, f"{text[:40]!r}, not a whole number from 0 to {most}")
        # a number of thousands of digits is not converted at all
        number = int(text) if len(text) <= len(str(_MAX)) else _MAX + 1
        if number > most:
            self.refuse(column, f"{text[:40]}, more than {most}")
        return number


def _read_rows(text: str, source: str, needed: Sequence[str]) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, source, needed)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise PoolFileError(
                    f"{source}, line {reader.line_num}: {len(cells)} cells, and the header has {len(header)}"
                )
            yield _Row(source, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise PoolFileError(
            f"{source}, line {reader.line_num}: not CSV", cause=str(error)
        ) from error


def _check_header(header: Sequence[str], source: str, needed: Sequence[str]) -> None:
    if not any(header):
        raise PoolFileError(
            f"{source}: empty", why="it needs a header line", hint="vgpumgr pool generate --out DIR"
        )
    for name in needed:
        if name not in header:
            near = list_near(name, [one for one in header if one not in needed], n=1)
            raise PoolFileError(
                f"{source}, line 1: no column {name}",
                why=f"there is {near[0]!r}"
                if near
                else f"a file of this kind has {', '.join(needed)}",
                hint="vgpumgr pool generate --out DIR",
            )
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise PoolFileError(f"{source}, line 1: two columns {twice!r}")
