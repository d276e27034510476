"""A host's side of a pool: it says that it lives, begins and ends sessions, and refuses what is older than it knows.

Decisions only: what a session is, its caller knows. A session that may move ends by itself when its time is over, which
each heartbeat that was answered gives it anew: so it ends on a host that is cut off, or whose daemon was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from vgpumgr.errors import PoolLeaseError, PoolMemberError
from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.control.records import (
    ROOT,
    HostRecord,
    HostState,
    IfLost,
    LeaseRecord,
    Life,
    Timing,
    alive_key,
    list_use_keys,
    put,
    read_record,
)
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.store.interface import At, Delete, Entry, Put, Snapshot, Transaction
from vgpumgr.pool.store.steps import Steps, transacting

#: so many times the time of a heartbeat's lease a host waits for its entry of the boot before
OTHER_BOOT_TTLS = 3


@dataclass(frozen=True, slots=True)
class Session:
    """What runs on a lease. ``until_s`` is when it ends by itself; None: it stays while the host is cut off."""

    claim: str
    token: int
    gpus: tuple[int, ...]
    milli: int
    until_s: float | None
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a session, or give one that runs another size."""

    session: Session


@dataclass(frozen=True, slots=True)
class End:
    """End a session; ``HostAgent.ended`` is to be called when nothing of it runs."""

    claim: str


Action = Begin | End


