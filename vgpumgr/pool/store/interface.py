"""A map of texts by key, with revisions, leases and events, as a pool needs it from its store.

Each transaction that changes something has the next revision, which is that of the entries it wrote. A lease of the
store ends the entries that were written with it when it is not kept alive. A store is used by one thread; another opens
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from vgpumgr.model.frozen import dataclass

#: etcd's limit for one transaction
MOST_CHANGES = 128
#: of one value: below etcd's limit for one request, with its encoding
MOST_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class Entry:
    """A value: ``created`` is the revision at which its key came into being, ``revision`` that of the last write."""

    key: str
    value: str
    created: int
    revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Entries at one revision of the store, in the order of their keys."""

    entries: Mapping[str, Entry]
    revision: int


@dataclass(frozen=True, slots=True)
class At:
    """A comparison: the entry was last written at this revision; 0: there is none."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Holds:
    """A comparison: the entry has this value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Put:
    """Writes an entry, which ends with a lease of the store if one is named."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes an entry; nothing where there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class Event:
    """An entry that was written, or removed: then without a value."""

    key: str
    value: str | None
    revision: int


Compare: TypeAlias = At | Holds
Change: TypeAlias = Put | Delete


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that are made together if all comparisons hold, and otherwise not at all."""

    compares: tuple[Compare, ...]
    changes: tuple[Change, ...]

    def __post_init__(self) -> None:
        keys = [change.key for change in self.changes]
        if len(set(keys)) != len(keys):
            raise ValueError("a transaction changes a key once")
        if max(len(keys), len(self.compares)) > MOST_CHANGES:
            raise ValueError(f"a transaction has at most {MOST_CHANGES} comparisons and changes")
        for change in self.changes:
            check_key(change.key)
            if isinstance(change, Put) and len(change.value.encode()) > MOST_BYTES:
                raise ValueError(f"{change.key}: more than {MOST_BYTES} bytes")


class Watch(Protocol):
    """Events of entries, in the order of their revisions; none is missing and none comes twice."""

    def read(self, timeout_s: float) -> Sequence[Event]:
        """The next ones; none where nothing happens until the deadline. Raises PoolHistoryError where the store no
        longer has them: read the entries again, and watch from their revision on. Raises PoolStoreError.
        """

    def close(self) -> None:
        """Ends it."""


class Store(Protocol):
    """An engine. Every method raises PoolStoreError where the store does not answer, or refuses."""

    def get(self, key: str) -> Entry | None:
        """An entry as it is now."""

    def range(self, prefix: str) -> Snapshot:
        """All entries whose keys begin so, as they are now."""

    def transact(self, transaction: Transaction) -> int | None:
        """The revision of the changes; None where a comparison does not hold, and then nothing has changed. Raises
        PoolOutcomeError where the changes may have been made, PoolLeaseError where a lease of the store has ended.
        """

    def grant_lease(self, ttl_s: int) -> int:
        """A lease of the store, which ends when it is not kept alive for that time."""

    def keep_alive(self, lease: int) -> None:
        """Gives it its whole time again, without a write to etcd's log. Raises PoolLeaseError where it has ended."""

    def revoke_lease(self, lease: int) -> None:
        """Ends it and its entries now; nothing where it has ended."""

    def watch(self, prefix: str, revision: int) -> Watch:
        """The events of such keys from a revision on."""

    def close(self) -> None:
        """Ends the connection. Leases of the store stay until their time is over."""


def check_key(key: str) -> None:
    """Raises ValueError for what cannot be a key in every engine."""
    if not key or not key.isascii() or not key.isprintable() or len(key) > 1024:
        raise ValueError(f"no key of a store: {key!r}")


def end_of_prefix(prefix: str) -> str:
    """The smallest key beyond all that begin so."""
    check_key(prefix)
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
