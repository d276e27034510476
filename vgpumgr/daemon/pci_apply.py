"""Carrying out operations on PCI functions: journaled, undone on failure, settled after a crash."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing

from vgpumgr.daemon.parts import Parts
from vgpumgr.errors import NotPermittedError, OutcomePendingError, VgpumgrError
from vgpumgr.host.lock import lock_file
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.journal import Event, Journal
from vgpumgr.plan.passthrough import DISABLE, OPERATIONS, PciChange
from vgpumgr.plan.pci_steps import PciWorld, read_pci_step
from vgpumgr.plan.step import Plan, Step

#: a helper whose command was killed ends by itself when its call is done
_ORPHAN_WAIT_S = 5.0
_POLL_S = 0.1


def run_pci(
    parts: Parts, make_plan: Callable[[], Plan[PciWorld]]
) -> tuple[Plan[PciWorld], list[str]]:
    """Plans under the machine's lock and does it; answers the plan and what else happened.

    Raises:
        NotPermittedError: not root.
        OutcomePendingError: a step waits for a user of the function; it completes by itself.
        RolledBackError: a step failed; everything is as before.
    """
    if not parts.is_privileged:
        raise NotPermittedError(
            "cannot change PCI functions as this user",
            why="changing drivers needs root",
            hint="repeat it with sudo",
        )
    with lock_file(parts.run_dir / "vgpumgr.lock", clock=parts.clock):
        notes = [note for note, _ in settle_pci(parts)]
        plan = make_plan()
        execute_pci(parts, plan)
    return plan, notes


def execute_pci(parts: Parts, plan: Plan[PciWorld]) -> None:
    """Does the steps of a plan; the caller holds the machine's lock. Raises as ``run_pci``."""
    if not plan.steps:
        return
    with closing(parts.open_journal()) as journal:
        _check_free(parts, journal, plan)
        world = PciChange(parts.pci)
        executor: Executor[PciWorld] = Executor(world, journal, list_late=parts.list_late)
        try:
            executor.run(plan, secrets.token_hex(8))
        except OutcomePendingError as error:
            error.held_by = (*error.held_by, *_list_users(parts, plan.steps))
            raise


def settle_pci(parts: Parts) -> list[tuple[str, bool]]:
    """Settles what a crash or a late helper left: in words, and whether it is settled.

    A late change is completed, because its user let go and it has happened; one that a crash
    interrupted is undone. Under the machine's lock. Raises JournalFailedError.
    """
    notes = []
    with closing(parts.open_journal()) as journal:
        if journal.has_failed:
            raise journal.refusal()
        for op, events in _list_ours(journal):
            try:
                notes.append(_settle_one(parts, journal, op, events))
            except VgpumgrError as error:
                begin = events[0].data
                word = f"the interrupted {begin.get('operation')} of {begin.get('subject')}"
                notes.append((f"{word} is not settled: {error}", False))
    return notes


def list_busy(parts: Parts) -> frozenset[str]:
    """Addresses of functions that an unfinished operation accounts for."""
    with closing(parts.open_journal()) as journal:
        return frozenset(
            address
            for _, events in _list_ours(journal)
            for address in list_addresses(_read_steps(events))
        )


def _list_ours(journal: Journal) -> list[tuple[str, Sequence[Event]]]:
    unfinished = journal.look().unfinished
    return [
        (op, events)
        for op, events in unfinished.items()
        if events[0].data.get("operation") in OPERATIONS
    ]


def _settle_one(
    parts: Parts, journal: Journal, op: str, events: Sequence[Event]
) -> tuple[str, bool]:
    begin = events[0].data
    word = f"the interrupted {begin['operation']} of {begin['subject']}"
    if events[0].boot != parts.boot_id:
        journal.append(op, "end", {"outcome": "rebooted"})
        return f"{word} ended with the boot it was made in", True
    steps = _read_steps(events)
    if late := _wait(parts, events, steps):
        return f"{word} waits for {'; '.join(late)}", False
    world = PciChange(parts.pci)
    begun = max((int(e.data["step"]) for e in events if e.event == "intent"), default=-1)
    # virtual functions that are gone do not come back as they were: what was set on each is lost
    onward = begin["operation"] == DISABLE or any(e.event == "late" for e in events)
    if onward and begun >= 0 and _complete(world, steps[begun:]):
        journal.append(op, "end", {"outcome": "done"})
        return f"{word} was completed", True
    for step in reversed(steps[: begun + 1]):
        step.undo(world)
    journal.append(op, "end", {"outcome": "recovered"})
    return f"{word} was undone", True


def _read_steps(events: Sequence[Event]) -> list[Step[PciWorld]]:
    rows = events[0].data.get("steps", ())
    return [read_pci_step(str(row["kind"]), row["target"]) for row in rows]


def _complete(world: PciWorld, steps: Sequence[Step[PciWorld]]) -> bool:
    """Goes on with the step that was late; it is restartable. False: it did not succeed."""
    try:
        for step in steps:
            step.do(world)
    except Exception:
        return False  # whatever it was, undoing follows
    return True


def _wait(parts: Parts, events: Sequence[Event], steps: Sequence[Step[PciWorld]]) -> list[str]:
    """Helpers that still work on the operation's functions; one whose command was killed is given
    a moment.
    """
    patience_s = 0.0 if any(e.event == "late" for e in events) else _ORPHAN_WAIT_S
    end_s = parts.clock.monotonic_s() + patience_s
    while late := _list_late(parts, steps):
        if parts.clock.monotonic_s() >= end_s:
            return late
        parts.clock.sleep(_POLL_S)
    return []


def _list_late(parts: Parts, steps: Sequence[Step[PciWorld]]) -> list[str]:
    """By the addresses in what they do; a killed command's helper has no words, and counts."""
    names = list_addresses(steps)
    return [
        helper
        for helper in parts.list_late()
        if any(name in helper for name in names) or "was killed" in helper
    ]


def list_addresses(steps: Sequence[Step[PciWorld]]) -> list[str]:
    """Addresses of the functions that steps change."""
    found = []
    for step in steps:
        target = step.target
        row = target.get("binding", target)
        assert isinstance(row, dict)
        found.append(str(row.get("address", row.get("physical"))))
    return found


def _check_free(parts: Parts, journal: Journal, plan: Plan[PciWorld]) -> None:
    """One operation at a time on a function. Raises OutcomePendingError."""
    wanted = set(list_addresses(plan.steps))
    for _, events in _list_ours(journal):
        begin = events[0].data
        steps = _read_steps(events)
        if wanted & set(list_addresses(steps)):
            raise OutcomePendingError(
                f"cannot {plan.operation} {plan.subject} yet",
                why=f"an earlier {begin['operation']} of {begin['subject']} has not come back",
                held_by=[*_list_late(parts, steps), *_list_users(parts, steps)],
                hint="vgpumgr status",
            )


def _list_users(parts: Parts, steps: Sequence[Step[PciWorld]]) -> list[str]:
    """Who keeps a late change from its end."""
    names = set(list_addresses(steps))
    try:
        functions = [f for f in parts.pci.list_functions() if str(f.address) in names]
        users = parts.pci.list_users(functions)
    except VgpumgrError:
        return []
    return list(dict.fromkeys(str(user) for found in users.values() for user in found))
