"""The second line of the limit ``device-memory``.

Sessions count what they take before they ask the driver, in a table that a session that was taken over can write. So
the daemon compares the limit with NVML's figures for each process, and ends the session that has most beyond its count.
Where NVML has no figures nothing is ended, and that is said. What was found last stands in a file of the channel's
directory, which no session sees, for all that show the channel.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from vgpumgr.host.files import read_text, replace_file
from vgpumgr.host.process import list_descendants
from vgpumgr.model.codec import ShapeError, decode, encode
from vgpumgr.model.gpu import HOLDER_NAME

#: of each process, what a driver takes for its contexts and kernels beyond what programs ask for: not counted
SLACK_BYTES = 1 << 30
PERIOD_S = 2.0
#: not compared for so long: no daemon does
STALE_S = 30.0
_REFRESH_S = 10.0
_FILE = "device-memory.json"
#: ends that are remembered
_LAST = 8
UNCOMPARED = "no daemon compares it with the driver's figures"
NO_FIGURES = "NVML has no figures for each process here"
SHARED = "its processes share memory, which the driver may count for each of them"


@dataclass(frozen=True, slots=True)
class Overuse:
    """A session that was ended; ``driver_bytes`` is what all had, ``bytes`` what it had."""

    lane: int
    pid: int
    at_s: int
    bytes: int
    driver_bytes: int
    limit: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What was found last: ``driver_bytes`` of all sessions, beyond the slack; ``problem`` says why there are no
    figures; ``count`` sessions were ended since the channel started.
    """

    IGNORES_UNKNOWN: ClassVar[bool] = True

    checked_s: float = -STALE_S
    driver_bytes: int | None = None
    problem: str = UNCOMPARED
    count: int = 0
    ended: tuple[Overuse, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``driver_bytes`` of all, beyond the slack; None: there are no figures. ``pid`` is to be ended; ``is_shared``:
    what is too much may be memory that several have, and is no reason.
    """

    driver_bytes: int | None
    pid: int | None = None
    is_shared: bool = False


def judge(
    limit: int, uses: Mapping[int, int | None], claims: Mapping[int, int], opened: int = 0
) -> Verdict:
    """``uses`` are the driver's figures of the sessions by pid, ``claims`` what they say themselves: which of them has
    most that it does not account for. Claims that together exceed the limit cannot be true, and say nothing.
    ``opened`` is what they have of each other's memory, which a driver may count for each.
    """
    known = {pid: used for pid, used in uses.items() if used is not None}
    if len(known) < len(uses):
        return Verdict(None)
    total = sum(max(0, used - SLACK_BYTES) for used in known.values())
    if total <= limit:
        return Verdict(total)
    if total - opened <= limit:
        return Verdict(total, is_shared=True)
    believed = claims if sum(claims.values()) <= limit else {}
    return Verdict(total, max(known, key=lambda pid: (known[pid] - believed.get(pid, 0), pid)))


def read_report(directory: Path, now_s: float | None = None) -> MemoryReport:
    """What is known of a channel."""
    try:
        text = read_text(directory / _FILE)
        report = decode(MemoryReport, json.loads(text)) if text else MemoryReport()
    except (OSError, ValueError, ShapeError):
        report = MemoryReport()
    age_s = (time.monotonic() if now_s is None else now_s) - report.checked_s
    if 0 <= age_s < STALE_S:
        return report
    return replace(report, driver_bytes=None, problem=UNCOMPARED)


def enforce(
    directory: Path,
    worker_pid: int,
    limit: int,
    processes: Mapping[int, int | None],
    lanes: Mapping[int, tuple[int, int]],
    *,
    opened: int = 0,
    expected: bool = False,
) -> Overuse | None:
    """Compares, ends a session if need be, and writes down what was found. ``processes`` are NVML's, of the GPU;
    ``lanes`` has lane and count of each session by its pid, by its own word; ``opened``: see ``judge``; ``expected``:
    by that word there is one with memory. Raises OSError.
    """
    sessions = list_sessions(worker_pid)
    uses = {pid: used for pid, used in processes.items() if pid in sessions}
    verdict = judge(limit, uses, {pid: held for pid, (_, held) in lanes.items()}, opened)
    if expected and not uses:
        verdict = Verdict(None)
    over = None
    if verdict.pid is not None and _end(verdict.pid, worker_pid):
        used = uses[verdict.pid] or 0
        lane = lanes.get(verdict.pid, (0, 0))[0]
        now_s = int(time.time())
        over = Overuse(lane, verdict.pid, now_s, used, verdict.driver_bytes or 0, limit)
    _write(directory, verdict, over)
    return over


def report_failure(directory: Path, problem: str) -> None:
    """The driver could not be asked. Raises OSError."""
    before = read_report(directory)
    _save(
        directory, replace(before, checked_s=time.monotonic(), driver_bytes=None, problem=problem)
    )


def list_sessions(worker_pid: int) -> set[int]:
    """Its processes but for the holder, which is not the guest's. Which program a process runs it cannot change."""
    found = set()
    for pid in list_descendants(worker_pid):
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/exe").readlink().name != HOLDER_NAME:
                found.add(pid)
    return found


def _end(pid: int, worker_pid: int) -> bool:
    """Whether that process was there, and is killed: not another that has its number meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in list_sessions(worker_pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _write(directory: Path, verdict: Verdict, over: Overuse | None) -> None:
    before, now_s = read_report(directory), time.monotonic()
    problem = NO_FIGURES if verdict.driver_bytes is None else SHARED if verdict.is_shared else ""
    report = replace(before, checked_s=now_s, driver_bytes=verdict.driver_bytes, problem=problem)
    if over is not None:
        ended = (*before.ended, over)[-_LAST:]
        report = replace(report, count=before.count + 1, ended=ended)
    elif (
        replace(report, checked_s=before.checked_s) == before
        and now_s - before.checked_s < _REFRESH_S
    ):
        return
    _save(directory, report)


def _save(directory: Path, report: MemoryReport) -> None:
    replace_file(directory / _FILE, json.dumps(encode(report)))


def list_figures(processes: Collection[tuple[int, int | None]]) -> dict[int, int | None]:
    """Sums by process: one may have contexts on several instances of a GPU."""
    found: dict[int, int | None] = {}
    for pid, used in processes:
        before = found.get(pid, 0)
        found[pid] = None if used is None or before is None else before + used
    return found
