"""A helper that is there when it is needed: started by the first call, replaced when it is lost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from vgpumgr.errors import HelperDiedError, HelperLateError, VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import Helper, LateRecords
from vgpumgr.host.machine import Machine


class HelperOnDemand:
    """Calls of ``python -m module ARGUMENTS``, one process for all of them. A late or dead one is hung
    up, and the next call gets another; a late one then ends by itself when its call has come back.
    """

    def __init__(
        self, machine: Machine, module: str, *arguments: str, clock: Clock | None = None
    ) -> None:
        self._machine = machine
        self._words = (module, *arguments)
        self._clock = clock
        self._helper: Helper | None = None
        #: the machine's late helpers, of whatever module
        self.records = LateRecords(machine.run_dir, clock)

    def start_early(self) -> None:
        """Starts it now; if it cannot start, the first call says why."""
        with suppress(VgpumgrError):
            self._take()

    def call(
        self, method: str, params: Mapping[str, Any], timeout_s: float, what: str | None = None
    ) -> Any:
        """See ``Helper.call``; may also raise TooManyStuckError."""
        helper = self._take()
        try:
            return helper.call(method, params, timeout_s, what)
        except (HelperLateError, HelperDiedError):
            self.close()
            raise

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def _take(self) -> Helper:
        if self._helper is None or not self._helper.is_usable:
            self.close()
            self._helper = self._start()
        return self._helper

    def _start(self) -> Helper:
        argv = [sys.executable, "-m", *self._words]
        return Helper(argv, self._machine.child_env(), self.records, self._clock)
