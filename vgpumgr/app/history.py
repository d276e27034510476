"""Figures of the last hour, for plots: what the metrics' collection observes, in rings of bounded size."""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from vgpumgr.app.documents.operations import HistoryDocument, HistorySeriesDocument
from vgpumgr.app.metrics import Observation
from vgpumgr.virtio.channel import ChannelStatus

#: seconds between two points, and how many points are kept
STEP_S = 10.0
POINTS = 360
#: 16 GPUs and 48 channels; further ones have no history. In all at most 0.8 MB
MAX_SERIES = 256


class Key(NamedTuple):
    """Which series: ``gpu`` or ``vm`` with ``attachment``, and the figure. Without either it is of the pool."""

    gpu: str | None
    vm: str | None
    attachment: int | None
    figure: str

    @property
    def is_pool(self) -> bool:
        """Whether it is of the pool."""
        return self.gpu is None and self.vm is None


_NO_FIGURES: Mapping[str, float] = {}


class _Counters(NamedTuple):
    """A channel's counters, and when they were read by the clock that only grows."""

    monotonic_s: float
    calls: int
    bytes: int
    throttled_s: float | None


class Taken(NamedTuple):
    """A copy of some series, which any thread may describe while points are added."""

    times: array[float]
    series: list[tuple[Key, array[float]]]

    def describe(self) -> HistoryDocument:
        """The document: thousands of numbers are rounded."""
        return HistoryDocument(
            step_s=STEP_S,
            times_s=[round(time_s, 3) for time_s in self.times],
            series=[
                HistorySeriesDocument(**key._asdict(), values=[_shorten(value) for value in values])
                for key, values in self.series
            ],
        )


class History:
    """Series of one daemon. All of them have the same times. Lives on one event loop."""

    def __init__(self, points: int = POINTS, max_series: int = MAX_SERIES) -> None:
        self._count = 0
        #: the number of the last point that each series had a value in
        self._seen: dict[Key, int] = {}
        self._points = points
        self._max_series = max_series
        self._times = array("d")
        self._series: dict[Key, array[float]] = {}
        self._before: dict[tuple[str, int], _Counters] = {}

    def add(
        self,
        observation: Observation,
        wall_s: float,
        monotonic_s: float,
        pool: Mapping[str, float] = _NO_FIGURES,
    ) -> None:
        """One point of each series: that of an observation that was made now, and of the pool's figures."""
        found = {Key(None, None, None, figure): value for figure, value in pool.items()}
        found |= _list_gpu_figures(observation)
        for place, status in observation.channels.items():
            found |= self._list_rates(place, status, monotonic_s)
        self._before = {
            place: _count(status, monotonic_s)
            for place, status in observation.channels.items()
            if status is not None and not status.keeper_hangs
        }
        self._count += 1
        for key in found:
            if key not in self._series and self._has_place(found):
                self._series[key] = array("d", [math.nan] * len(self._times))
        self._append(self._times, wall_s)
        for key, values in list(self._series.items()):
            self._append(values, found.get(key, math.nan))
            if key in found:
                self._seen[key] = self._count
            elif all(map(math.isnan, values)):
                self._drop(key)

    def _has_place(self, found: Container[Key]) -> bool:
        """Whether there may be one more series; the one that has been absent longest gives its place."""
        if len(self._series) < self._max_series:
            return True
        absent = [key for key in self._series if key not in found]
        if absent:
            self._drop(min(absent, key=lambda key: self._seen[key]))
        return bool(absent)

    def _drop(self, key: Key) -> None:
        del self._series[key], self._seen[key]

    def describe(
        self, gpu: str | None = None, vm: str | None = None, pool: bool = False
    ) -> HistoryDocument:
        """The series of a GPU, of a VM, of the pool, or all."""
        return self.take(gpu, vm, pool).describe()

    def take(self, gpu: str | None = None, vm: str | None = None, pool: bool = False) -> Taken:
        """A copy of what ``describe`` answers with, quickly."""
        wanted = sorted(
            (
                key
                for key in self._series
                if gpu in (None, key.gpu) and vm in (None, key.vm) and (key.is_pool or not pool)
            ),
            key=lambda key: (key.gpu is None, key.gpu or "", key.vm or "", key.attachment or 0),
        )
        return Taken(self._times[:], [(key, self._series[key][:]) for key in wanted])

    def _append(self, values: array[float], value: float) -> None:
        values.append(value)
        if len(values) > self._points:
            del values[0]

    def _list_rates(
        self, place: tuple[str, int], status: ChannelStatus | None, monotonic_s: float
    ) -> Iterator[tuple[Key, float]]:
        """A channel's figures. A counter that fell is of a new worker: no rate is known then."""
        if status is None or status.keeper_hangs:
            return
        vm, attachment = place
        if status.memory_used is not None:
            yield Key(None, vm, attachment, "memory_used_bytes"), float(status.memory_used)
        now, before = _count(status, monotonic_s), self._before.get(place)
        if before is None or now.monotonic_s <= before.monotonic_s:
            return
        elapsed_s = now.monotonic_s - before.monotonic_s
        if now.calls >= before.calls:
            yield (
                Key(None, vm, attachment, "calls_per_second"),
                (now.calls - before.calls) / elapsed_s,
            )
        if now.bytes >= before.bytes:
            yield (
                Key(None, vm, attachment, "bytes_per_second"),
                (now.bytes - before.bytes) / elapsed_s,
            )
        if now.throttled_s is not None and before.throttled_s is not None:
            held_s = now.throttled_s - before.throttled_s
            if held_s >= 0:
                yield Key(None, vm, attachment, "throttled_ratio"), min(held_s / elapsed_s, 1.0)


def _list_gpu_figures(observation: Observation) -> Iterator[tuple[Key, float]]:
    for gpu in observation.inventory.gpus:
        yield from _list_known(
            gpu.uuid,
            memory_used_bytes=gpu.memory.used_bytes,
            utilisation_ratio=gpu.utilisation.gpu_ratio if gpu.utilisation else None,
            power_watts=None if gpu.power_mw is None else gpu.power_mw / 1000,
            temperature_celsius=gpu.temperature_c,
        )
    for address, sensors in observation.sensors.items():
        yield from _list_known(
            str(address),
            memory_used_bytes=sensors.memory_used_bytes,
            utilisation_ratio=sensors.gpu_ratio,
            power_watts=sensors.power_w,
            temperature_celsius=sensors.temperature_c,
        )


def _list_known(gpu: str, **figures: float | None) -> Iterator[tuple[Key, float]]:
    for figure, value in figures.items():
        if value is not None:
            yield Key(gpu, None, None, figure), float(value)


def _count(status: ChannelStatus, monotonic_s: float) -> _Counters:
    throttled_s = status.share.throttled_s if status.share else None
    return _Counters(monotonic_s, status.calls, status.bytes_in + status.bytes_out, throttled_s)


def _shorten(value: float) -> float | None:
    """As JSON has it: without digits that no plot shows."""
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.6g}")
