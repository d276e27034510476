"""Faults put into the program on purpose: a harness that does not notice them is worth nothing.

Each is applied in the process that is killed or recorded, never in the one that judges.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from vgpumgr.app import transactions
from vgpumgr.app.operations import attachments, layout_apply, passthrough, vgpus
from vgpumgr.backends import interrupted
from vgpumgr.engine import context, executor, journal, recovery
from vgpumgr.engine.step import Step
from vgpumgr.state import database


def _no_journal_sync() -> None:
    journal.Journal._sync = lambda _self, _descriptor: None  # type: ignore[method-assign]


def _store_without_sync() -> None:
    connect = database.Database._connect

    def unsafe(self: database.Database) -> sqlite3.Connection:
        connection = connect(self)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    database.Database._connect = unsafe  # type: ignore[method-assign]


def _no_undo_of_instances() -> None:
    is_its_own = interrupted._is_its_own

    def forgets(step: Step, *more: Any) -> bool:
        return step.kind != "mig.gi.destroy" and is_its_own(step, *more)

    interrupted._is_its_own = forgets


def _record_last() -> None:
    """The journal keeps the record as well, so that has to go, too."""
    context.OperationContext.encode_records = lambda _self: {}  # type: ignore[method-assign]
    plan_attach = attachments.plan_attach

    def reordered(*arguments: Any) -> Any:
        records, plan = plan_attach(*arguments)
        first, *rest = plan.steps
        return records, replace(plan, steps=(*rest[:-1], first, rest[-1]))

    attachments.plan_attach = reordered


def _intent_after_the_step() -> None:
    append = journal.Journal.append
    held: list[tuple[Any, ...]] = []

    def late(self: journal.Journal, op: str, event: str, data: Any) -> None:
        if event == "intent":
            held.append((op, event, data))
            return
        for kept in held:
            append(self, *kept)
        held.clear()
        append(self, op, event, data)

    journal.Journal.append = late  # type: ignore[method-assign]


def _no_recovery() -> None:
    recovery.Recovery._recover_all = lambda *_arguments: None  # type: ignore[method-assign]


def _own_family_only() -> None:
    """As if each command recovered only what commands of its kind had left."""
    find, open_ = transactions.MachineFamilies.find, transactions.open_change
    own: list[Any] = []

    def blind(self: Any, operation: str) -> Any:
        known = transactions.FAMILIES.get(operation)
        return find(self, operation) if own in ([], [known]) else None

    @contextmanager
    def limited(parts: Any, what: str, *more: Any) -> Iterator[Any]:
        kinds = {"change MIG instances": transactions.LAYOUTS, "change vGPUs": transactions.VGPUS}
        kinds["change PCI functions"] = transactions.PCI
        own[:] = [kinds.get(what, transactions.ATTACHMENTS)]
        try:
            with open_(parts, what, *more) as transaction:
                yield transaction
        finally:
            own.clear()

    transactions.MachineFamilies.find = blind  # type: ignore[method-assign]
    for module in (attachments, layout_apply, vgpus, passthrough):
        module.open_change = limited  # type: ignore[attr-defined]


def _no_end() -> None:
    append = journal.Journal.append

    def forgets(self: journal.Journal, op: str, event: str, data: Any) -> None:
        if event != "end":
            append(self, op, event, data)

    journal.Journal.append = forgets  # type: ignore[method-assign]


def _undo_in_the_wrong_order() -> None:
    undo = executor.Executor._undo

    def forwards(self: Any, op: str, steps: list[Any]) -> Any:
        return undo(self, op, list(reversed(steps)))

    executor.Executor._undo = forwards  # type: ignore[method-assign]


#: noticed by the sweep
IN_ORDER: dict[str, Callable[[], None]] = {
    "no-undo-of-instances": _no_undo_of_instances,
    "record-last": _record_last,
    "intent-after-the-step": _intent_after_the_step,
    "no-recovery": _no_recovery,
    "no-end": _no_end,
}
#: noticed by the sweep of pairs
IN_PAIRS: dict[str, Callable[[], None]] = {
    "own-family-only": _own_family_only,
    "no-recovery": _no_recovery,
    "no-end": _no_end,
}
#: noticed by power failures
IN_SYNC: dict[str, Callable[[], None]] = {
    "no-journal-sync": _no_journal_sync,
    "store-without-sync": _store_without_sync,
}
BREAKAGES = {**IN_ORDER, **IN_PAIRS, **IN_SYNC, "undo-in-the-wrong-order": _undo_in_the_wrong_order}
