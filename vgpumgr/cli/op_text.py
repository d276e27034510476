"""Operations as text, and what they mean for the exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.session import Session
from vgpumgr.errors import OperationNotFoundError, UsageError

_ID = re.compile(r"[0-9a-f]{1,16}")


def check_id(operation: str) -> None:
    """Raises OperationNotFoundError for what cannot be an id, before the daemon is asked."""
    if not _ID.fullmatch(operation):
        raise OperationNotFoundError(
            f'no operation is "{operation}"', why="ids look like 3f2a", hint="vgpumgr op list"
        )


def print_operation(session: Session, operation: dict[str, Any], output: Format | None) -> None:
    """One operation in any format that it has."""
    if output in (Format.CSV, Format.MARKDOWN):
        raise UsageError(f"operations have no {output} output", hint="-o json")
    if output in (Format.JSON, Format.YAML):
        document = {"schema": "vgpumgr/v1", "operation": operation}
        print_document(session.streams, document, output)
    elif output is Format.NAME:
        session.streams.print(operation["id"])
    else:
        session.streams.print("\n".join(render(operation)))


def render(operation: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"operation {operation['id']}"
    yield f"  what          {operation['operation']} {or_absent(operation['subject'])}"
    yield f"  status        {operation['status']}"
    yield f"  asked by      user {operation['uid']}"
    yield from (f"  {step['word']:<12}  {step['description']}" for step in operation["progress"])
    if operation["error"]:
        yield f"  error         {operation['error']['error']} ({operation['error']['id']})"
