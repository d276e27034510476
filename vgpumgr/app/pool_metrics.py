"""The metrics of a pool: of the leases of this host, and of tenants and queue where this host leads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vgpumgr.app.metric_spec import HOST_LABELS, MetricSpec, Sample
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.gpu import Inventory
from vgpumgr.state.leases import SeenLease, SeenPool
from vgpumgr.virtio.channel import ChannelStatus

#: GPUs of leases of one host, and tenants; further ones have no series
MAX_LEASES = 512
MAX_TENANTS = 200

_NO_POOL = "this host is in no pool, or nothing serves for it"
_NO_LEASE = "the lease gives all of it, or is beyond the first 512 of its host"
_NO_CHANNEL = "nothing uses the lease, or no keeper says it, as of a GPU that is passed through"
_NOT_LEADING = "another host leads the pool, or the tenant is beyond the first 200"
_LEASE = ("claim", "tenant", "gpu", "UUID", "hostname")
_TENANT = ("tenant", "hostname")
_STATES = ("ready", "suspect", "fenced")

POOL_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "pool_store_answers", "gauge", HOST_LABELS,
        "1 if the store of the pool answers this host; 0 if not: then nothing new is granted, and what runs goes on.",
        _NO_POOL,
    ),
    MetricSpec(
        "pool_leases", "gauge", HOST_LABELS,
        "Leases of claims on this host, as they were when the store answered last.",
        _NO_POOL,
    ),
    MetricSpec(
        "pool_lease_memory_bytes", "gauge", _LEASE,
        "Memory that a lease gives of a GPU of this host.", _NO_LEASE, "bytes",
    ),
    MetricSpec(
        "pool_lease_memory_used_bytes", "gauge", _LEASE,
        "Device memory that programs hold by a lease.", _NO_CHANNEL, "bytes",
    ),
    MetricSpec(
        "pool_lease_compute_ratio", "gauge", _LEASE,
        "The part of the GPU's time that a lease gives; 1 where it gives all.", _NO_POOL, "ratio",
    ),
    MetricSpec(
        "pool_lease_used_seconds_total", "counter", _LEASE,
        "Time that programs had on the GPU by a lease, since the keeper of its channel started.",
        _NO_CHANNEL, "seconds",
    ),
    MetricSpec(
        "pool_lease_throttled_seconds_total", "counter", _LEASE,
        "How long work by a lease was held back, since the keeper of its channel started.",
        _NO_CHANNEL, "seconds",
    ),
    MetricSpec(
        "pool_tenant_quota_gpus", "gauge", _TENANT,
        "GPUs that the leases of a tenant may have together. As of pool_hosts, one host of the pool says it.",
        f"the tenant has no quota, {_NOT_LEADING}",
    ),
    MetricSpec(
        "pool_tenant_allocated_gpus", "gauge", _TENANT,
        "GPUs that the leases of a tenant have together; tenant is empty for claims that name none.",
        _NOT_LEADING,
    ),
    MetricSpec(
        "pool_queue_claims", "gauge", _TENANT,
        "Claims of a tenant that wait for a lease.", _NOT_LEADING,
    ),
    MetricSpec(
        "pool_queue_oldest_wait_seconds", "gauge", _TENANT,
        "How long the claim of a tenant waits that waits longest, since the host that leads saw it; 0 while none does.",
        _NOT_LEADING, "seconds",
    ),
    MetricSpec(
        "pool_hosts", "gauge", ("state", "hostname"),
        "Hosts of the pool: state ready, suspect or fenced; the host that leads says it.",
        "another host leads the pool",
    ),
)  # fmt: skip


def sample_pool(
    pool: SeenPool | None, labels: Mapping[str, str], boot: tuple[str, float]
) -> Iterator[Sample]:
    """The pool as the process that serves for this host knows it."""
    if pool is None:
        return
    yield Sample("pool_store_answers", labels, int(pool.is_answering))
    yield Sample("pool_leases", labels, len(pool.leases))
    queue = pool.queue
    # of a host that is cut off it is what was before, and another one leads
    if queue is None or not pool.is_answering:
        return
    for state in _STATES:
        yield Sample("pool_hosts", {"state": state, **labels}, queue.hosts.get(state, 0))
    for tenant in queue.tenants[:MAX_TENANTS]:
        named = {"tenant": tenant.name, **labels}
        if tenant.quota_milli is not None:
            yield Sample("pool_tenant_quota_gpus", named, tenant.quota_milli / 1000)
        yield Sample("pool_tenant_allocated_gpus", named, tenant.allocated_milli / 1000)
        yield Sample("pool_queue_claims", named, tenant.waiting)
        waits_s = 0.0
        if tenant.oldest_since_s is not None and queue.boot == boot[0]:
            waits_s = max(0.0, boot[1] - tenant.oldest_since_s)
        yield Sample("pool_queue_oldest_wait_seconds", named, waits_s)


def sample_leases(
    pool: SeenPool | None,
    labels: Mapping[str, str],
    inventory: Inventory,
    records: Sequence[AttachmentRecord],
    channels: Mapping[tuple[str, int], ChannelStatus | None],
) -> Iterator[Sample]:
    """The leases of this host, each GPU of them, and what uses it."""
    if pool is None:
        return
    indices = {str(gpu.uuid): str(gpu.index) for gpu in inventory.gpus}
    uses = {
        (record.claim.name, record.claim.number): channels.get((record.vm_name, record.number))
        for record in records
        if record.claim is not None
    }
    places = [
        (lease, number, uuid) for lease in pool.leases for number, uuid in enumerate(lease.gpus)
    ]
    for lease, number, uuid in places[:MAX_LEASES]:
        named = {**labels, "claim": lease.claim, "tenant": lease.tenant}
        named |= {"gpu": indices.get(uuid, ""), "UUID": uuid}
        yield from _sample_lease(lease, uses.get((lease.claim, number)), named)


def _sample_lease(
    lease: SeenLease, status: ChannelStatus | None, labels: Mapping[str, str]
) -> Iterator[Sample]:
    if not lease.milli:
        return  # an older program has kept it, and says less
    if lease.memory_bytes is not None:
        yield Sample("pool_lease_memory_bytes", labels, lease.memory_bytes)
    percent = 100 if lease.compute_percent is None else lease.compute_percent
    yield Sample("pool_lease_compute_ratio", labels, percent / 100)
    if status is None or status.keeper_hangs or status.hidden:
        return
    if status.memory_used is not None:
        yield Sample("pool_lease_memory_used_bytes", labels, status.memory_used)
    if status.share is not None:
        yield Sample("pool_lease_used_seconds_total", labels, status.share.used_s)
        yield Sample("pool_lease_throttled_seconds_total", labels, status.share.throttled_s)
