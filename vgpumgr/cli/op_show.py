"""``vgpumgr op show``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.op_text import check_id, print_operation
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session
from vgpumgr.model.routes import OPERATIONS


def command(
    context: Context,
    operation: Annotated[str, Argument(help="Its id, or the beginning of it.")],
    output: Output = None,
) -> None:
    """Show one operation: who asked for it, its steps, its end.

    \b
    Examples:
      vgpumgr op show 3f2a
      vgpumgr op show 3f2a -o json
    """
    session = get_session(context)
    check_id(operation)
    path = f"{OPERATIONS}/{operation}"
    daemon = open_daemon(session.options)
    print_operation(session, daemon.request("GET", path).document()["operation"], output)
