"""Histories of one pool's claims: attachments, deletes, resizes, a controller and a host, each of which may decide by
what it has read a while ago. What is in use has its lease, of that size and that token, after every write.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.memory_store import MemoryStore
from vgpumgr.errors import VgpumgrError
from vgpumgr.model.attachment import ClaimPart
from vgpumgr.pool.control.controller import Controller, is_as_claimed
from vgpumgr.pool.control.host import End, HostAgent
from vgpumgr.pool.control.records import (
    POOL,
    VERSION,
    ClassRecord,
    GpuRecord,
    HostRecord,
    PoolRecord,
    Timing,
    View,
    format_record,
    put,
    use_key,
)
from vgpumgr.pool.leases import PoolLeases
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.interface import Compare, Delete, Put, Snapshot, Transaction
from vgpumgr.pool.store.steps import drive
from vgpumgr.state.leases import ClaimUser

CLAIMS = ("one", "two", "three")
SIZES = ("share:8GiB,30%", "share:16GiB,40%", "share:4GiB,10%")
SEEDS, STEPS = 100, 150


#: whether a comparison of a transaction is not made
Ignores = Callable[[Transaction, Compare], bool]


class BrokenError(AssertionError):
    """Something is in use and has no lease."""


class LateStore(MemoryStore):
    """Answers now and then what was so a few writes ago; checks what must hold after each write."""

    def __init__(self, draw: random.Random, ignores: Ignores | None) -> None:
        super().__init__(lambda: 0.0)
        self.draw = draw
        #: comparisons that are not made
        self.ignores = ignores
        self.past: list[Snapshot] = []

    def range(self, prefix: str) -> Snapshot:
        if prefix != "p/" or not self.past or self.draw.random() < 0.5:
            return super().range(prefix)
        return self.draw.choice(self.past[-4:])

    def transact(self, transaction: Transaction) -> int | None:
        if (ignores := self.ignores) is not None:
            kept = [one for one in transaction.compares if not ignores(transaction, one)]
            transaction = Transaction(tuple(kept), transaction.changes)
        revision = super().transact(transaction)
        now = super().range("p/")
        self.past.append(now)
        check(View(now))
        return revision


def check(view: View) -> None:
    users: dict[str, str] = {}
    for name, use in view.uses.items():
        lease, claim = view.leases.get(f"{use.host}/{use.claim}"), view.claims.get(use.claim)
        if lease is None or claim is None:
            raise BrokenError(f"{name} is used, and gone")
        if users.setdefault(use.claim, use.uuid) != use.uuid:
            raise BrokenError(f"two have GPUs of {use.claim}")
        if use.number >= len(lease.gpus):
            raise BrokenError(f"{name} has a GPU that the lease has not")
        if lease.is_ending or claim.is_ending or not is_as_claimed(claim, lease):
            raise BrokenError(f"{name} is used, and ends or changes")
        if view.find_token(lease) != use.token:
            raise BrokenError(f"{name} is used by an older grant")


class LatePool(Pool):
    """The real operations on that store; nothing waits."""

    def __init__(self, store: LateStore) -> None:
        self.store = store
        self.where = "here"
        self.membership = cast(Any, SimpleNamespace(host="a"))
        self.clock = cast(Any, SimpleNamespace(sleep=lambda _: None))

    def follow_up(self, is_answered: object) -> View:  # noqa: ARG002
        return View(MemoryStore.range(cast(MemoryStore, self.store), "p/"))


class LateLeases(PoolLeases):
    """The real ones, of a host that has seen nothing."""

    def __init__(self, pool: LatePool) -> None:
        self._pool = pool

    @contextmanager
    def _open(self, longest_s: float | None = None) -> Iterator[tuple[Pool, str]]:  # noqa: ARG002
        yield self._pool, "a"

    def read_seen(self) -> None:
        return None


class History:
    """One seed."""

    def __init__(self, seed: int, ignores: Ignores | None = None) -> None:
        self.draw = random.Random(seed)
        self.store = LateStore(self.draw, ignores)
        self.pool = LatePool(self.store)
        self.operations, self.leases = PoolOperations(self.pool), LateLeases(self.pool)
        timing, host = Timing(), HostRecord("a", "machine")
        self.agent = HostAgent(host, timing, lambda: 0.0)
        self.controller = Controller("a", timing, lambda: 0.0)
        records: Sequence[Any] = (
            host,
            ClassRecord("default"),
            *(GpuRecord("a", index, f"GPU-{index}", "A100", 80 << 30) for index in range(2)),
        )
        pool = Put(POOL, format_record(PoolRecord("pool", VERSION, timing)))
        self.store.transact(Transaction((), (pool, *map(put, records))))
        #: attachments that believe to use a claim
        self.users: dict[str, ClaimPart] = {}
        #: what was planned, and is held later: for a VM each of the lease's GPUs, one after the other
        self.planned: list[tuple[str, list[ClaimPart]]] = []
        self.reached = Counter[str]()

    def run(self) -> Counter[str]:
        acts = (
            self.create, self.delete, self.resize, self.plan, self.plan, self.hold, self.hold,
            self.release, self.control, self.control, self.serve, self.serve,
        )  # fmt: skip
        for number in range(STEPS):
            act = self.draw.choice(acts)
            try:
                act(number)
                self.reached[act.__name__] += 1
            except VgpumgrError as error:
                self.reached[f"{act.__name__} {error.id}"] += 1
        return self.reached

    def create(self, _number: int) -> None:
        name, size = self.draw.choice(CLAIMS), self.draw.choice(SIZES)
        self.operations.create(name, "default", size, self.draw.choice([1, 1, 2]), "keep")

    def delete(self, _number: int) -> None:
        self.operations.delete(self.draw.choice(CLAIMS))

    def resize(self, _number: int) -> None:
        gpus = self.draw.choice([None, 1, 2])
        self.operations.resize(self.draw.choice(CLAIMS), self.draw.choice(SIZES), gpus)

    def plan(self, number: int) -> None:
        found = self.leases.find(self.draw.choice(CLAIMS))
        self.planned.append((f"vm-{number}", [one.part for one in found]))

    def hold(self, number: int) -> None:
        if self.planned:
            vm, parts = self.planned.pop(self.draw.randrange(len(self.planned)))
            id_, part = f"{number:08x}", parts.pop(0)
            self.leases.hold(part, ClaimUser("vm", vm, vm, id_))
            self.users[id_] = part
            if parts:
                self.reached["hold one of two"] += 1
                self.planned.append((vm, parts))

    def release(self, _number: int) -> None:
        if self.users:
            id_ = self.draw.choice(sorted(self.users))
            part = self.users.pop(id_)
            entry = self.store.get(use_key("a", part.name, part.number))
            assert entry is not None
            assert f'"{id_}"' in entry.value
            self.store.transact(Transaction((), (Delete(entry.key),)))

    def control(self, _number: int) -> None:
        drive(self.store, self.controller.step())

    def serve(self, _number: int) -> None:
        def end(actions: Sequence[object]) -> None:
            for action in actions:
                if isinstance(action, End):
                    self.agent.ended(action.claim)

        drive(self.store, self.agent.step(end))


def test_what_is_in_use_has_its_lease() -> None:
    reached = Counter[str]()
    for seed in range(SEEDS):
        history = History(seed)
        reached += history.run()
        uses = View(MemoryStore.range(history.store, "p/")).uses
        assert {use.attachment for use in uses.values()} == set(history.users)
    for what in (
        "hold",
        "hold one of two",
        "release",
        "hold VG387",
        "hold VG388",
        "delete VG387",
        "resize VG387",
    ):
        assert reached[what] >= 10, (what, reached)
    assert reached["delete VG384"] + reached["resize VG384"] >= 10, reached


def ignore_uses(_transaction: Transaction, compare: Compare) -> bool:
    """Who deletes, resizes, or removes the lease does not ask what uses it."""
    return compare.key.startswith("p/use/")


def ignore_claims(transaction: Transaction, compare: Compare) -> bool:
    """Who uses a claim does not ask whether it, and its lease, are as they were read."""
    is_use = any(change.key.startswith("p/use/") for change in transaction.changes)
    return is_use and compare.key.startswith(("p/claim/", "p/lease/"))


@pytest.mark.parametrize("ignores", [ignore_uses, ignore_claims])
def test_a_comparison_that_is_missing_is_noticed(ignores: Ignores) -> None:
    def run(seed: int) -> bool:
        try:
            History(seed, ignores).run()
        except BrokenError:
            return True
        return False

    assert any(run(seed) for seed in range(SEEDS))
