"""A pool's store as a dictionary: the model that engines are compared with, and the store of simulated pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgpumgr.errors import PoolHistoryError, PoolLeaseError
from vgpumgr.pool.store.interface import (
    At,
    Compare,
    Entry,
    Event,
    Put,
    Snapshot,
    Transaction,
)


class MemoryStore:
    """All who have it share its entries."""

    def __init__(self, read_clock_s: Callable[[], float]) -> None:
        self.read_clock_s = read_clock_s
        self.entries: dict[str, Entry] = {}
        self.events: list[Event] = []
        self.revision = 1
        #: what was read last of each prefix
        self._ranges: dict[str, Snapshot] = {}
        self.forgotten = 0
        #: how long each lease is, and when it ends
        self.leases: dict[int, tuple[int, float]] = {}
        self._last_lease = 0

    def get(self, key: str) -> Entry | None:
        self.end_leases()
        return self.entries.get(key)

    def range(self, prefix: str) -> Snapshot:
        self.end_leases()
        known = self._ranges.get(prefix)
        if known is None or known.revision != self.revision:
            keys = sorted(key for key in self.entries if key.startswith(prefix))
            known = Snapshot({key: self.entries[key] for key in keys}, self.revision)
            self._ranges[prefix] = known
        return known

    def transact(self, transaction: Transaction) -> int | None:
        self.end_leases()
        if not all(self._holds(one) for one in transaction.compares):
            return None
        for change in transaction.changes:
            if isinstance(change, Put) and change.lease and change.lease not in self.leases:
                raise PoolLeaseError(f"lease {change.lease} of the pool's store has ended")
        revision, count = self.revision + 1, len(self.events)
        for change in transaction.changes:
            if isinstance(change, Put):
                old = self.entries.get(change.key)
                created = old.created if old else revision
                self.entries[change.key] = Entry(
                    change.key, change.value, created, revision, change.lease
                )
                self.events.append(Event(change.key, change.value, revision))
            elif self.entries.pop(change.key, None):
                self.events.append(Event(change.key, None, revision))
        if len(self.events) > count:
            self.revision = revision
        return self.revision

    def _holds(self, compare: Compare) -> bool:
        entry = self.entries.get(compare.key)
        if isinstance(compare, At):
            return compare.revision == (entry.revision if entry else 0)
        return entry is not None and entry.value == compare.value

    def grant_lease(self, ttl_s: int) -> int:
        self._last_lease += 1
        self.leases[self._last_lease] = (ttl_s, self.read_clock_s() + ttl_s)
        return self._last_lease

    def keep_alive(self, lease: int) -> None:
        self.end_leases()
        if lease not in self.leases:
            raise PoolLeaseError(f"lease {lease} of the pool's store has ended")
        ttl_s = self.leases[lease][0]
        self.leases[lease] = (ttl_s, self.read_clock_s() + ttl_s)

    def revoke_lease(self, lease: int) -> None:
        self.leases.pop(lease, None)
        ended = sorted(key for key, entry in self.entries.items() if entry.lease == lease)
        if ended:
            self.revision += 1
        for key in ended:
            del self.entries[key]
            self.events.append(Event(key, None, self.revision))

    def end_leases(self) -> None:
        now_s = self.read_clock_s()
        for lease, (_, end_s) in list(self.leases.items()):
            if end_s <= now_s:
                self.revoke_lease(lease)

    def forget(self) -> None:
        """Its events so far."""
        self.forgotten = self.revision
        self.events.clear()

    def watch(self, prefix: str, revision: int) -> MemoryWatch:
        return MemoryWatch(self, prefix, revision)

    def close(self) -> None:
        """Its entries stay."""


class MemoryWatch:
    """Never waits: in a process with one thread nothing happens meanwhile."""

    def __init__(self, store: MemoryStore, prefix: str, revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._revision = revision

    def read(self, timeout_s: float) -> Sequence[Event]:  # noqa: ARG002
        self._store.end_leases()
        if self._revision <= self._store.forgotten:
            raise PoolHistoryError(f"no events of revision {self._revision}")
        found = [
            one
            for one in self._store.events
            if one.revision >= self._revision and one.key.startswith(self._prefix)
        ]
        self._revision = max(self._store.revision + 1, self._revision)
        return found

    def close(self) -> None:
        """Nothing is open."""
