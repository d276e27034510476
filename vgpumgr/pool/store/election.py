"""One leader at a time, by a key of the store that ends with the leader's lease."""

from __future__ import annotations

from vgpumgr.errors import PoolLeaseError
from vgpumgr.pool.store.interface import At, Entry, Put, Store, Transaction


class Election:
    """A candidate. Whether it leads is decided by the store when it writes: ``guard`` is a comparison of each write,
    and holds only while nothing else has become the leader.
    """

    def __init__(self, store: Store, key: str, name: str, ttl_s: int) -> None:
        self._store = store
        self._key = key
        self._name = name
        self._ttl_s = ttl_s
        self._lease = 0
        self._revision = 0

    @property
    def guard(self) -> At | None:
        """The comparison for writes of the leader; None for one that does not lead."""
        return At(self._key, self._revision) if self._revision else None

    def read_leader(self) -> Entry | None:
        """The leader's name, if there is one."""
        return self._store.get(self._key)

    def campaign(self, timeout_s: float = 0) -> bool:
        """Becomes the leader, or stays it, and keeps its lease alive; False where another leads until the deadline.
        Raises PoolStoreError.
        """
        if self._keep() or self._try():
            return True
        if not timeout_s:
            return False
        current = self.read_leader()
        if current is not None:
            watch = self._store.watch(self._key, current.revision + 1)
            try:
                watch.read(timeout_s)
            finally:
                watch.close()
        return self._try()

    def _keep(self) -> bool:
        if not self._lease:
            return False
        try:
            self._store.keep_alive(self._lease)
        except PoolLeaseError:
            self._lease = self._revision = 0
            return False
        if self._revision:
            current = self._store.get(self._key)
            if current is None or current.revision != self._revision:
                self._revision = 0
        return self._revision != 0

    def _try(self) -> bool:
        if not self._lease:
            self._lease = self._store.grant_lease(self._ttl_s)
        put = Put(self._key, self._name, self._lease)
        revision = self._store.transact(Transaction((At(self._key, 0),), (put,)))
        if revision is None:
            # a write whose answer was lost is this candidate's all the same: it has its lease
            current = self._store.get(self._key)
            if current is not None and current.lease == self._lease:
                revision = current.revision
        self._revision = revision or 0
        return self._revision != 0

    def resign(self) -> None:
        """Another may lead at once. Raises PoolStoreError."""
        lease, self._lease, self._revision = self._lease, 0, 0
        if lease:
            self._store.revoke_lease(lease)
