"""What people and scripts ask of a pool. Answers are plain data, as ``-o json`` has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import (
    ClaimExistsError,
    ClaimImpossibleError,
    ClaimInUseError,
    PoolMemberError,
    PoolStoreError,
    UsageError,
)
from vgpumgr.host.lock import find_holder
from vgpumgr.model.text import describe_waiting, format_gpus
from vgpumgr.pool.binding import bind, is_answered, release
from vgpumgr.pool.bindings import list_bindings
from vgpumgr.pool.classes import ClassOperations, find_class
from vgpumgr.pool.control.candidates import list_candidates
from vgpumgr.pool.control.controller import is_as_claimed
from vgpumgr.pool.control.placing import Placing
from vgpumgr.pool.control.records import (
    ANTI_AFFINITY,
    LATE,
    STATES,
    WHERE,
    ClaimRecord,
    GpuRecord,
    IfLost,
    LeaseRecord,
    UseRecord,
    View,
    WantRecord,
    check_name,
    find_claim,
)
from vgpumgr.pool.control.records import put as put_record
from vgpumgr.pool.control.tenants import list_queue
from vgpumgr.pool.leaving import find_dead, remove_host
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.sizes import read_size
from vgpumgr.pool.store.interface import Change, Compare
from vgpumgr.pool.tenants import TenantOperations, find_tenant
from vgpumgr.pool.versions import need, upgrade

#: so often who waits for a claim reads the pool
_WAIT_S = 0.5
#: names of hosts, and patterns of them
_WHERE = re.compile(r"[a-z0-9.*?-]{1,63}")
#: of a claim that no controller has seen
NO_ANSWER = "no controller has answered yet"


class PoolOperations:
    """The operations on an open pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.tenants = TenantOperations(pool)
        self.classes = ClassOperations(pool)

    def describe(self) -> dict[str, Any]:
        """The pool, its hosts and totals. Raises PoolStoreError."""
        view = self._pool.view()
        record, placing = self._pool.record(view), Placing(view, everything=True)
        hosts = _list_hosts(view, placing)
        states = _count_states(view)
        free = [gpu["free_milli"] for host in hosts for gpu in host["gpus"]]
        membership = self._pool.membership
        return {
            "pool": {
                "id": record.id,
                "version": record.version,
                "store": self._pool.where,
                "engine": "etcd" if membership.etcd else "sqlite",
                "revision": view.revision,
                "ttl_s": record.timing.ttl_s,
                "fence_s": record.timing.fence_s,
                "host": membership.host,
                "server": find_holder(self._pool.lock) if membership.host else None,
            },
            "leader": view.leader,
            "gpus": len(free),
            "gpu_free_milli": sum(free),
            "gpu_allocated_milli": _sum_leases(view),
            "gpu_unusable_milli": placing.measure_unusable(),
            "claims": {state: states[state] for state in STATES},
            "hosts": hosts,
        }

    def measure(self) -> dict[str, float]:
        """The pool's figures as they are kept over time."""
        view = self._pool.view()
        placing = Placing(view, everything=True)
        unusable, milli = placing.measure_unusable(), len(view.gpus) * GPU_MILLI
        return {
            "gpu_allocated_milli": _sum_leases(view),
            "gpu_free_milli": sum(placing.read_free().values()),
            "gpu_unusable_ratio": unusable / milli if milli else 0.0,
            "claims_waiting": _count_states(view)["waiting"],
        }

    def list_hosts(self) -> list[dict[str, Any]]:
        """Every host, with what is free of its GPUs."""
        view = self._pool.view()
        return _list_hosts(view, Placing(view, everything=True))

    def list_bindings(self) -> list[dict[str, Any]]:
        """What each GPU is leased for, and who has it."""
        return list_bindings(self._pool.view())

    def serve(self, report: Callable[[str], None]) -> None:
        """This machine's part, until the process is interrupted."""
        self._pool.serve(lambda: False, report)

    def list_claims(self) -> list[dict[str, Any]]:
        """Every claim, in the order of the queue."""
        return _list_claims(self._pool.view())

    def show(self, name: str) -> dict[str, Any]:
        """One claim. Raises ClaimNotFoundError."""
        return describe_claim(self._pool.view(), name)

    def wait(
        self, name: str, timeout_s: float | None, report: Callable[[str], None]
    ) -> dict[str, Any]:
        """One claim, once it is granted, or when the time is over. ``report`` gets its place in the queue and why it
        waits, when that changes. A store that does not answer meanwhile ends no waiting. Raises ClaimNotFoundError,
        also where it is deleted meanwhile.
        """
        clock, row, said = self._pool.clock, self.show(name), ""
        text = describe_waiting(name, row["place"], row["why"])
        end_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
        while row["state"] == "waiting":
            if text != said:
                said = text
                report(text)
            left_s = _WAIT_S if end_s is None else end_s - clock.monotonic_s()
            if left_s <= 0:
                break
            clock.sleep(min(left_s, _WAIT_S))
            try:
                row = self.show(name)
                text = describe_waiting(name, row["place"], row["why"])
            except PoolStoreError as error:
                text = f"claim {name} waits: {error}"
        return row

    def explain(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One claim, and what each host would be for it: that which it has or would get first. Raises
        ClaimNotFoundError.
        """
        view = self._pool.view()
        claim = find_claim(view, name)
        return describe_claim(view, name), [one.as_dict() for one in list_candidates(view, claim)]

    def create(
        self,
        name: str,
        class_name: str,
        profile: str,
        gpus: int,
        if_lost: str,
        tenant: str | None = None,
        anti_affinity: str | None = None,
        where: Sequence[str] = (),
        late: bool = False,
    ) -> dict[str, Any]:
        """The new claim. ``where`` names hosts, by patterns too; ``here`` is this one, and ``any`` all. Raises what
        names the limit that it breaks.
        """
        memory, compute = read_size(profile)
        if late and if_lost == IfLost.MOVE:
            raise UsageError(
                "a claim that binds late does not move",
                why="what runs by it cannot follow it to another host",
                hint="--binding late without --if-lost move",
            )
        if anti_affinity is not None:
            check_name(anti_affinity, "group")
        claim = ClaimRecord(
            name,
            class_name,
            gpus,
            memory,
            compute,
            IfLost(if_lost),
            tenant=tenant or "",
            anti_affinity=anti_affinity or "",
            where=_read_where(where, self._pool.membership.host),
            late=late,
        )
        return describe_claim(_create_claim(self._pool, claim), name)

    def bind(self, name: str) -> dict[str, Any]:
        """The claim, which has a lease on this host, or waits for one. See ``binding``."""
        return describe_claim(bind(self._pool, name), name)

    def release(self, name: str) -> dict[str, Any]:
        """The claim, whose lease ends where it binds late. See ``binding``."""
        return describe_claim(release(self._pool, name), name)

    def resize(self, name: str, profile: str | None, gpus: int | None) -> dict[str, Any]:
        """The claim, which has its new size, or says why it keeps what it has."""
        return describe_claim(_resize_claim(self._pool, name, profile, gpus), name)

    def delete(self, name: str) -> tuple[bool, str | None]:
        """Whether the claim is gone, or its host still has to end what runs; and that host, where it is not heard."""
        view = _delete_claim(self._pool, name)
        claim = view.claims.get(name)
        is_lost = claim is not None and claim.host is not None and claim.host not in view.alive
        return claim is None, claim.host if claim is not None and is_lost else None

    def list_lost(self, host: str) -> list[str]:
        """The claims that lose their leases with a host that is dead. Raises PoolMemberError where it is heard."""
        return find_dead(self._pool, host)

    def upgrade(self) -> tuple[int, int, list[str]]:
        """The pool's version before and now, and the hosts that are not heard. Raises PoolVersionError."""
        return upgrade(self._pool)

    def remove_host(self, host: str) -> list[str]:
        """Removes a host that is dead; the claims that had leases there."""
        return remove_host(self._pool, host)


def _sum_leases(view: View) -> int:
    return sum(lease.total_milli for lease in view.leases.values())


def _count_states(view: View) -> Counter[str]:
    return Counter(map(view.find_state, view.claims.values()))


def _read_where(where: Sequence[str], here: str | None) -> tuple[str, ...]:
    """Raises UsageError for what is no name or pattern of a host, PoolMemberError where this machine is no host."""
    found = dict.fromkeys(part for text in where for part in text.split(","))
    if "any" in found:
        return ()
    if "here" in found and here is None:
        raise PoolMemberError("this machine is no host of the pool", hint="vgpumgr pool join")
    names = tuple(str(here) if part == "here" else part for part in found)
    for name in names:
        if not _WHERE.fullmatch(name):
            raise UsageError(
                f"no name or pattern of a host: {name!r}",
                why="it has lower-case letters, digits, dots and dashes, * and ?",
                hint="--where any, here, gpu-a or gpu-a,gpu-b or 'gpu-*'",
            )
    return names


def describe_claim(view: View, name: str) -> dict[str, Any]:
    """One claim, as ``-o json`` has it. Raises ClaimNotFoundError."""
    find_claim(view, name)
    return next(row for row in _list_claims(view) if row["name"] == name)


def _create_claim(pool: Pool, claim: ClaimRecord) -> View:
    """Makes a claim, and waits a moment for its lease. Raises what names the limit that it breaks."""
    name = claim.name
    check_name(name, "claim")

    def plan(view: View) -> tuple[list[Compare], list[Change]]:
        if name in view.claims:
            raise ClaimExistsError(f"there is a claim {name}", hint=f"vgpumgr claim show {name}")
        kind = find_class(view, claim.class_name)
        # the class and the tenant get another revision: neither can be removed at the same time
        compares: list[Compare] = [view.at(claim.key), view.at(kind.key)]
        changes: list[Change] = [put_record(claim), put_record(kind)]
        if claim.late:
            need(pool, view, LATE, "late binding")
        if claim.where:
            need(pool, view, WHERE, "--where")
        if claim.anti_affinity:
            need(pool, view, ANTI_AFFINITY, "anti-affinity")
        if claim.tenant:
            tenant = find_tenant(view, claim.tenant)
            compares.append(view.at(tenant.key))
            changes.append(put_record(tenant))
        _check_possible(view, claim)
        _check_quota(view, claim)
        return compares, changes

    busy = ClaimExistsError(f"claim {name} could not be made: others write", hint="the same again")
    pool.change_anew(plan, busy)
    return pool.follow_up(lambda now: _is_answered(now, claim))


def _check_possible(view: View, claim: ClaimRecord) -> None:
    find_class(view, claim.class_name)
    if limit := Placing(view, everything=True).find_limit(claim):
        raise ClaimImpossibleError(
            f"no host of the pool can ever hold claim {claim.name}",
            why=limit,
            hint="vgpumgr pool status",
        )


def _check_quota(view: View, claim: ClaimRecord) -> None:
    """Raises ClaimImpossibleError for a claim that is larger than the quota of its tenant."""
    quota = view.find_tenant(claim).gpu_milli
    least = Placing(view, everything=True).find_least(claim)
    if quota is not None and least > quota:
        raise ClaimImpossibleError(
            f"claim {claim.name} is larger than the quota of tenant {claim.tenant}",
            why=f"it needs {format_gpus(least)} GPUs, and the quota is {format_gpus(quota)}",
            held_by=[f"tenant {claim.tenant}"],
            hint=f"vgpumgr tenant set {claim.tenant} --gpus {format_gpus(least)}",
        )


def _is_answered(view: View, claim: ClaimRecord) -> bool:
    return claim.late or is_answered(view, claim.name)


def _resize_claim(pool: Pool, name: str, profile: str | None, gpus: int | None) -> View:
    """Asks for another size, and waits a moment for it; until the lease is changed it has what it had."""

    def make(view: View, claim: ClaimRecord) -> ClaimRecord:
        if claim.is_ending:
            raise ClaimExistsError(
                f"claim {name} is being deleted", hint=f"vgpumgr claim show {name}"
            )
        size = read_size(profile) if profile else (claim.memory_bytes, claim.compute_percent)
        wanted = replace(
            claim, gpus=gpus or claim.gpus, memory_bytes=size[0], compute_percent=size[1], why=""
        )
        _check_possible(view, wanted)
        lease = view.find_lease(claim)
        if lease is None or Placing(view, everything=True).find_growth(wanted, lease) > 0:
            _check_quota(view, wanted)
        return wanted

    wanted = _change(pool, name, "resize", make)
    return pool.follow_up(lambda now: _is_resized(now, wanted))


def _is_resized(view: View, wanted: ClaimRecord) -> bool:
    found = view.claims.get(wanted.name)
    lease = view.find_lease(found) if found else None
    return found is None or bool(found.why) or lease is None or is_as_claimed(wanted, lease)


def _delete_claim(pool: Pool, name: str) -> View:
    """Ends a claim, and waits a moment until it is gone."""
    _change(pool, name, "delete", lambda _, claim: replace(claim, is_ending=True))
    return pool.follow_up(lambda now: name not in now.claims)


def _check_unused(view: View, claim: ClaimRecord, verb: str) -> None:
    """Raises ClaimInUseError."""
    if uses := view.list_uses(claim):
        raise ClaimInUseError(
            f"cannot {verb} claim {claim.name}: it is in use",
            why=f"to be detached on host {uses[0].user_host}; "
            "vgpumgr recover there releases what is not attached any more",
            held_by=[use.holder for use in uses],
            hint=uses[0].describe_end(),
        )


def _change(
    pool: Pool, name: str, verb: str, make: Callable[[View, ClaimRecord], ClaimRecord]
) -> ClaimRecord:
    """Writes what ``make`` makes of a claim that nothing uses, anew where a controller has written meanwhile. Raises
    ClaimExistsError where others write without end.
    """
    made: list[ClaimRecord] = []

    def plan(view: View) -> tuple[list[Compare], list[Change]]:
        claim = find_claim(view, name)
        made.append(make(view, claim))
        _check_unused(view, claim, verb)
        unused = [view.at(key) for key in view.list_use_keys(claim)]
        return [view.at(claim.key), *unused], [put_record(made[-1])]

    busy = ClaimExistsError(f"claim {name} was changed at the same time", hint="the same again")
    pool.change_anew(plan, busy)
    return made[-1]


def _list_claims(view: View) -> list[dict[str, Any]]:
    """Every claim as ``-o json`` has it: those with a lease by age, then the queue. ``place`` is that in the queue."""
    rows = []
    waiting = [claim for claim in view.claims.values() if view.find_state(claim) == "waiting"]
    uuids = {(gpu.host, gpu.index): gpu.uuid for gpu in view.gpus.values()}
    places = {claim.name: place for place, claim in enumerate(list_queue(view, waiting), 1)}
    granted = [claim for claim in view.claims.values() if claim.name not in places]
    for claim in (
        *sorted(granted, key=view.age),
        *sorted(waiting, key=lambda one: places[one.name]),
    ):
        lease = view.find_lease(claim)
        is_waiting = claim.name in places
        rows.append(
            {
                "name": claim.name,
                "class": claim.class_name,
                "tenant": claim.tenant or None,
                "anti_affinity": claim.anti_affinity or None,
                "where": list(claim.where),
                "binding": "late" if claim.late else "reserve",
                "wanted_by": _describe_want(view.wants.get(claim.name)),
                "state": view.find_state(claim),
                "gpus": claim.gpus,
                "memory_bytes": claim.memory_bytes,
                "compute_percent": claim.compute_percent,
                "if_lost": str(claim.if_lost),
                "lease": None if lease is None else _describe_lease(view, lease, uuids),
                "place": places.get(claim.name),
                "why": claim.why or (NO_ANSWER if is_waiting else None),
                "used_by": _describe_uses(view.list_uses(claim)),
            }
        )
    return rows


def _describe_want(want: WantRecord | None) -> dict[str, Any] | None:
    return None if want is None else {"host": want.host, "pid": want.pid}


def _describe_uses(uses: Sequence[UseRecord]) -> dict[str, Any] | None:
    """All are of one VM or run."""
    if not uses:
        return None
    use = uses[0]
    return {
        "host": use.user_host,
        "kind": use.noun,
        "name": use.name,
        "uuid": use.uuid,
        "attachment": use.attachment,
        "attachments": [one.attachment for one in uses],
    }


def _describe_lease(
    view: View, lease: LeaseRecord, uuids: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    places = [(lease.host, index) for index in lease.gpus]
    return {
        "host": lease.host,
        "gpu_indices": list(lease.gpus),
        "gpu_uuids": [uuids[place] for place in places if place in uuids],
        "gpu_milli": lease.milli,
        "memory_bytes": lease.memory_bytes,
        "compute_percent": lease.compute_percent,
        "token": view.find_token(lease),
    }


def _list_hosts(view: View, placing: Placing) -> list[dict[str, Any]]:
    """Every host as ``-o json`` has it, with what is free of its GPUs, in thousandths."""
    free, leases = placing.read_free(), Counter(lease.host for lease in view.leases.values())
    gpus: dict[str, list[GpuRecord]] = {}
    for gpu in view.gpus.values():
        gpus.setdefault(gpu.host, []).append(gpu)
    return [
        {
            "name": host.name,
            "state": view.find_host_state(host.name),
            "heard": host.name in view.alive,
            "gpus": [
                {
                    "index": gpu.index,
                    "uuid": gpu.uuid,
                    "model": gpu.model,
                    "memory_bytes": gpu.memory_bytes,
                    "free_milli": free[gpu.host, gpu.index],
                    "closed": gpu.closed or None,
                }
                for gpu in gpus.get(host.name, ())
            ],
            "leases": leases[host.name],
            "links": list(host.links),
        }
        for host in view.hosts.values()
    ]
