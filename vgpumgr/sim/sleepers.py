# SPDX-License-Identifier: Apache-2.0
"""Processes that sleep in a write to the simulated ``/sys``: ``/proc/PID/wchan`` says where, as on a real host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vgpumgr.sim.pcibus import State
from vgpumgr.sim.tree import Directory, File


class Sleepers:
    """Who sleeps where. It is a part of the machine's files too."""

    def __init__(self) -> None:
        self._places: dict[int, str] = {}
        self._generation = 0

    @contextmanager
    def sleeping(self, pid: int, where: str) -> Iterator[None]:
        """The process sleeps inside the block."""
        self._places[pid] = where
        self._generation += 1
        try:
            yield
        finally:
            self._places.pop(pid, None)
            self._generation += 1

    def generation(self) -> int:
        """Rises when one falls asleep or wakes."""
        return self._generation

    def add(self, root: Directory) -> None:
        """``/proc/PID`` of each."""
        for pid, where in dict(self._places).items():
            root.add(f"proc/{pid}/wchan", File(lambda where=where: where.encode()))  # type: ignore[misc]
            root.add(f"proc/{pid}/comm", File(lambda: b"sh\n"))

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Nothing."""
