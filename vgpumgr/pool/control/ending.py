"""What a controller writes because of the time of day: leases that end, and reservations whose GPUs are not there.

A lease is announced to end, and ends when its time has come *and* it was announced for a while by a clock that does not
jump. So a clock of the day that jumps forward ends nothing without a warning, and one that is set back takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from vgpumgr.pool.control.keeping import choose_places
from vgpumgr.pool.control.records import ClaimRecord, LeaseRecord, View, put, want_key
from vgpumgr.pool.control.times import (
    EndRecord,
    ReservationRecord,
    count_warning_s,
    end_key,
    format_moment,
)
from vgpumgr.pool.store.interface import Change, Compare, Delete, Transaction


class Ending:
    """``read_clock_s`` only grows, ``read_wall_s`` is the time of day. It remembers since when each end is announced;
    another controller begins to wait anew.
    """

    def __init__(self, read_clock_s: Callable[[], float], read_wall_s: Callable[[], float]) -> None:
        self._read_clock_s = read_clock_s
        self.read_wall_s = read_wall_s
        #: by key the revision of the announcement
        self._announced: dict[str, tuple[int, float]] = {}

    def clear(self) -> None:
        """This controller does not lead."""
        self._announced.clear()

    def plan_leases(self, view: View, now_s: float) -> Iterator[Transaction]:
        """Announcements and ends."""
        keys = {end.key for end in view.ends.values()}
        for key in self._announced.keys() - keys:
            del self._announced[key]
        for name, lease in view.leases.items():
            if lease.until_s and not lease.is_ending:
                yield from self._plan_lease(view, lease, view.ends.get(name), now_s)

    def _plan_lease(
        self, view: View, lease: LeaseRecord, end: EndRecord | None, now_s: float
    ) -> Iterator[Transaction]:
        warning_s = count_warning_s(lease)
        key = end_key(lease.host, lease.claim)
        compares = (view.at(key), view.at(lease.key))
        if end is None:
            if now_s >= lease.until_s - warning_s:
                why = f"its time ends at {format_moment(lease.until_s)}"
                record = EndRecord(lease.claim, lease.host, why, lease.until_s)
                yield Transaction(compares, (put(record),))
            return
        if now_s < lease.until_s - warning_s:
            yield Transaction(compares, (Delete(key),))
            return
        revision = view.at(key).revision
        known, since_s = self._announced.get(key, (0, 0.0))
        if known != revision:
            since_s = self._read_clock_s()
            self._announced[key] = (revision, since_s)
        claim = view.claims.get(lease.claim)
        is_due = now_s >= lease.until_s and self._read_clock_s() - since_s >= warning_s
        if claim is not None and not claim.is_ending and is_due:
            yield _end(view, claim, lease, compares)


def _end(
    view: View, claim: ClaimRecord, lease: LeaseRecord, compares: tuple[Compare, ...]
) -> Transaction:
    """A claim whose lease ends is deleted; one that binds late is idle."""
    changes: tuple[Change, ...] = (put(replace(lease, is_ending=True)),)
    if claim.late:
        key = want_key(claim.name)
        return Transaction((*compares, view.at(key)), (*changes, Delete(key)))
    return Transaction(
        (*compares, view.at(claim.key)), (*changes, put(replace(claim, is_ending=True)))
    )


def plan_reservations(view: View, now_s: float) -> Iterator[Transaction]:
    """Other GPUs for those of reservations that are not there."""
    for reservation in view.reservations.values():
        yield from _plan_reservation(view, reservation, now_s)


def _plan_reservation(
    view: View, reservation: ReservationRecord, now_s: float
) -> Iterator[Transaction]:
    """GPUs that are gone, closed or of hosts that are not ready are replaced where others are free then."""
    if reservation.find_next(now_s) is None:
        return
    gpus = {f"{gpu.host}/{gpu.index}": gpu for gpu in view.gpus.values()}
    usable = tuple(
        text
        for text in reservation.places
        if text in gpus and not gpus[text].closed and view.is_ready(gpus[text].host)
    )
    if len(usable) == reservation.gpus:
        if reservation.why:
            yield Transaction((view.at(reservation.key),), (put(replace(reservation, why="")),))
        return
    chosen, _ = choose_places(view, reservation, now_s, usable)
    kept = tuple(text for text in reservation.places if text not in usable)
    missing = reservation.gpus - len(chosen)
    # what is not there may come back; until then it keeps its place
    places = tuple(sorted((*chosen, *kept[:missing])))
    why = f"{missing} of its {reservation.gpus} GPUs are not there now" if missing else ""
    changed = replace(reservation, places=places, why=why)
    if changed == reservation:
        return
    new = [gpus[text] for text in places if text not in reservation.places]
    yield Transaction(
        (view.at(reservation.key), *(view.at(gpu.key) for gpu in new)),
        (put(changed), *(put(replace(gpu, grants=gpu.grants + 1)) for gpu in new)),
    )
