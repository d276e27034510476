"""What of a pool has a time of day: reservations, and leases that end.

Times are seconds since 1970 of the leader's clock of the day. A reservation that comes every week does so at the same
time of day of its zone, whether daylight saving time has begun meanwhile or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vgpumgr.model.frozen import dataclass

if TYPE_CHECKING:
    from vgpumgr.pool.control.records import ClaimRecord, LeaseRecord

WEEK_S = 7 * 24 * 3600.0
#: so long before its end a lease is announced to end; one that is short, at half of its time
WARN_S = 300.0
#: weekly reservations are compared for more than a year, in which daylight saving time begins and ends
_WEEKS = 60


class Span(NamedTuple):
    """From a moment to another one, in seconds since 1970."""

    begin_s: float
    end_s: float

    def meets(self, begin_s: float, end_s: float) -> bool:
        """Whether both have a moment together."""
        return self.begin_s < end_s and begin_s < self.end_s


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """GPUs that only claims of a tenant, or claims with such names, get from ``begin_s`` to ``end_s``; with ``weekly``
    each week at that time of day of the ``zone``. ``places`` are the GPUs, as HOST/INDEX; of each so much memory and
    time, without both all of it. ``why`` says which of them are not there.
    """

    name: str
    begin_s: float
    end_s: float
    zone: str = "UTC"
    weekly: bool = False
    tenant: str = ""
    claims: tuple[str, ...] = ()
    class_name: str = "default"
    gpus: int = 1
    memory_bytes: int | None = None
    compute_percent: float | None = None
    places: tuple[str, ...] = ()
    why: str = ""

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"p/reservation/{self.name}"

    @property
    def holder(self) -> str:
        """For whom it is."""
        if self.tenant:
            return f"tenant {self.tenant}"
        return f"claim{'s' if len(self.claims) > 1 else ''} {', '.join(self.claims)}"

    def is_for(self, claim: ClaimRecord) -> bool:
        """Whether the claim gets these GPUs."""
        if self.tenant:
            return claim.tenant == self.tenant
        return any(fnmatchcase(claim.name, pattern) for pattern in self.claims)

    def find_next(self, now_s: float) -> Span | None:
        """The time that it is reserved for now, or next; None: it is over."""
        return next(self.list_spans(now_s), None)

    def list_spans(self, now_s: float) -> Iterator[Span]:
        """All times that are not over, the first ones of a weekly one."""
        if not self.weekly:
            if now_s < self.end_s:
                yield Span(self.begin_s, self.end_s)
            return
        first = max(0, math.floor((now_s - self.end_s) / WEEK_S))
        for week in range(first, first + _WEEKS):
            span = Span(
                _add_weeks(self.begin_s, week, self.zone), _add_weeks(self.end_s, week, self.zone)
            )
            if now_s < span.end_s:
                yield span

    def describe(self, now_s: float) -> str:
        """``reserved for tenant teaching from 2026-12-07 08:00 until 2026-12-07 12:00``."""
        span = self.find_next(now_s) or Span(self.begin_s, self.end_s)
        begin, end = (format_moment(time_s, self.zone) for time_s in span)
        every = ", every week" if self.weekly else ""
        return f"reserved for {self.holder} from {begin} until {end}{every} ({self.name})"


@dataclass(frozen=True, slots=True)
class EndRecord:
    """Announces that a lease ends, and why: at ``end_s``, or as soon as its host has ended what runs. Its host reads
    it, and says so to what runs.
    """

    claim: str
    host: str
    why: str
    end_s: float | None = None

    @property
    def key(self) -> str:
        """Its place in the store."""
        return end_key(self.host, self.claim)


def end_key(host: str, claim: str) -> str:
    """The place of the announcement that a lease ends."""
    return f"p/end/{host}/{claim}"


def do_meet(one: ReservationRecord, other: ReservationRecord, now_s: float) -> bool:
    """Whether both are reserved at one moment that is not over."""
    spans, others = one.list_spans(now_s), other.list_spans(now_s)
    first, second = next(spans, None), next(others, None)
    while first is not None and second is not None:
        if first.meets(*second):
            return True
        if first.begin_s < second.begin_s:
            first = next(spans, None)
        else:
            second = next(others, None)
    return False


def find_end_s(claim: ClaimRecord, now_s: float) -> float:
    """When a lease that the claim gets now ends; without an end never."""
    until_s = math.inf if claim.until_s is None else claim.until_s
    return until_s if claim.for_s is None else min(until_s, now_s + claim.for_s)


def count_warning_s(lease: LeaseRecord) -> float:
    """So long before its end, or for so long at least, a lease is announced to end."""
    return min(WARN_S, max(0.0, lease.until_s - lease.granted_s) / 2)


def format_moment(time_s: float, zone: str | None = None) -> str:
    """To the minute, in a zone, or in that of this machine."""
    moment = datetime.fromtimestamp(time_s, UTC)
    local = moment.astimezone() if zone is None else moment.astimezone(read_zone(zone))
    return local.strftime("%Y-%m-%d %H:%M")


@lru_cache
def read_zone(name: str) -> tzinfo:
    """A zone by its name; UTC where this machine has none of that name."""
    from zoneinfo import ZoneInfo  # no listing needs it

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC


@lru_cache(maxsize=1 << 12)
def _add_weeks(time_s: float, weeks: int, zone: str) -> float:
    local = datetime.fromtimestamp(time_s, UTC).astimezone(read_zone(zone))
    return (local + timedelta(weeks=weeks)).timestamp()
