"""What a command is handed: streams, global options and a way to the application. Commands import
no globals.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from vgpumgr.cli.arguments import GlobalOptions
from vgpumgr.cli.streams import Streams
from vgpumgr.errors import UsageError


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


def check_here(session: Session, what: str) -> None:
    """For what is about this host alone. Raises UsageError where the line names others; a host that
    the environment names is only not meant.
    """
    options = session.options
    if options.hosts or (options.host and options.host != os.environ.get("VGPUMGR_HOST")):
        raise UsageError(
            f"{what} is about this host only", hint="the same there, by ssh; or without --host"
        )


def get_session(context: Any) -> Session:
    """The session in the context, ours or typer's."""
    session = context.obj
    if not isinstance(session, Session):
        raise TypeError(f"no session in the context: {session!r}")
    return session
