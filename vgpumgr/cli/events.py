"""``vgpumgr events``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError
from vgpumgr.model.routes import EVENTS


def command(
    context: Context,
    count: Annotated[int | None, Option("--count", min=1, help="End after so many events.")] = None,
    output: Output = None,
) -> None:
    """Follow what happens: operations with their steps, attachments.

    With -o json each event is a line.

    \b
    Examples:
      vgpumgr events
      vgpumgr events -o json
    """
    session = get_session(context)
    if output not in (None, Format.JSON, Format.TABLE):
        raise UsageError(f"events has no {output} output", hint="-o json")
    for number, event in enumerate(open_daemon(session.options).listen(EVENTS), 1):
        as_json = output is Format.JSON
        session.streams.print(json.dumps(event) if as_json else describe(event))
        session.streams.out.flush()
        if number == count:
            return


def describe(event: dict[str, Any]) -> str:
    """One line: when, what, to whom."""
    when = datetime.fromtimestamp(event["time_s"], UTC).astimezone().strftime("%H:%M:%S")
    if event["type"] == "operation":
        step = event["step"]
        last = f"  {step['word']}: {step['description']}" if step else ""
        what = f"{event['name']} {event['subject'] or ''}  {event['status']}{last}"
        return f"{when}  {event['operation']}  {what}"
    rest = {k: v for k, v in event.items() if k not in ("id", "type", "time_s")}
    return f"{when}  {event['type']}  " + "  ".join(f"{k}={v}" for k, v in rest.items())
