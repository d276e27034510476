"""Tenants of a pool: who goes first, and how much each may have. Claims without a tenant are those of one without
limits.

The order of the queue is fair: of the tenants with the highest priority, the one that has least for its weight goes
first, and its oldest claim. What it gets counts at once, so that equal tenants get equal parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from vgpumgr.model.text import format_gpus
from vgpumgr.pool.control.records import ClaimRecord, View
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
        # not how much it has: that moves with each grant, and the text is written for each claim that waits
        return (
            f"tenant {tenant.name} has less than {format_gpus(milli)} left of its quota of "
            f"{format_gpus(tenant.gpu_milli or 0)} GPUs"
        )


def list_queue(
    view: View, claims: Iterable[ClaimRecord], usage: Usage | None = None
) -> Iterator[ClaimRecord]:
    """The claims that wait, in the order in which they are tried. ``usage`` is read before each of them. Without it,
    each counts as granted, but for those that their tenant's quota holds up: they stand last.
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

    estimate = _Estimates(view).read
    held_up: list[ClaimRecord] = []
    # what is granted to a claim moves the rank of its own tenant only
    heap = [(rank(name), name) for name in queues]
    heapify(heap)
    while heap:
        _, name = heappop(heap)
        claim = queues[name].popleft()
        if assumed is None:
            yield claim
        else:
            least, left = estimate(claim), assumed.read_left(claim)
            if left is None or least <= left:
                yield claim
                assumed.add(claim, least)
            else:
                held_up.append(claim)
        if queues[name]:
            heappush(heap, (rank(name), name))
    yield from held_up


class _Estimates:
    """The least that claims can take: on the largest GPU of their class."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._largest: dict[str, int] = {}

    def read(self, claim: ClaimRecord) -> int:
        """Of all its GPUs together, in thousandths."""
        kind = self._view.classes.get(claim.class_name)
        if kind is not None and kind.whole:
            return claim.gpus * GPU_MILLI
        if claim.class_name not in self._largest:
            gpus = self._view.gpus.values()
            sizes = (gpu.memory_bytes for gpu in gpus if kind is None or kind.accepts(gpu))
            self._largest[claim.class_name] = max(sizes, default=0)
        return claim.gpus * min(claim.count_milli(self._largest[claim.class_name]), GPU_MILLI)


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
