"""A clock for tests."""

from __future__ import annotations

import select


class FakeClock:
    """Time that passes only when somebody waits: nothing in a test waits for real."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        #: by so much somebody has set the wall clock
        self.set_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s + self.set_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def wait(self, descriptor: int, timeout_s: float) -> bool:
        self.sleep(timeout_s)
        return bool(select.select([descriptor], [], [], 0)[0])
