"""Where the metrics' values come from: one collection of a machine's GPUs, attachments and channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from vgpumgr.app.host_drift import compare_despite, find_host_drift, find_store_drift
from vgpumgr.app.metrics.samples import MetricsCache, Observation
from vgpumgr.app.metrics.service import MetricsService
from vgpumgr.app.opening import open_parts
from vgpumgr.app.operations.attachment_recovery import observe_attachments
from vgpumgr.app.parts import Parts
from vgpumgr.backends.drift import find_drift
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.model.attachment import AttachmentRecord, AttachmentStore
from vgpumgr.model.gpu import Inventory
from vgpumgr.nvml.client import READ_INVENTORY, STUCK, NvmlClient
from vgpumgr.planning.drift import DriftKind
from vgpumgr.virtio.channel import Channels, ChannelStatus


class MetricsSource:
    """Observes all that the metrics tell of."""

    def __init__(
        self,
        read_inventory: Callable[[], Inventory],
        store: AttachmentStore,
        channels: Channels,
        late: LateRecords,
        count_drift: Callable[[Inventory], Mapping[str, int]] | None = None,
    ) -> None:
        self._read_inventory = read_inventory
        self._store = store
        self._channels = channels
        self._late = late
        self._count_drift = count_drift

    def observe(self) -> Observation:
        """One collection. Raises VgpumgrError where GPUs or records cannot be read.

        While an earlier read of the GPUs is stuck there is no other: each would leave one more
        stuck process behind.
        """
        self._late.check_not_stuck(READ_INVENTORY, STUCK)
        records = self._store.list_attachments()
        inventory = self._read_inventory()
        return Observation(
            inventory=inventory,
            owners=[owner for r in records if (owner := r.owner) is not None],
            channels={(r.vm_name, r.number): self._read_channel(r) for r in records if r.channel},
            drift=self._try_drift(inventory),
        )

    def _read_channel(self, record: AttachmentRecord) -> ChannelStatus | None:
        try:
            return self._channels.read_status(record.id)
        except VgpumgrError:
            return None

    def _try_drift(self, inventory: Inventory) -> Mapping[str, int] | None:
        try:
            return self._count_drift(inventory) if self._count_drift else None
        except VgpumgrError:
            return None


def count_drift(parts: Parts, inventory: Inventory) -> Mapping[str, int]:
    """How many differences of each kind there are, 0 for a kind without any, as ``diff`` lists them."""
    damage = find_store_drift(parts)
    parts = replace(parts, read_inventory=lambda: inventory)
    drift = [
        *compare_despite(damage, lambda: find_drift(observe_attachments(parts))),
        *compare_despite(damage, lambda: find_host_drift(parts)),
    ]
    found = Counter(str(d.kind) for d in (*damage, *drift))
    return {str(kind): found[str(kind)] for kind in DriftKind}


@contextmanager
def open_metrics(machine: Machine) -> Iterator[MetricsService]:
    """The operation on a machine, with a cache and an NVML helper of its own: it collects in a
    thread, beside whatever else is going on.
    """
    with NvmlClient(machine) as nvml, open_parts(machine, nvml) as (parts, store):
        source = MetricsSource(
            parts.read_inventory,
            store,
            parts.channels,
            LateRecords(machine.run_dir),
            partial(count_drift, parts),
        )
        cache = MetricsCache(source.observe, parts.clock)
        yield MetricsService(cache.read, open_statistics(machine.run_dir))
