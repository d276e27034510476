"""Carries a plan out: journals each intent, does it, and undoes everything when a step fails.

A listener hears of the steps of the operation that runs in its context: a terminal's or the daemon's. It may raise
before a step is done (``do``) to stop the operation there; then what was done is undone. It is a context variable,
so that no layer between needs a parameter for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from vgpumgr.engine.journal import Journal
from vgpumgr.engine.step import NothingDoneError, OnFailure, Plan, Step
from vgpumgr.errors import (
    HelperLateError,
    JournalError,
    OutcomePendingError,
    RollbackIncompleteError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.model.text import format_vm

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


#: called with a word (``do``, ``undo``) and the step, for progress on a terminal
Progress = Callable[[str, str], None]


Listener = Callable[[str, str], None]
_listener: ContextVar[Listener | None] = ContextVar("vgpumgr_progress", default=None)


def report_step(word: str, description: str) -> None:
    """Tells the listener of this context, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(word, description)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Everything that runs inside reports its steps to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Executor:
    """Runs one plan at a time in one context; the caller holds the machine's lock."""

    def __init__(
        self,
        context: OperationContext,
        journal: Journal,
        progress: Progress = report_step,
        list_late: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._context = context
        self._journal = journal
        self._progress = progress
        self._list_late = list_late

    def run(self, plan: Plan, op: str) -> None:
        """Does all steps. The context's records stand in the journal at the start and whenever they
        have changed, for recovery.

        Raises:
            OutcomePendingError: a helper process has not come back; nothing is undone before it has.
            JournalError: before the first step, if the journal cannot be written.
            RolledBackError: a step failed, and everything before it was undone.
            RollbackIncompleteError: undoing failed as well; what is left is listed.
            VgpumgrError: the step's own error, if nothing had been changed, or if the plan says
            stop.
        """
        known = self._context.encode_records()
        self._journal.append(op, "begin", {**plan.encode(), **known})
        done: list[Step] = []
        for number, step in enumerate(plan.steps):
            try:
                self._journal.append(op, "intent", {"step": number, "kind": step.kind})
                self._progress("do", step.describe())
                self._select(step)
                step.do(self._context)
                now = self._context.encode_records()
                news = now if now != known else {}
                known = now
                self._journal.append(op, "done", {"step": number, "kind": step.kind, **news})
            except BaseException as error:
                self._fail(plan, op, done, number, error)
            done.append(step)
        self._journal.append(op, "end", {"outcome": "done"})

    def _fail(
        self, plan: Plan, op: str, done: list[Step], number: int, error: BaseException
    ) -> None:
        """Ends the operation after an error; always raises."""
        failed = plan.steps[number]
        if isinstance(error, HelperLateError) and (late := self._list_late()):
            # it may yet take effect: what was done so far stays, and keeps its name and its place
            self._note(op, "late", {"step": number, "kind": failed.kind, "error": str(error)})
            raise _pending(plan, failed, error, late) from error
        untouched = isinstance(error, NothingDoneError)
        if isinstance(error, NothingDoneError):
            error = error.error
        if plan.on_failure is OnFailure.STOP and number >= plan.revocable:
            self._note(op, "end", {"outcome": "stopped", "step": number, "error": str(error)})
            raise error
        # a step that failed may have taken effect all the same: its call came back too late, or
        # half of it was done
        changed = not untouched and self._has_effect(failed)
        said = len(self._context.notes)
        left = self._undo(op, [*done, failed] if changed else done)
        notes = self._context.notes[said:]
        outcome = "incomplete" if left else "rolled-back"
        if not left:
            self._note(op, "end", {"outcome": outcome, "step": number, "error": str(error)})
        if not isinstance(error, Exception) and not left:
            if not isinstance(error, KeyboardInterrupt):
                raise error
            what = f"{plan.operation} {plan.subject}"
            text = "; ".join((f"interrupted; {what} is undone", *notes))
            raise KeyboardInterrupt(text) from error
        if left:
            raise self._incomplete(plan, failed, error, left, notes) from error
        if not done and not changed and isinstance(error, VgpumgrError):
            raise error
        raise _rolled_back(plan, failed, error, notes) from error

    def _select(self, step: Step) -> None:
        """Of several attachments, the step's own is the one that is changed."""
        if step.of is not None:
            self._context.select_record(step.of)

    def _has_effect(self, step: Step) -> bool:
        try:
            self._select(step)
            return step.observe(self._context)
        except Exception:
            return True  # cannot tell: undo is restartable, so try

    def _undo(self, op: str, steps: list[Step]) -> list[tuple[Step, BaseException]]:
        """Undoes in reverse; goes on after a failure, and returns what could not be undone."""
        left: list[tuple[Step, BaseException]] = []
        for step in reversed(steps):
            if step.is_account and (left := self._try_again(left)):
                continue  # recovery must know whose the rest is
            self._note(op, "undo", {"kind": step.kind})
            self._progress("undo", step.describe())
            try:
                self._select(step)
                step.undo(self._context)
            except (Exception, KeyboardInterrupt) as error:
                left.append((step, error))
                self._note(op, "undo-failed", {"kind": step.kind, "error": str(error)})
        return self._try_again(left)

    def _try_again(
        self, left: list[tuple[Step, BaseException]]
    ) -> list[tuple[Step, BaseException]]:
        """What could not be undone. Undoing an earlier step may have taken a later one's leftovers along, and a
        call that was never answered may have had its effect: what is left to be done then is done.
        """
        still = []
        for step, error in left:
            try:
                if self._has_effect(step):
                    still.append((step, error))
                else:
                    step.undo(self._context)
            except (Exception, KeyboardInterrupt) as again:
                still.append((step, again))
        return still

    def _note(self, op: str, event: str, data: dict[str, object]) -> None:
        """Journals while undoing: a journal that fails now must not stop the roll-back."""
        try:
            self._journal.append(op, event, data)
        except JournalError:
            self._progress("warn", "the journal cannot be written")

    def _incomplete(
        self,
        plan: Plan,
        failed: Step,
        error: BaseException,
        left: list[tuple[Step, BaseException]],
        notes: Sequence[str],
    ) -> RollbackIncompleteError:
        failures = (f"could not undo: {step.describe()} ({e})" for step, e in left)
        rest = "; ".join((*failures, *notes))
        return RollbackIncompleteError(
            f"cannot {plan.operation} {plan.subject}: {failed.describe()} failed: {error}",
            cause=getattr(error, "cause", None) or str(error),
            why=rest,
            held_by=_list_holders(error, *(e for _, e in left)),
            hint=plan.repair or f"vgpumgr detach {format_vm(plan.subject)}",
        )


def _list_holders(*errors: BaseException) -> tuple[str, ...]:
    """Whoever the errors name, each once: what cannot be undone is often held by a running machine."""
    return tuple(dict.fromkeys(name for e in errors for name in getattr(e, "held_by", ())))


def _pending(
    plan: Plan, failed: Step, error: HelperLateError, late: Sequence[str]
) -> OutcomePendingError:
    return OutcomePendingError(
        f"cannot {plan.operation} {plan.subject} yet: {failed.describe()} has not come back",
        cause=error.cause or str(error),
        why="it may still take effect, so nothing is undone before it has ended",
        held_by=late,
        hint="vgpumgr recover, once that process has ended",
    )


def _rolled_back(
    plan: Plan, failed: Step, error: BaseException, notes: Sequence[str]
) -> RolledBackError:
    """``notes``: what the steps had to say while they were undone."""
    known = isinstance(error, VgpumgrError)
    because = getattr(error, "why", None)
    return RolledBackError(
        f"cannot {plan.operation} {plan.subject}: {failed.describe()} failed: {error}",
        cause=(
            error.cause if isinstance(error, VgpumgrError) else f"{type(error).__name__}: {error}"
        ),
        why="; ".join(p for p in (because, "everything done before it was undone", *notes) if p),
        held_by=error.held_by if isinstance(error, VgpumgrError) else (),
        hint=getattr(error, "hint", None) if known else None,
    )
