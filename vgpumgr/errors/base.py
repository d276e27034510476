"""Every error an operator can meet: what happened, why, who is in the way, what to try.

A class per thing an operator can act on, with a stable id, an exit code and a hint. Text follows
the five-line form ``error / cause / why / held by / try``; with ``-o json`` the same parts are
fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DIFFERENT = 3
    NOT_PERMITTED = 4
    NOT_FOUND = 5
    BUSY = 6
    NOT_SUPPORTED = 7
    PENDING = 8
    ROLLED_BACK = 9
    ROLLBACK_INCOMPLETE = 10
    INTERRUPTED = 130


class VgpumgrError(Exception):
    """Base of all errors shown to a user; subclasses set the class variables."""

    id: ClassVar[str] = "VG000"
    exit_code: ClassVar[Exit] = Exit.ERROR
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        error: str,
        *,
        cause: str | None = None,
        why: str | None = None,
        held_by: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.cause = cause
        self.why = why
        self.held_by = tuple(held_by)
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The error's parts, for ``-o json`` and the API."""
        return {
            "id": self.id,
            "error": self.error,
            "cause": self.cause,
            "why": self.why,
            "held_by": list(self.held_by),
            "try": self.hint,
            "exit_code": int(self.exit_code),
        }
