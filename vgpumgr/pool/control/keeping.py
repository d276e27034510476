"""What reservations keep free of GPUs, from claims that are not theirs and would stand in their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vgpumgr.pool.control.records import ClaimRecord, GpuRecord, View
from vgpumgr.pool.control.times import ReservationRecord, Span, do_meet, find_end_s
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Placement, Task

#: a GPU, as hosts' records and reservations name it
Place = tuple[str, int]


def read_place(text: str) -> Place:
    """HOST/INDEX."""
    host, _, index = text.rpartition("/")
    return host, int(index)


def ask_for(reservation: ReservationRecord) -> ClaimRecord:
    """A claim of the same size."""
    return ClaimRecord(
        reservation.name,
        reservation.class_name,
        reservation.gpus,
        reservation.memory_bytes,
        reservation.compute_percent,
    )


def count_milli(view: View, reservation: ReservationRecord, gpu: GpuRecord) -> int:
    """How much of a GPU it has."""
    kind = view.classes.get(reservation.class_name)
    if kind is not None and kind.whole:
        return GPU_MILLI
    return ask_for(reservation).count_milli(gpu.memory_bytes)


def find_reserved(view: View, place: Place, now_s: float) -> list[ReservationRecord]:
    """The reservations of a GPU that are not over."""
    text = f"{place[0]}/{place[1]}"
    return [
        one
        for one in view.reservations.values()
        if text in one.places and one.find_next(now_s) is not None
    ]


class Keeping:
    """The part of each reserved GPU that a claim does not get, taken from the cluster while it is placed."""

    def __init__(
        self, view: View, now_s: float, cluster: Cluster, where: Mapping[Place, tuple[int, int]]
    ) -> None:
        self._view = view
        self.now_s = now_s
        self._cluster = cluster
        self._where = where
        self._spans: dict[str, Span] = {}
        #: by GPU the reservations, and how much of it each has
        self._on: dict[Place, dict[str, int]] = {}
        for one in view.reservations.values():
            span = one.find_next(now_s)
            for text in one.places if span else ():
                gpu = view.gpus.get(_find_key(text))
                if gpu is not None and span is not None:
                    self._spans[one.name] = span
                    milli = count_milli(view, one, gpu)
                    self._on.setdefault((gpu.host, gpu.index), {})[one.name] = milli
        #: by GPU the claims that have a part of it
        self._has: dict[Place, dict[str, int]] = {place: {} for place in self._on}
        self._taken: list[str] = []
        self._installed: frozenset[str] | None = None
        self._meeting: dict[tuple[str, str], bool] = {}

    def note(self, claim: str, host: str, gpus: Iterable[int], milli: int) -> None:
        """What a claim has now."""
        self.forget(claim)
        for index in gpus:
            if (host, index) in self._has:
                self._has[host, index][claim] = milli
        self.change()

    def forget(self, claim: str) -> None:
        """A claim has nothing."""
        for has in self._has.values():
            has.pop(claim, None)

    def change(self) -> None:
        """What is kept is counted anew before the next claim: something was placed."""
        for name in self._taken:
            self._cluster.remove(name)
        self._taken, self._installed = [], None

    def find_against(self, claim: ClaimRecord) -> frozenset[str]:
        """The reservations that are kept from a claim: not its own, and not over before its end."""
        end_s = find_end_s(claim, self.now_s)
        return frozenset(
            name
            for name, span in self._spans.items()
            if span.begin_s < end_s and not self._view.reservations[name].is_for(claim)
        )

    def prepare(self, claim: ClaimRecord) -> None:
        """Takes from the cluster what the claim does not get."""
        against = self.find_against(claim)
        if against == self._installed:
            return
        self.change()
        for place in self._on:
            if place in self._where and (milli := self.read_held(place, against)) > 0:
                number, at = self._where[place]
                left = min(milli, self._cluster.read_gpus(number)[at])
                if left > 0:
                    task = Task(f"reserved {place[0]}/{place[1]}", Demand(0, 0, 1, left))
                    self._cluster.restore(Placement(task, number, (at,)))
                    self._taken.append(task.name)
        self._installed = against

    def read_held(self, place: Place, against: frozenset[str]) -> int:
        """How much of a GPU these reservations keep: the most at one moment, without what their own claims have."""
        held = {
            name: self._count_left(place, name)
            for name in self._on.get(place, ())
            if name in against
        }
        return max(
            (sum(held[other] for other in held if self._do_meet(name, other)) for name in held),
            default=0,
        )

    def _count_left(self, place: Place, name: str) -> int:
        reservation, claims = self._view.reservations[name], self._view.claims
        own = sum(
            milli
            for claim, milli in self._has[place].items()
            if claim in claims and reservation.is_for(claims[claim])
        )
        return max(0, self._on[place][name] - own)

    def _do_meet(self, name: str, other: str) -> bool:
        key = min(name, other), max(name, other)
        if key not in self._meeting:
            one, two = (self._view.reservations[each] for each in key)
            self._meeting[key] = name == other or do_meet(one, two, self.now_s)
        return self._meeting[key]

    def explain(self, claim: ClaimRecord, hosts: set[str]) -> str:
        """The end of a reason: which GPUs of these hosts are reserved for others."""
        against = self.find_against(claim)
        found = [
            (place, name)
            for place, names in sorted(self._on.items())
            if place[0] in hosts
            for name in names
            if name in against and self._count_left(place, name) > 0
        ]
        if not found:
            return ""
        (host, index), name = found[0]
        more = f", as {len(found) - 1} more" if len(found) > 1 else ""
        text = self._view.reservations[name].describe(self.now_s)
        return f"; GPU {index} of host {host} is {text}{more}"


def _find_key(text: str) -> str:
    host, index = read_place(text)
    return f"{host}/{index:04}"


def choose_places(
    view: View, reservation: ReservationRecord, now_s: float, kept: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """The GPUs that a reservation gets, those of ``kept`` first; and what stands in the way of others, in words. Fewer
    than it asks for where no more are free of leases without an end, or with a later one, and of other reservations.
    """
    span = reservation.find_next(now_s)
    kind = view.classes.get(reservation.class_name)
    if span is None or kind is None:
        return (), []
    usable: dict[str, list[tuple[bool, int, str]]] = {}
    held_by: list[str] = []
    for gpu in view.gpus.values():
        milli = count_milli(view, reservation, gpu)
        if not kind.accepts(gpu) or ask_for(reservation).count_milli(gpu.memory_bytes) > GPU_MILLI:
            continue
        text = f"{gpu.host}/{gpu.index}"
        if gpu.closed or not view.is_ready(gpu.host):
            held_by.append(f"GPU {gpu.index} of host {gpu.host}, which takes nothing new now")
            continue
        leases, others = _list_in_the_way(view, reservation, gpu, span, now_s)
        used = sum(milli for _, milli in leases) + _count_most(view, others, gpu, now_s)
        if used + milli > GPU_MILLI:
            held_by += [name for name, _ in leases] + [f"reservation {one.name}" for one in others]
        else:
            usable.setdefault(gpu.host, []).append((text not in kept, -used, text))
    # claims of several GPUs are of one host
    hosts = sorted(usable.values(), key=lambda one: (all(new for new, _, _ in one), -len(one)))
    texts = [text for found in hosts for _, _, text in sorted(found)]
    chosen = sorted(texts, key=lambda text: text not in kept)[: reservation.gpus]
    return tuple(sorted(chosen)), list(dict.fromkeys(held_by))


def _list_in_the_way(
    view: View, reservation: ReservationRecord, gpu: GpuRecord, span: Span, now_s: float
) -> tuple[list[tuple[str, int]], list[ReservationRecord]]:
    """Leases and other reservations of a GPU that meet a reservation."""
    leases = []
    for lease in view.leases.values():
        if lease.host != gpu.host or gpu.index not in lease.gpus or lease.is_ending:
            continue
        claim = view.claims.get(lease.claim)
        if claim is not None and reservation.is_for(claim):
            continue
        if not lease.until_s or lease.until_s > span.begin_s:
            leases.append((f"claim {lease.claim}", lease.milli))
    others = [
        other
        for other in find_reserved(view, (gpu.host, gpu.index), now_s)
        if other.name != reservation.name and do_meet(other, reservation, now_s)
    ]
    return leases, others


def _count_most(
    view: View, reservations: list[ReservationRecord], gpu: GpuRecord, now_s: float
) -> int:
    """The most that these have of a GPU at one moment."""
    return max(
        (
            sum(
                count_milli(view, other, gpu)
                for other in reservations
                if other is one or do_meet(one, other, now_s)
            )
            for one in reservations
        ),
        default=0,
    )
