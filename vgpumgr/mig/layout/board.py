"""A board's geometry: every layout that it can have, from nothing but the profiles NVML reports.

A *cell* is a profile at one of its placements; a layout is a set of cells, kept as the bits of an integer. Five rules,
in the words of NVIDIA's MIG user guide ("Supported MIG Profiles", "Placement of GPU Instances"): instances do not
overlap on the memory axis; their compute slices do not exceed the GPU's; no profile has more instances than its
maximum; an instance with all media engines (+me.all) lives only beside instances without any (-me); all instances
together have no more media engines than the board (an A30 has one NVJPG, so 1g.6gb+me excludes 2g.12gb+me).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfile, MigProfileName, Placement, Variant
from vgpumgr.model.text import list_near

Counts = tuple[int, ...]
"""How many instances of each of the board's profiles, in the order of ``Board.profiles``."""

# A new value for every driver or hand of boards; hosts have few kinds.
_BOARDS_KEPT = 64


# Fields of MigProfile that count media engines, and what NVIDIA calls these.
ENGINES = {"decoders": "NVDEC", "encoders": "NVENC", "jpegs": "NVJPG", "ofas": "OFA"}


def find_engine_totals(profiles: Sequence[MigProfile]) -> dict[str, int]:
    """Kinds of media engines that limit layouts, with how many the board has.

    NVML states no total, but the profile of the whole board has them all. A kind of which one
    profile's full number of instances would have more than that is shared, and limits nothing.
    """
    totals = {e: max((int(getattr(p, e)) for p in profiles), default=0) for e in ENGINES}
    return {
        engine: total
        for engine, total in totals.items()
        if total and all(p.max_instances * getattr(p, engine) <= total for p in profiles)
    }


@dataclass(frozen=True, slots=True)
class Cell:
    """A profile, as an index into ``Board.profiles``, at a placement; ``memory`` are the positions
    that it takes, as bits.
    """

    profile: int
    placement: Placement
    memory: int


