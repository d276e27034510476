"""Metrics as an operation: the table, samples of what was observed, and the exposition for Prometheus."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from vgpumgr import __version__
from vgpumgr.app.documents.gpus import SliceDeviceDocument, index_owners
from vgpumgr.app.documents.operations import MetricsDocument
from vgpumgr.app.metric_spec import (
    GPU_LABELS,
    HOST_LABELS,
    MIG_SHARE_METRICS,
    NO_CHANNEL,
    SHARE_METRICS,
    MetricSpec,
    Sample,
    sample_channel_share,
    sample_shares,
)
from vgpumgr.app.pool_metrics import POOL_METRICS, sample_leases, sample_pool
from vgpumgr.errors import Exit, VgpumgrError
from vgpumgr.host.statistics import DURATION_BUCKETS_S, OperationCounts, OperationStatistics
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Drain, Gpu, Inventory, PciGpu, Sensors, find_drain
from vgpumgr.model.health import GpuHealth
from vgpumgr.model.pci import PciAddress
from vgpumgr.planning.shares import measure_instance_shares, measure_shares
from vgpumgr.state.leases import SeenPool
from vgpumgr.virtio.channel import ChannelStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric


#: how long a scrape waits for a collection
PATIENCE_S = 2.0
_NO_VALUES = "no collection has succeeded yet"
_NO_MEMORY = "the driver gives none, as Intel's do; or no collection has succeeded yet"

METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "build_info", "info", ("version", "hostname"),
        "The version of vgpumgr; the value is always 1.",
        "never",
    ),
    MetricSpec(
        "gpu_info", "info", (*GPU_LABELS, "framework"),
        "A GPU that answers; framework is mig where MIG mode is on, else none. Always 1.",
        "the GPU is lost",
    ),
    MetricSpec(
        "gpu_drained", "gauge", GPU_LABELS,
        "1 where the GPU takes no new slice (vgpumgr gpu drain), else 0; labels as of gpu_vfs.",
        _NO_VALUES,
    ),
    MetricSpec(
        "gpu_healthy", "gauge", GPU_LABELS,
        "0 where the GPU is unhealthy, by an Xid, uncorrectable ECC errors or its temperature, else 1.",
        "the GPU is lost",
    ),
    MetricSpec(
        "gpu_xid_errors_total", "counter", (*GPU_LABELS, "xid"),
        "Xids that the driver reported, those of programs included.",
        "none of that number was reported, or the GPU is lost",
    ),
    MetricSpec(
        "gpu_ecc_uncorrectable_errors", "gauge", GPU_LABELS,
        "Uncorrectable (double-bit) ECC errors since the driver was loaded.",
        "the GPU has no ECC, or it is off",
    ),
    MetricSpec(
        "gpu_temperature_celsius", "gauge", GPU_LABELS,
        "Temperature of the GPU; of one without NVML by hwmon.", "the driver gives none", "celsius",
    ),
    MetricSpec(
        "gpu_power_watts", "gauge", GPU_LABELS,
        "Power that the card draws; of a GPU without NVML by hwmon.", "the driver gives none", "watts",
    ),
    MetricSpec(
        "gpu_framebuffer_bytes", "gauge", GPU_LABELS,
        "Memory of the GPU; of one without NVML by its kernel driver.", _NO_MEMORY, "bytes",
    ),
    MetricSpec(
        "gpu_framebuffer_used_bytes", "gauge", GPU_LABELS,
        "Memory in use, what the driver reserves included.", _NO_MEMORY, "bytes",
    ),
    MetricSpec(
        "gpu_utilization_ratio", "gauge", (*GPU_LABELS, "engine"),
        "Share of the driver's last sample period in which kernels ran (engine gpu), or memory "
        "was read or written (engine memory).",
        "the driver gives none, as for every GPU in MIG mode",
        "ratio",
    ),
    MetricSpec(
        "mig_slices", "gauge", (*GPU_LABELS, "kind", "state"),
        "Slices of the GPU: kind compute or memory, state used or free.",
        "MIG mode is off",
    ),
    MetricSpec(
        "mig_instance_info", "info", (*GPU_LABELS, "GPU_I_ID", "GPU_I_PROFILE", "domain"),
        "A GPU instance; domain is the VM that has it, all of them with commas where several have slices or shares of "
        "it, empty for none. Always 1.",
        "MIG mode is off, or the GPU is not cut",
    ),
    MetricSpec(
        "gpu_vfs", "gauge", (*GPU_LABELS, "state"),
        "Virtual functions of a GPU of any vendor: state possible, enabled, or used (VMs have them). A GPU without "
        "NVML has its address in pci_bus_id, and empty gpu, UUID and device.",
        "the GPU has no SR-IOV",
    ),
    MetricSpec(
        "vf_info", "info", (*GPU_LABELS, "vf", "driver", "domain"),
        "A virtual function that goes to VMs as it is; domain is the VM that has it, empty for none. Always 1.",
        "it is not enabled, or takes a vGPU type",
    ),
    MetricSpec(
        "vgpu_info", "info", (*GPU_LABELS, "vgpu", "vgpu_type", "function", "domain"),
        "A vGPU by its UUID or function; domain is the VM that has it, empty for none. Always 1.",
        "the GPU has no vGPU",
    ),
    MetricSpec(
        "vgpu_framebuffer_bytes", "gauge", (*GPU_LABELS, "vgpu", "vgpu_type"),
        "Memory of a vGPU.",
        "its type has no known size",
        "bytes",
    ),
    MetricSpec(
        "vgpu_creatable", "gauge", (*GPU_LABELS, "vgpu_type"),
        "How many more vGPUs of the type can be created now, as vgpumgr mdev types says.",
        "the GPU offers no vGPU types",
    ),
    MetricSpec(
        "desired_state_drift", "gauge", ("kind", "hostname"),
        "Differences between what is recorded and what is, by kind, as vgpumgr diff lists them.",
        "they are not known: libvirt, NVML or the records do not answer",
    ),
    MetricSpec(
        "operations_total", "counter", ("op", "outcome", "hostname"),
        "Operations since the host's boot; outcome is done, rolled-back, incomplete or failed.",
        "there was none of that outcome",
    ),
    MetricSpec(
        "operation_duration_seconds", "histogram", ("op", "hostname"),
        "How long operations took, whatever their outcome.",
        "there was none",
        "seconds",
    ),
    MetricSpec(
        "channel_lanes", "gauge", ("domain", "attachment", "hostname"),
        "Processes in the VM that use its slice now; attachment counts those of the VM from 0.",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_calls_total", "counter", ("domain", "attachment", "api", "hostname"),
        "Forwarded calls since the VM's worker started.",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_bytes_total", "counter", ("domain", "attachment", "direction", "hostname"),
        "Bytes through the channel since the worker started; direction in is from the guest.",
        NO_CHANNEL,
        "bytes",
    ),
    MetricSpec(
        "channel_keeper_hangs", "gauge", ("domain", "attachment", "hostname"),
        "1 if the keeper of the channel runs and does not answer; nothing else is known of the channel then.",
        "the VM's keeper does not run",
    ),
    MetricSpec(
        "channel_protocol_errors_total", "counter", ("domain", "attachment", "hostname"),
        "Sessions that were ended because the guest broke the protocol.",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_sessions_lost_total", "counter", ("domain", "attachment", "cause", "hostname"),
        "Sessions of guest processes that ended and should not have, since the worker started; cause is fault, "
        "killed, watchdog or device-memory (it had more than it counted).",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_sessions", "gauge", ("domain", "attachment", "state", "hostname"),
        "Sessions that need an eye now; state is slow (a call lasts longer than the watchdog's limit) or stuck "
        "(killed, and does not end).",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_refused_calls_total", "counter", ("domain", "attachment", "call", "hostname"),
        "Calls that are not supported over a channel, by name, of at most 24 names; others has the rest.",
        "there was none of that name",
    ),
    MetricSpec(
        "channel_limit", "gauge", ("domain", "attachment", "limit", "hostname"),
        "What the VM's processes may take together, by the key of --limit; cpu in percent of one processor.",
        "there is no limit",
    ),
    MetricSpec(
        "channel_limit_used", "gauge", ("domain", "attachment", "limit", "hostname"),
        "What the VM's processes take of it now.",
        "it is not counted",
    ),
    MetricSpec(
        "channel_limit_refusals_total", "counter", ("domain", "attachment", "limit", "hostname"),
        "How often more than the limit was refused, since the VM's worker started.",
        NO_CHANNEL,
    ),
    MetricSpec(
        "channel_limit_waits_seconds_total", "counter", ("domain", "attachment", "limit", "hostname"),
        "How long calls were held up, since the VM's worker started.",
        NO_CHANNEL,
        "seconds",
    ),
    *SHARE_METRICS,
    *MIG_SHARE_METRICS,
    *POOL_METRICS,
    MetricSpec(
        "last_collect_success", "gauge", HOST_LABELS,
        "1 if the latest collection came to its end; 0 if it failed or is overdue. All other "
        "values are then those of the last good one.",
        "never",
    ),
    MetricSpec(
        "last_collect_timestamp_seconds", "gauge", HOST_LABELS,
        "When the values were collected, as Unix time: time() minus it is their age.", _NO_VALUES, "seconds",
    ),
    MetricSpec(
        "collect_duration_seconds", "gauge", HOST_LABELS,
        "How long the last good collection took.", _NO_VALUES, "seconds",
    ),
)  # fmt: skip

BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in METRICS}


TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class MetricsMissingError(VgpumgrError):
    """The Python package that writes the exposition is not installed."""

    id = "VG390"
    exit_code = Exit.ERROR
    http_status = 501


class MetricsService:
    """The operation; ``read`` and ``sample`` are MetricsCache's, and ``read`` is ``collect`` here."""

    def __init__(
        self,
        read: Callable[[float], Collected],
        statistics: OperationStatistics,
        hostname: str | None = None,
        *,
        sample: Callable[[float], Collected] | None = None,
    ) -> None:
        self.collect = read
        self.sample = sample or read
        self._statistics = statistics
        self._hostname = hostname or platform.node()

    def read_metrics(
        self, *, openmetrics: bool = False, wait_s: float = PATIENCE_S
    ) -> MetricsDocument:
        """The exposition of now; waits no longer than ``wait_s`` for the machine. Raises
        MetricsMissingError.
        """
        samples = list_samples(
            self.collect(wait_s), self._statistics.list_counts(), __version__, self._hostname
        )
        text = format_exposition(samples, openmetrics=openmetrics)
        kind = OPENMETRICS_FORMAT if openmetrics else TEXT_FORMAT
        return MetricsDocument(content_type=kind, text=text)


