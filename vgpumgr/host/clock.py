"""Time. Nothing else in the program reads a clock, so that a test can be the clock."""

from __future__ import annotations

import math
import select
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic_s(self) -> float:
        """Seconds that only grow; for deadlines and durations."""

    def wall_s(self) -> float:
        """Unix seconds; for what a person reads, never for waiting."""

    def sleep(self, duration_s: float) -> None:
        """Waits."""

    def wait(self, descriptor: int, timeout_s: float) -> bool:
        """Waits until a descriptor can be read, or its other end is closed; whether that happened."""


class SystemClock:
    """The kernel's clocks."""

    def monotonic_s(self) -> float:
        """CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall_s(self) -> float:
        """CLOCK_REALTIME."""
        return time.time()

    def sleep(self, duration_s: float) -> None:
        """Waits by the kernel's timer."""
        time.sleep(duration_s)

    def wait(self, descriptor: int, timeout_s: float) -> bool:
        """Waits by poll(2)."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(math.ceil(timeout_s * 1000)))


class SleeplessClock(SystemClock):
    """The same, where durations count on while the machine sleeps: what others wait for does not sleep with it."""

    def monotonic_s(self) -> float:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
