"""MIG layouts once more, written to be obviously right: a graph of layouts and walks in it.

The rules are checked place by place on every layout, from the profile table alone. A node of the
graph is a layout, an edge creates or destroys one GPU instance; the fewest calls from a layout to
any that holds given instances is a shortest walk. Nothing of the planner is used.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.boards import make_instance, make_uuid
from vgpumgr.model.gpu import Gpu, GpuMemory, GpuProcess
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import MigMode, MigProfile, MigProfileName, Placement
from vgpumgr.model.pci import PciAddress

TABLE = Path(__file__).parents[2] / "vgpumgr/sim/data/mig-profiles.json"
BOARDS = ("A30-24GB", "A100-40GB", "H100-80GB", "RTX-PRO-6000-Blackwell-96GB")
A30, A100, H100, RTX = BOARDS
ENGINES = ("nvdec", "nvenc", "nvjpg", "ofa")

Cell = tuple[str, int]  # a profile's name and a start
Layout = frozenset[Cell]
Target = tuple[str, ...]  # names, sorted


@dataclass(frozen=True)
class Row:
    """One profile of the table."""

    name: str
    slices: int
    maximum: int
    size: int
    starts: tuple[int, ...]
    engines: tuple[int, ...]


@dataclass
class Oracle:
    """One board's layouts and the walks between them."""

    rows: dict[str, Row]
    slices: int
    engines: tuple[int, ...]
    children: dict[Layout, set[Layout]] = field(default_factory=dict)
    parents: dict[Layout, set[Layout]] = field(default_factory=dict)

    def is_valid(self, layout: Iterable[Cell]) -> bool:
        """Every rule, checked on the whole layout."""
        cells = list(layout)
        taken = [p for name, start in cells for p in range(start, start + self.rows[name].size)]
        rows = [self.rows[name] for name, _ in cells]
        names = Counter(name for name, _ in cells)
        media = [name for name in names.elements() if not name.endswith("-me")]
        return (
            len(set(taken)) == len(taken)
            and sum(row.slices for row in rows) <= self.slices
            and all(n <= self.rows[name].maximum for name, n in names.items())
            and all(
                sum(row.engines[e] for row in rows) <= self.engines[e] for e in range(len(ENGINES))
            )
            and (len(media) <= 1 or not any(name.endswith("+me.all") for name in media))
        )

    def explore(self) -> None:
        """Every layout that can be reached from the empty one, one creation after another."""
        queue: deque[Layout] = deque([frozenset()])
        self.children[frozenset()] = set()
        self.parents[frozenset()] = set()
        while queue:
            layout = queue.popleft()
            for name, row in self.rows.items():
                for start in row.starts:
                    grown = layout | {(name, start)}
                    if grown == layout or not self.is_valid(grown):
                        continue
                    if grown not in self.children:
                        self.children[grown], self.parents[grown] = set(), set()
                        queue.append(grown)
                    self.children[layout].add(grown)
                    self.parents[grown].add(layout)

    @property
    def layouts(self) -> list[Layout]:
        """All of them, in an order that does not change."""
        return sorted(self.children, key=lambda layout: (len(layout), sorted(layout)))

    def targets(self) -> dict[Target, list[Layout]]:
        """Every set of instances that some layout holds, with those layouts."""
        found: dict[Target, list[Layout]] = {}
        for layout in self.layouts:
            found.setdefault(tuple(sorted(name for name, _ in layout)), []).append(layout)
        return found

    def walk(self, goals: Collection[Layout], held: Layout = frozenset()) -> dict[Layout, int]:
        """Edges of the shortest walk from each layout to any of ``goals``, never destroying what is
        held (walked backwards from the goals); layouts that cannot get there are missing.
        """
        distance = {goal: 0 for goal in goals if held <= goal}
        queue = deque(distance)
        while queue:
            layout = queue.popleft()
            for other in self.children[layout] | self.parents[layout]:
                if other not in distance and held <= other:
                    distance[other] = distance[layout] + 1
                    queue.append(other)
        return distance

    def room(self, layout: Layout) -> int:
        """For each profile the most that can still be created of it alone, in slices, added up."""
        if layout not in self._rooms:
            most = {name: self._most(layout, name) for name in self.rows}
            self._rooms[layout] = sum(self.rows[name].slices * n for name, n in most.items())
        return self._rooms[layout]

    def _most(self, layout: Layout, name: str) -> int:
        key = (layout, name)
        if key not in self._remembered:
            grown = [x for x in self.children[layout] if {n for n, _ in x - layout} == {name}]
            self._remembered[key] = max((1 + self._most(x, name) for x in grown), default=0)
        return self._remembered[key]

    _rooms: dict[Layout, int] = field(default_factory=dict)
    _remembered: dict[tuple[Layout, str], int] = field(default_factory=dict)


@cache
def read_table(board: str) -> tuple[Row, ...]:
    """The profiles of a board in the published table."""
    table = json.loads(TABLE.read_text())["gpus"][board]
    return tuple(
        Row(
            name=p["name"],
            slices=p["compute_slices"],
            maximum=p["max_instances"],
            size=p["placements"][0]["size"],
            starts=tuple(place["start"] for place in p["placements"]),
            engines=tuple(p.get(engine) or 0 for engine in ENGINES),
        )
        for p in table["profiles"]
    )


@cache
def make_oracle(board: str) -> Oracle:
    """The board's graph. The profile of the whole board has all of its engines."""
    rows = read_table(board)
    whole = max(rows, key=lambda row: row.slices)
    oracle = Oracle({row.name: row for row in rows}, whole.slices, whole.engines)
    oracle.explore()
    return oracle


@cache
def make_profiles(board: str) -> tuple[MigProfile, ...]:
    """The table as NVML would report it."""
    return tuple(
        MigProfile(
            name=MigProfileName.parse(row.name),
            enum=number,
            id=number,
            slices=row.slices,
            memory_bytes=row.size << 30,
            max_instances=row.maximum,
            sm_count=row.slices * 14,
            placements=tuple(Placement(start, row.size) for start in row.starts),
            decoders=row.engines[0],
            encoders=row.engines[1],
            jpegs=row.engines[2],
            ofas=row.engines[3],
        )
        for number, row in enumerate(read_table(board))
    )


def make_gpu(
    board: str,
    layout: Iterable[Cell] | None = (),
    index: int = 0,
    processes: tuple[GpuProcess, ...] = (),
) -> Gpu:
    """A GPU of that board; instance ids count the layout's cells from 1. None: MIG mode is off."""
    profiles = {str(p.name): p for p in make_profiles(board)}
    cells = sorted(layout or (), key=lambda cell: (cell[1], cell[0]))
    on = layout is not None
    return Gpu(
        index=index,
        uuid=GpuUuid(make_uuid("GPU", index)),
        model=board,
        pci=PciAddress(0, 7 + 8 * index, 0, 0),
        memory=GpuMemory(80 << 30, 1 << 29),
        mig=MigMode(True, on, on),
        driver_version="580.95.05",
        profiles=tuple(profiles.values()),
        instances=tuple(
            make_instance(index, number, profiles[name], start)
            for number, (name, start) in enumerate(cells, 1)
        ),
        processes=processes,
    )
