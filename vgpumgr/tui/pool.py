"""The picture of ``vgpumgr pool top``: hosts, below each its GPUs, below each GPU its leases, from documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_size, tell_count

#: by what the leases of a GPU are ordered, the largest first
ORDERS = ("time", "memory", "share", "name")
ABSENT = "-"
FOOTER = "q quit  s sort  r read now  up, down scroll"
_NAMES = ("HOST, GPU, CLAIM", "USED BY", "MEMORY", "SHARE", "TIME")
_LEAST_WIDTH = 60


@dataclass(frozen=True, slots=True)
class PoolLine:
    """One line: what a row is (host, gpu, lease), and its cells."""

    kind: str
    cells: tuple[str, str, str, str, str]
    alert: bool = False


class PoolView:
    """What was read last, and how it is ordered."""

    def __init__(self, order: str = ORDERS[0]) -> None:
        self.order = order
        self.document: Mapping[str, Any] | None = None
        self.wall_s = 0.0
        self.problem = ""
        self._at_s = 0.0
        self._counters: dict[str, float] = {}
        #: the part of the GPU's time between the last two pictures, by attachment
        self._times: dict[str, float] = {}

    def show(self, document: Mapping[str, Any], monotonic_s: float, wall_s: float) -> None:
        """Takes in what the pool answered."""
        counters = {
            row["used_by"]["attachment"]: row["use"]["gpu_used_s"]
            for row in document["bindings"]
            if row["use"] and row["use"]["gpu_used_s"] is not None
        }
        elapsed_s = monotonic_s - self._at_s
        self._times = {
            name: (value - self._counters[name]) / elapsed_s
            for name, value in counters.items()
            if elapsed_s > 0 and value >= self._counters.get(name, value + 1)
        }
        self._counters, self._at_s = counters, monotonic_s
        self.document, self.wall_s, self.problem = document, wall_s, ""

    def fail(self, problem: str) -> None:
        """It did not answer: what was read last stays."""
        self.problem = problem

    def has_counters(self) -> bool:
        """Whether a second picture says more than the first."""
        return bool(self._counters)

    def has_problem(self) -> bool:
        """Whether something of this host could not be read."""
        rows = self.document["bindings"] if self.document else ()
        return any((row["use_unknown"] or "").startswith("not read") for row in rows)

    def sort(self) -> None:
        """By the next column."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]

    def list_lines(self) -> list[PoolLine]:
        """All rows, in their order."""
        if self.document is None:
            return []
        return [line for host in self.document["hosts"] for line in self._list_host(host)]

    def _list_host(self, host: Mapping[str, Any]) -> Iterator[PoolLine]:
        assert self.document is not None
        own = [row for row in self.document["bindings"] if row["host"] == host["name"]]
        free = sum(gpu["free_milli"] for gpu in host["gpus"])
        state = host["state"]
        count = tell_count(host["leases"], "lease")
        share = f"{free / 1000:g} of {len(host['gpus'])} free"
        yield PoolLine(
            "host", (f"{host['name']} ({state})", count, "", share, ""), state != "ready"
        )
        for gpu in host["gpus"]:
            rows = [row for row in own if row["gpu_index"] == gpu["index"]]
            used = [row["use"]["memory_used_bytes"] for row in rows if row["use"]]
            memory = format_size(gpu["memory_bytes"])
            if used:
                memory = f"{format_size(sum(used))} of {memory}"
            times = [time for row in rows if (time := self.find_time(row)) is not None]
            closed = f"! {gpu['closed']}" if gpu["closed"] else ""
            name = f"  {gpu['index']} {gpu['model'].removeprefix('NVIDIA ')}"
            share = f"{gpu['free_milli']} free"
            shown = f"{sum(times):.0%}" if times else ABSENT
            yield PoolLine("gpu", (name, closed, memory, share, shown), bool(closed))
            for row in sorted(rows, key=self._rank):
                yield self._describe_lease(row)

    def find_time(self, row: Mapping[str, Any]) -> float | None:
        """The part of the GPU's time that a lease had between the last two pictures."""
        return self._times.get((row["used_by"] or {}).get("attachment", ""))

    def _rank(self, row: Mapping[str, Any]) -> tuple[float, str]:
        use = row["use"] or {}
        value = {
            "time": self.find_time(row),
            "memory": use.get("memory_used_bytes"),
            "share": row["gpu_milli"],
            "name": None,
        }[self.order]
        # those of which it is unknown come last
        return -value if value is not None else 1.0, row["name"]

    def _describe_lease(self, row: Mapping[str, Any]) -> PoolLine:
        use, by, time = row["use"], row["used_by"], self.find_time(row)
        tenant = f" ({row['tenant']})" if row["tenant"] else ""
        user = ABSENT
        if by is not None:
            names = ", ".join(one["name"] for one in use["processes"]) if use else ""
            user = f"{by['kind']} {by['name']}" + (f": {names}" if names else "")
        limit = "all" if row["memory_bytes"] is None else format_size(row["memory_bytes"])
        memory = f"{format_size(use['memory_used_bytes'])} of {limit}" if use else limit
        share = f"{row['gpu_milli']}"
        shown = ABSENT if time is None else f"{time:.0%}"
        name = f"    {row['name']}{tenant}"
        return PoolLine("lease", (name, user, memory, share, shown), bool(row["ending"]))


def draw_title(view: PoolView) -> str:
    """The first line: the whole pool."""
    if view.document is None:
        return f"pool  {view.problem or 'is read'}"
    found = view.document
    claims = ", ".join(f"{count} {state}" for state, count in found["claims"].items() if count)
    free = found["gpu_free_milli"] / 1000
    when = datetime.fromtimestamp(view.wall_s).astimezone().strftime("%H:%M:%S")
    hosts = tell_count(len(found["hosts"]), "host")
    text = f"{hosts}, {free:g} of {found['gpus']} GPUs free; claims: {claims or 'none'}"
    return f"pool  {text}; leader: {found['leader'] or 'none'}  {when}"


def draw_header(width: int) -> str:
    """The names of the columns."""
    return _format(_NAMES, width)


def draw_line(line: PoolLine, width: int) -> str:
    """One row."""
    return _format(line.cells, width)


def _format(cells: Sequence[str], width: int) -> str:
    width = max(width, _LEAST_WIDTH)
    memory, share, time = 20, 14, 5
    names = width - memory - share - time - 4
    sizes = (names * 11 // 20, names - names * 11 // 20, memory, share, time)
    parts = []
    for place, (cell, size) in enumerate(zip(cells, sizes, strict=True)):
        text = cell if len(cell) <= size else f"{cell[: max(size - 1, 0)]}~"
        parts.append(f"{text:<{size}}" if place < 2 else f"{text:>{size}}")
    return " ".join(parts).rstrip()


def draw_once(view: PoolView, width: int) -> list[str]:
    """The whole picture, for scripts."""
    return [
        draw_title(view),
        draw_header(width),
        *(draw_line(line, width) for line in view.list_lines()),
    ]
