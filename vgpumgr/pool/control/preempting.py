"""Leases that make way for a claim of a higher priority: which may, what that costs, and which are chosen.

A lease that nothing uses goes first, then what a command runs by, and what a VM has only where its claim says so. Of
equal kinds those go whose time by part of a GPU is least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from vgpumgr.model.attachment import GRACE_S
from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.control.placing import Grant, Placing
from vgpumgr.pool.control.records import (
    ClaimRecord,
    GpuRecord,
    LeaseRecord,
    View,
    alive_key,
    list_use_keys,
    put,
)
from vgpumgr.pool.control.tenants import Usage
from vgpumgr.pool.control.times import EndRecord, end_key
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.scheduler.preemption import Victim, choose_victims
from vgpumgr.pool.store.interface import Compare, Transaction

#: kinds of victims, in the order in which they are chosen
_UNUSED, _COMMAND, _VM = range(3)
#: and in words
_KINDS = ("nothing uses it", "a command", "a VM")


@dataclass(frozen=True, slots=True)
class Preemption:
    """The GPUs that a claim gets, and the leases that make way for it."""

    grant: Grant
    victims: tuple[LeaseRecord, ...]

    @property
    def names(self) -> str:
        """The claims that lose their leases."""
        return ", ".join(lease.claim for lease in self.victims)


def is_preemptible(view: View, claim: ClaimRecord) -> bool:
    """Whether its class or its tenant says so."""
    kind = view.classes.get(claim.class_name)
    return view.find_tenant(claim).preemptible or (kind is not None and kind.preemptible)


def find_lowest(view: View) -> int | None:
    """The lowest priority of all leases that can be preempted; None: there are none."""
    claims = [claim for claim in view.claims.values() if claim.host and is_preemptible(view, claim)]
    return min((view.find_tenant(claim).priority for claim in claims), default=None)


def _find_kind(view: View, lease: LeaseRecord) -> int | None:
    """What ends with a lease; None: it may not end."""
    claim = view.claims[lease.claim]
    nouns = {use.noun for use in view.list_uses(claim)}
    if "vm" in nouns:
        return _VM if claim.preempt_vm else None
    return _COMMAND if nouns else _UNUSED


def _may_make_way(view: View, lease: LeaseRecord, claim: ClaimRecord) -> bool:
    """Whether a lease may end for a claim: it can be preempted, and is of a lower priority."""
    victim = view.claims.get(lease.claim)
    return (
        victim is not None
        and not lease.is_ending
        and not victim.is_ending
        and victim.host == lease.host
        and view.find_tenant(victim).priority < view.find_tenant(claim).priority
        and is_preemptible(view, victim)
    )


def find_preemption(
    view: View,
    claim: ClaimRecord,
    placing: Placing,
    usage: Usage,
    now_s: float,
    written: Collection[str] = (),
) -> Preemption | None:
    """What would have to end so that a claim that waits has its GPUs; None where nothing may end, or all would not be
    enough. Leases that are ``written`` are not any more as the view has them, and stay.
    """
    if not any(_may_make_way(view, lease, claim) for lease in view.leases.values()):
        return None
    left = usage.read_left(claim)
    found = []
    for host, milli, gpus in placing.list_open(claim):
        if left is not None and milli * claim.gpus > left:
            continue
        free = {gpu.index: _count_free(view, placing, claim, gpu) for gpu in gpus}
        victims = [
            Victim(lease.claim, lease.gpus, lease.milli, kind, _count_work(lease, now_s))
            for lease in view.leases.values()
            if lease.host == host
            and lease.key not in written
            and free.keys() & set(lease.gpus)
            and _may_make_way(view, lease, claim)
            and (kind := _find_kind(view, lease)) is not None
        ]
        choice = choose_victims(free, victims, claim.gpus, milli)
        if choice is not None and choice.victims:
            found.append((choice.cost, host, milli, choice))
    if not found:
        return None
    _, host, milli, choice = min(found, key=lambda one: one[:2])
    leases = tuple(view.leases[f"{host}/{victim.name}"] for victim in choice.victims)
    return Preemption(Grant(host, choice.gpus, milli), leases)


def _count_free(view: View, placing: Placing, claim: ClaimRecord, gpu: GpuRecord) -> int:
    """What neither leases nor reservations have of a GPU; what ends by now counts as used."""
    used = sum(
        lease.milli
        for lease in view.leases.values()
        if lease.host == gpu.host and gpu.index in lease.gpus
    )
    return GPU_MILLI - used - placing.read_held(claim, gpu)


def _count_work(lease: LeaseRecord, now_s: float) -> float:
    """What a lease has given: seconds by part of a GPU."""
    return max(0.0, now_s - lease.granted_s) * lease.total_milli / GPU_MILLI


def find_nominated(view: View, claim: ClaimRecord, placing: Placing) -> Grant | None:
    """The GPUs that others make free for a claim; None where they do not any more."""
    if not claim.nominated or len(claim.nominated_gpus) != claim.gpus:
        return None
    wanted = set(claim.nominated_gpus)
    for host, milli, gpus in placing.list_open(claim):
        there = [gpu for gpu in gpus if gpu.index in wanted]
        if host != claim.nominated or len(there) < len(wanted):
            continue
        for gpu in there:
            ending = sum(
                lease.milli
                for lease in view.leases.values()
                if lease.host == host and gpu.index in lease.gpus and lease.is_ending
            )
            if _count_free(view, placing, claim, gpu) + ending < milli:
                return None
        return Grant(host, claim.nominated_gpus, milli)
    return None


def list_ending(view: View, grant: Grant) -> str:
    """The claims whose leases on these GPUs are to end."""
    return ", ".join(
        lease.claim
        for lease in view.leases.values()
        if lease.is_ending and lease.host == grant.host and set(lease.gpus) & set(grant.gpus)
    )


def plan_preemption(view: View, claim: ClaimRecord, found: Preemption) -> Iterator[Transaction]:
    """The end of each victim's lease, and first the place that is nominated for the claim. Each compares the claims,
    the lease, what uses it, and who says that it can be preempted.
    """
    grant = found.grant
    why = f"it waits until what was preempted for it has ended: claim {found.names}"
    nominated = replace(claim, nominated=grant.host, nominated_gpus=grant.gpus, why=why)
    for lease in found.victims:
        victim = view.claims[lease.claim]
        tenant = view.find_tenant(claim)
        by = f"claim {claim.name}, of priority {tenant.priority}"
        keys = [claim.key, victim.key, lease.key, alive_key(lease.host)]
        keys += [end_key(lease.host, lease.claim), f"p/class/{victim.class_name}"]
        keys += [f"p/tenant/{name}" for name in {claim.tenant, victim.tenant} if name]
        keys += list_use_keys(lease.host, lease.claim, max(victim.gpus, len(lease.gpus)))
        compares: tuple[Compare, ...] = tuple(map(view.at, keys))
        end = EndRecord(lease.claim, lease.host, f"it is preempted by {by}")
        changes = [
            put(replace(lease, is_ending=True)),
            put(replace(victim, preempted_by=claim.name)),
            put(end),
        ]
        if lease is found.victims[0]:
            changes.append(put(nominated))
        yield Transaction(compares, tuple(changes))


def describe_victims(view: View, found: Preemption | None) -> list[dict[str, Any]]:
    """A row for each claim that would lose its lease, as ``-o json`` has it."""
    rows = []
    for lease in found.victims if found else ():
        claim, kind = view.claims[lease.claim], _find_kind(view, lease)
        uses = view.list_uses(claim)
        rows.append(
            {
                "name": lease.claim,
                "tenant": claim.tenant or None,
                "priority": view.find_tenant(claim).priority,
                "host": lease.host,
                "gpu_indices": list(lease.gpus),
                "gpu_milli": lease.milli,
                "ends": _KINDS[kind or 0] if not uses else f"{uses[0].noun} {uses[0].name}",
                "grace_s": GRACE_S if uses else 0.0,
            }
        )
    return rows
