"""Sessions of guest processes, as a keeper reports them and as a channel's status has them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from vgpumgr.virtio.channel import OTHER_CALLS, SessionEvent, SessionReport


class Report:
    """A part of what a keeper says."""

    #: a keeper outlives upgrades of this program and may report fields of a newer version
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True)
class StuckSession(Report):
    """A session's process that was killed and does not end."""

    lane: int
    pid: int
    since_s: int = 0


@dataclass(frozen=True)
class EndedSession(Report):
    """A session that crashed or was killed by others; ``pid`` and ``name`` are the guest's word, ``status``
    is as waitpid(2) has it.
    """

    lane: int
    pid: int
    name: str
    status: int
    at_s: int


@dataclass(frozen=True)
class SlowSession(Report):
    """A session whose call the driver has had for long."""

    lane: int
    pid: int
    call: str
    since_s: int


@dataclass(frozen=True)
class Sessions(Report):
    """Sessions that crashed or were killed by others, ``faults`` of them by a fault of their own, with the last
    ones' ends; those whose call lasts, ``overdue`` of which the watchdog has ended; and stuck ones.
    """

    lost: int = 0
    last: str = ""
    faults: int = 0
    overdue: int = 0
    ended: tuple[EndedSession, ...] = ()
    slow: tuple[SlowSession, ...] = ()
    stuck: tuple[StuckSession, ...] = ()


@dataclass(frozen=True)
class RefusedCall(Report):
    """A call that the guest's libraries refused because it is not supported."""

    name: str
    count: int


@dataclass(frozen=True)
class Refused(Report):
    """All of them; ``more`` counts calls for whose names there was no place."""

    calls: tuple[RefusedCall, ...] = ()
    more: int = 0


class _Named(Protocol):
    """A guest process, as the guest names it."""

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...


def describe_sessions(sessions: Sessions, lanes: Mapping[int, _Named]) -> SessionReport:
    """What a channel's status says of them."""
    ended = [
        SessionEvent("ended", e.lane, None, e.at_s, e.pid, e.name, _describe_end(e.status))
        for e in sorted(sessions.ended, key=lambda e: e.at_s)
    ]
    stuck = [
        SessionEvent("stuck", s.lane, s.pid or None, s.since_s, text="killed, and does not end")
        for s in sessions.stuck
    ]
    slow = [
        SessionEvent(
            "slow",
            s.lane,
            s.pid or None,
            s.since_s,
            lane.pid if (lane := lanes.get(s.lane)) else None,
            lane.name if lane else "",
            s.call,
        )
        for s in sessions.slow
    ]
    return SessionReport(sessions.lost, sessions.faults, sessions.overdue, (*stuck, *slow, *ended))


def _describe_end(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
    return f"exited with status {os.WEXITSTATUS(status)}"


def describe_refused(refused: Refused) -> dict[str, int]:
    """Counts by name."""
    counts: dict[str, int] = {}
    for call in refused.calls:
        counts[call.name] = counts.get(call.name, 0) + call.count
    if refused.more:
        counts[OTHER_CALLS] = refused.more
    return counts
