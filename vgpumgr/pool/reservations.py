"""What administrators ask of the reservations of a pool. Answers are plain data, as ``-o json`` has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import (
    ReservationExistsError,
    ReservationImpossibleError,
    ReservationNotFoundError,
    UsageError,
)
from vgpumgr.host.zone import find_zone
from vgpumgr.pool.classes import find_class
from vgpumgr.pool.control.keeping import ask_for, choose_places, find_reserved
from vgpumgr.pool.control.records import (
    RESERVATIONS,
    GpuRecord,
    View,
    check_name,
    find_named,
    put,
)
from vgpumgr.pool.control.times import WEEK_S, ReservationRecord, format_moment
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.moments import check_zone, read_moment
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.sizes import read_size
from vgpumgr.pool.store.interface import Change, Compare, Delete
from vgpumgr.pool.tenants import find_tenant
from vgpumgr.pool.versions import need

#: names of claims, and patterns of them
_PATTERN = re.compile(r"[a-z0-9.*?\[\]!-]{1,63}")
_SHOWN = 10


class ReservationOperations:
    """The operations on the reservations of an open pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def list_all(self) -> list[dict[str, Any]]:
        """Every reservation, that which comes next first, and those that are over last."""
        view, now_s = self._pool.view(), self._pool.clock.wall_s()
        rows = [_describe(view, one, now_s) for one in view.reservations.values()]
        return sorted(rows, key=lambda row: (row["state"] == "over", row["from_s"], row["name"]))

    def show(self, name: str) -> dict[str, Any]:
        """One reservation. Raises ReservationNotFoundError."""
        view = self._pool.view()
        return _describe(view, find_reservation(view, name), self._pool.clock.wall_s())

    def create(
        self,
        name: str,
        begin: str,
        end: str,
        profile: str,
        gpus: int,
        *,
        tenant: str | None = None,
        claims: Sequence[str] = (),
        class_name: str = "default",
        weekly: bool = False,
        zone: str | None = None,
    ) -> dict[str, Any]:
        """The new reservation, which has its GPUs. Raises UsageError, and ReservationExistsError where leases without
        an end, or other reservations, stand in its way.
        """
        check_name(name, "reservation")
        _check_holder(tenant, claims)
        zone = zone or find_zone()
        check_zone(zone)
        times = read_moment(begin, "--from", zone), read_moment(end, "--until", zone)
        memory, compute = read_size(profile)
        asked = ReservationRecord(
            name, *times, zone, weekly, tenant or "", tuple(dict.fromkeys(claims)), class_name,
            gpus, memory, compute,
        )  # fmt: skip
        now_s = self._pool.clock.wall_s()
        _check_times(asked, now_s)

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            return _plan(self._pool, view, asked, now_s)

        busy = ReservationExistsError(
            f"reservation {name} could not be made: others write", hint="the same again"
        )
        self._pool.change_anew(plan, busy)
        return self.show(name)

    def delete(self, name: str) -> None:
        """Removes a reservation; what its claims have they keep. Raises ReservationNotFoundError."""

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            key = find_reservation(view, name).key
            return [view.at(key)], [Delete(key)]

        changed = ReservationExistsError(f"reservation {name} was changed at the same time")
        self._pool.change_anew(plan, changed)


def find_reservation(view: View, name: str) -> ReservationRecord:
    """Raises ReservationNotFoundError with near names."""
    return find_named(view.reservations, name, "reservation", ReservationNotFoundError)


def list_reserved(view: View, gpu: GpuRecord, now_s: float) -> list[str]:
    """What a GPU is reserved for, in words."""
    found = find_reserved(view, (gpu.host, gpu.index), now_s)
    return [one.describe(now_s) for one in found]


def _check_holder(tenant: str | None, claims: Sequence[str]) -> None:
    if bool(tenant) == bool(claims):
        raise UsageError(
            "a reservation is for a tenant, or for claims by their names",
            why="both are given" if tenant else "neither is given",
            hint="--tenant TENANT, or --claim-pattern 'lesson-*'",
        )
    for pattern in claims:
        if not _PATTERN.fullmatch(pattern):
            raise UsageError(
                f"no name or pattern of a claim: {pattern!r}",
                why="it has lower-case letters, digits, dots and dashes, * and ?",
                hint="--claim-pattern 'lesson-*'",
            )


