"""``vgpumgr op show``."""

from __future__ import annotations

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.op_text import OperationId, check_format, check_id, locate, print_operation
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    operation: OperationId,
    output: Output = None,
) -> None:
    """Show one operation: who asked for it, its steps, its end.

    \b
    Examples:
      vgpumgr op show 3f2a
      vgpumgr op show 3f2a -o json
    """
    check_format("show", output)
    check_id(operation)
    session = get_session(context)
    daemon = open_daemon(session.options)
    print_operation(
        session, daemon.request("GET", locate(operation)).document()["operation"], output
    )
