"""Where the metrics' values come from: one collection of a machine's GPUs, attachments and channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from vgpumgr.daemon.metric_samples import Observation
from vgpumgr.daemon.metrics import MetricsService, open_statistics
from vgpumgr.daemon.metrics_cache import MetricsCache
from vgpumgr.errors import HelperLateError, VgpumgrError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.model.gpu import Inventory
from vgpumgr.nvml.client import NvmlClient
from vgpumgr.nvml.inventory import read_machine_inventory
from vgpumgr.plan.record import AttachmentRecord, AttachmentStore
from vgpumgr.store.attachments import SqliteAttachments
from vgpumgr.virtio.channel import Channels, ChannelStatus
from vgpumgr.virtio.keeper_channels import KeeperChannels

#: the helper's method whose lateness means that another try would only join it
_READ = "read_inventory"


class MetricsSource:
    """Observes all that the metrics tell of."""

    def __init__(
        self,
        read_inventory: Callable[[], Inventory],
        store: AttachmentStore,
        channels: Channels,
        late: LateRecords,
        count_drift: Callable[[], Mapping[str, int]] | None = None,
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
        stuck = [late for late in self._late.list_late() if late.what == _READ]
        if stuck:
            raise HelperLateError(
                "the GPUs are not read again while an earlier read is stuck",
                cause=f"process {stuck[0].process.pid} still runs",
            )
        records = self._store.list_attachments()
        return Observation(
            inventory=self._read_inventory(),
            owners=[owner for r in records if (owner := r.owner) is not None],
            channels={record.vm_name: self._read_channel(record) for record in records},
            drift=self._try_drift(),
        )

    def _read_channel(self, record: AttachmentRecord) -> ChannelStatus | None:
        try:
            return self._channels.read_status(record.id)
        except VgpumgrError:
            return None

    def _try_drift(self) -> Mapping[str, int] | None:
        try:
            return self._count_drift() if self._count_drift else None
        except VgpumgrError:
            return None


@contextmanager
def open_metrics(machine: Machine) -> Iterator[MetricsService]:
    """The operation on a machine, with a cache and an NVML helper of its own: it collects in a
    thread, beside whatever else is going on.
    """
    with NvmlClient(machine) as nvml:
        source = MetricsSource(
            lambda: read_machine_inventory(nvml, machine),
            SqliteAttachments(machine.state_dir / "state.sqlite"),
            KeeperChannels(machine),
            LateRecords(machine.run_dir),
        )
        cache = MetricsCache(source.observe, SystemClock())
        yield MetricsService(cache.read, open_statistics(machine.run_dir))
