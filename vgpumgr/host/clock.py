"""Time. Nothing else in the program reads a clock, so that a test can be the clock."""

from __future__ import annotations

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
