"""Events of claims, from what the process that serves knew before and knows now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vgpumgr.state.leases import SeenLease, SeenPool

#: of one change; a last event says how many more there were
MAX_EVENTS = 64


def list_events(before: SeenPool | None, now: SeenPool) -> list[Mapping[str, Any]]:
    """Leases of this host that were granted, changed or ended; where it leads, claims that wait since then. Nothing is
    known of what was before the first answer of a store, or before another pool.
    """
    if before is None or before.host != now.host or not now.is_answering:
        return []
    found = [*_list_leases(before, now), *_list_waiting(before, now)]
    if len(found) > MAX_EVENTS:
        more = len(found) - MAX_EVENTS
        found = [*found[:MAX_EVENTS], _make(now.host, "", "", "more", why=f"{more} more claims")]
    return found


def _list_leases(before: SeenPool, now: SeenPool) -> Iterator[Mapping[str, Any]]:
    known = {lease.claim: lease for lease in before.leases}
    for lease in now.leases:
        old = known.pop(lease.claim, None)
        if lease.is_ending:
            continue  # it has ended when it is gone
        if old is None or old.is_ending:
            if old is not None:
                yield _describe(now, old, "ended")
            yield _describe(now, lease, "granted")
        elif _size(old) != _size(lease):
            yield _describe(now, lease, "changed")
    for lease in known.values():
        yield _describe(now, lease, "ended")


def _size(lease: SeenLease) -> tuple[object, ...]:
    return lease.gpus, lease.milli, lease.memory_bytes, lease.compute_percent


def _list_waiting(before: SeenPool, now: SeenPool) -> Iterator[Mapping[str, Any]]:
    if before.queue is None or now.queue is None:
        return
    known = {one.claim: one.since_s for one in before.queue.waiting}
    for place, one in enumerate(now.queue.waiting, 1):
        if known.get(one.claim) != one.since_s:
            yield _make(None, one.claim, one.tenant, "waiting", place=place, why=one.why or None)


def _describe(now: SeenPool, lease: SeenLease, state: str) -> Mapping[str, Any]:
    return _make(now.host, lease.claim, lease.tenant, state, gpus=list(lease.gpus))


def _make(
    host: str | None,
    claim: str,
    tenant: str,
    state: str,
    *,
    gpus: list[str] | None = None,
    place: int | None = None,
    why: str | None = None,
) -> Mapping[str, Any]:
    return {
        "claim": claim or None,
        "tenant": tenant or None,
        "state": state,
        "host": host,
        "gpus": gpus or [],
        "place": place,
        "why": why,
    }
