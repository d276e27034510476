"""What a keeper reports: of itself, its worker, the guest, and the sessions, as a channel's status has them.

And the second line of the limit ``device-memory``. Sessions count what they take before they ask the driver, in a table
that a session that was taken over can write. So the daemon compares the limit with NVML's figures for each process, and
ends the session that has most beyond its own count. Where NVML has no figures nothing is ended, and that is said. What
was found last stands in a file of the channel's directory, which no session sees, for all that show the channel.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from vgpumgr.host.files import read_text, replace_file
from vgpumgr.host.process import list_descendants
from vgpumgr.model.codec import ShapeError, decode, encode
from vgpumgr.model.gpu import HOLDER_NAME
from vgpumgr.model.text import format_size
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


#: of each process, what a driver takes for its contexts and kernels beyond what programs ask for: not counted
SLACK_BYTES = 1 << 30
PERIOD_S = 2.0
#: not compared for so long: no daemon does
_STALE_S = 30.0
_REFRESH_S = 10.0
_FILE = "device-memory.json"
#: ends that are remembered
_LAST = 8
UNCOMPARED = "no daemon compares it with the driver's figures"
NO_FIGURES = "NVML has no figures for each process here"


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

    checked_s: float = -_STALE_S
    driver_bytes: int | None = None
    problem: str = UNCOMPARED
    count: int = 0
    ended: tuple[Overuse, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``driver_bytes`` of all, beyond the slack; None: there are no figures. ``pid`` is to be ended."""

    driver_bytes: int | None
    pid: int | None = None


def judge(limit: int, uses: Mapping[int, int | None], claims: Mapping[int, int]) -> Verdict:
    """``uses`` are the driver's figures of the sessions by pid, ``claims`` what they say themselves: which of them has
    most that it does not account for. Claims that together exceed the limit cannot be true, and say nothing.
    """
    known = {pid: used for pid, used in uses.items() if used is not None}
    if len(known) < len(uses):
        return Verdict(None)
    total = sum(max(0, used - SLACK_BYTES) for used in known.values())
    if total <= limit:
        return Verdict(total)
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
    if 0 <= age_s < _STALE_S:
        return report
    return replace(report, driver_bytes=None, problem=UNCOMPARED)


def enforce(
    directory: Path,
    worker_pid: int,
    limit: int,
    processes: Mapping[int, int | None],
    lanes: Mapping[int, tuple[int, int]],
    *,
    expected: bool = False,
) -> Overuse | None:
    """Compares, ends a session if need be, and writes down what was found. ``processes`` are NVML's, of the GPU;
    ``lanes`` has lane and count of each session by its pid, by its own word; ``expected``: by that word there is one
    with memory. Raises OSError.
    """
    sessions = _list_sessions(worker_pid)
    uses = {pid: used for pid, used in processes.items() if pid in sessions}
    verdict = judge(limit, uses, {pid: held for pid, (_, held) in lanes.items()})
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


def _list_sessions(worker_pid: int) -> set[int]:
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
            if pid in _list_sessions(worker_pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _write(directory: Path, verdict: Verdict, over: Overuse | None) -> None:
    before, now_s = read_report(directory), time.monotonic()
    problem = NO_FIGURES if verdict.driver_bytes is None else ""
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
