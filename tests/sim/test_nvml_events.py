# SPDX-License-Identifier: Apache-2.0
"""Event sets, ECC counts and temperature of the simulated NVML, as nvml.h documents them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.sim import nvml_support as support
from vgpumgr.sim.machine import add_event, boot_state, set_gpu_field

pytestmark = pytest.mark.native
XID, SINGLE, DOUBLE = (
    pynvml.nvmlEventTypeXidCriticalError,
    pynvml.nvmlEventTypeSingleBitEccError,
    pynvml.nvmlEventTypeDoubleBitEccError,
)
NOWHERE = 0xFFFFFFFF


@pytest.fixture
def a30(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with support.running("a30-pair", tmp_path, monkeypatch) as directory, support.nvml():
        yield directory


@pytest.fixture
def events(a30: Path) -> Iterator[Any]:
    """A set that hears all that the first GPU supports."""
    assert a30.is_dir()
    with listening(pynvml.nvmlDeviceGetHandleByIndex(0), XID | SINGLE | DOUBLE) as found:
        yield found


@contextmanager
def listening(device: Any, types: int) -> Iterator[Any]:
    made = pynvml.nvmlEventSetCreate()
    try:
        pynvml.nvmlDeviceRegisterEvents(device, types, made)
        yield made
    finally:
        with suppress(pynvml.NVMLError):  # freed by the test
            pynvml.nvmlEventSetFree(made)


def take(events: Any, timeout_ms: int = 5000) -> tuple[int, int, int, int]:
    data = pynvml.nvmlEventSetWait_v2(events, timeout_ms)
    assert pynvml.nvmlDeviceGetIndex(data.device) == 0
    return data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId


def test_events_are_delivered_once_and_in_order(a30: Path, events: Any) -> None:
    add_event(a30, 0, "xid", 79)
    add_event(a30, 1, "xid", 74)
    add_event(a30, 0, "ecc-double", 2)
    add_event(a30, 0, "xid", 94, 3, 1)
    assert take(events) == (XID, 79, NOWHERE, NOWHERE)
    assert take(events) == (DOUBLE, 0, NOWHERE, NOWHERE)
    assert take(events) == (XID, 94, 3, 1)
    with support.refused(pynvml.NVML_ERROR_TIMEOUT):
        take(events, 30)


def test_a_wait_ends_with_the_event_and_not_before_its_time(a30: Path, events: Any) -> None:
    began_s = time.monotonic()
    with support.refused(pynvml.NVML_ERROR_TIMEOUT):
        take(events, 200)
    assert time.monotonic() - began_s >= 0.19
    timer = threading.Timer(0.2, add_event, (a30, 0, "xid", 48))
    timer.start()
    began_s = time.monotonic()
    assert take(events, 30_000)[1] == 48
    assert time.monotonic() - began_s < 10
    timer.join()


def test_what_came_before_the_registration_or_was_not_asked_for_is_not_heard(a30: Path) -> None:
    add_event(a30, 0, "xid", 31)
    with listening(pynvml.nvmlDeviceGetHandleByIndex(0), DOUBLE) as events:
        add_event(a30, 0, "xid", 31)
        add_event(a30, 0, "ecc-single", 1)
        with support.refused(pynvml.NVML_ERROR_TIMEOUT):
            take(events, 30)
        pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(0), XID, events)
        add_event(a30, 0, "xid", 62)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        take(events)


def test_more_events_than_are_kept_are_the_newest_ones(a30: Path, events: Any) -> None:
    for number in range(1, 81):
        add_event(a30, 0, "xid", number)
    assert [take(events)[1] for _ in range(64)] == list(range(17, 81))


def test_what_is_refused(a30: Path, events: Any) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetSupportedEventTypes(gpu) == XID | SINGLE | DOUBLE
    for types, code in (
        (1 << 40, pynvml.NVML_ERROR_INVALID_ARGUMENT),
        (pynvml.nvmlEventTypePState, pynvml.NVML_ERROR_NOT_SUPPORTED),
    ):
        with support.refused(code):
            pynvml.nvmlDeviceRegisterEvents(gpu, types, events)
    set_gpu_field(a30, 0, "ecc_current", 0)
    assert pynvml.nvmlDeviceGetSupportedEventTypes(gpu) == XID
    with support.refused(pynvml.NVML_ERROR_NOT_SUPPORTED):
        pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0)
    add_event(a30, 0, "xid", 79)
    set_gpu_field(a30, 0, "lost", 1)
    assert pynvml.nvmlEventSetWait_v2(events, 1000).eventData == 79, "what came first"
    with support.refused(pynvml.NVML_ERROR_GPU_IS_LOST):
        pynvml.nvmlEventSetWait_v2(events, 1000)


def test_ecc_counts_and_temperature(a30: Path) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)

    def count() -> tuple[int, ...]:
        places = (pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_L2_CACHE)
        return (
            *(pynvml.nvmlDeviceGetTotalEccErrors(gpu, type_, 0) for type_ in (0, 1)),
            *(pynvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, place) for place in places),
        )

    assert count() == (0, 0, 0, 0)
    add_event(a30, 0, "ecc-single", 5)
    add_event(a30, 0, "ecc-double", 2)
    assert count() == (5, 2, 2, 0)
    set_gpu_field(a30, 0, "temperature_c", 95)
    assert pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU) == 95
    boot_state(a30)
    assert count() == (0, 0, 0, 0)
    assert pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU) < 50


def test_a_set_that_is_shut_down_under_a_wait_ends_it(a30: Path, events: Any) -> None:
    codes: list[int] = []

    def wait() -> None:
        try:
            pynvml.nvmlEventSetWait_v2(events, 60_000)
        except pynvml.NVMLError as error:
            codes.append(error.value)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    pynvml.nvmlEventSetFree(events)
    add_event(a30, 1, "xid", 8)
    thread.join(10)
    assert codes == [pynvml.NVML_ERROR_INVALID_ARGUMENT]
