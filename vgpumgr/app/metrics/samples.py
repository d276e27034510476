"""From what was observed to samples of the table's metrics: pure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vgpumgr.app.documents.gpu_serializers import index_owners
from vgpumgr.host.clock import Clock
from vgpumgr.host.statistics import DURATION_BUCKETS_S, OperationCounts
from vgpumgr.mig.rules import Occupancy
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.slice import SliceOwner
from vgpumgr.virtio.channel import ChannelStatus

#: what the channel forwards: the runtime's calls become the driver's in the guest
_API = "cuda"


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one collection sees. ``channels`` by the VM's name and the attachment's number in it,
    None: no answer; ``drift`` None: it cannot be told.
    """

    inventory: Inventory
    owners: Sequence[SliceOwner] = ()
    channels: Mapping[tuple[str, int], ChannelStatus | None] = field(default_factory=dict)
    drift: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What a scrape gets: the last good observation, if any, and how collecting goes now."""

    observation: Observation | None = None
    success: bool = False
    observed_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; ``suffix`` is a histogram's (``_bucket``, ``_count``, ``_sum``)."""

    name: str
    labels: Mapping[str, str]
    value: float
    suffix: str = ""


def list_samples(
    collected: Collected, operations: Sequence[OperationCounts], version: str, hostname: str
) -> Iterator[Sample]:
    """Every sample of one exposition."""
    host = {"hostname": hostname}
    yield Sample("build_info", {"version": version, **host}, 1)
    yield Sample("last_collect_success", host, int(collected.success))
    if collected.observed_s is not None:
        yield Sample("last_collect_timestamp_seconds", host, collected.observed_s)
    if collected.duration_s is not None:
        yield Sample("collect_duration_seconds", host, collected.duration_s)
    for counts in operations:
        yield from _sample_operation(counts, host)
    if (seen := collected.observation) is not None:
        vms = {
            key: ",".join(dict.fromkeys(owner.vm_name for owner in own))
            for key, own in index_owners(seen.owners).items()
        }
        for gpu in seen.inventory.gpus:
            labels = label_gpu(gpu, hostname)
            yield from _sample_gpu(gpu, labels)
            yield from _sample_mig(
                gpu, labels, {id_: vms[u, id_] for u, id_ in vms if u == gpu.uuid}
            )
        for (domain, number), status in seen.channels.items():
            if status is not None:
                labels = {"domain": domain, "attachment": str(number), **host}
                yield from _sample_channel(status, labels)
        for kind, count in sorted((seen.drift or {}).items()):
            yield Sample("desired_state_drift", {"kind": kind, **host}, count)


def label_gpu(gpu: Gpu, hostname: str) -> dict[str, str]:
    """The labels of a GPU, each written as dcgm-exporter writes it."""
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": format_bus_id(gpu.pci),
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.model,
        "hostname": hostname,
    }


def format_bus_id(pci: PciAddress) -> str:
    """NVML's spelling of an address: a domain of eight digits, upper case."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _sample_gpu(gpu: Gpu, labels: Mapping[str, str]) -> Iterator[Sample]:
    framework = "mig" if gpu.mig.current else "none"
    yield Sample("gpu_info", {**labels, "framework": framework}, 1)
    yield Sample("gpu_framebuffer_bytes", labels, gpu.memory.total_bytes)
    yield Sample("gpu_framebuffer_used_bytes", labels, gpu.memory.used_bytes)
    if (use := gpu.utilisation) is not None:
        for engine, ratio in (("gpu", use.gpu_ratio), ("memory", use.memory_ratio)):
            yield Sample("gpu_utilization_ratio", {**labels, "engine": engine}, ratio)


def _sample_mig(gpu: Gpu, labels: Mapping[str, str], vms: Mapping[int, str]) -> Iterator[Sample]:
    if not gpu.mig.current:
        return
    free = Occupancy.of(gpu).free_compute_slices
    taken = sum(instance.placement.size for instance in gpu.instances)
    for kind, state, count in (
        ("compute", "used", gpu.compute_slices - free),
        ("compute", "free", free),
        ("memory", "used", taken),
        ("memory", "free", gpu.memory_positions - taken),
    ):
        yield Sample("mig_slices", {**labels, "kind": kind, "state": state}, count)
    for instance in gpu.instances:
        own = {
            "GPU_I_ID": str(instance.id),
            "GPU_I_PROFILE": str(instance.profile),
            "domain": vms.get(instance.id, ""),
        }
        yield Sample("mig_instance_info", {**labels, **own}, 1)


def _sample_channel(status: ChannelStatus, labels: Mapping[str, str]) -> Iterator[Sample]:
    yield Sample("channel_lanes", labels, len(status.lanes))
    yield Sample("channel_calls_total", {**labels, "api": _API}, status.calls)
    for direction, count in (("in", status.bytes_in), ("out", status.bytes_out)):
        yield Sample("channel_bytes_total", {**labels, "direction": direction}, count)
    yield Sample("channel_protocol_errors_total", labels, status.protocol_errors)


def _sample_operation(counts: OperationCounts, host: Mapping[str, str]) -> Iterator[Sample]:
    labels = {"op": counts.op, **host}
    for outcome, count in sorted(counts.outcomes.items()):
        yield Sample("operations_total", {**labels, "outcome": outcome}, count)
    name, total = "operation_duration_seconds", 0
    for bound, count in zip((*DURATION_BUCKETS_S, None), counts.buckets, strict=True):
        total += count
        edge = "+Inf" if bound is None else repr(bound)
        yield Sample(name, {**labels, "le": edge}, total, "_bucket")
    yield Sample(name, labels, total, "_count")
    yield Sample(name, labels, counts.duration_sum_s, "_sum")


TTL_S = 8.0
PATIENCE_S = 2.0


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

    def read(self, patience_s: float = PATIENCE_S) -> Collected:
        """The values, new or old; raises nothing, whatever collecting does."""
        with self._lock:
            if self._idle.is_set() and self._is_old():
                self._start()
            wait_s = 0.0 if self._overdue else patience_s
        if not self._idle.wait(wait_s):
            with self._lock:
                # it may have come to its end between the wait and here
                self._overdue = not self._idle.is_set()
                if self._overdue:
                    last = self._last
                    return Collected(last.observation, False, last.observed_s, last.duration_s)
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
        try:
            observation = self._observe()
        except Exception:  # the series says so; the error itself is any command's to show
            observation = None
        finally:
            self._finish(observation, began_s)

    def _finish(self, observation: Observation | None, began_s: float) -> None:
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._tried_s = now_s
            if observation is None:
                last = self._last
                self._last = Collected(last.observation, False, last.observed_s, last.duration_s)
            else:
                wall_s = self._clock.wall_s()
                self._last = Collected(observation, True, wall_s, now_s - began_s)
            self._overdue = False
            self._idle.set()
