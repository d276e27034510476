"""One leader at a time, by a key of the store that ends with the leader's lease."""

from __future__ import annotations

from vgpumgr.errors import PoolLeaseError
from vgpumgr.pool.store.interface import At, Put, Store, Transaction
from vgpumgr.pool.store.steps import Steps, drive, transacting


class Election:
    """A candidate. Whether it leads is decided by the store when it writes: ``guard`` is a comparison of each write,
    and holds only while nothing else has become the leader.
    """

    def __init__(self, key: str, name: str, ttl_s: int) -> None:
        self._key = key
        self._name = name
        self._ttl_s = ttl_s
        self._lease = 0
        self._revision = 0

    @property
    def guard(self) -> At | None:
        """The comparison for writes of the leader; None for one that does not lead."""
        return At(self._key, self._revision) if self._revision else None

    def campaign(self) -> Steps[bool]:
        """Becomes the leader, or stays it, and keeps its lease alive; False where another leads."""
        if lease := self._lease:
            try:
                yield lambda store: store.keep_alive(lease)
            except PoolLeaseError:
                self._lease = self._revision = 0
        if not self._lease:
            self._lease = yield lambda store: store.grant_lease(self._ttl_s)
        current = yield lambda store: store.get(self._key)
        if current is None:
            put = Put(self._key, self._name, self._lease)
            won = yield transacting(Transaction((At(self._key, 0),), (put,)))
            self._revision = won or 0
        else:
            # also where a write's answer was lost: the key with this lease is this candidate's
            self._revision = current.revision if current.lease == self._lease else 0
        return self._revision != 0

    def await_turn(self, store: Store, timeout_s: float) -> bool:
        """The same, and where another leads, once more when it has ended or resigned, or at the deadline."""
        if drive(store, self.campaign()):
            return True
        current = store.get(self._key)
        if current is not None:
            watch = store.watch(self._key, current.revision + 1)
            try:
                watch.read(timeout_s)
            finally:
                watch.close()
        return drive(store, self.campaign())

    def resign(self) -> Steps[None]:
        """Another may lead at once."""
        lease, self._lease, self._revision = self._lease, 0, 0
        if lease:
            yield lambda store: store.revoke_lease(lease)