def format_exposition(samples: Iterable[Sample], *, openmetrics: bool = False) -> str:
    """The text of the samples, families in the table's order. Raises MetricsMissingError."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
    except ImportError as error:
        raise MetricsMissingError(
            "cannot write metrics",
            cause=str(error),
            hint="pip install 'vgpumgr[daemon]', or apt install python3-prometheus-client",
        ) from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(samples))
    generate = generate_openmetrics if openmetrics else generate_latest
    return generate(registry).decode()


class _Families:
    """What the registry asks for families: the samples, once."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            self._by_name.setdefault(sample.name, []).append(sample)

    def describe(self) -> list[Metric]:
        """Nothing: asked at registration, before there is anything."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family that has a sample."""
        for spec in METRICS:
            if samples := self._by_name.get(spec.name):
                yield _make_family(spec, samples)


def _make_family(spec: MetricSpec, samples: Iterable[Sample]) -> Metric:
    from prometheus_client.core import Metric

    family = Metric(spec.family, spec.help, spec.kind, spec.unit)
    for sample in samples:
        name = family.name + sample.suffix
        if spec.kind in ("counter", "info"):
            name += {"counter": "_total", "info": "_info"}[spec.kind]
        labels = {label: sample.labels[label] for label in _order(spec, sample)}
        family.add_sample(name, labels, sample.value)
    return family


