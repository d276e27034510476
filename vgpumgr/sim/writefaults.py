"""Faults of the simulated ``/sys`` that a test asks for: writes that are ignored, refused, or stick."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from vgpumgr.sim.pcibus import Asleep, State, refuse
from vgpumgr.sim.tree import Directory, File

Kind = Literal["ignore", "fail", "late", "hang"]
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
CONTROL = "/.sim/fault"


class Ignored(Exception):  # noqa: N818  (an outcome, not an error)
    """The write was accepted and did nothing."""


@dataclass(slots=True)
class Fault:
    """What happens to the next writes to paths of this pattern."""

    kind: Kind
    pattern: str
    value: float
    """Error number (``fail``) or seconds (``late``)."""
    times: int


class WriteFaults:
    """The faults that are set. Patterns are those of ``fnmatch``, for paths without links from the machine's root."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def command(self, line: str) -> None:
        """Obey a line: ``ignore PATTERN [TIMES]``, ``fail PATTERN ERRNO [TIMES]``, ``late PATTERN SECONDS [TIMES]``,
        ``hang PATTERN [TIMES]`` (until ``clear``) or ``clear``. EINVAL for anything else.
        """
        words = line.split()
        if words == ["clear"]:
            self._faults.clear()
            return
        try:
            self._faults.append(_parse(words))
        except (ValueError, IndexError):
            raise refuse(errno.EINVAL) from None

    def before_write(self, path: str) -> None:
        """Let the write be: return. Else raises Ignored, OSError or Asleep."""
        if path == CONTROL:
            return
        for fault in self._faults:
            if fault.times and fnmatchcase(path, fault.pattern):
                fault.times -= 1
                self._suffer(fault)

    def _suffer(self, fault: Fault) -> None:
        if fault.kind == "ignore":
            raise Ignored
        if fault.kind == "fail":
            raise refuse(int(fault.value))
        if fault.kind == "late":
            until = time.monotonic() + fault.value
            raise Asleep(lambda: time.monotonic() >= until)
        raise Asleep(lambda: fault not in self._faults)

    def __str__(self) -> str:
        rows = (f for f in self._faults if f.times)
        return "".join(f"{f.kind} {f.pattern} {f.value:g} {f.times}\n" for f in rows)


def _parse(words: list[str]) -> Fault:
    kind, pattern, *numbers = words
    value = 0.0
    if kind == "fail":
        name = numbers.pop(0)
        value = float(getattr(errno, name) if name.isalpha() else int(name))
    elif kind == "late":
        value = float(numbers.pop(0))
    if kind not in _KINDS or len(numbers) > 1:
        raise ValueError(kind)
    return Fault(_KINDS[kind], pattern, value, int(numbers[0]) if numbers else 1)


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
