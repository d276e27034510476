"""The pool as the daemon's callers see it: one read of its store at a time, shared by all of them.

A store may not answer, and the name of a member may not resolve, for as long as it likes. So each read has a thread of
its own, which no other request needs; those who ask wait for a bounded time, and what was read serves for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from vgpumgr.errors import PoolStoreError, VgpumgrError, explain_unexpected
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import Machine
from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.control.records import View
from vgpumgr.pool.membership import Pool, open_pool_of, read_stamp
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.scope import TenantPool

#: so long a caller waits for the store
BOUND_S = 5.0
#: so long one member of an etcd is waited for, so that there is time for another
_MEMBER_S = 2.0
#: an answer, or an error, serves again for so long
AGE_S = 2.0
#: also where the daemon has seen a change since: many changes are no reason to read without a pause
_LEAST_S = 0.5
#: a read is not waited for longer at the daemon's end
_END_S = 1.0
#: encoded documents of one read that are kept
_MAX_BODIES = 8


class ReadPool(Pool):
    """A pool that was read once: each question gets the same view, and none reaches the store."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.membership, pool.store, pool.where, pool.clock, pool.machine)
        self._view = super().view()

    def view(self) -> View:
        """The pool as it was when it was read."""
        return self._view


class PoolSnapshot:
    """What one read found. Any thread may ask it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = ReadPool(pool)
        self.operations = PoolOperations(self._pool)
        self._bodies: dict[tuple[str, ...], bytes] = {}

    def for_tenant(self, tenant: str | None) -> PoolOperations:
        """The operations, of which a tenant sees its own claims only; None: all."""
        return self.operations if tenant is None else PoolOperations(TenantPool(self._pool, tenant))

    def find_body(self, asked: tuple[str, ...]) -> bytes | None:
        """The answer to the same question."""
        return self._bodies.get(asked)

    def keep_body(self, asked: tuple[str, ...], body: bytes) -> None:
        """Keeps an answer, up to a number of them."""
        if len(self._bodies) < _MAX_BODIES:
            self._bodies[asked] = body


def read_snapshot(machine: Machine) -> PoolSnapshot:
    """Reads the store of the pool that a machine is in. Raises PoolNotFoundError, PoolStoreError."""
    with open_pool_of(machine, _MEMBER_S) as pool:
        return PoolSnapshot(pool)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a read ended with, when it began, how many changes the daemon had seen then, and which pool it was of."""

    result: PoolSnapshot | VgpumgrError
    began_s: float
    epoch: int
    stamp: object


class PoolReader:
    """Lives on one event loop. ``read_epoch`` counts the changes that the daemon has seen."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        read_epoch: Callable[[], int],
        read: Callable[[Machine], PoolSnapshot] = read_snapshot,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._read_epoch = read_epoch
        self._do_read = read
        self._found: _Found | None = None
        self._reading: asyncio.Future[_Found] | None = None
        self._began_s = 0.0
        self._thread: threading.Thread | None = None
        self._is_outdated = False

    def forget(self) -> None:
        """The pool was changed: what was read before, or is being read, serves no later question."""
        self._found = None
        self._is_outdated = self._reading is not None

    async def close(self) -> None:
        """Waits a moment for the read that is under way; one that hangs ends with the process."""
        if self._thread is not None and self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, _END_S)

    def is_member(self) -> bool:
        """Whether this machine is in a pool. Waits for no store."""
        return read_stamp(self._machine) is not None

    async def read(self, max_age_s: float = AGE_S, *, after_changes: bool = True) -> PoolSnapshot:
        """The pool as it was at most so long ago; not as it was before a change that the daemon has seen, unless
        ``after_changes`` is false. Raises PoolNotFoundError, and PoolStoreError after a bounded time.
        """
        while self._is_outdated and self._reading is not None:
            await self._wait(self._reading)
        found = self._found
        if found is None or not self._is_fresh(found, max_age_s, after_changes):
            found = await self._wait(self._reading or self._begin())
        if isinstance(found.result, VgpumgrError):
            raise found.result.with_traceback(None)
        return found.result

    def _is_fresh(self, found: _Found, max_age_s: float, after_changes: bool) -> bool:
        if found.stamp != read_stamp(self._machine):
            return False
        age_s = self._clock.monotonic_s() - found.began_s
        if after_changes and found.epoch != self._read_epoch():
            return age_s <= _LEAST_S
        return age_s <= max_age_s

    async def _wait(self, reading: asyncio.Future[_Found]) -> _Found:
        """A read that has hung for the bound already is not waited for: the next one begins when it has ended."""
        left_s = self._began_s + BOUND_S - self._clock.monotonic_s()
        await asyncio.wait({reading}, timeout=max(0.0, left_s))
        if reading.done():
            return reading.result()
        raise PoolStoreError(
            "the pool's store does not answer",
            cause=f"no answer within {BOUND_S:g} s",
            why="what runs goes on, and nothing new is granted",
            hint="vgpumgr status",
        )

    def _begin(self) -> asyncio.Future[_Found]:
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[_Found] = loop.create_future()
        began_s, epoch = self._clock.monotonic_s(), self._read_epoch()
        stamp = read_stamp(self._machine)

        def end(result: PoolSnapshot | VgpumgrError) -> None:
            self._reading = None
            found = _Found(result, began_s, epoch, stamp)
            self._found = None if self._is_outdated else found
            self._is_outdated = False
            if not reading.done():
                reading.set_result(found)

        def work() -> None:
            result: PoolSnapshot | VgpumgrError
            try:
                result = self._do_read(self._machine)
            except Exception as error:
                result = explain_unexpected(error, "reading the pool")
            with contextlib.suppress(RuntimeError):  # the daemon has ended
                loop.call_soon_threadsafe(end, result)

        self._reading, self._began_s = reading, began_s
        try:
            self._thread = threading.Thread(target=work, name="pool-read", daemon=True)
            self._thread.start()
        except RuntimeError as error:
            end(explain_unexpected(error, "reading the pool"))
        return reading
