"""Where the metrics' values come from: one collection of a machine's GPUs, attachments and channels."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from vgpumgr.app.context import Parts, open_parts
from vgpumgr.app.host_observation import Devices, index_devices
from vgpumgr.app.metrics import PATIENCE_S, Collected, MetricsService, Observation
from vgpumgr.app.operations.recovery import (
    list_drift,
)
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock, SleeplessClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.model.attachment import AttachmentRecord, AttachmentStore
from vgpumgr.model.gpu import DrainStore, Inventory, Sensors, list_drains
from vgpumgr.model.pci import PciAddress
from vgpumgr.nvml.client import READ_INVENTORY, STUCK, NvmlClient
from vgpumgr.planning.drift import DriftKind
from vgpumgr.state.leases import Leases, NoLeases
from vgpumgr.virtio.channel import Channels, ChannelStatus

#: how long a collection is not repeated
TTL_S = 8.0


class MetricsSource:
    """Observes all that the metrics tell of."""

    def __init__(
        self,
        read_inventory: Callable[[], Inventory],
        store: AttachmentStore,
        channels: Channels,
        late: LateRecords,
        count_drift: Callable[[Inventory], Mapping[str, int]] | None = None,
        read_devices: Callable[[Inventory], tuple[Devices, Mapping[tuple[str, str], int]]]
        | None = None,
        drains: DrainStore | None = None,
        read_sensors: Callable[[Sequence[PciAddress]], Mapping[PciAddress, Sensors]] | None = None,
        leases: Leases | None = None,
        boot: str = "",
    ) -> None:
        self._read_inventory = read_inventory
        self._store = store
        self._channels = channels
        self._late = late
        self._count_drift = count_drift
        self._read_devices = read_devices
        self._drains = drains
        self._read_sensors = read_sensors
        self._leases = leases or NoLeases()
        self._boot = boot

    def observe(self) -> Observation:
        """One collection. Raises VgpumgrError where GPUs or records cannot be read.

        While an earlier read of the GPUs is stuck there is no other: each would leave one more
        stuck process behind.
        """
        self._late.check_not_stuck(READ_INVENTORY, STUCK)
        records = self._store.list_attachments()
        inventory = self._read_inventory()
        devices, creatable = self._read_devices(inventory) if self._read_devices else ({}, {})
        others = [gpu.address for gpu in inventory.others]
        return Observation(
            inventory=inventory,
            owners=[owner for r in records if (owner := r.owner) is not None],
            channels={(r.vm_name, r.number): self._read_channel(r) for r in records if r.channel},
            drift=self._try_drift(inventory),
            devices=devices,
            creatable=creatable,
            drains=list_drains(self._drains, inventory.gpus) if self._drains else (),
            health=self._drains.list_health() if self._drains else (),
            records=records,
            sensors=self._read_sensors(others) if self._read_sensors else {},
            pool=self._leases.read_seen() if self._leases.read_server() else None,
            boot=(self._boot, SleeplessClock().monotonic_s()),
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
    drift = list_drift(replace(parts, read_inventory=lambda: inventory))
    found = Counter(str(d.kind) for d in drift)
    return {str(kind): found[str(kind)] for kind in DriftKind}


def read_devices(
    parts: Parts, inventory: Inventory
) -> tuple[Devices, Mapping[tuple[str, str], int]]:
    """The vGPUs and virtual functions of each GPU, and how many more of each vGPU type it takes, by address.
    What does not answer is left out.
    """
    devices = index_devices(parts, inventory, parts.store.list_attachments())
    if not inventory.has_vgpu_parents:
        return devices, {}
    with contextlib.suppress(VgpumgrError):
        types = VgpuService(parts).list_types().types
        return devices, {(one.gpu, one.name): one.free for one in types}
    return devices, {}


@contextmanager
def open_metrics(machine: Machine) -> Iterator[MetricsService]:
    """The operation on a machine, with a cache and an NVML helper of its own: it collects in a
    thread, beside whatever else is going on.
    """
    with NvmlClient(machine) as nvml, open_parts(machine, nvml) as parts:
        source = MetricsSource(
            parts.read_inventory,
            parts.store,
            parts.channels,
            LateRecords(machine.run_dir),
            partial(count_drift, parts),
            partial(read_devices, parts),
            parts.store,
            parts.read_sensors,
            parts.leases,
            parts.boot_id,
        )
        cache = MetricsCache(source.observe, parts.clock)
        yield MetricsService(cache.read, open_statistics(machine.run_dir), sample=cache.sample)


class MetricsCache:
    """Calls ``observe`` when asked and what it has is old; never two calls at a time."""

    def __init__(
        self,
        observe: Callable[[], Observation],
        clock: Clock,
        *,
        ttl_s: float = TTL_S,
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._last = Collected()
        self._tried_s: float | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._overdue = False
        #: whether the last collection was made for the history
        self._is_sample = False

    def read(self, patience_s: float = PATIENCE_S) -> Collected:
        """The values, new or old; raises nothing, whatever collecting does. What was collected for the history is old:
        a scrape after a change shows the change.
        """
        return self._read(patience_s, is_sample=False)

    def sample(self, patience_s: float = PATIENCE_S) -> Collected:
        """The same for the history, which shares what a scrape has collected."""
        return self._read(patience_s, is_sample=True)

    def _read(self, patience_s: float, *, is_sample: bool) -> Collected:
        with self._lock:
            is_old = self._is_old() or (self._is_sample and not is_sample)
            if self._idle.is_set() and is_old:
                self._is_sample = is_sample
                self._start()
            wait_s = 0.0 if self._overdue else patience_s
        if not self._idle.wait(wait_s):
            with self._lock:
                # it may have come to its end between the wait and here
                self._overdue = not self._idle.is_set()
                if self._overdue:
                    return replace(self._last, success=False)
        with self._lock:
            return self._last

    def _is_old(self) -> bool:
        return self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= self._ttl_s

    def _start(self) -> None:
        """Under the lock. The thread is a daemon: a stuck one must not keep the process."""
        self._idle.clear()
        self._overdue = False
        threading.Thread(target=self._collect, name="metrics", daemon=True).start()

    def _collect(self) -> None:
        began_s = self._clock.monotonic_s()
        observation: Observation | None = None
        # the series reports that it failed; any command shows the error itself
        with contextlib.suppress(Exception):
            observation = self._observe()
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._tried_s = now_s
            if observation is None:
                self._last = replace(self._last, success=False)
            else:
                wall_s = self._clock.wall_s()
                self._last = Collected(observation, True, wall_s, now_s - began_s)
            self._overdue = False
            self._idle.set()
