"""The cache between scrapes and the machine: collecting happens in a thread of its own.

A scrape gets values of at most ``TTL_S``, waits at most ``PATIENCE_S`` for new ones, and not at all
for a collection that is overdue: whoever asks while NVML is stuck gets the last good values, and is
told that they are old.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from vgpumgr.daemon.metric_samples import Collected, Observation
from vgpumgr.host.clock import Clock

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
