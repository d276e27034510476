"""``vgpumgr events``."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    """Follow what happens: operations with their steps, attachments, VMs, devices, libvirt.

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
    tell = _TELLERS.get(event["type"], _tell_any)
    return f"{when}  {tell(event)}"


def _tell_operation(event: dict[str, Any]) -> str:
    step = event["step"]
    last = f"  {step['word']}: {step['description']}" if step else ""
    what = f"{event['name']} {event['subject'] or ''}  {event['status']}{last}"
    return f"{event['operation']}  {what}"


def _tell_vm(event: dict[str, Any]) -> str:
    device = f" {event['device']}" if event["device"] else ""
    has = f"  attachments: {', '.join(event['attachments'])}" if event["attachments"] else ""
    return f"vm {event['vm']}  {event['change']}{device}{has}"


def _tell_libvirt(event: dict[str, Any]) -> str:
    return f"libvirt  {event['state']}" + (f": {event['problem']}" if event["problem"] else "")


def _tell_reconcile(event: dict[str, Any]) -> str:
    if event["error"] is not None:
        return f"reconcile  failed: {event['error']['error']}"
    actions = [f"{action['subject']}: {action['text']}" for action in event["actions"]]
    drift = [f"{found['subject']}: {found['text']}" for found in event["drift"]]
    parts = (*actions, *(f"differs: {text}" for text in drift))
    return f"reconcile  {'; '.join(parts) or 'all is as recorded'}"


def _tell_any(event: dict[str, Any]) -> str:
    rest = {k: v for k, v in event.items() if k not in ("id", "type", "time_s") and v is not None}
    return f"{event['type']}  " + "  ".join(f"{k}={v}" for k, v in rest.items())


_TELLERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "operation": _tell_operation,
    "vm": _tell_vm,
    "libvirt": _tell_libvirt,
    "reconcile": _tell_reconcile,
}
