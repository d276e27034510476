"""``vgpumgr vm list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import note_hidden, tell_lane_users, tell_usable


def _of_attachments(row: dict[str, Any], key: str) -> str:
    """What all its attachments say, in their order: ``1g.10gb, 3g.40gb``."""
    return ", ".join(or_absent(a[key]) for a in row["attachments"]) or ABSENT


def _usable(row: dict[str, Any]) -> str:
    """When the guest can use them; once, if it is the same for all."""
    words = [tell_usable(a["usable"]) for a in row["attachments"]]
    return ", ".join(words if len(set(words)) > 1 else words[:1]) or ABSENT


def _of_channels(row: dict[str, Any], tell: Callable[[dict[str, Any]], str]) -> str:
    words = [word for channel in row["channels"] if (word := tell(channel)) != ABSENT]
    return ", ".join(words) or ABSENT


COLUMNS = (
    Column("name", lambda r: str(r["name"])),
    Column("uuid", lambda r: str(r["uuid"]), wide=True),
    Column("state", lambda r: str(r["state"])),
    Column("profile", lambda r: _of_attachments(r, "profile")),
    Column("backend", lambda r: _of_attachments(r, "backend"), spare=True),
    Column("gpu", lambda r: _of_attachments(r, "gpu"), wide=True),
    Column("device", lambda r: _of_attachments(r, "device"), wide=True),
    Column("usable", _usable, lambda r: r["usable"]),
    Column(
        "transport",
        lambda r: _of_channels(r, lambda c: or_absent(c["transport"])),
        spare=True,
    ),
    Column("used_by", lambda r: _of_channels(r, tell_lane_users), wraps=True),
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
    note_hidden(session.streams, [c for row in rows for c in row["channels"]], "vm list")
