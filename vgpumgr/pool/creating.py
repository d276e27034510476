"""New claims of a pool: what is asked for, what refuses it, and what it would get."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import ClaimExistsError, ClaimImpossibleError, PoolMemberError, UsageError
from vgpumgr.model.text import format_gpus
from vgpumgr.pool.classes import find_class
from vgpumgr.pool.control.candidates import grant_in_turn
from vgpumgr.pool.control.controller import decide
from vgpumgr.pool.control.placing import Placing
from vgpumgr.pool.control.preempting import describe_victims
from vgpumgr.pool.control.records import (
    ANTI_AFFINITY,
    ENDS,
    LATE,
    PREEMPTION,
    WHERE,
    ClaimRecord,
    IfLost,
    LeaseRecord,
    View,
    check_name,
    put,
)
from vgpumgr.pool.control.tenants import Usage
from vgpumgr.pool.control.times import format_moment
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.moments import read_duration, read_moment
from vgpumgr.pool.sizes import read_size
from vgpumgr.pool.store.interface import Change, Compare
from vgpumgr.pool.tenants import find_tenant
from vgpumgr.pool.versions import need

#: names of hosts, and patterns of them
_WHERE = re.compile(r"[a-z0-9.*?-]{1,63}")


def ask(
    pool: Pool,
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
) -> ClaimRecord:
    """A claim that is not made yet. ``where`` names hosts, by patterns too; ``here`` is this one, and ``any`` all.
    ``until`` and ``duration`` say when its lease ends. Raises UsageError.
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
    until_s = None if until is None else read_moment(until, "--until")
    if until_s is not None and until_s <= pool.clock.wall_s():
        raise UsageError(
            f"the claim would be over: --until {until}",
            why=f"it is {format_moment(pool.clock.wall_s())}",
            hint="--until a later time, or --for 2h",
        )
    return ClaimRecord(
        name,
        class_name,
        gpus,
        memory,
        compute,
        IfLost(if_lost),
        tenant=tenant or "",
        anti_affinity=anti_affinity or "",
        where=read_where(where, pool.membership.host),
        late=late,
        until_s=until_s,
        for_s=None if duration is None else read_duration(duration, "--for"),
        preempt_vm=preempt_vm,
    )


def read_where(where: Sequence[str], here: str | None) -> tuple[str, ...]:
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


def plan_create(pool: Pool, view: View, claim: ClaimRecord) -> tuple[list[Compare], list[Change]]:
    name = claim.name
    check_name(name, "claim")
    if name in view.claims:
        raise ClaimExistsError(f"there is a claim {name}", hint=f"vgpumgr claim show {name}")
    kind = find_class(view, claim.class_name)
    # the class and the tenant get another revision: neither can be removed at the same time
    compares: list[Compare] = [view.at(claim.key), view.at(kind.key)]
    changes: list[Change] = [put(claim), put(kind)]
    for is_asked, version, what in (
        (claim.late, LATE, "late binding"),
        (bool(claim.where), WHERE, "--where"),
        (bool(claim.anti_affinity), ANTI_AFFINITY, "anti-affinity"),
        (claim.until_s is not None or claim.for_s is not None, ENDS, "leases with an end"),
        (claim.preempt_vm, PREEMPTION, "preemption"),
    ):
        if is_asked:
            need(pool, view, version, what)
    if claim.tenant:
        tenant = find_tenant(view, claim.tenant)
        compares.append(view.at(tenant.key))
        changes.append(put(tenant))
    check_possible(view, claim)
    check_quota(view, claim)
    return compares, changes


def check_possible(view: View, claim: ClaimRecord) -> None:
    find_class(view, claim.class_name)
    if limit := Placing(view, everything=True).find_limit(claim):
        raise ClaimImpossibleError(
            f"no host of the pool can ever hold claim {claim.name}",
            why=limit,
            hint="vgpumgr pool status",
        )


def check_quota(view: View, claim: ClaimRecord) -> None:
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


def try_create(pool: Pool, claim: ClaimRecord) -> tuple[View, str | None, list[dict[str, Any]]]:
    """The pool as it would be with the claim, why it would wait, and the claims that would make way for it. Nothing is
    written. Raises as ``plan_create``.
    """
    now_s, view = pool.clock.wall_s(), pool.view()
    plan_create(pool, view, claim)
    view = view.add(claim)
    if claim.late:
        return view, None, []
    grant, found = grant_in_turn(view, claim, now_s)
    if grant is None:
        reason = decide(view, claim, Placing(view, now_s=now_s), Usage(view))
        why = (
            reason if isinstance(reason, str) else "claims before it in the queue are granted first"
        )
        if found is not None:
            why = f"it would preempt claim {found.names}"
        return view, why, describe_victims(view, found)
    lease = LeaseRecord(
        claim.name, grant.host, grant.gpus, grant.milli, claim.memory_bytes, claim.compute_percent,
        claim.if_lost,
    )  # fmt: skip
    return view.add(lease).add(replace(claim, host=grant.host)), None, []
