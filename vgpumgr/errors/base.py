"""What all errors share: parts, exit codes, HTTP statuses.

Text follows the five-line form ``error / cause / why / held by / try``; with ``-o json`` the same parts are fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from vgpumgr.model.text import shorten_words


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
    NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    INTERRUPTED = 130


#: the HTTP status of an error with that exit code, unless its class states another; of all others 500
_HTTP_STATUS = {
    Exit.USAGE: 400,
    Exit.NOT_PERMITTED: 403,
    Exit.NOT_FOUND: 404,
    Exit.BUSY: 409,
    Exit.PENDING: 409,
    Exit.NOT_SUPPORTED: 422,
}


class VgpumgrError(Exception):
    """Base of all errors shown to a user. A subclass states ``id``, ``exit_code`` and ``http_status``; what it does not
    state follows from its exit code, or is that of its base.
    """

    id: ClassVar[str] = "VG000"
    exit_code: ClassVar[Exit] = Exit.ERROR
    http_status: ClassVar[int] = 500

    def __init_subclass__(
        cls,
        id: str | None = None,
        exit_code: Exit | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init_subclass__()
        if id is not None:
            cls.id = id
        if exit_code is not None:
            cls.exit_code = exit_code
            cls.http_status = _HTTP_STATUS.get(exit_code, 500)
        if http_status is not None:
            cls.http_status = http_status

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
            "error": shorten_words(self.error),
            "cause": self.cause and shorten_words(self.cause),
            "why": self.why and shorten_words(self.why),
            "held_by": list(self.held_by),
            "try": self.hint and shorten_words(self.hint),
            "exit_code": int(self.exit_code),
        }
