"""What a keeper reports: of itself, its worker, the guest, and the sessions, as a channel's status has them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from vgpumgr.model.text import format_size
from vgpumgr.virtio.channel import OTHER_CALLS, SessionEvent, SessionReport
from vgpumgr.virtio.overuse import MemoryReport


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


WorkerState = Literal["starting", "ready", "stopping", "waiting", "failed", "none"]


@dataclass(frozen=True)
class QemuStatus(Report):
    """The VM's side of the shared memory: whose process holds it (pid and uid by the kernel)."""

    connected: bool
    pid: int
    uid: int
    connects: int


@dataclass(frozen=True)
class WorkerStatus(Report):
    """The worker's process; ``message`` is why it cannot serve, in its own words if it had any."""

    state: WorkerState
    pid: int
    starts: int
    failures: int
    message: str
    last_exit: str
    api_version: str


@dataclass(frozen=True)
class GuestHello(Report):
    """What the guest's agent said of itself over one transport. All of it is the guest's word."""

    wire_version: int
    matches: bool
    agent_version: str
    kernel: str


@dataclass(frozen=True)
class GuestStatus(Report):
    """The guest's side: ``hello`` is the best transport over which its agent has spoken."""

    hello: Literal["none", "serial", "ring"]
    ring: GuestHello | None
    serial: GuestHello | None
    serial_connected: bool
    mismatches: int
    mismatch: str


@dataclass(frozen=True)
class LaneStatus(Report):
    """One guest process with its session; ``pid`` and ``name`` are the guest's word, ``session_pid``
    is the session's process on the host.
    """

    lane: int
    pid: int
    name: str
    transport: Literal["ring", "serial"]
    since_s: int
    calls: int
    posts: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int
    session_pid: int = 0


@dataclass(frozen=True)
class Totals(Report):
    """Sums over all lanes of this worker, ended ones too; ``memory_bytes`` of the living."""

    lanes_opened: int
    calls: int
    posts: int
    bytes_in: int
    bytes_out: int
    memory_bytes: int
    doorbells: int


@dataclass(frozen=True)
class Violations(Report):
    """Sessions ended because the guest broke the protocol, and the last one's reason."""

    count: int
    last: str


@dataclass(frozen=True)
class ShareStatus(Report):
    """A share of the GPU's time: percent and policy, nanoseconds since the keeper started."""

    compute: float
    policy: str
    used_ns: int = 0
    throttled_ns: int = 0
    turns: int = 0
    #: for so long work of it has been on the GPU after its turn, where others go on beside it; else 0
    overdue_ns: int = 0
    #: whether an arbiter keeps it now
    kept: bool = True
    #: an older keeper does not say
    priority: str = "normal"


@dataclass(frozen=True)
class LimitChange(Report):
    """The last change of the device memory's limit that was asked for, by number, and the last that the worker has
    decided; ``error`` is errno, 0 where it holds.
    """

    number: int = 0
    answered: int = 0
    error: int = 0


@dataclass(frozen=True)
class KeeperStatus(Report):
    """Everything that a keeper knows; sizes in bytes, ``since_s`` in seconds since 1970."""

    keeper_pid: int
    since_s: int
    epoch: int
    memory_size: int
    next_memory_size: int
    ring_lanes: int
    error: str
    qemu: QemuStatus
    worker: WorkerStatus
    guest: GuestStatus
    lanes: tuple[LaneStatus, ...]
    totals: Totals
    violations: Violations
    sessions: Sessions = field(default_factory=Sessions)
    refused: Refused = field(default_factory=Refused)
    #: of each of ``WORKER_KEYS``: the limit, what is used, charges refused, nanoseconds waited
    limits: tuple[tuple[int | None, int, int, int], ...] = ()
    #: that sessions have of others' memory, counted for each of them; an older keeper does not say
    opened_bytes: int = 0
    change: LimitChange = field(default_factory=LimitChange)
    share: ShareStatus | None = None

    @property
    def memory_used(self) -> int | None:
        """Device memory that all sessions hold by their own count; None: the worker does not say."""
        return self.limits[0][1] if self.limits else None

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports over which the guest has said hello in a version that matches."""
        hellos = (("ring", self.guest.ring), ("serial", self.guest.serial))
        return tuple(name for name, hello in hellos if hello is not None and hello.matches)


class _Named(Protocol):
    """A guest process, as the guest names it."""

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...


def describe_sessions(
    sessions: Sessions, lanes: Mapping[int, _Named], memory: MemoryReport
) -> SessionReport:
    """What a channel's status says of them."""
    over = [
        SessionEvent(
            "memory",
            one.lane,
            one.pid,
            one.at_s,
            text=f"ended: it had {format_size(one.bytes)} of the device's memory by the driver's word, and all "
            f"together {format_size(one.driver_bytes)} more than drivers need: {format_size(one.limit)} is the limit",
        )
        for one in memory.ended
    ]
    ended = [
        SessionEvent("ended", e.lane, None, e.at_s, e.pid, e.name, _describe_end(e.status))
        for e in sorted(sessions.ended, key=lambda e: e.at_s)
    ]
    stuck = [
        SessionEvent("stuck", s.lane, s.pid or None, s.since_s, text=_describe_stuck(s.pid))
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
    events = (*stuck, *slow, *ended, *over)
    return SessionReport(sessions.lost, sessions.faults, sessions.overdue, events, memory.count)


def _describe_stuck(pid: int) -> str:
    return "killed, and does not end" + (f": /proc/{pid}/stack says where" if pid else "")


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
