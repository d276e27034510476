"""What people and scripts ask of a pool. Answers are plain data, as ``-o json`` has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import (
    ClaimExistsError,
    ClaimInUseError,
    PoolStoreError,
)
from vgpumgr.host.lock import find_holder
from vgpumgr.model.text import describe_waiting
from vgpumgr.pool.binding import bind, is_answered, release
from vgpumgr.pool.bindings import list_bindings
from vgpumgr.pool.classes import ClassOperations
from vgpumgr.pool.control.candidates import grant_in_turn, list_candidates
from vgpumgr.pool.control.controller import is_as_claimed
from vgpumgr.pool.control.placing import Placing
from vgpumgr.pool.control.preempting import describe_victims, is_preemptible
from vgpumgr.pool.control.records import (
    STATES,
    ClaimRecord,
    GpuRecord,
    LeaseRecord,
    UseRecord,
    View,
    WantRecord,
    find_claim,
)
from vgpumgr.pool.control.records import put as put_record
from vgpumgr.pool.control.tenants import list_queue
from vgpumgr.pool.creating import ask, check_possible, check_quota, plan_create, try_create
from vgpumgr.pool.leaving import find_dead, remove_host
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.report import make_report
from vgpumgr.pool.reservations import ReservationOperations, list_reserved
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.scope import hide_others
from vgpumgr.pool.sizes import read_size
from vgpumgr.pool.store.interface import Change, Compare
from vgpumgr.pool.tenants import TenantOperations
from vgpumgr.pool.versions import upgrade

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
        self.reservations = ReservationOperations(pool)

    @property
    def _now_s(self) -> float:
        """The time of day."""
        return self._pool.clock.wall_s()

    def describe(self) -> dict[str, Any]:
        """The pool, its hosts and totals. Raises PoolStoreError."""
        view = self._pool.view()
        record, placing = self._pool.record(view), Placing(view, everything=True)
        hosts = _list_hosts(view, placing, self._now_s)
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
        return _list_hosts(view, Placing(view, everything=True), self._now_s)

    def list_bindings(self) -> list[dict[str, Any]]:
        """What each GPU is leased for, and who has it."""
        return list_bindings(self._pool.view())

    def report(self, since_s: float, tenant: str | None) -> dict[str, Any]:
        """What tenants and claims had in that time. Raises TenantNotFoundError, PoolStoreError."""
        return make_report(self._pool, self._pool.view(), since_s, tenant)

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
        rows = [one.as_dict() for one in list_candidates(view, claim, self._now_s)]
        for row in rows:
            row["why"] = hide_others(view, row["why"]) if row["why"] else row["why"]
        return describe_claim(view, name), rows

    def list_victims(self, name: str) -> list[dict[str, Any]]:
        """The claims that would lose their leases for one that waits, in the order of their going."""
        view = self._pool.view()
        claim = find_claim(view, name)
        if view.find_state(claim) != "waiting":
            return []
        victims = describe_victims(view, grant_in_turn(view, claim, self._now_s)[1])
        return [one for one in victims if one["name"] in view.list_own_claims()]

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
        until: str | None = None,
        duration: str | None = None,
        preempt_vm: bool = False,
    ) -> dict[str, Any]:
        """The new claim; see ``creating.ask``. Raises what names the limit that it breaks."""
        claim = ask(
            self._pool, name, class_name, profile, gpus, if_lost, tenant, anti_affinity, where,
            late=late, until=until, duration=duration, preempt_vm=preempt_vm,
        )  # fmt: skip
        return describe_claim(_create_claim(self._pool, claim), name)

    def try_create(self, *asked: Any, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The claim as ``create`` would make it, with the lease that it would have; and the claims that would make way
        for it. Nothing is changed. Raises as ``create``.
        """
        claim = ask(self._pool, *asked, **more)
        view, why, victims = try_create(self._pool, claim)
        row = describe_claim(view, claim.name)
        if row["lease"] is not None:
            row["lease"]["token"] = 0  # none was written
        return {**row, "why": why}, victims

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


def describe_claim(view: View, name: str) -> dict[str, Any]:
    """One claim, as ``-o json`` has it. Raises ClaimNotFoundError."""
    find_claim(view, name)
    return next(row for row in _list_claims(view) if row["name"] == name)


def _create_claim(pool: Pool, claim: ClaimRecord) -> View:
    """Makes a claim, and waits a moment for its lease. Raises what names the limit that it breaks."""
    name = claim.name
    busy = ClaimExistsError(f"claim {name} could not be made: others write", hint="the same again")
    pool.change_anew(lambda view: plan_create(pool, view, claim), busy)
    return pool.follow_up(lambda now: _is_answered(now, claim))


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
        check_possible(view, wanted)
        lease = view.find_lease(claim)
        if lease is None or Placing(view, everything=True).find_growth(wanted, lease) > 0:
            check_quota(view, wanted)
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
        if view.scope not in (None, claim.tenant):
            continue
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
                "why": hide_others(view, claim.why) or (NO_ANSWER if is_waiting else None),
                "used_by": _describe_uses(view.list_uses(claim)),
                "until_s": claim.until_s,
                "for_s": claim.for_s,
                "preemptible": _describe_preemptible(view, claim),
                "preempted_by": _name_known(view, claim.preempted_by),
            }
        )
    return rows


def _name_known(view: View, claim: str) -> str | None:
    """None of what is another tenant's."""
    is_known = view.scope is None or claim in view.list_own_claims()
    return claim if claim and is_known else None


def _describe_want(want: WantRecord | None) -> dict[str, Any] | None:
    return None if want is None else {"host": want.host, "pid": want.pid}


def _describe_preemptible(view: View, claim: ClaimRecord) -> str | None:
    """What of it may end for a claim of a higher priority."""
    if not is_preemptible(view, claim):
        return None
    return "vm" if claim.preempt_vm else "command"


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
    end = view.ends.get(f"{lease.host}/{lease.claim}")
    return {
        "host": lease.host,
        "gpu_indices": list(lease.gpus),
        "gpu_uuids": [uuids[place] for place in places if place in uuids],
        "gpu_milli": lease.milli,
        "memory_bytes": lease.memory_bytes,
        "compute_percent": lease.compute_percent,
        "token": view.find_token(lease),
        "until_s": lease.until_s or None,
        "notice": hide_others(view, end.why) if end else None,
    }


def _list_hosts(view: View, placing: Placing, now_s: float) -> list[dict[str, Any]]:
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
                    "reserved": list_reserved(view, gpu, now_s),
                }
                for gpu in gpus.get(host.name, ())
            ],
            "leases": leases[host.name],
            "links": list(host.links),
        }
        for host in view.hosts.values()
    ]
