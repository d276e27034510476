"""What tenants and claims had of a pool's GPUs in the last days, from what its hosts have counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from vgpumgr.errors import TenantNotFoundError
from vgpumgr.pool.control.records import View, find_named
from vgpumgr.pool.ledger import DAYS, HOUR_S, HOURS, Amount, Day, find_wait
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.recorder import LEDGER, read_day, read_ledger

MAX_SINCE_S = DAYS * HOURS * HOUR_S


class _Sums:
    """Of some claims: their seconds of GPUs, and how long they waited."""

    def __init__(self) -> None:
        self.amount = Amount()
        #: of each hour the time in use beyond what was allocated is no idle time of another
        self.idle_s = 0.0
        self.waits: Counter[int] = Counter()

    def add(self, amount: Amount) -> None:
        self.amount.add(amount)
        self.idle_s += max(0.0, amount.known_s - amount.used_s)

    def describe(self) -> dict[str, Any]:
        found = self.amount
        return {
            "granted_gpu_hours": _hours(found.granted_s),
            "allocated_gpu_hours": _hours(found.allocated_s),
            "used_gpu_hours": _hours(found.used_s) if found.known_s > 0 else None,
            "idle_gpu_hours": _hours(self.idle_s) if found.known_s > 0 else None,
            "unknown_gpu_hours": _hours(max(0.0, found.allocated_s - found.known_s)),
            "granted": sum(self.waits.values()),
            "wait_median_s": _seconds(find_wait(self.waits, 0.5)),
            "wait_p95_s": _seconds(find_wait(self.waits, 0.95)),
        }


def _hours(seconds: float) -> float:
    return round(seconds / HOUR_S, 4)


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def make_report(pool: Pool, view: View, since_s: float, tenant: str | None) -> dict[str, Any]:
    """The last ``since_s`` seconds, from the begin of an hour on. Raises TenantNotFoundError, PoolStoreError."""
    now_s = pool.clock.wall_s()
    first, last = int((now_s - since_s) // HOUR_S), int(now_s // HOUR_S)
    all_sums = _Sums()
    claims: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
    tenants: defaultdict[str, _Sums] = defaultdict(_Sums)
    hosts: defaultdict[str, float] = defaultdict(float)
    for host, number, day in _list_days(pool, view, first // HOURS, last // HOURS):
        for hour, value_s in day.gpus_s.items():
            if first <= number * HOURS + hour <= last:
                hosts[host] += value_s
        for (claim, owner), hours in day.amounts.items():
            for hour, amount in hours.items():
                if first <= number * HOURS + hour <= last and tenant in (None, owner):
                    for sums in (all_sums, claims[owner, claim], tenants[owner]):
                        sums.add(amount)
        for (claim, owner), counts in day.waits.items():  # they have no hours
            if tenant in (None, owner):
                for sums in (all_sums, claims[owner, claim], tenants[owner]):
                    sums.waits.update(counts)
    if tenant is not None and tenant not in tenants:
        find_named(view.tenants, tenant, "tenant", TenantNotFoundError)
    exist_s = sum(hosts.values())
    return {
        "from_s": first * HOUR_S,
        "until_s": now_s,
        "tenant": tenant,
        "gpu_hours": _hours(exist_s),
        # of the whole pool only: a tenant has no GPUs
        "reuse_factor": round(all_sums.amount.granted_s / exist_s, 3)
        if exist_s and tenant is None
        else None,
        "allocated_percent": round(100 * all_sums.amount.allocated_s / exist_s, 2)
        if exist_s
        else None,
        **all_sums.describe(),
        "tenants": [
            {"tenant": name or None, **sums.describe()} for name, sums in sorted(tenants.items())
        ],
        "claims": [
            # further claims of a day are counted together
            {"tenant": owner or None, "name": claim or None, **sums.describe()}
            for (owner, claim), sums in sorted(claims.items())
        ],
        "hosts": [
            {"name": name, "gpu_hours": _hours(hosts[name])}
            for name in sorted({*hosts, *view.hosts})
        ],
    }


def _list_days(pool: Pool, view: View, first: int, last: int) -> Iterator[tuple[str, int, Day]]:
    """Days of hosts as the store has them; of this host, which writes there once an hour, as they are here."""
    record, own = pool.record(view), pool.membership.host
    ledger = read_ledger(pool.machine, record.id, own) if own else None
    for number in range(max(first, 0), last + 1):
        here = ledger.days.get(number) if ledger else None
        for key, entry in pool.store.range(f"{LEDGER}{number:06}/").entries.items():
            host = key.rpartition("/")[2]
            # all that the store has of it is in it
            if here is not None and here.is_loaded and host == own:
                continue
            day = read_day(entry, record.id)
            if day is not None:
                yield host, number, day
        if here is not None and own is not None:
            yield own, number, here
