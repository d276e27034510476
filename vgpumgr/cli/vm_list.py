"""``vgpumgr vm list``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import tell_lane_users, tell_usable


def _of_attachment(row: dict[str, Any], key: str) -> str:
    return or_absent(row["attachment"] and row["attachment"][key])


def _transport(row: dict[str, Any]) -> str:
    return or_absent(row["channel"] and row["channel"]["transport"])


COLUMNS = (
    Column("name", lambda r: str(r["name"])),
    Column("uuid", lambda r: str(r["uuid"]), wide=True),
    Column("state", lambda r: str(r["state"])),
    Column("profile", lambda r: _of_attachment(r, "profile")),
    Column("backend", lambda r: _of_attachment(r, "backend"), spare=True),
    Column("gpu", lambda r: _of_attachment(r, "gpu"), wide=True),
    Column("device", lambda r: _of_attachment(r, "device"), wide=True),
    Column("usable", lambda r: tell_usable(r["usable"]), lambda r: r["usable"]),
    Column("transport", _transport, spare=True),
    Column("used_by", lambda r: tell_lane_users(r["channel"]), wraps=True),
    Column("problems", lambda r: "; ".join(r["problems"]) or ABSENT, wraps=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the VMs: what is attached, whether the guest can use it, who does.

    \b
    Examples:
      vgpumgr vm list
      vgpumgr vm list -o csv --columns name,profile,usable
    """
    run(get_session(context), Layout(output, columns, no_header))


def run(session: Session, layout: Layout) -> None:
    """Asks for the VMs and prints them."""
    document = session.call("list_vms")
    rows = document["vms"]
    print_list(session.streams, document, rows, COLUMNS, layout, name=lambda r: str(r["name"]))
