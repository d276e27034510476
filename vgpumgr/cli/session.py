"""What a command is handed: streams, global options and a way to the application. Commands import
no globals.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from vgpumgr.cli.arguments import GlobalOptions
from vgpumgr.cli.streams import Streams


class Backend(Protocol):
    """The application, in this process or behind the daemon's socket."""

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Answers an operation's document. Raises VgpumgrError."""


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the program."""

    options: GlobalOptions
    streams: Streams
    open_backend: Callable[[GlobalOptions], AbstractContextManager[Backend]]

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """One operation and its document."""
        with self.open_backend(self.options) as backend:
            return backend.call(operation, **params)


def get_session(context: Any) -> Session:
    """The session in the context, ours or typer's."""
    session = context.obj
    if not isinstance(session, Session):
        raise TypeError(f"no session in the context: {session!r}")
    return session
