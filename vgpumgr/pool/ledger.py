"""What leases of a host have had of its GPUs, by hour: how long they were granted, and what was used of that.

Durations are differences of a clock that neither jumps nor sleeps. The clock on the wall only says to which hour they
belong: where it jumps, they stand in another hour, and their sum stays right. Everything is bounded: hours of a day,
claims of a day, days. Further claims of a day are counted together, by tenant.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from vgpumgr.model.frozen import dataclass

#: of one form of the text; others are not read
FORM = 1
HOUR_S = 3600
HOURS = 24
#: a host keeps so many days
DAYS = 35
#: of one host and day that are counted one by one, and further tenants whose claims are counted together
MAX_CLAIMS = 128
MAX_TENANTS = 32
#: stands for the claims that are counted together
OTHERS = ""
#: waits fall into classes, each longer than the one before by so much; the last one is of 90 days
_LEAST_WAIT_S = 0.1
_GROWTH = 1.15
_MOST_CLASS = 130

#: of a counter that did not answer
_UNKNOWN = -1.0
#: of counters and of this clock
_SLACK = 1.1

ClaimKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as its host follows it: whose it is, of how many GPUs, and of each so many thousandths."""

    tenant: str
    gpus: int
    milli: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Now: by a clock that counts from the boot, without a jump; and by the clock on the wall."""

    boot: str
    boot_s: float
    wall_s: float


class Amount:
    """Seconds of GPUs: each granted one counts whole in ``granted_s``, by its part in ``allocated_s``; ``known_s`` is
    what of the latter it is known for how much was used, and ``used_s`` that.
    """

    __slots__ = ("allocated_s", "granted_s", "known_s", "used_s")

    def __init__(
        self,
        granted_s: float = 0.0,
        allocated_s: float = 0.0,
        known_s: float = 0.0,
        used_s: float = 0.0,
    ) -> None:
        self.granted_s = granted_s
        self.allocated_s = allocated_s
        self.known_s = known_s
        self.used_s = used_s

    def add(self, other: Amount) -> None:
        """Adds another one."""
        self.granted_s += other.granted_s
        self.allocated_s += other.allocated_s
        self.known_s += other.known_s
        self.used_s += other.used_s

    def encode(self) -> list[float]:
        """For JSON, to a tenth of a second."""
        parts = (self.granted_s, self.allocated_s, self.known_s, self.used_s)
        return [_shorten(part) for part in parts]


def _shorten(value: float) -> float:
    rounded = round(float(value), 1)
    return int(rounded) if rounded.is_integer() else rounded


class Day:
    """One day of one host, by UTC. ``is_loaded``: what the store has of it is in it."""

    def __init__(self, *, is_loaded: bool = False) -> None:
        self.is_loaded = is_loaded
        #: seconds of GPUs that the host had, by hour
        self.gpus_s: defaultdict[int, float] = defaultdict(float)
        self.amounts: dict[ClaimKey, dict[int, Amount]] = {}
        #: how many grants came after so long a wait, by its class
        self.waits: dict[ClaimKey, Counter[int]] = {}

    def find(self, claim: str, tenant: str, hour: int) -> Amount:
        """Where the seconds of a claim are counted."""
        key = self._bound(claim, tenant)
        return self.amounts.setdefault(key, {}).setdefault(hour, Amount())

    def add_wait(self, claim: str, tenant: str, number: int, count: int = 1) -> None:
        """So many grants after a wait of that class."""
        self.waits.setdefault(self._bound(claim, tenant), Counter())[number] += count

    def _bound(self, claim: str, tenant: str) -> ClaimKey:
        if (claim, tenant) in self.amounts or (claim, tenant) in self.waits:
            return claim, tenant
        known = self.amounts.keys() | self.waits.keys()
        own = sum(1 for one in known if one[0] != OTHERS)
        for key, most in (((claim, tenant), MAX_CLAIMS), ((OTHERS, tenant), MAX_TENANTS)):
            count = own if key[0] != OTHERS else len(known) - own
            if key in known or count < most:
                return key
        return OTHERS, ""

    def merge(self, other: Day) -> None:
        """Adds another one."""
        for hour, value in other.gpus_s.items():
            self.gpus_s[hour] += value
        for (claim, tenant), hours in other.amounts.items():
            for hour, amount in hours.items():
                self.find(claim, tenant, hour).add(amount)
        for (claim, tenant), counts in other.waits.items():
            for number, count in counts.items():
                self.add_wait(claim, tenant, number, count)

    def encode(self) -> dict[str, Any]:
        """For JSON."""
        keys = sorted(self.amounts.keys() | self.waits.keys())
        return {
            "gpus_s": {str(hour): _shorten(value) for hour, value in sorted(self.gpus_s.items())},
            "claims": [
                [
                    *key,
                    {str(hour): one.encode() for hour, one in self.amounts.get(key, {}).items()},
                    {str(number): count for number, count in self.waits.get(key, {}).items()},
                ]
                for key in keys
            ],
        }

    @classmethod
    def decode(cls, data: Any, *, is_loaded: bool = False) -> Day:
        """Raises ValueError, TypeError, KeyError, AttributeError for what ``encode`` has not made."""
        day = cls(is_loaded=is_loaded)
        for hour, value in data["gpus_s"].items():
            day.gpus_s[_read_hour(hour)] += _read_seconds(value)
        for claim, tenant, amounts, waits in data["claims"]:
            for hour, parts in amounts.items():
                found = Amount(*map(_read_seconds, parts))
                day.find(str(claim), str(tenant), _read_hour(hour)).add(found)
            for number, count in waits.items():
                place = min(max(int(number), 0), _MOST_CLASS)
                day.add_wait(str(claim), str(tenant), place, int(count))
        return day


def _read_hour(text: str) -> int:
    hour = int(text)
    if not 0 <= hour < HOURS:
        raise ValueError(f"no hour of a day: {text!r}")
    return hour


def _read_seconds(value: Any) -> float:
    seconds = float(value)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"no seconds: {value!r}")
    return seconds


def classify_wait(wait_s: float) -> int:
    """The class of a wait."""
    if wait_s < _LEAST_WAIT_S:
        return 0
    return min(_MOST_CLASS, 1 + math.floor(math.log(wait_s / _LEAST_WAIT_S, _GROWTH)))


def estimate_wait(number: int) -> float:
    """The middle of a class of waits, which is right to 8 %; 0 for less than a tenth of a second."""
    if number <= 0:
        return 0.0
    return float(_LEAST_WAIT_S * _GROWTH ** (number - 0.5))


def find_wait(counts: Mapping[int, int], part: float) -> float | None:
    """What such a part of the waits is not longer than; None where nothing waited."""
    total, seen = sum(counts.values()), 0
    for number, count in sorted(counts.items()):
        seen += count
        if seen >= part * total:
            return estimate_wait(number)
    return None


def split_hours(end_s: float, duration_s: float) -> Iterator[tuple[int, int, float]]:
    """A duration that ends then by the clock on the wall: parts of days and hours, with their seconds."""
    begin_s = max(end_s - min(duration_s, DAYS * HOURS * HOUR_S), 0.0)
    while begin_s < end_s:
        hour = int(begin_s // HOUR_S)
        part_s = min(end_s, (hour + 1) * HOUR_S) - begin_s
        yield hour // HOURS, hour % HOURS, part_s
        begin_s = (hour + 1) * HOUR_S


class _Part:
    """Seconds of a claim of which it is not known yet how much was used, and where they are counted."""

    __slots__ = ("allocated_s", "amount", "part_s")

    def __init__(self, amount: Amount) -> None:
        self.amount = amount
        self.allocated_s = 0.0
        self.part_s = 0.0


class Ledger:
    """What one host counts. Not for several threads at a time."""

    def __init__(self, pool: str, host: str) -> None:
        self.pool = pool
        self.host = host
        #: by number since 1970; those before the current one until the store has them
        self.days: dict[int, Day] = {}
        #: days that the store has of this host, in the order in which they were written first
        self.written: list[int] = []
        self._last: Moment | None = None
        self._leases: dict[str, Held] = {}
        self._gpus = 0
        #: of each attachment, what its counter said last
        self._counters: dict[str, float] = {}
        #: those that had slices by a claim then
        self._users: dict[str, frozenset[str]] = {}
        #: of each claim, what it had since its use was known last
        self._pending: dict[str, list[_Part]] = {}

    def follow(self, leases: Mapping[str, Held], gpus: int, now: Moment) -> None:
        """The leases and GPUs from now on; what they were before counts until now. Between two boots nothing does."""
        last = self._last
        if last is not None and last.boot == now.boot and now.boot_s > last.boot_s:
            for day, hour, part_s in split_hours(now.wall_s, now.boot_s - last.boot_s):
                self._count(day, hour, part_s)
        elif last is not None and last.boot != now.boot:
            self._counters.clear()
            self._pending.clear()
        for claim in self._pending.keys() - leases.keys():
            del self._pending[claim]  # how much of it was used is not known any more
        for claim in self._users.keys() - leases.keys():
            for attachment in self._users.pop(claim):
                self._counters.pop(attachment, None)
        self._last, self._leases, self._gpus = now, dict(leases), gpus

    def _count(self, day: int, hour: int, part_s: float) -> None:
        found = self._open(day)
        found.gpus_s[hour] += self._gpus * part_s
        for claim, held in self._leases.items():
            amount = found.find(claim, held.tenant, hour)
            allocated_s = held.gpus * held.milli / 1000 * part_s
            amount.granted_s += held.gpus * part_s
            amount.allocated_s += allocated_s
            parts = self._pending.setdefault(claim, [])
            if not parts or parts[-1].amount is not amount:
                parts.append(_Part(amount))
            parts[-1].allocated_s += allocated_s
            parts[-1].part_s += part_s

    def _open(self, day: int) -> Day:
        if day not in self.days and len(self.days) >= DAYS:
            del self.days[min(self.days)]
        return self.days.setdefault(day, Day())

    def use(self, claim: str, counters: Mapping[str, float | None]) -> None:
        """What the attachments that have a claim's slices say now of the seconds that they were on a GPU; none: nothing
        was used. Where one does not say it (None), or is gone, it is unknown how much was used since the last time.
        """
        pending = self._pending.pop(claim, [])
        elapsed_s = sum(part.part_s for part in pending)
        gone = self._users.get(claim, frozenset()) - counters.keys()
        self._users[claim] = frozenset(counters)
        found = [self._read_used(name, value, elapsed_s) for name, value in counters.items()]
        for attachment in gone:
            self._counters.pop(attachment, None)
        used = [one for one in found if one is not None]
        if gone or len(used) < len(found) or not pending:
            return
        for part in pending:
            part.amount.known_s += part.allocated_s
        pending[-1].amount.used_s += sum(used)

    def _read_used(self, attachment: str, value: float | None, elapsed_s: float) -> float | None:
        """What a counter grew by; None where that is of a longer time than has elapsed."""
        before = self._counters.get(attachment)
        self._counters[attachment] = _UNKNOWN if value is None else value
        if value is None or before == _UNKNOWN:
            return None
        if before is not None and value >= before:
            return value - before
        # of a new keeper, which counts from 0; or of one that was there before anything was counted here
        return value if value <= elapsed_s * _SLACK + 1 else None

    def list_claims(self) -> list[str]:
        """The claims that have leases now."""
        return list(self._leases)

    def wait(self, claim: str, tenant: str, wait_s: float, now: Moment) -> None:
        """A claim was granted, which had waited so long."""
        day = int(max(now.wall_s, 0.0) // (HOUR_S * HOURS))
        self._open(day).add_wait(claim, tenant, classify_wait(wait_s))

    def encode(self) -> dict[str, Any]:
        """All of it, for JSON."""
        last = self._last
        return {
            "form": FORM,
            "pool": self.pool,
            "host": self.host,
            "last": None if last is None else [last.boot, last.boot_s, last.wall_s],
            "gpus": self._gpus,
            "leases": [
                [name, one.tenant, one.gpus, one.milli] for name, one in self._leases.items()
            ],
            "counters": dict(self._counters),
            "written": list(self.written),
            "days": {
                str(number): {"loaded": day.is_loaded, **day.encode()}
                for number, day in self.days.items()
            },
        }

    @classmethod
    def decode(cls, data: Any, pool: str, host: str) -> Ledger:
        """What another process of the host has kept; empty where it is of another pool, or cannot be read."""
        try:
            if (data["form"], data["pool"], data["host"]) != (FORM, pool, host):
                return cls(pool, host)
            ledger = cls(pool, host)
            if data["last"] is not None:
                boot, boot_s, wall_s = data["last"]
                ledger._last = Moment(str(boot), float(boot_s), float(wall_s))
            ledger._gpus = int(data["gpus"])
            ledger._leases = {
                str(name): Held(str(tenant), int(gpus), int(milli))
                for name, tenant, gpus, milli in data["leases"]
            }
            ledger._counters = {str(one): float(value) for one, value in data["counters"].items()}
            ledger.written = [int(one) for one in data["written"]]
            for number, one in data["days"].items():
                day = Day.decode(one, is_loaded=bool(one["loaded"]))
                ledger.days[int(number)] = day
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(pool, host)
        return ledger
