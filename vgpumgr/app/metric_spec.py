"""What a metric is, and a value of one; the metrics of shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from vgpumgr.model.frozen import dataclass
from vgpumgr.planning.shares import ShareUse
from vgpumgr.virtio.channel import ChannelStatus

Kind = Literal["gauge", "counter", "histogram", "info"]

PREFIX = "vgpumgr_"
HOST_LABELS = ("hostname",)
GPU_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname")


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
    unit: Literal["", "bytes", "seconds", "ratio", "celsius", "watts"] = ""

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


NO_CHANNEL = "the VM's keeper does not run or does not answer"
_NO_SHARES = "the GPU has no shares"
_NO_SHARE = f"{NO_CHANNEL}, or it is no share"
_NOT_SHARED = "the instance has no shares"
_CHANNEL = ("domain", "attachment", "hostname")
_INSTANCE = ("GPU_I_ID", "GPU_I_PROFILE")

SHARE_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_share_memory_bytes", "gauge", (*GPU_LABELS, "state"),
        "Memory of a GPU that has shares: state used (shares have it) or free.",
        _NO_SHARES, "bytes",
    ),
    MetricSpec(
        "gpu_share_compute_ratio", "gauge", (*GPU_LABELS, "state"),
        "Time of a GPU that has shares: state used (shares have it, whether they compute or not) or free.",
        _NO_SHARES, "ratio",
    ),
    MetricSpec(
        "channel_share_compute_ratio", "gauge", (*_CHANNEL, "policy"),
        "The part of the GPU's time that a share has; policy is burst, fixed or best-effort.",
        _NO_SHARE, "ratio",
    ),
    MetricSpec(
        "channel_share_used_seconds_total", "counter", _CHANNEL,
        "Time that a share had on the GPU, since its keeper started.",
        _NO_SHARE, "seconds",
    ),
    MetricSpec(
        "channel_share_throttled_seconds_total", "counter", _CHANNEL,
        "How long work of a share was held back, since its keeper started.",
        _NO_SHARE, "seconds",
    ),
    MetricSpec(
        "channel_share_turns_total", "counter", _CHANNEL,
        "How often a share had its turn on the GPU, since its keeper started.",
        _NO_SHARE,
    ),
    MetricSpec(
        "channel_share_uncharged_seconds_total", "counter", _CHANNEL,
        "Time on the GPU that a share's processes had, by the driver's word, beyond what it was charged for.",
        _NO_SHARE, "seconds",
    ),
)  # fmt: skip


MIG_SHARE_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "mig_share_memory_bytes", "gauge", (*GPU_LABELS, *_INSTANCE, "state"),
        "Memory of an instance of MIG that has shares: state used (shares have it) or free.",
        _NOT_SHARED, "bytes",
    ),
    MetricSpec(
        "mig_share_compute_ratio", "gauge", (*GPU_LABELS, *_INSTANCE, "state"),
        "Time of an instance of MIG that has shares: state used (shares have it, whether they compute or not) or free.",
        _NOT_SHARED, "ratio",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; ``suffix`` is a histogram's (``_bucket``, ``_count``, ``_sum``)."""

    name: str
    labels: Mapping[str, str]
    value: float
    suffix: str = ""


def sample_shares(
    use: ShareUse, labels: Mapping[str, str], noun: Literal["gpu", "mig"] = "gpu"
) -> Iterator[Sample]:
    """The shares of a GPU, or of an instance of MIG, that has some."""
    if not use.records:
        return
    taken = use.total - use.free
    for state, share in (("used", taken), ("free", use.free)):
        named = {**labels, "state": state}
        yield Sample(f"{noun}_share_memory_bytes", named, share.memory)
        yield Sample(f"{noun}_share_compute_ratio", named, share.compute / 100)


def sample_channel_share(status: ChannelStatus, labels: Mapping[str, str]) -> Iterator[Sample]:
    """A share's time, as its keeper has it."""
    if (share := status.share) is None:
        return
    named = {**labels, "policy": share.policy}
    yield Sample("channel_share_compute_ratio", named, share.compute / 100)
    yield Sample("channel_share_used_seconds_total", labels, share.used_s)
    yield Sample("channel_share_throttled_seconds_total", labels, share.throttled_s)
    yield Sample("channel_share_turns_total", labels, share.turns)
    yield Sample("channel_share_uncharged_seconds_total", labels, share.uncharged_s)