def _check_times(asked: ReservationRecord, now_s: float) -> None:
    length_s = asked.end_s - asked.begin_s
    if length_s <= 0:
        raise UsageError(
            "the reservation ends before it begins",
            why=f"from {format_moment(asked.begin_s, asked.zone)} until {format_moment(asked.end_s, asked.zone)}",
            hint="--until a later time",
        )
    if asked.weekly and length_s >= WEEK_S:
        raise UsageError(
            "a reservation of every week takes less than a week", hint="without --every week"
        )
    if asked.find_next(now_s) is None:
        raise UsageError(
            "the reservation is over already",
            why=f"it ends at {format_moment(asked.end_s, asked.zone)}, and it is {format_moment(now_s, asked.zone)}",
            hint="--until a later time, or --every week",
        )


def _plan(
    pool: Pool, view: View, asked: ReservationRecord, now_s: float
) -> tuple[list[Compare], list[Change]]:
    need(pool, view, RESERVATIONS, "reservations")
    if asked.name in view.reservations:
        raise ReservationExistsError(
            f"there is a reservation {asked.name}", hint=f"vgpumgr reservation show {asked.name}"
        )
    kind = find_class(view, asked.class_name)
    compares: list[Compare] = [view.at(asked.key), view.at(kind.key)]
    changes: list[Change] = []
    if asked.tenant:
        tenant = find_tenant(view, asked.tenant)
        compares.append(view.at(tenant.key))
        changes.append(put(tenant))
    large = [
        gpu
        for gpu in view.gpus.values()
        if kind.accepts(gpu) and ask_for(asked).count_milli(gpu.memory_bytes) <= GPU_MILLI
    ]
    if len(large) < asked.gpus:
        raise ReservationImpossibleError(
            f"the pool cannot reserve {asked.gpus} GPUs",
            why=f"{len(large)} of its {len(view.gpus)} GPUs are of class {asked.class_name} and large enough",
            hint="vgpumgr pool status",
        )
    places, held_by = choose_places(view, asked, now_s)
    if len(places) < asked.gpus:
        raise ReservationExistsError(
            f"the pool cannot reserve {asked.gpus} GPUs for that time",
            why=f"{len(places)} are free then; of others leases have no end, or end later",
            held_by=held_by[:_SHOWN],
            hint="vgpumgr claim delete CLAIM, and claim create with --until or --for; or fewer --gpus",
        )
    # each GPU gets another revision: a grant that is under way does not know the reservation
    gpus = [view.gpus[_find_key(place)] for place in places]
    compares += [view.at(gpu.key) for gpu in gpus]
    changes += [put(replace(gpu, grants=gpu.grants + 1)) for gpu in gpus]
    return compares, [put(replace(asked, places=places)), *changes]


def _find_key(place: str) -> str:
    host, _, index = place.rpartition("/")
    return f"{host}/{int(index):04}"


def _describe(view: View, one: ReservationRecord, now_s: float) -> dict[str, Any]:
    span = one.find_next(now_s)
    begin_s, end_s = span or (one.begin_s, one.end_s)
    state = "over" if span is None else "active" if begin_s <= now_s else "planned"
    return {
        "name": one.name,
        "state": state,
        "tenant": one.tenant or None,
        "claims": list(one.claims),
        "class": one.class_name,
        "gpus": one.gpus,
        "memory_bytes": one.memory_bytes,
        "compute_percent": one.compute_percent,
        "from_s": begin_s,
        "until_s": end_s,
        "from": format_moment(begin_s, one.zone),
        "until": format_moment(end_s, one.zone),
        "zone": one.zone,
        "every": "week" if one.weekly else None,
        "places": list(one.places),
        "granted": sorted(
            lease.claim
            for lease in view.leases.values()
            if lease.claim in view.claims and one.is_for(view.claims[lease.claim])
        ),
        "why": one.why or None,
    }