class Board:
    """The cells of one kind of board and the layouts they can make. Answers are remembered."""

    def __init__(self, profiles: Sequence[MigProfile], compute_slices: int) -> None:
        self.profiles = tuple(profiles)
        self.compute_slices = compute_slices
        self.cells = tuple(
            Cell(index, place, ((1 << place.size) - 1) << place.start)
            for index, profile in enumerate(profiles)
            for place in sorted(profile.placements)
        )
        self.memory_positions = max((c.placement.end for c in self.cells), default=0)
        self._bits = {(c.profile, c.placement): 1 << i for i, c in enumerate(self.cells)}
        self._by_profile = [
            [(1 << i, c) for i, c in enumerate(self.cells) if c.profile == index]
            for index in range(len(profiles))
        ]
        self._names = {profile.name: index for index, profile in enumerate(profiles)}
        self._engines = find_engine_totals(profiles)
        self._layouts: dict[Counts, tuple[int, ...]] = {}
        self._known: dict[int, tuple[Counts, int]] = {}
        self._caps: dict[Counts, list[int]] = {}
        self._packable: dict[tuple[Counts, int], Counts] = {}

    def find(self, name: MigProfileName) -> int | None:
        """Index of the profile of that name; a ``c`` part does not matter."""
        return self._names.get(name.gpu_instance)

    def index(self, profile: MigProfile) -> int:
        """Index of a profile of the GPU that the board is made of."""
        return self._names[profile.name]

    def bit(self, profile: int, placement: Placement) -> int | None:
        """The cell as a bit; None where the profile has no such placement."""
        return self._bits.get((profile, placement))

    def list_cells(self, layout: int) -> list[Cell]:
        """The cells of a layout, in the order of their bits."""
        return [self.cells[index] for index in iterate_bits(layout)]

    def count(self, layout: int) -> Counts:
        """How many of each profile a layout has."""
        counts = [0] * len(self.profiles)
        for index in iterate_bits(layout):
            counts[self.cells[index].profile] += 1
        return tuple(counts)

    def list_layouts(self, counts: Counts) -> tuple[int, ...]:
        """Every layout with exactly these instances; empty where there is none."""
        found = self._layouts.get(counts)
        if found is None:
            arranged = [] if self.list_excesses(counts) else list(self._arrange(counts))
            self._known.update((layout, (counts, memory)) for layout, memory in arranged)
            found = tuple(layout for layout, _ in arranged)
            self._layouts[counts] = found
        return found

    def _arrange(self, counts: Counts) -> Iterator[tuple[int, int]]:
        """Layouts with the memory that they take. Profiles with the fewest places first: dead ends show early."""
        order = sorted(
            (index for index, count in enumerate(counts) if count),
            key=lambda index: len(self._by_profile[index]),
        )
        wanted = [index for index in order for _ in range(counts[index])]
        return self._extend(wanted, 0, 0, 0, 0)

    def _extend(
        self, wanted: Sequence[int], depth: int, first: int, layout: int, memory: int
    ) -> Iterator[tuple[int, int]]:
        """Places ``wanted[depth:]``; instances of one profile go upwards, from its place ``first``."""
        if depth == len(wanted):
            yield layout, memory
            return
        profile = wanted[depth]
        same = depth + 1 < len(wanted) and wanted[depth + 1] == profile
        places = self._by_profile[profile]
        for position in range(first, len(places)):
            bit, cell = places[position]
            if not memory & cell.memory:
                following = position + 1 if same else 0
                yield from self._extend(
                    wanted, depth + 1, following, layout | bit, memory | cell.memory
                )

    def list_excesses(self, counts: Counts) -> list[str]:
        """Which rules other than geometry forbid these instances together, in words.

        What only follows from another is left out: memory where compute does not do, engines where
        anything else forbids it.
        """
        pairs = [(p, n) for p, n in zip(self.profiles, counts, strict=True) if n]
        found = []
        slices = sum(p.slices * n for p, n in pairs)
        positions = sum(p.placements[0].size * n for p, n in pairs if p.placements)
        if slices > self.compute_slices:
            found.append(f"{slices} compute slices are needed, the GPU has {self.compute_slices}")
        elif positions > self.memory_positions:
            axis = self.memory_positions
            found.append(f"{positions} positions on the memory axis are needed, the GPU has {axis}")
        found += [
            f"the GPU allows {p.max_instances} of {p.name}, not {n}"
            for p, n in pairs
            if n > p.max_instances
        ]
        found += _list_media_clashes(pairs)
        return found or self._list_engine_excesses(pairs)

    def _list_engine_excesses(self, pairs: Sequence[tuple[MigProfile, int]]) -> list[str]:
        needs = {e: sum(int(getattr(p, e)) * n for p, n in pairs) for e in self._engines}
        return [
            f"{needs[engine]} {ENGINES[engine]} engines are needed, the GPU has {total}"
            for engine, total in self._engines.items()
            if needs[engine] > total
        ]

    def list_places(self, layout: int, profile: int) -> tuple[Placement, ...]:
        """Every place where one more of the profile fits beside a layout."""
        if not self.list_packable(layout)[profile]:
            return ()
        taken = self._list_memory(layout)
        return tuple(c.placement for _, c in self._by_profile[profile] if not c.memory & taken)

    def find_instance(self, instance: GpuInstance) -> int:
        """The cell of an observed instance as a bit; a board made of its GPU has one for each."""
        for index, profile in enumerate(self.profiles):
            bit = self.bit(index, instance.placement)
            if profile.id == instance.profile_id and bit is not None:
                return bit
        raise ValueError(f"{instance.profile} at {instance.placement} is unknown on this board")

    def read_layout(self, instances: Iterable[GpuInstance]) -> int:
        """Observed instances as a layout."""
        return sum(self.find_instance(instance) for instance in instances)

    def list_removals(
        self, instances: Sequence[GpuInstance], profile: int
    ) -> Iterator[tuple[GpuInstance, ...]]:
        """Every group of observed instances without which one more of the profile fits, small ones first."""
        for count in range(1, len(instances) + 1):
            for group in combinations(instances, count):
                rest = self.read_layout(i for i in instances if i not in group)
                if self.list_packable(rest)[profile]:
                    yield group

    def measure_room(self, layout: int) -> int:
        """Room left beside a layout, in compute slices: what each profile could still get alone,
        added up. It falls where a placement blocks big profiles: least fragmentation means most of it.
        """
        packable = self.list_packable(layout)
        return sum(n * p.slices for n, p in zip(packable, self.profiles, strict=True))

    def describe_rest(self, layout: int) -> str:
        """What still fits beside a layout, in words."""
        packable = self.list_packable(layout)
        fits = [str(p.name) for p, n in zip(self.profiles, packable, strict=True) if n]
        return f"then still fits: {', '.join(fits)}" if fits else "then it is full"

    def list_packable(self, layout: int) -> Counts:
        """For each profile, how many more of it fit beside a layout, if nothing else comes."""
        key = self._known.get(layout)
        if key is None:
            key = self._known[layout] = (self.count(layout), self._list_memory(layout))
        found = self._packable.get(key)
        if found is None:
            caps = self._list_caps(key[0])
            found = tuple(self._pack(index, key[1], cap) for index, cap in enumerate(caps))
            self._packable[key] = found
        return found

    def _list_memory(self, layout: int) -> int:
        memory = 0
        for index in iterate_bits(layout):
            memory |= self.cells[index].memory
        return memory

    def _pack(self, profile: int, memory: int, cap: int) -> int:
        """Taking the lowest place is optimal: the places of one profile have one size."""
        packed = 0
        for _, cell in self._by_profile[profile]:
            if packed >= cap:
                break
            if not memory & cell.memory:
                memory |= cell.memory
                packed += 1
        return packed

    def _list_caps(self, counts: Counts) -> list[int]:
        """For each profile, how many more the rules other than geometry allow."""
        caps = self._caps.get(counts)
        if caps is None:
            caps = [self._cap(counts, index) for index in range(len(self.profiles))]
            self._caps[counts] = caps
        return caps

    def _cap(self, counts: Counts, index: int) -> int:
        profile = self.profiles[index]
        most = min(profile.max_instances, len(self._by_profile[index]))
        for more in range(most - counts[index], 0, -1):
            grown = (*counts[:index], counts[index] + more, *counts[index + 1 :])
            if not self.list_excesses(grown):
                return more
        return 0


