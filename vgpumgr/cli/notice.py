"""What a command that runs by a claim hears of its lease: that it ends soon, and that the command has to end now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from vgpumgr.cli.session import Backend
from vgpumgr.errors import RouteNotFoundError, VgpumgrError
from vgpumgr.host.clock import SleeplessClock

#: so often the host is asked, which reads a file
_ASK_S = 1.0


class LeaseWatch:
    """Asks in a thread of its own, so that a daemon that does not answer delays no signal. ``open_backend`` is entered
    there; ``report`` gets a line for people.
    """

    def __init__(
        self,
        claim: str,
        open_backend: Callable[[], AbstractContextManager[Backend]],
        report: Callable[[str], None],
    ) -> None:
        self._claim = claim
        self._open_backend = open_backend
        self._report = report
        self._clock = SleeplessClock()
        self._said = ""
        self._grace_s = 0.0
        #: when it is killed, once it has got SIGTERM
        self._end_s: float | None = None
        self._wanted: signal.Signals | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends soon."""
        self._is_over.set()

    def ask(self) -> signal.Signals | None:
        """The signal that the command is to get now: SIGTERM once, and after the grace SIGKILL."""
        if self._end_s is not None and self._clock.monotonic_s() >= self._end_s:
            self._end_s = None
            return signal.SIGKILL
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._end_s = self._clock.monotonic_s() + self._grace_s
        return wanted

    def hear(self, found: Mapping[str, Any]) -> None:
        """What the host says."""
        notice = found["notice"] or ("its claim is deleted" if found["ending"] else "")
        if found["ending"]:
            notice += f"; the command gets SIGTERM now, and SIGKILL in {found['grace_s']:g} s"
        if notice and notice != self._said:
            self._report(f"the lease of claim {self._claim} ends: {notice}")
        if found["ending"] and "SIGTERM" not in self._said:
            self._grace_s = float(found["grace_s"])
            self._wanted = signal.SIGTERM
        self._said = notice

    def _watch(self) -> None:
        while not self._is_over.wait(_ASK_S):
            try:
                with self._open_backend() as backend:
                    while not self._is_over.wait(_ASK_S):
                        self.hear(backend.call("read_notice", claim=self._claim))
            except RouteNotFoundError:
                return  # a daemon of before: its leases have no end
            except (VgpumgrError, OSError):
                continue  # what is left at the end its host ends
