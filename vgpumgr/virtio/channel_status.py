"""What a channel's status says, of what its keeper reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpumgr.errors import ShareInUseError
from vgpumgr.host.process import describe_stuck, find_stuck, read_state
from vgpumgr.model.limits import WORKER_KEYS
from vgpumgr.model.text import format_exact, format_size
from vgpumgr.virtio.channel import ChannelStatus, Lane, LimitUse, ShareUse
from vgpumgr.virtio.overuse import MemoryReport
from vgpumgr.virtio.sandbox import LimitGroup
from vgpumgr.virtio.sessions import (
    GuestStatus,
    KeeperStatus,
    LaneStatus,
    StuckSession,
    describe_refused,
    describe_sessions,
)
from vgpumgr.virtio.share_time import TimeReport

#: the keeper tries a failing worker again and again; after so many failures it counts as failed
_HOPELESS_FAILURES = 3
_UNCHECKED = MemoryReport()
_UNTIMED = TimeReport()


def refuse_memory(wanted: int, used: int | None) -> ShareInUseError:
    """The refusal of a limit below what is used. ``used`` is the last report, which may be behind the worker's own
    count.
    """
    why, hint = f"its programs use {describe_use(wanted, used)} now", "a larger --memory"
    if used is not None and used > wanted:
        why, hint = (
            f"its programs use {format_size(used)} of it now",
            f"--memory {format_exact(used)} or more",
        )
    return ShareInUseError(
        f"cannot limit the device memory to {format_size(wanted)}",
        why=why,
        hint=f"{hint}; or --at-exit, which waits for its programs' end",
    )


def describe_use(wanted: int, used: int | None) -> str:
    """How much programs use that do not fit into ``wanted``; no figure where the last report is behind."""
    more = f"more than {format_exact(wanted)}"
    return more if used is None or used <= wanted else f"{format_size(used)}, {more}"


def describe_hanging(channel_id: str, pid: int | None) -> ChannelStatus:
    """The status of a channel whose keeper runs and does not answer."""
    state = read_state(pid) if pid is not None else None
    what = f"its keeper (pid {pid or 'unknown'}, state {state or 'unknown'}) does not answer"
    if state in ("T", "t"):
        what += f": it was stopped, and goes on with kill -CONT {pid}"
    elif state == "D":
        what += f": it is stuck in the kernel, /proc/{pid}/stack says where"
    return ChannelStatus(
        id=channel_id,
        keeper_pid=pid or 0,
        worker_pid=None,
        worker_ready=False,
        hello_ring=False,
        hello_serial=False,
        memory_bytes=0,
        problem=f"{what}; vgpumgr virtio restart ends it and starts another",
        keeper_hangs=True,
    )


def _list_limits(
    status: KeeperStatus, cgroups: Sequence[LimitGroup], memory: MemoryReport
) -> Iterator[LimitUse]:
    for key, (limit, used, refused, waited_ns) in zip(WORKER_KEYS, status.limits, strict=False):
        use = LimitUse(key, limit, None if key.a_second else used, refused, waited_ns / 1e9)
        if key.name == "device-memory" and limit is not None:
            yield replace(use, driver_used=memory.driver_bytes, unchecked=memory.problem or None)
        else:
            yield use
    for one in cgroups:
        held = one.limit if one.cgroup.path else None
        yield LimitUse(one.key, held, one.cgroup.read_used())


def _describe_other_version(guest: GuestStatus) -> str | None:
    """The guest package is older or newer than the worker, as its agent or a program of it has shown."""
    text = guest.mismatch
    for hello in (guest.ring, guest.serial):
        if not text and hello is not None and not hello.matches:
            text = f"the guest's agent {hello.agent_version} has wire version {hello.wire_version}, the host another"
    advice = "install in the VM what vgpumgr virtio guest-package writes here"
    return f"{text}; {advice}" if text else None


def describe(
    channel_id: str,
    status: KeeperStatus,
    cgroups: Sequence[LimitGroup] = (),
    memory: MemoryReport = _UNCHECKED,
    timed: TimeReport = _UNTIMED,
) -> ChannelStatus:
    """The status of a channel whose keeper answers."""
    worker, guest = status.worker, status.guest
    ready = worker.state == "ready"
    hopeless = worker.state == "waiting" and worker.failures >= _HOPELESS_FAILURES
    last_exit = "" if worker.last_exit in worker.message else worker.last_exit
    parts = (worker.state, worker.message, last_exit)
    stuck = "; ".join(map(_describe_stuck, status.sessions.stuck))
    wrong = "" if ready else ": ".join(part for part in parts if part)
    if worker.state == "stopping" and worker.pid:
        # the first process of a pid namespace ends after all others
        wrong = ", ".join([wrong, *map(describe_stuck, find_stuck(worker.pid))])
    differs = _describe_other_version(guest)
    return ChannelStatus(
        id=channel_id,
        keeper_pid=status.keeper_pid,
        worker_pid=worker.pid or None,
        worker_ready=ready,
        worker_failed=worker.state == "failed" or hopeless,
        hello_ring="ring" in status.transports,
        hello_serial="serial" in status.transports,
        memory_bytes=status.memory_size,
        worker_restarts=max(0, worker.starts - 1),
        problem=status.error or wrong or stuck or differs or None,
        guest_differs=differs,
        lanes=tuple(map(_describe_lane, status.lanes)),
        calls=status.totals.calls + status.totals.posts,
        bytes_in=status.totals.bytes_in,
        bytes_out=status.totals.bytes_out,
        protocol_errors=status.violations.count,
        sessions=describe_sessions(status.sessions, {x.lane: x for x in status.lanes}, memory),
        refused=describe_refused(status.refused),
        qemu_pid=status.qemu.pid or None,
        limits=tuple(_list_limits(status, cgroups, memory)),
        share=_describe_share(status, timed),
    )


def _describe_share(status: KeeperStatus, timed: TimeReport) -> ShareUse | None:
    share = status.share
    if share is None:
        return None
    return ShareUse(
        share.compute,
        share.policy,
        share.used_ns / 1e9,
        share.throttled_ns / 1e9,
        share.turns,
        share.overdue_ns / 1e9,
        share.kept,
        share.priority,
        driver=timed.last.driver if timed.last else None,
        charged=timed.last.charged if timed.last else None,
        unchecked=timed.problem or None,
        uncharged_s=timed.uncharged_s,
        uncharged_pid=timed.over.pid if timed.over else None,
        uncharged_at_s=timed.over.at_s if timed.over else None,
    )


def _describe_stuck(session: StuckSession) -> str:
    pid = session.pid
    return (
        f"the session of lane {session.lane} (pid {pid}) was killed and does not end: "
        f"/proc/{pid}/stack says where"
    )


def _describe_lane(lane: LaneStatus) -> Lane:
    return Lane(
        id=lane.lane,
        pid=lane.pid,
        name=lane.name,
        ring=lane.transport == "ring",
        calls=lane.calls + lane.posts,
        bytes_in=lane.bytes_in,
        bytes_out=lane.bytes_out,
        memory_bytes=lane.memory_bytes,
    )