def iterate_bits(bits: int) -> Iterator[int]:
    """Positions of the bits that are set, upwards."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


#: the GPU that was asked for last, and its board: all its profiles are asked for one after another
_last: tuple[Gpu, Board] | None = None


def make_board(gpu: Gpu) -> Board:
    """The board of a GPU. Instances that NVML reports where it lists no placement keep theirs."""
    global _last  # one assignment, which threads may make at once
    last = _last
    if last is not None and last[0] is gpu:
        return last[1]
    board = _make_board(_list_profiles(gpu), gpu.compute_slices)
    _last = (gpu, board)
    return board


@lru_cache(maxsize=_BOARDS_KEPT)
def _make_board(profiles: tuple[MigProfile, ...], compute_slices: int) -> Board:
    return Board(profiles, compute_slices)


def forget() -> None:
    """Forgets all boards: what a new process starts with."""
    global _last
    _last = None
    _make_board.cache_clear()


def _list_profiles(gpu: Gpu) -> tuple[MigProfile, ...]:
    """The GPU's profiles without what changes (the remaining capacity)."""
    strange: dict[int, list[Placement]] = {}
    known = {p.id: p for p in gpu.profiles}
    for instance in gpu.instances:
        profile = known.get(instance.profile_id)
        if profile is None or instance.placement not in profile.placements:
            strange.setdefault(instance.profile_id, []).append(instance.placement)
    found = [
        replace(p, remaining=None, placements=(*p.placements, *strange.pop(p.id, ())))
        for p in gpu.profiles
    ]
    for instance in gpu.instances:
        if places := strange.pop(instance.profile_id, None):
            found.append(
                MigProfile(
                    name=instance.profile,
                    enum=-1,
                    id=instance.profile_id,
                    slices=instance.slices,
                    memory_bytes=instance.memory_bytes,
                    max_instances=len(places),
                    sm_count=0,
                    placements=tuple(places),
                )
            )
    return tuple(found)


def _list_media_clashes(pairs: Sequence[tuple[MigProfile, int]]) -> list[str]:
    """+me.all lives only beside -me (nvml.h at NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME)."""
    everything = [(p, n) for p, n in pairs if p.name.variant is Variant.ALL_MEDIA]
    if not everything:
        return []
    others = [p for p, _ in pairs if p.name.variant not in (Variant.ALL_MEDIA, Variant.NO_MEDIA)]
    first = everything[0][0].name
    if sum(n for _, n in everything) > 1:
        return [f"only one instance can have all media engines ({first})"]
    return [f"{first} has all media engines, so {p.name} cannot be beside it" for p in others]


def list_near_profiles(profiles: Sequence[MigProfile], name: MigProfileName) -> list[str]:
    """What a name that no profile has may mean: names of its size, then others that look like it; else all."""
    sizes = {str(p.name): p.name.slices for p in profiles}
    near = list_near(str(name.gpu_instance), sizes)
    near += [known for known, slices in sizes.items() if slices == name.slices]
    found = sorted(dict.fromkeys(near), key=lambda known: sizes[known] != name.slices)
    return found[:4] or list(sizes)
