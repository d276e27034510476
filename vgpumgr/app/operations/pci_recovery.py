"""Execution and recovery of operations on PCI functions.

A late change is completed, because its user let go and it has happened; one that a crash interrupted is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from vgpumgr.app.context import Parts
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.recovery import Family, Recovered, Unfinished, list_unfinished
from vgpumgr.engine.step import Plan, Step
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import OutcomePendingError, VgpumgrError
from vgpumgr.planning.passthrough import DISABLE, OPERATIONS

#: of reports
SUBJECT = "passthrough"


class PciFamily(Family):
    """How interrupted operations on functions are completed or undone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def describe(self, found: Unfinished) -> tuple[str, str]:
        """Which operation on which function."""
        return SUBJECT, f"the interrupted {found.operation} of {found.subject}"

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:
        """One that works on its functions; that of a killed command has no words, and counts."""
        names = list_addresses(found.steps)
        return "was killed" in helper or any(name in helper for name in names)

    def recover(self, found: Unfinished) -> Recovered:
        """Completes it where it goes on by itself, undoes it otherwise."""
        name = self.describe(found)[1]
        if found.boot != self._parts.boot_id:
            text = f"{name} ended with the boot it was made in"
            return Recovered.describe(SUBJECT, text, outcome="rebooted")
        steps = found.steps
        context = self._parts.make_context()
        begun = max((int(e.data["step"]) for e in found.events if e.event == "intent"), default=-1)
        # virtual functions that are gone do not come back as they were: what was set on each is lost
        onward = found.operation == DISABLE or found.is_late
        if onward and begun >= 0 and _complete(context, steps[begun:]):
            return Recovered.describe(SUBJECT, f"{name} was completed", context.notes, "done")
        for step in reversed(steps[: begun + 1]):
            step.undo(context)
        return Recovered.describe(SUBJECT, f"{name} was undone", context.notes)


def execute_pci(parts: Parts, transaction: Transaction, plan: Plan) -> None:
    """Does the steps of a plan.

    Raises:
        OutcomePendingError: a step waits for a user of the function; it completes by itself.
        RolledBackError: a step failed; everything is as before.
    """
    try:
        transaction.execute(plan, parts.make_context())
    except OutcomePendingError as error:
        error.held_by = (*error.held_by, *_list_users(parts, plan.steps))
        raise


def _list_users(parts: Parts, steps: Sequence[Step]) -> list[str]:
    """Who keeps a late change from its end."""
    names = set(list_addresses(steps))
    try:
        functions = [f for f in parts.pci.list_functions() if str(f.address) in names]
        users = parts.pci.list_users(functions)
    except VgpumgrError:
        return []
    return list(dict.fromkeys(str(user) for found in users.values() for user in found))


def list_busy(parts: Parts) -> frozenset[str]:
    """Addresses of functions that an unfinished operation accounts for."""
    with closing(parts.open_journal()) as journal:
        return frozenset(
            address
            for found in list_unfinished(journal.look())
            if found.operation in OPERATIONS
            for address in list_addresses(found.steps)
        )


def list_addresses(steps: Sequence[Step]) -> list[str]:
    """Addresses of the functions that steps change."""
    found = []
    for step in steps:
        target = step.target
        row = target.get("binding", target)
        assert isinstance(row, dict)
        found.append(str(row.get("address", row.get("physical"))))
    return found


def _complete(context: OperationContext, steps: Sequence[Step]) -> bool:
    """Goes on with the step that was late; it is restartable. False: it did not succeed."""
    try:
        for step in steps:
            step.do(context)
    except Exception:
        return False  # whatever it was, undoing follows
    return True
