"""Tenants of a pool: who goes first, and how much each may have. Claims without a tenant are those of one without
limits.

The order of the queue is fair: of the tenants with the highest priority, the one that has least for its weight goes
first, and its oldest claim. What it gets counts at once, so that equal tenants get equal parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from vgpumgr.pool.control.records import ClaimRecord, TenantRecord, View, format_gpus
from vgpumgr.pool.scheduler.model import GPU_MILLI


class Usage:
    """How much of GPUs each tenant has by its leases, in thousandths; it follows what a round grants."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._used: dict[str, int] = {}
        for lease in view.leases.values():
            claim = view.claims.get(lease.claim)
            if claim is not None:
                self.add(claim, lease.total_milli)

    def read(self, tenant: str) -> int:
        """What a tenant has."""
        return self._used.get(tenant, 0)

    def add(self, claim: ClaimRecord, milli: int) -> None:
        """What a claim gets, or gives back where it is negative."""
        self._used[claim.tenant] = self.read(claim.tenant) + milli

    def read_left(self, claim: ClaimRecord) -> int | None:
        """How much more the claim's tenant may have; None: no limit."""
        tenant = self._view.find_tenant(claim)
        if tenant.gpu_milli is None:
            return None
        return max(0, tenant.gpu_milli - self.read(claim.tenant))

    def explain(self, claim: ClaimRecord, milli: int) -> str:
        """Why the claim's tenant may not have so much more."""
        tenant = self._view.find_tenant(claim)
        return (
            f"tenant {tenant.name} has {format_gpus(self.read(tenant.name))} of its quota of "
            f"{format_gpus(tenant.gpu_milli or 0)} GPUs, and the claim needs {format_gpus(milli)}"
        )


def list_queue(
    view: View, claims: Iterable[ClaimRecord], usage: Usage | None = None
) -> Iterator[ClaimRecord]:
    """The claims that wait, in the order in which they are tried. ``usage`` is read before each of them; without it,
    each counts as granted.
    """
    queues: dict[str, deque[ClaimRecord]] = {}
    for claim in sorted(claims, key=view.age):
        queues.setdefault(claim.tenant, deque()).append(claim)
    assumed = Usage(view) if usage is None else None
    reading = usage or assumed
    assert reading is not None

    def rank(name: str) -> tuple[int, float, int]:
        head = queues[name][0]
        tenant = view.find_tenant(head)
        return -tenant.priority, reading.read(name) / tenant.weight, view.age(head)

    while queues:
        name = min(queues, key=rank)
        claim = queues[name].popleft()
        if not queues[name]:
            del queues[name]
        yield claim
        if assumed is not None:
            assumed.add(claim, estimate_milli(view, claim))


def estimate_milli(view: View, claim: ClaimRecord) -> int:
    """The least that the claim can take, on the largest GPU of its class."""
    kind = view.classes.get(claim.class_name)
    sizes = [
        gpu.memory_bytes
        for gpu in view.gpus.values()
        if kind is None or not kind.models or gpu.model in kind.models
    ]
    is_whole = kind is not None and kind.whole
    milli = GPU_MILLI if is_whole else claim.count_milli(max(sizes, default=0))
    return claim.gpus * min(milli, GPU_MILLI)


def list_tenants(view: View) -> list[TenantRecord]:
    """By name."""
    return sorted(view.tenants.values(), key=lambda tenant: tenant.name)


def divide(units: int, weights: Sequence[int]) -> list[int]:
    """Whole units by weight, none left over: each gets its part rounded down, and the largest remainders, of equal ones
    the first, one more.
    """
    total = sum(weights)
    parts = [units * weight // total for weight in weights]
    remainders = [units * weight % total for weight in weights]
    order = sorted(range(len(weights)), key=lambda number: (-remainders[number], number))
    for number in order[: units - sum(parts)]:
        parts[number] += 1
    return parts
