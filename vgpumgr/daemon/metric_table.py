"""The table of metrics: what the exposition may contain, and what docs/metrics.md is made of.

Base units; a value that the host does not give is a series that is not there, never a stand-in.
The labels of a GPU are those of dcgm-exporter, so that boards and queries join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram", "info"]

PREFIX = "vgpumgr_"
HOST_LABELS = ("hostname",)
GPU_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname")
#: seconds; an attachment takes a few of them, most of it the worker's start
DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One family. ``name`` is what queries say (a histogram's without ``_bucket`` and the like);
    ``absent`` says when its series are not there.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    absent: str
    unit: Literal["", "bytes", "seconds", "ratio"] = ""

    @property
    def family(self) -> str:
        """The name in ``# TYPE`` lines of OpenMetrics: without the suffix of its kind."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return PREFIX + self.name.removesuffix(suffix)

    def list_series(self) -> tuple[str, ...]:
        """Names of the series, as queries say them."""
        full = PREFIX + self.name
        if self.kind == "histogram":
            return (f"{full}_bucket", f"{full}_count", f"{full}_sum")
        return (full,)


_NO_VALUES = "no collection has succeeded yet"
_NO_CHANNEL = "the VM's keeper does not run or does not answer"

METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "build_info",
        "info",
        ("version", "hostname"),
        "The version of vgpumgr; the value is always 1.",
        "never",
    ),
    MetricSpec(
        "gpu_info",
        "info",
        (*GPU_LABELS, "framework"),
        "A GPU that answers; framework is mig where MIG mode is on, else none. Always 1.",
        "the GPU is lost",
    ),
    MetricSpec(
        "gpu_framebuffer_bytes",
        "gauge",
        GPU_LABELS,
        "Memory of the GPU.",
        _NO_VALUES,
        "bytes",
    ),
    MetricSpec(
        "gpu_framebuffer_used_bytes",
        "gauge",
        GPU_LABELS,
        "Memory in use, what the driver reserves included.",
        _NO_VALUES,
        "bytes",
    ),
    MetricSpec(
        "gpu_utilization_ratio",
        "gauge",
        (*GPU_LABELS, "engine"),
        "Share of the driver's last sample period in which kernels ran (engine gpu), or memory "
        "was read or written (engine memory).",
        "the driver gives none, as for every GPU in MIG mode",
        "ratio",
    ),
    MetricSpec(
        "mig_slices",
        "gauge",
        (*GPU_LABELS, "kind", "state"),
        "Slices of the GPU: kind compute or memory, state used or free.",
        "MIG mode is off",
    ),
    MetricSpec(
        "mig_instance_info",
        "info",
        (*GPU_LABELS, "GPU_I_ID", "GPU_I_PROFILE", "domain"),
        "A GPU instance; domain is the VM that has it, empty for none. Always 1.",
        "MIG mode is off, or the GPU is not cut",
    ),
    MetricSpec(
        "desired_state_drift",
        "gauge",
        ("kind", "hostname"),
        "Differences between what is recorded and what is, by kind, as vgpumgr diff lists them.",
        "they cannot be told: libvirt, NVML or the records do not answer",
    ),
    MetricSpec(
        "operations_total",
        "counter",
        ("op", "outcome", "hostname"),
        "Operations since the host's boot; outcome is done, rolled-back, incomplete or failed.",
        "there was none of that outcome",
    ),
    MetricSpec(
        "operation_duration_seconds",
        "histogram",
        ("op", "hostname"),
        "How long operations took, whatever their outcome.",
        "there was none",
        "seconds",
    ),
    MetricSpec(
        "channel_lanes",
        "gauge",
        ("domain", "attachment", "hostname"),
        "Processes in the VM that use its slice now; attachment counts those of the VM from 0.",
        _NO_CHANNEL,
    ),
    MetricSpec(
        "channel_calls_total",
        "counter",
        ("domain", "attachment", "api", "hostname"),
        "Forwarded calls since the VM's worker started.",
        _NO_CHANNEL,
    ),
    MetricSpec(
        "channel_bytes_total",
        "counter",
        ("domain", "attachment", "direction", "hostname"),
        "Bytes through the channel since the worker started; direction in is from the guest.",
        _NO_CHANNEL,
        "bytes",
    ),
    MetricSpec(
        "channel_protocol_errors_total",
        "counter",
        ("domain", "attachment", "hostname"),
        "Sessions that were ended because the guest broke the protocol.",
        _NO_CHANNEL,
    ),
    MetricSpec(
        "last_collect_success",
        "gauge",
        HOST_LABELS,
        "1 if the latest collection came to its end; 0 if it failed or is overdue. All other "
        "values are then those of the last good one.",
        "never",
    ),
    MetricSpec(
        "last_collect_timestamp_seconds",
        "gauge",
        HOST_LABELS,
        "When the values were collected, as Unix time: time() minus it is their age.",
        _NO_VALUES,
        "seconds",
    ),
    MetricSpec(
        "collect_duration_seconds",
        "gauge",
        HOST_LABELS,
        "How long the last good collection took.",
        _NO_VALUES,
        "seconds",
    ),
)

BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in METRICS}
