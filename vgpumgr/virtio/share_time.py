"""The second line of a share's time: what the driver says of it.

Sessions put work on a GPU during the turns of their channel, and are charged for them (docs/adr/0018); one that was
taken over can skip that. So the daemon compares what a share was charged with the time that NVML says its processes
had, over windows of some seconds, and names the process that had most where they had more. It ends none: these figures
are averages of samples, and an honest program must not end for one that is wrong. What was found last stands in a file
of the channel's directory, which no session sees, for all that show the channel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from vgpumgr.host.files import read_text, replace_file
from vgpumgr.model.codec import ShapeError, decode, encode
from vgpumgr.virtio.overuse import STALE_S, list_sessions

WINDOW_S = 10.0
#: figures that are further apart say nothing of the time between: a driver keeps samples of some seconds
LONGEST_S = 4.0
#: what was charged is asked for right after the driver's figures, or they are of different times
LATE_S = 0.5
#: of the GPU: samples of a second and turns of milliseconds do not agree better than that
SLACK = 0.10
_FILE = "compute.json"
UNCOMPARED = "no daemon compares it with the driver's figures"
NO_FIGURES = "NVML has no time of each process here"


@dataclass(frozen=True, slots=True)
class Window:
    """Some seconds that are over: the parts of the GPU's time that the share was charged for, and that its processes
    had by the driver's word; the process that had most of it.
    """

    at_s: int
    elapsed_s: float
    charged: float
    driver: float
    pid: int | None

    @property
    def is_over(self) -> bool:
        """Whether they had more than can be an error."""
        return self.driver > self.charged + SLACK


@dataclass(frozen=True, slots=True)
class TimeReport:
    """What was found last. ``problem`` says why there is none; ``over`` is the last window in which they had more, and
    ``uncharged_s`` how much more in all such windows since the channel started.
    """

    IGNORES_UNKNOWN: ClassVar[bool] = True

    checked_s: float = -STALE_S
    problem: str = UNCOMPARED
    last: Window | None = None
    over: Window | None = None
    uncharged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The driver's: the part of the GPU's time that each process had between two questions; None: it was the first."""

    since_s: float | None
    at_s: float
    parts: Mapping[int, float]


@dataclass(slots=True)
class ShareClock:
    """A share's window that is not over yet; ``used_ns`` is what it was charged by its begin, as its keeper says."""

    begin_s: float | None = None
    seen_s: float = 0.0
    used_ns: int = 0
    had_s: dict[int, float] = field(default_factory=dict)

    def reset(self) -> None:
        """Nothing is known of the time before the next figures."""
        self.begin_s = None
        self.had_s.clear()

    def add(self, figures: Figures, used_ns: int) -> Window | None:
        """What was charged by the time of these figures; the window, if it is over now. One begins anew where a keeper
        does, which counts from 0, and where figures are missing or say nothing of the whole time since the last.
        """
        since_s, now_s = figures.since_s, figures.at_s
        charged_s = (used_ns - self.used_ns) / 1e9
        is_known = since_s == self.seen_s and now_s - self.seen_s <= LONGEST_S
        if self.begin_s is None or charged_s < 0 or not is_known:
            self.reset()
            self._begin(now_s, used_ns)
            return None
        for pid, part in figures.parts.items():
            self.had_s[pid] = self.had_s.get(pid, 0.0) + min(part, 1.0) * (now_s - self.seen_s)
        self.seen_s = now_s
        elapsed_s = now_s - self.begin_s
        if elapsed_s < WINDOW_S:
            return None
        window = Window(
            int(time.time()),
            elapsed_s,
            charged_s / elapsed_s,
            sum(self.had_s.values()) / elapsed_s,
            max(self.had_s, key=self.had_s.__getitem__, default=None),
        )
        self.had_s.clear()
        self._begin(now_s, used_ns)
        return window

    def _begin(self, now_s: float, used_ns: int) -> None:
        self.begin_s = self.seen_s = now_s
        self.used_ns = used_ns


def read_time(directory: Path, now_s: float | None = None) -> TimeReport:
    """What is known of a channel's share."""
    try:
        text = read_text(directory / _FILE)
        report = decode(TimeReport, json.loads(text)) if text else TimeReport()
    except (OSError, ValueError, ShapeError):
        report = TimeReport()
    age_s = (time.monotonic() if now_s is None else now_s) - report.checked_s
    if 0 <= age_s < STALE_S:
        return report
    return replace(report, problem=UNCOMPARED, last=None)


def compare(
    directory: Path, clock: ShareClock, figures: Figures, used_ns: int, worker_pid: int
) -> Window | None:
    """Writes down what was found; the window, if its sessions had more than they were charged for. Raises OSError."""
    sessions = list_sessions(worker_pid)
    own = {pid: part for pid, part in figures.parts.items() if pid in sessions}
    window = clock.add(replace(figures, parts=own), used_ns)
    if window is None:
        return None
    before = read_time(directory)
    report = replace(before, checked_s=time.monotonic(), problem="", last=window)
    if window.is_over:
        more_s = (window.driver - window.charged) * window.elapsed_s
        report = replace(report, over=window, uncharged_s=before.uncharged_s + more_s)
    _save(directory, report)
    return window if window.is_over else None


def note_failure(directory: Path) -> None:
    """The driver has no figures, or does not answer. Raises OSError."""
    before, now_s = read_time(directory), time.monotonic()
    if before.problem != NO_FIGURES or now_s - before.checked_s > WINDOW_S:
        _save(directory, replace(before, checked_s=now_s, problem=NO_FIGURES, last=None))


def _save(directory: Path, report: TimeReport) -> None:
    replace_file(directory / _FILE, json.dumps(encode(report)))
