"""Faults put into the program on purpose: a harness that does not notice them is worth nothing.

Each is applied in the process that is killed or recorded, never in the one that judges.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vgpumgr.daemon import attachments, settling
from vgpumgr.plan import executor, interrupted, journal, world
from vgpumgr.store import database


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

    def forgets(kind: str, *more: Any) -> bool:
        return kind != "mig.gi.destroy" and is_its_own(kind, *more)

    interrupted._is_its_own = forgets


def _record_last() -> None:
    """The journal keeps the record as well, so that has to go, too."""
    world.World.facts = lambda _self: {}  # type: ignore[method-assign]
    plan_attach = attachments.plan_attach

    def reordered(*arguments: Any) -> Any:
        record, plan = plan_attach(*arguments)
        first, *rest = plan.steps
        return record, replace(plan, steps=(*rest[:-1], first, rest[-1]))

    attachments.plan_attach = reordered  # type: ignore[attr-defined]


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
    settling.Settler._settle_all = lambda *_arguments: []  # type: ignore[method-assign]


def _no_end() -> None:
    settling.Settler._close = lambda *_arguments: None  # type: ignore[method-assign]


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
#: noticed by power failures
IN_SYNC: dict[str, Callable[[], None]] = {
    "no-journal-sync": _no_journal_sync,
    "store-without-sync": _store_without_sync,
}
BREAKAGES = {**IN_ORDER, **IN_SYNC, "undo-in-the-wrong-order": _undo_in_the_wrong_order}
