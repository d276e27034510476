"""Operations as text, and what they mean for the exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from vgpumgr.cli.declarations import Argument
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session
from vgpumgr.errors import OperationNotFoundError
from vgpumgr.model.routes import OPERATIONS

_ID = re.compile(r"[0-9a-f]{1,16}")

OperationId = Annotated[str, Argument(help="Its id, or the beginning of it.")]


def check_id(operation: str) -> None:
    """Raises OperationNotFoundError for what cannot be an id, before the daemon is asked."""
    if not _ID.fullmatch(operation):
        raise OperationNotFoundError(
            f'no operation is "{operation}"', why="ids look like 3f2a", hint="vgpumgr op list"
        )


def locate(operation: str) -> str:
    """The operation's place in the API."""
    return f"{OPERATIONS}/{quote(operation, safe='')}"


def check_format(verb: str, output: Format | None) -> None:
    """Before the daemon is asked. Raises UsageError."""
    check_single(f"op {verb}", output, named=True, hint=f"vgpumgr op list -o {output}")


def print_operation(session: Session, operation: dict[str, Any], output: Format | None) -> None:
    """One operation in any format that it has."""
    document = {"schema": "vgpumgr/v1", "operation": operation}
    print_single(session.streams, document, output, render(operation), lambda: operation["id"])


def render(operation: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"operation {operation['id']}"
    yield f"  what          {operation['operation']} {or_absent(operation['subject'])}"
    yield f"  status        {operation['status']}"
    yield f"  asked by      user {operation['uid']}"
    yield from (f"  {step['word']:<12}  {step['description']}" for step in operation["progress"])
    if operation["error"]:
        yield f"  error         {operation['error']['error']} ({operation['error']['id']})"
