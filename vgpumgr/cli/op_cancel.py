"""``vgpumgr op cancel``."""

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
    """Stop an operation before its next step and undo what it did; waits for its end.

    \b
    Examples:
      vgpumgr op cancel 3f2a
      vgpumgr op cancel 3f2a -o json
    """
    session = get_session(context)
    check_id(operation)
    daemon = open_daemon(session.options)
    path = f"{OPERATIONS}/{operation}"
    daemon.request("DELETE", path).document()
    print_operation(session, daemon.wait_operation(operation), output)
