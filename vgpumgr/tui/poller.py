"""The thread that asks the machine, so that the terminal never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.tui.sample import Call, Sample, take_sample

OpenCall = Callable[[], AbstractContextManager[Call]]


class Poller:
    """Hands every sample to ``deliver``, in its own thread, until it is stopped."""

    def __init__(
        self,
        open_call: OpenCall,
        clock: Clock,
        interval_s: float,
        deliver: Callable[[Sample], None],
    ) -> None:
        self._open_call = open_call
        self._clock = clock
        self._interval_s = interval_s
        self._deliver = deliver
        self._wake = threading.Event()
        self._stopped = False
        self._asked_s: float | None = None

    def start(self) -> None:
        """A daemon thread: one that is stuck in a call must not keep the program."""
        threading.Thread(target=self._run, name="poller", daemon=True).start()

    def stop(self) -> None:
        """No sample is delivered after the next; does not wait."""
        self._stopped = True
        self._wake.set()

    def hurry(self) -> None:
        """Asks again at once, or when the running question is answered."""
        self._wake.set()

    def waiting_s(self) -> float:
        """For how long the running question has had no answer; 0 if none runs."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else self._clock.monotonic_s() - asked_s

    def _run(self) -> None:
        while not self._stopped:
            try:
                with self._open_call() as call:
                    self._ask_on(call)
            except VgpumgrError as error:
                # the machine cannot even be opened: say so, and try again later
                self._answer(Sample(0, self._clock.wall_s(), problems=(error.error,)))
                self._pause()

    def _ask_on(self, call: Call) -> None:
        while not self._stopped:
            self._asked_s = self._clock.monotonic_s()
            self._answer(take_sample(call, self._clock))
            self._pause()

    def _answer(self, sample: Sample) -> None:
        self._asked_s = None
        if not self._stopped:
            self._deliver(sample)

    def _pause(self) -> None:
        self._wake.wait(self._interval_s)
        self._wake.clear()
