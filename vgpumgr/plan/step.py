"""Steps and plans: one change of the world each, and the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from vgpumgr.errors import VgpumgrError

W = TypeVar("W")
W_contra = TypeVar("W_contra", contravariant=True)


class NothingDoneError(Exception):
    """Raised by ``do`` around the real error where it is certain that nothing was changed."""

    def __init__(self, error: VgpumgrError) -> None:
        super().__init__(str(error))
        self.error = error


class Step(Protocol[W_contra]):
    """One change of the world. Steps are values: planning makes them, nothing happens before
    ``do``.

    ``do`` and ``undo`` are restartable: what is already so is no error. ``undo`` also cleans up
    after a ``do`` that failed half-way. All three may raise any VgpumgrError.
    """

    @property
    def kind(self) -> str:
        """A fixed name for programs: ``mig.gi.create``."""

    @property
    def target(self) -> Mapping[str, object]:
        """What it is done to, as JSON-able values; names that exist before the thing does."""

    def describe(self) -> str:
        """What it does, for people: ``create 1g.10gb at 0:1 on GPU 0``."""

    def do(self, world: W_contra) -> None:
        """Makes the change and reads it back."""

    def undo(self, world: W_contra) -> None:
        """Takes it back."""

    def observe(self, world: W_contra) -> bool:
        """Whether the world shows the change, or any part of it."""


def is_account(step: Step[W]) -> bool:
    """Whether it records what the other steps do (``is_account``): it is not undone while anything
    of them is left, for recovery would not know whose that is.
    """
    return bool(getattr(step, "is_account", False))


class OnFailure(StrEnum):
    """What a failing step means for those before it."""

    UNDO = "undo"
    #: a detach goes on from where it stopped when it is repeated; nothing is put back
    STOP = "stop"


@dataclass(frozen=True)
class Plan(Generic[W]):
    """An operation's steps in order, with what a user should know before."""

    operation: str
    subject: str
    steps: tuple[Step[W], ...]
    on_failure: OnFailure = OnFailure.UNDO
    notes: tuple[str, ...] = ()
    result: Mapping[str, object] = field(default_factory=dict)
    #: what to try where undoing fails; None: a detach of the subject
    repair: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The plan for ``-o json``, the API and the journal."""
        return {
            "operation": self.operation,
            "subject": self.subject,
            "on_failure": str(self.on_failure),
            "notes": list(self.notes),
            "result": dict(self.result),
            "steps": [
                {"kind": s.kind, "target": dict(s.target), "description": s.describe()}
                for s in self.steps
            ],
        }
