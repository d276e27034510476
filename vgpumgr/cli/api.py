"""``vgpumgr api``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def command(
    context: Context,
    method: Annotated[str, Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, Argument(help="Such as /1.0/gpus.")],
    data: Annotated[
        str | None, Option("--data", metavar="JSON", help="The body; @FILE reads it from there.")
    ] = None,
    if_match: Annotated[
        str | None, Option("--if-match", metavar="ETAG", help="Only if it is still so.")
    ] = None,
) -> None:
    """Send one request to the daemon and print the body of its answer.

    \b
    Examples:
      vgpumgr api GET /1.0
      vgpumgr api GET /1.0/gpus
      vgpumgr api POST /1.0/attachments --data '{"vm": "vm01", "profile": "1g.10gb"}'
    """
    session = get_session(context)
    verb = method.upper()
    if verb not in _METHODS or not path.startswith("/") or any(c.isspace() for c in path):
        raise UsageError(f"no request: {method} {path}", hint="vgpumgr api GET /1.0/gpus")
    body = None if data is None else _read_body(data)
    headers = {"If_Match": if_match} if if_match else {}
    answer = open_daemon(session.options).request(verb, path, body, **headers)
    if answer.status >= 400:
        answer.document()
    session.streams.print(answer.body.decode(errors="replace"))


def _read_body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {data[1:] or 'a file without a name'}", cause=str(error)
        ) from error
