"""Metrics as an operation: the exposition for Prometheus, in its text format or as OpenMetrics."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr import __version__
from vgpumgr.daemon.metric_samples import Collected, Sample, list_samples
from vgpumgr.daemon.metric_table import DURATION_BUCKETS_S, METRICS, MetricSpec
from vgpumgr.daemon.metrics_cache import PATIENCE_S
from vgpumgr.daemon.operation_documents import MetricsDocument
from vgpumgr.errors import Exit, VgpumgrError
from vgpumgr.host.statistics import OperationStatistics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class MetricsMissingError(VgpumgrError):
    """The Python package that writes the exposition is not installed."""

    id = "VG390"
    exit_code = Exit.ERROR
    http_status = 501


def open_statistics(run_dir: Path) -> OperationStatistics:
    """The counts of operations of the machine with that run directory."""
    return OperationStatistics(run_dir / "operations.json", DURATION_BUCKETS_S)


class MetricsService:
    """The operation; ``read`` is MetricsCache's."""

    def __init__(
        self,
        read: Callable[[float], Collected],
        statistics: OperationStatistics,
        hostname: str | None = None,
    ) -> None:
        self._read = read
        self._statistics = statistics
        self._hostname = hostname or platform.node()

    def read_metrics(
        self, *, openmetrics: bool = False, wait_s: float = PATIENCE_S
    ) -> MetricsDocument:
        """The exposition of now; waits no longer than ``wait_s`` for the machine. Raises
        MetricsMissingError.
        """
        samples = list_samples(
            self._read(wait_s), self._statistics.list_counts(), __version__, self._hostname
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
