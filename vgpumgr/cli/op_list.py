"""``vgpumgr op list``."""

from __future__ import annotations

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import get_session
from vgpumgr.model.routes import OPERATIONS

COLUMNS = (
    Column("id", lambda o: str(o["id"])),
    Column("operation", lambda o: str(o["operation"])),
    Column("subject", lambda o: or_absent(o["subject"]), lambda o: o["subject"]),
    Column("status", lambda o: str(o["status"])),
    Column("steps", lambda o: str(len(o["progress"])), right=True),
    Column("uid", lambda o: str(o["uid"]), right=True, spare=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the daemon's operations: those that run, and the last ones that have ended.

    \b
    Examples:
      vgpumgr op list
      vgpumgr op list -o json
    """
    session = get_session(context)
    document = open_daemon(session.options).request("GET", OPERATIONS).document()
    print_list(
        session.streams,
        document,
        document["operations"],
        COLUMNS,
        Layout(output, columns, no_header),
        name=lambda operation: str(operation["id"]),
    )
