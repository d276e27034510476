"""Our own helper processes that have NVML open: they keep a GPU at its driver, and may be ended.

Only those that do nothing but read are ended, and only under the machine's lock, under which nobody
else of us changes anything: who reads asks again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.process import is_alive, read_words

_MODULE = "vgpumgr.nvml.helper"
_WAIT_S = 2.0
_POLL_S = 0.02


def is_own_monitor(words: Sequence[str]) -> bool:
    """Whether that command line is one of our NVML helpers."""
    return "-m" in words and _MODULE in words


def end_monitors(records: LateRecords, clock: Clock | None = None) -> None:
    """Ends those that are not late, and waits a moment until they are gone."""
    clock = clock or SystemClock()
    late = {helper.process for helper in records.list_late()}
    ours = [
        process
        for process in records.list_running()
        if process not in late and is_own_monitor(read_words(process.pid))
    ]
    for process in ours:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)
    end_s = clock.monotonic_s() + _WAIT_S
    while any(is_alive(process) for process in ours) and clock.monotonic_s() < end_s:
        clock.sleep(_POLL_S)
