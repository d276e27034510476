"""Work with a store, written without one: a generator that yields each call of the store and is sent its answer.

So the same work runs against a store, where each call waits, and in a simulation, where calls are late,
lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from vgpumgr.errors import PoolStoreError
from vgpumgr.pool.store.interface import Store, Transaction

T = TypeVar("T")
Call: TypeAlias = Callable[[Store], Any]
Steps: TypeAlias = Generator[Call, Any, T]


def drive(store: Store, steps: Steps[T]) -> T:
    """Does the work. Raises what it raises."""
    try:
        call = next(steps)
        while True:
            try:
                answer = call(store)
            except PoolStoreError as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def transacting(transaction: Transaction) -> Call:
    """The call that makes it."""
    return lambda store: store.transact(transaction)