def _order(spec: MetricSpec, sample: Sample) -> tuple[str, ...]:
    """The labels of the table and no others; a sample with others is a bug and fails here."""
    allowed = (*spec.labels, "le") if sample.suffix == "_bucket" else spec.labels
    if set(allowed) != set(sample.labels):
        raise ValueError(f"{spec.name} has labels {sorted(sample.labels)}, not {sorted(allowed)}")
    return allowed


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
    #: vGPUs and virtual functions by the GPU's address
    devices: Mapping[str, Sequence[SliceDeviceDocument]] = field(default_factory=dict)
    #: how many more vGPUs fit, by the GPU's address and the type's name
    creatable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    drains: Sequence[Drain] = ()
    health: Sequence[GpuHealth] = ()
    records: Sequence[AttachmentRecord] = ()
    #: what drivers show of GPUs without NVML
    sensors: Mapping[PciAddress, Sensors] = field(default_factory=dict)
    #: None: this host is in none, or nothing serves for it
    pool: SeenPool | None = None
    #: which boot it was, and the seconds since it, those of sleep included
    boot: tuple[str, float] = ("", 0.0)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a scrape gets: the last good observation, if any, and how collecting goes now."""

    observation: Observation | None = None
    success: bool = False
    observed_s: float | None = None
    duration_s: float | None = None


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
        yield from sample_pool(seen.pool, host, seen.boot)
        yield from sample_leases(seen.pool, host, seen.inventory, seen.records, seen.channels)
        vms = {
            key: ",".join(dict.fromkeys(owner.vm_name for owner in own if owner.kind == "vm"))
            for key, own in index_owners(seen.owners).items()
        }
        for gpu in seen.inventory.gpus:
            labels = label_gpu(gpu, hostname)
            yield from _sample_gpu(gpu, labels)
            yield _sample_drain(seen, labels, gpu.pci, gpu.uuid)
            yield from _sample_health(seen, labels, gpu)
            yield from sample_shares(measure_shares(gpu, seen.records), labels)
            yield from _sample_mig(
                gpu, labels, {id_: vms[u, id_] for u, id_ in vms if u == gpu.uuid}
            )
            for instance in gpu.instances:
                own = {"GPU_I_ID": str(instance.id), "GPU_I_PROFILE": str(instance.profile)}
                use = measure_instance_shares(gpu, instance, seen.records)
                yield from sample_shares(use, labels | own, "mig")
            yield from _sample_devices(seen, gpu, str(gpu.pci), labels)
        for other in seen.inventory.others:
            labels = label_other(other, hostname)
            yield _sample_drain(seen, labels, other.address)
            yield from _sample_sensors(seen.sensors.get(other.address) or Sensors(), labels)
            yield from _sample_devices(seen, other, str(other.address), labels)
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


def label_other(gpu: PciGpu, hostname: str) -> dict[str, str]:
    """The labels of a GPU without NVML: what NVML would give it is empty."""
    known = {"pci_bus_id": format_bus_id(gpu.address), "modelName": gpu.model, "hostname": hostname}
    return dict.fromkeys(GPU_LABELS, "") | known


def format_bus_id(pci: PciAddress) -> str:
    """NVML's spelling of an address: a domain of eight digits, upper case."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _sample_drain(
    seen: Observation, labels: Mapping[str, str], address: PciAddress, uuid: str | None = None
) -> Sample:
    is_drained = find_drain(seen.drains, address, uuid) is not None
    return Sample("gpu_drained", labels, int(is_drained))