class HostAgent:
    """``sessions`` are those that run already, where an agent before it was killed."""

    def __init__(
        self,
        host: HostRecord,
        timing: Timing,
        read_clock_s: Callable[[], float],
        sessions: Mapping[str, Session] | None = None,
        boot: str = "",
    ) -> None:
        self._host = host
        #: of its entry: a copy of the machine has the same id, and another boot
        self._life = Life(host.id, boot)
        self._timing = timing
        self._read_clock_s = read_clock_s
        self.sessions = dict(sessions or {})
        #: the highest token that was seen of each claim
        self._tokens = {claim: session.token for claim, session in self.sessions.items()}
        self._lease = 0
        self._is_registered = False
        #: since when another boot of this machine is heard in its place
        self._other_since_s: float | None = None
        #: when the last heartbeat that was answered was sent
        self._heard_s: float | None = None
        #: of the store, when the leases were read last
        self.revision = 0
        #: the leases as they were then, by claim, each with its token
        self.leases: dict[str, tuple[LeaseRecord, int]] = {}
        #: how often an answer or a lease was older than what was seen
        self.refused = 0
        #: whether the pool does not have this machine any more
        self.is_removed = False

    @property
    def is_heard(self) -> bool:
        """Whether the pool cannot have given its leases away yet."""
        return (
            self._is_registered
            and self._heard_s is not None
            and self._read_clock_s() - self._heard_s < self._timing.fence_s
        )

    def step(self, act: Callable[[list[Action]], None]) -> Steps[None]:
        """One round: a heartbeat, and what the leases of this host ask for. Raises PoolStoreError; what runs stays."""
        act(self.check_time())
        yield from self._heartbeat()
        act(self.renew())
        snapshot = yield lambda store: store.range(f"{ROOT}lease/{self._host.name}/")
        act(self.observe(snapshot))
        for transaction in self.list_ended(snapshot):
            yield transacting(transaction)

    def _heartbeat(self) -> Steps[None]:
        sent_s = self._read_clock_s()
        if lease := self._lease:
            try:
                yield lambda store: store.keep_alive(lease)
            except PoolLeaseError:
                self._lease, self._is_registered = 0, False
        if not self._lease:
            # sessions whose time is over must be gone before the pool hears of this host again
            if self._is_any_ending():
                return
            self._lease = yield lambda store: store.grant_lease(self._timing.ttl_s)
        # the lease proves nothing: an administrator may have removed the entry, or written it without
        key = alive_key(self._host.name)
        current = yield lambda store: store.get(key)
        if current is None or (current.value, current.lease) != (str(self._life), self._lease):
            self._is_registered = False
        if not self._is_registered:
            if self._is_any_ending() or self._is_taken(current):
                return
            sent_s = self._read_clock_s()
            yield from self._register(current)
        self._heard_s = sent_s

    def _is_any_ending(self) -> bool:
        return any(session.is_ending for session in self.sessions.values())

    def _is_taken(self, current: Entry | None) -> bool:
        """Whether another boot of this machine is still heard. It ends soon, or is a copy: raises PoolMemberError."""
        other = Life.read(current) if current is not None and current.lease else None
        # with another version it is the process before this one, which was updated
        if other is None or other.is_of_boot(self._life):
            self._other_since_s = None
            return False
        if other.machine != self._host.id:
            raise PoolMemberError(
                f"another machine is host {self._host.name} of the pool",
                held_by=(f"machine {other.machine}",),
                hint="vgpumgr pool join --name OTHER",
            )
        now_s = self._read_clock_s()
        if self._other_since_s is None:
            self._other_since_s = now_s
        if now_s - self._other_since_s > OTHER_BOOT_TTLS * self._timing.ttl_s:
            raise PoolMemberError(
                f"a copy of this machine serves as host {self._host.name} of the pool",
                why="it has the same pool.json and has booted by itself",
                held_by=(f"boot {other.boot or 'without an id'}",),
                hint="vgpumgr pool join --name OTHER, once pool.json is removed from this machine",
            )
        return True

    def _register(self, current: Entry | None) -> Steps[None]:
        key = alive_key(self._host.name)
        record, at = yield from self._find_record()
        # Its record gets another revision, too: a controller that saw the host suspect before begins to wait anew, even
        # where it never sees this life of the host.
        if record.state is HostState.FENCED:
            record = replace(record, state=HostState.SUSPECT)
        changes = (Put(key, str(self._life), self._lease), put(record))
        compares = (At(key, current.revision if current else 0), at)
        self._is_registered = bool((yield transacting(Transaction(compares, changes))))

    def _find_record(self) -> Steps[tuple[HostRecord, At]]:
        found = yield lambda store: store.get(self._host.key)
        record = None if found is None else read_record(HostRecord, found)
        if record is None or record.id != self._host.id:
            self.is_removed = True
            raise PoolMemberError(
                f"host {self._host.name} of this machine is not in the pool",
                hint="vgpumgr pool join",
            )
        return record, At(self._host.key, found.revision)

    def check_time(self) -> list[Action]:
        """Ends sessions whose time is over."""
        now_s = self._read_clock_s()
        over = [
            session.claim
            for session in self.sessions.values()
            if session.until_s is not None and session.until_s <= now_s and not session.is_ending
        ]
        return [self._end(claim) for claim in over]

    def renew(self) -> list[Action]:
        """Gives sessions that may move their time again, once the heartbeat was answered."""
        if not self.is_heard:
            return []
        return [
            self._begin(replace(session, until_s=self._find_until_s()))
            for session in list(self.sessions.values())
            if session.until_s is not None
            and not session.is_ending
            and session.until_s > self._read_clock_s()
        ]

    def _find_until_s(self) -> float:
        assert self._heard_s is not None
        return self._heard_s + self._timing.fence_s

    def observe(self, snapshot: Snapshot) -> list[Action]:
        """What the leases of this host ask for, read after the heartbeat. Older ones than were seen are refused."""
        if snapshot.revision < self.revision or not self.is_heard:
            self.refused += 1
            return []
        self.revision = snapshot.revision
        leases = {
            lease.claim: (lease, entry.revision)
            for entry in snapshot.entries.values()
            for lease in (read_record(LeaseRecord, entry),)
        }
        self.leases = leases
        ends = [
            self._end(claim)
            for claim, session in list(self.sessions.items())
            if not session.is_ending and (claim not in leases or leases[claim][0].is_ending)
        ]
        begins = [
            action
            for lease, token in leases.values()
            if not lease.is_ending
            for action in self._follow(lease, token)
        ]
        return [*ends, *begins]

    def _follow(self, lease: LeaseRecord, token: int) -> Iterator[Action]:
        known = self.sessions.get(lease.claim)
        if token < self._tokens.get(lease.claim, 0):
            self.refused += 1
            return
        if known is not None and (known.is_ending or known.token == token):
            return
        until_s = self._find_until_s() if lease.if_lost is IfLost.MOVE else None
        session = Session(lease.claim, token, lease.gpus, lease.milli, until_s)
        if self._has_capacity(session):
            self._tokens[lease.claim] = token
            yield self._begin(session)

    def _has_capacity(self, wanted: Session) -> bool:
        """Whether what ran before has ended: the store may have freed it already."""
        return all(
            wanted.milli
            + sum(
                session.milli
                for session in self.sessions.values()
                if session.claim != wanted.claim and gpu in session.gpus
            )
            <= GPU_MILLI
            for gpu in wanted.gpus
        )

    def _begin(self, session: Session) -> Begin:
        self.sessions[session.claim] = session
        return Begin(session)

    def _end(self, claim: str) -> End:
        self.sessions[claim] = replace(self.sessions[claim], is_ending=True)
        return End(claim)

    def ended(self, claim: str) -> None:
        """Nothing of a session runs any more."""
        self.sessions.pop(claim, None)

    def list_ended(self, snapshot: Snapshot) -> Iterator[Transaction]:
        """Removes leases that are to end, where nothing runs on them."""
        if not self.is_heard:
            return
        for entry in snapshot.entries.values():
            lease = read_record(LeaseRecord, entry)
            if lease.is_ending and lease.claim not in self.sessions:
                # what an attachment has by it is not ended here: the lease stays until it is detached
                keys = list_use_keys(lease.host, lease.claim, len(lease.gpus))
                unused = (At(key, 0) for key in keys)
                yield Transaction((At(entry.key, entry.revision), *unused), (Delete(entry.key),))
