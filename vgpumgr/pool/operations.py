"""What people and scripts ask of a pool. Answers are plain data, as ``-o json`` has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vgpumgr.errors import (
    ClaimExistsError,
    ClaimImpossibleError,
    ClaimInUseError,
    ClaimNotFoundError,
    ClassNotFoundError,
    UsageError,
)
from vgpumgr.host.lock import find_holder
from vgpumgr.model.shares import parse_share
from vgpumgr.model.text import list_near
from vgpumgr.pool.control.placing import Placing
from vgpumgr.pool.control.records import (
    ClaimRecord,
    IfLost,
    LeaseRecord,
    UseRecord,
    View,
    check_name,
    use_key,
)
from vgpumgr.pool.control.records import put as put_record
from vgpumgr.pool.leaving import find_dead, remove_host
from vgpumgr.pool.membership import Pool

#: a profile that is no share
WHOLE = "whole"
_MEMORY_ONLY = re.compile(r"share:[0-9.]+[A-Za-z]+")
#: of a claim that no controller has seen
NO_ANSWER = "no controller has answered yet"


class PoolOperations:
    """The operations on an open pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def describe(self) -> dict[str, Any]:
        """The pool, its hosts and totals. Raises PoolStoreError."""
        view = self._pool.view()
        record = self._pool.record(view)
        hosts, states = _list_hosts(view), Counter(row["state"] for row in _list_claims(view))
        free = [gpu["free_milli"] for host in hosts for gpu in host["gpus"]]
        membership = self._pool.membership
        return {
            "pool": {
                "id": record.id,
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
            "claims": {state: states[state] for state in ("granted", "waiting", "ending")},
            "hosts": hosts,
        }

    def serve(self, report: Callable[[str], None]) -> None:
        """This machine's part, until the process is interrupted."""
        self._pool.serve(lambda: False, report)

    def list_claims(self) -> list[dict[str, Any]]:
        """Every claim, in the order of the queue."""
        return _list_claims(self._pool.view())

    def show(self, name: str) -> dict[str, Any]:
        """One claim. Raises ClaimNotFoundError."""
        return _describe_claim(self._pool.view(), name)

    def create(
        self, name: str, class_name: str, profile: str, gpus: int, if_lost: str
    ) -> dict[str, Any]:
        """The new claim. Raises what names the limit that it breaks."""
        view = _create_claim(self._pool, name, class_name, profile, gpus, IfLost(if_lost))
        return _describe_claim(view, name)

    def resize(self, name: str, profile: str | None, gpus: int | None) -> dict[str, Any]:
        """The claim, which has its new size, or says why it keeps what it has."""
        return _describe_claim(_resize_claim(self._pool, name, profile, gpus), name)

    def delete(self, name: str) -> tuple[bool, str | None]:
        """Whether the claim is gone, or its host still has to end what runs; and that host, where it is not heard."""
        view = _delete_claim(self._pool, name)
        claim = view.claims.get(name)
        is_lost = claim is not None and claim.host is not None and claim.host not in view.alive
        return claim is None, claim.host if claim is not None and is_lost else None

    def list_lost(self, host: str) -> list[str]:
        """The claims that lose their leases with a host that is dead. Raises PoolMemberError where it is heard."""
        return find_dead(self._pool, host)

    def remove_host(self, host: str) -> list[str]:
        """Removes a host that is dead; the claims that had leases there."""
        return remove_host(self._pool, host)


def _describe_claim(view: View, name: str) -> dict[str, Any]:
    find_claim(view, name)
    return next(row for row in _list_claims(view) if row["name"] == name)


def read_size(profile: str) -> tuple[int | None, float | None]:
    """Memory and percent of time of each GPU; None of both for a whole one. Raises UsageError."""
    if profile.strip().lower() == WHOLE:
        return None, None
    try:
        share = parse_share(profile)
    except ValueError as error:
        why, hint = str(error), f"--profile {WHOLE}"
        if _MEMORY_ONLY.fullmatch(profile.strip()):
            why, hint = "the percentage of time is missing", f"--profile {profile.strip()},30%"
        raise UsageError(f"no profile of a claim: {profile!r}", why=why, hint=hint) from error
    return share.memory, share.compute


def _create_claim(
    pool: Pool, name: str, class_name: str, profile: str, gpus: int, if_lost: IfLost
) -> View:
    """Makes a claim, and waits a moment for its lease. Raises what names the limit that it breaks."""
    check_name(name, "claim")
    view = pool.view()
    claim = ClaimRecord(name, class_name, gpus, *read_size(profile), if_lost)
    exists = ClaimExistsError(f"there is a claim {name}", hint=f"vgpumgr claim show {name}")
    if name in view.claims:
        raise exists
    _check_possible(view, claim)
    pool.change((view.at(claim.key),), (put_record(claim),), exists)
    return pool.follow_up(lambda now: _is_answered(now, claim))


def _check_possible(view: View, claim: ClaimRecord) -> None:
    if claim.class_name not in view.classes:
        near = list_near(claim.class_name, view.classes, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise ClassNotFoundError(
            f"the pool has no class {claim.class_name}",
            why=f"{guess}there are {', '.join(sorted(view.classes))}",
            hint=f"vgpumgr claim create {claim.name} --profile PROFILE --class {near[0] if near else 'default'}",
        )
    if limit := Placing(view, everything=True).find_limit(claim):
        raise ClaimImpossibleError(
            f"no host of the pool can ever hold claim {claim.name}",
            why=limit,
            hint="vgpumgr pool status",
        )


def _is_answered(view: View, claim: ClaimRecord) -> bool:
    found = view.claims.get(claim.name)
    return found is None or bool(found.host and view.find_lease(found)) or bool(found.why)


def find_claim(view: View, name: str) -> ClaimRecord:
    """Raises ClaimNotFoundError with near names."""
    if name in view.claims:
        return view.claims[name]
    near = list_near(name, view.claims, n=2)
    raise ClaimNotFoundError(
        f"the pool has no claim {name}",
        why=f"did you mean {' or '.join(near)}?" if near else None,
        hint="vgpumgr claim list",
    )


def _resize_claim(pool: Pool, name: str, profile: str | None, gpus: int | None) -> View:
    """Asks for another size, and waits a moment for it; until the lease is changed it has what it had."""
    view = pool.view()
    claim = find_claim(view, name)
    if claim.is_ending:
        raise ClaimExistsError(f"claim {name} is being deleted", hint=f"vgpumgr claim show {name}")
    memory, compute = read_size(profile) if profile else (claim.memory_bytes, claim.compute_percent)
    wanted = replace(
        claim, gpus=gpus or claim.gpus, memory_bytes=memory, compute_percent=compute, why=""
    )
    _check_possible(view, wanted)
    _check_unused(view, claim, "resize")
    _change(pool, view, wanted)
    return pool.follow_up(lambda now: _is_resized(now, wanted))


def _is_resized(view: View, wanted: ClaimRecord) -> bool:
    found = view.claims.get(wanted.name)
    lease = view.find_lease(found) if found else None
    if found is None or found.why or lease is None:
        return True
    return (len(lease.gpus), lease.memory_bytes, lease.compute_percent) == (
        wanted.gpus,
        wanted.memory_bytes,
        wanted.compute_percent,
    )


def _delete_claim(pool: Pool, name: str) -> View:
    """Ends a claim, and waits a moment until it is gone."""
    view = pool.view()
    claim = find_claim(view, name)
    _check_unused(view, claim, "delete")
    _change(pool, view, replace(claim, is_ending=True))
    return pool.follow_up(lambda now: name not in now.claims)


def _check_unused(view: View, claim: ClaimRecord, verb: str) -> None:
    """Raises ClaimInUseError."""
    use = view.find_use(claim)
    if use is not None:
        raise ClaimInUseError(
            f"cannot {verb} claim {claim.name}: it is in use",
            held_by=(use.holder,),
            hint=f"vgpumgr detach {use.name} --attachment {use.attachment}, on host {use.host}",
        )


def _change(pool: Pool, view: View, claim: ClaimRecord) -> None:
    """Writes a claim that nothing uses. Raises ClaimExistsError where it was changed, or used, at the same time."""
    changed = ClaimExistsError(
        f"claim {claim.name} was changed at the same time", hint="the same again"
    )
    unused = (view.at(use_key(claim.host, claim.name)),) if claim.host else ()
    pool.change((view.at(claim.key), *unused), (put_record(claim),), changed)


def _list_claims(view: View) -> list[dict[str, Any]]:
    """Every claim as ``-o json`` has it, in the order of the queue. ``place`` is that of those that wait."""
    rows, place = [], 0
    for claim in sorted(view.claims.values(), key=view.age):
        lease = view.find_lease(claim)
        is_waiting = lease is None and not claim.is_ending
        place += is_waiting
        state = "ending" if claim.is_ending else "granted" if lease else "waiting"
        rows.append(
            {
                "name": claim.name,
                "class": claim.class_name,
                "state": state,
                "gpus": claim.gpus,
                "memory_bytes": claim.memory_bytes,
                "compute_percent": claim.compute_percent,
                "if_lost": str(claim.if_lost),
                "lease": None if lease is None else _describe_lease(view, lease),
                "place": place if is_waiting else None,
                "why": claim.why or (NO_ANSWER if is_waiting else None),
                "used_by": _describe_use(view.find_use(claim)),
            }
        )
    return rows


def _describe_use(use: UseRecord | None) -> dict[str, Any] | None:
    if use is None:
        return None
    return {
        "host": use.host,
        "kind": use.noun,
        "name": use.name,
        "uuid": use.uuid,
        "attachment": use.attachment,
    }


def _describe_lease(view: View, lease: LeaseRecord) -> dict[str, Any]:
    uuids = {gpu.index: gpu.uuid for gpu in view.gpus.values() if gpu.host == lease.host}
    return {
        "host": lease.host,
        "gpu_indices": list(lease.gpus),
        "gpu_uuids": [uuids[index] for index in lease.gpus if index in uuids],
        "gpu_milli": lease.milli,
        "memory_bytes": lease.memory_bytes,
        "compute_percent": lease.compute_percent,
        "token": view.find_token(lease),
    }


def _list_hosts(view: View) -> list[dict[str, Any]]:
    """Every host as ``-o json`` has it, with what is free of its GPUs, in thousandths."""
    free = Placing(view, everything=True).read_free()
    return [
        {
            "name": host.name,
            "state": str(host.state)
            if host.name in view.alive
            else _describe_unheard(str(host.state)),
            "heard": host.name in view.alive,
            "gpus": [
                {
                    "index": gpu.index,
                    "uuid": gpu.uuid,
                    "model": gpu.model,
                    "memory_bytes": gpu.memory_bytes,
                    "free_milli": free[gpu.host, gpu.index],
                }
                for gpu in view.gpus.values()
                if gpu.host == host.name
            ],
            "leases": sum(lease.host == host.name for lease in view.leases.values()),
        }
        for host in view.hosts.values()
    ]


def _describe_unheard(state: str) -> str:
    """A host that ended its part a moment ago, and no controller has written that yet."""
    return "suspect" if state == "ready" else state
