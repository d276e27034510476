"""``vgpumgr op``."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from typer import Argument, Context

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.http import HttpBackend, rebuild_error
from vgpumgr.cli.main import App
from vgpumgr.cli.output import ABSENT, Column, or_absent, print_list, print_single, value_column
from vgpumgr.cli.session import get_session
from vgpumgr.errors import OperationNotFoundError
from vgpumgr.model.routes import OPERATIONS
from vgpumgr.model.text import format_time

app = App()
_ID = re.compile(r"[0-9a-f]{1,16}")


def _read_id(text: str) -> str:
    """Raises OperationNotFoundError for a word that cannot be an id."""
    if not _ID.fullmatch(text):
        raise OperationNotFoundError(
            f'no operation is "{text}"', why="ids look like 3f2a", hint="vgpumgr op list"
        )
    return text


OperationId = Annotated[str, Argument(parser=_read_id, help="Its id, or the beginning of it.")]

COLUMNS = (
    value_column("id"),
    value_column("operation"),
    value_column("subject"),
    value_column("status"),
    Column("steps", lambda o: str(len(o["progress"])), right=True, spare=True),
    value_column("uid", right=True, wide=True),
    Column("begun", lambda o: format_time(o["created_s"]), lambda o: o["created_s"]),
    Column(
        "took",
        lambda o: _format_duration(_find_duration(o)),
        lambda o: _find_duration(o),
        right=True,
    ),
    Column("user", lambda o: o.get("caller") or _name_user(o["uid"])),
    Column("error", lambda o: o["error"]["error"] if o["error"] else ABSENT, wraps=True),
)


def _find_duration(operation: dict[str, Any]) -> float:
    """Seconds from its request to its end, or to its latest step."""
    return max(0.0, round(float(operation["updated_s"] - operation["created_s"]), 1))


def _format_duration(duration_s: float) -> str:
    """``0.4 s``, ``2 min 5 s``."""
    minutes, seconds = divmod(int(duration_s), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{duration_s:.1f} s"


def _name_user(uid: int) -> str:
    """The name of this host's user; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@app.listing("list")
def list_operations(context: Context) -> None:
    """List the operations that run and the last that ended.

    \b
    Examples:
      vgpumgr op list
      vgpumgr op list -o json
    """
    document = _open(context).request("GET", OPERATIONS).document()
    print_list(context, document, document["operations"], COLUMNS, "id")


@app.named("show")
def show(context: Context, operation: OperationId) -> None:
    """Show one operation: its user, its steps, its end.

    \b
    Examples:
      vgpumgr op show 3f2a
      vgpumgr op show 3f2a -o json
    """
    _print(context, _open(context).request("GET", _locate(operation)).document()["operation"])


@app.named("wait")
def wait(context: Context, operation: OperationId) -> None:
    """Wait until an operation has ended.

    The exit code is that of the operation.

    \b
    Examples:
      vgpumgr op wait 3f2a
      vgpumgr op wait 3f2a -o json
    """
    ended = _open(context).wait_operation(operation)
    _print(context, ended)
    if ended["error"]:
        raise rebuild_error(ended["error"])


@app.named("cancel")
def cancel(context: Context, operation: OperationId) -> None:
    """Stop an operation before its next step and undo it.

    Waits for its end.

    \b
    Examples:
      vgpumgr op cancel 3f2a
      vgpumgr op cancel 3f2a -o json
    """
    daemon = _open(context)
    daemon.request("DELETE", _locate(operation)).document()
    _print(context, daemon.wait_operation(operation))


def _open(context: Context) -> HttpBackend:
    return open_daemon(get_session(context).options)


def _locate(operation: str) -> str:
    """The operation's place in the API."""
    return f"{OPERATIONS}/{quote(operation, safe='')}"


def _print(context: Context, operation: dict[str, Any]) -> None:
    document = {"schema": "vgpumgr/v1", "operation": operation}
    print_single(context, document, _render(operation), lambda: operation["id"])


def _render(operation: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"operation {operation['id']}"
    yield f"  what          {operation['operation']} {or_absent(operation['subject'])}"
    yield f"  status        {operation['status']}"
    yield f"  asked by      {operation.get('caller') or 'user ' + str(operation['uid'])}"
    yield f"  begun         {format_time(operation['created_s'])}"
    yield f"  took          {_format_duration(_find_duration(operation))}"
    yield from (f"  {step['word']:<12}  {step['description']}" for step in operation["progress"])
    if operation["error"]:
        yield f"  error         {operation['error']['error']} ({operation['error']['id']})"
