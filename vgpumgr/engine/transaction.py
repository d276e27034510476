"""The one transaction: permission, lock, recovery of what earlier commands left, then plans, each journaled."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.executor import Executor, report_step
from vgpumgr.engine.journal import Journal
from vgpumgr.engine.recovery import (
    RECOVER,
    Families,
    Outcome,
    Recovery,
    Unfinished,
    find_collision,
    list_claims,
    list_unfinished,
)
from vgpumgr.engine.step import OnFailure, Plan
from vgpumgr.errors import NotPermittedError, OutcomePendingError
from vgpumgr.host.clock import Clock
from vgpumgr.host.lock import lock_file
from vgpumgr.host.statistics import OperationStatistics

LOCK_FILE = "vgpumgr.lock"


class Host(Protocol):
    """The machine that is changed."""

    @property
    def run_dir(self) -> Path:
        """Where its lock is."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    @property
    def boot_id(self) -> str:
        """The boot that it is in."""

    @property
    def is_privileged(self) -> bool:
        """Whether this user may change it."""

    @property
    def list_late(self) -> Callable[[], Sequence[str]]:
        """Helper processes past their deadline, or of a command that was killed."""

    def open_journal(self) -> Journal:
        """Its journal; closed by who opened it."""

    def open_statistics(self) -> OperationStatistics:
        """Its counts of operations."""

    def hold_store(self) -> AbstractContextManager[None]:
        """What is remembered meanwhile shares one connection."""


@dataclass
class Transaction:
    """The machine while this process alone changes it."""

    host: Host
    families: Families
    #: what the user should know: what was recovered, and of how the plans went
    notes: list[str] = field(default_factory=list)
    #: what earlier commands left, and what became of it
    recovered: Outcome = field(default_factory=Outcome)

    def recover(self, spare: str | None = None) -> Outcome:
        """Recovers what every family left; see ``Recovery.run``."""
        host = self.host
        recovery = Recovery(
            host.open_journal, host.boot_id, host.clock, host.list_late, self.families, spare
        )
        self.recovered = recovery.run()
        self.notes += self.recovered.list_notes()
        return self.recovered

    def execute(self, plan: Plan, context: OperationContext) -> None:
        """Journals a plan and does its steps; nothing for a plan without steps. Raises as ``Executor.run``.

        Raises:
            OutcomePendingError: an operation that could not be recovered accounts for something that it takes.
        """
        if not plan.steps:
            return
        with closing(self.host.open_journal()) as journal:
            self._check_free(plan, journal)
            executor = Executor(context, journal, report_step, self.host.list_late)
            with self.host.open_statistics().measure(plan.operation, self.host.clock):
                executor.run(plan, secrets.token_hex(8))

    def end_spared(self, is_gone: Callable[[Unfinished], bool], **more: object) -> None:
        """Closes operations that were spared, and whose subjects are gone by now."""
        with closing(self.host.open_journal()) as journal:
            for found in self.recovered.spared:
                if found.op and is_gone(found):
                    journal.append(found.op, "end", {"outcome": "recovered", **more})

    def _check_free(self, plan: Plan, journal: Journal) -> None:
        late = self.host.list_late()
        if plan.on_failure is OnFailure.STOP and not late:
            return  # it only gives back: what cannot be recovered may end with just that
        wanted = [claim for step in plan.steps for claim in list_claims(step)]
        # what is older than what the caller is about to end does not stand in its way
        spared = {one.op for one in (*self.recovered.spared, *self.recovered.postponed)}
        for found in list_unfinished(journal.look()) if wanted else ():
            ours = found.op in spared or found.operation == RECOVER
            if ours or found.boot != self.host.boot_id:
                continue
            if find_collision(wanted, found.claims) is not None:
                raise OutcomePendingError(
                    f"cannot {plan.operation} {plan.subject} yet",
                    why=f"an earlier {found.operation} of {found.subject} has not ended",
                    held_by=late,
                    hint="vgpumgr status",
                )


@contextmanager
def open_transaction(host: Host, families: Families, what: str) -> Iterator[Transaction]:
    """Locks the machine; the caller recovers it before it plans. ``what`` the user may not do: ``attach``.

    Raises:
        NotPermittedError: not root.
        LockHeldError: another command changes the machine.
    """
    if not host.is_privileged:
        raise NotPermittedError(
            f"cannot {what} as this user",
            why="changing GPUs and VMs needs root",
            hint="repeat it with sudo",
        )
    with lock_file(host.run_dir / LOCK_FILE, clock=host.clock, what=what), host.hold_store():
        yield Transaction(host, families)