def _sample_health(seen: Observation, labels: Mapping[str, str], gpu: Gpu) -> Iterator[Sample]:
    faults = [d for d in seen.drains if d.fault is not None and d.is_of(gpu.pci, gpu.uuid)]
    yield Sample("gpu_healthy", labels, int(not faults))
    if gpu.ecc_errors is not None:
        yield Sample("gpu_ecc_uncorrectable_errors", labels, gpu.ecc_errors)
    if gpu.temperature_c is not None:
        yield Sample("gpu_temperature_celsius", labels, gpu.temperature_c)
    if gpu.power_mw is not None:
        yield Sample("gpu_power_watts", labels, gpu.power_mw / 1000)
    for known in seen.health:
        for one in known.xids if known.uuid == gpu.uuid else ():
            yield Sample("gpu_xid_errors_total", {**labels, "xid": str(one.xid)}, one.count)


def _sample_sensors(known: Sensors, labels: Mapping[str, str]) -> Iterator[Sample]:
    for name, value in (
        ("gpu_temperature_celsius", known.temperature_c),
        ("gpu_power_watts", known.power_w),
        ("gpu_framebuffer_bytes", known.memory_total_bytes),
        ("gpu_framebuffer_used_bytes", known.memory_used_bytes),
    ):
        if value is not None:
            yield Sample(name, labels, value)
    for engine, ratio in (("gpu", known.gpu_ratio), ("memory", known.memory_ratio)):
        if ratio is not None:
            yield Sample("gpu_utilization_ratio", {**labels, "engine": engine}, ratio)


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
    used = sum(instance.slices for instance in gpu.instances)
    taken = sum(instance.placement.size for instance in gpu.instances)
    for kind, state, count in (
        ("compute", "used", used),
        ("compute", "free", gpu.compute_slices - used),
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


def _sample_devices(
    seen: Observation, gpu: Gpu | PciGpu, address: str, labels: Mapping[str, str]
) -> Iterator[Sample]:
    """vGPUs and virtual functions of one GPU, and what still fits."""
    if gpu.vfs_total:
        places = {str(vf.address) for vf in gpu.vfs}
        used = {d.function for d in seen.devices.get(address, ()) if d.vm and d.function in places}
        for state, count in (
            ("enabled", gpu.vfs_enabled or 0),
            ("possible", gpu.vfs_total),
            ("used", len(used)),
        ):
            yield Sample("gpu_vfs", {**labels, "state": state}, count)
    for device in seen.devices.get(address, ()):
        domain = {"domain": device.vm or ""}
        if device.kind == "vf":
            own = {"vf": device.name, "driver": device.driver or "", **domain}
            yield Sample("vf_info", {**labels, **own}, 1)
            continue
        own = {"vgpu": device.name, "vgpu_type": device.profile}
        place = {"function": device.function, **domain}
        yield Sample("vgpu_info", {**labels, **own, **place}, 1)
        if device.memory_bytes is not None:
            yield Sample("vgpu_framebuffer_bytes", {**labels, **own}, device.memory_bytes)
    for (board, name), count in seen.creatable.items():
        if board == address:
            yield Sample("vgpu_creatable", {**labels, "vgpu_type": name}, count)


def _sample_channel(status: ChannelStatus, labels: Mapping[str, str]) -> Iterator[Sample]:
    yield Sample("channel_keeper_hangs", labels, int(status.keeper_hangs))
    if status.keeper_hangs:
        return
    yield Sample("channel_lanes", labels, len(status.lanes))
    yield Sample("channel_calls_total", {**labels, "api": _API}, status.calls)
    for direction, count in (("in", status.bytes_in), ("out", status.bytes_out)):
        yield Sample("channel_bytes_total", {**labels, "direction": direction}, count)
    yield Sample("channel_protocol_errors_total", labels, status.protocol_errors)
    sessions = status.sessions
    for cause, count in (
        ("fault", sessions.faults),
        ("killed", max(0, sessions.lost - sessions.faults - sessions.memory)),
        ("watchdog", sessions.overdue),
        ("device-memory", sessions.memory),
    ):
        yield Sample("channel_sessions_lost_total", {**labels, "cause": cause}, count)
    for state in ("slow", "stuck"):
        count = sum(event.kind == state for event in sessions.events)
        yield Sample("channel_sessions", {**labels, "state": state}, count)
    for name, count in status.refused.items():
        yield Sample("channel_refused_calls_total", {**labels, "call": name}, count)
    for one in status.limits:
        named = {**labels, "limit": one.key.name}
        if one.limit is not None:
            yield Sample("channel_limit", named, one.limit)
        if one.used is not None:
            yield Sample("channel_limit_used", named, one.used)
        if one.key.a_second:
            yield Sample("channel_limit_waits_seconds_total", named, one.waited_s)
        elif not one.key.of_cgroup:
            yield Sample("channel_limit_refusals_total", named, one.refused)
    yield from sample_channel_share(status, labels)


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
