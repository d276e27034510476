"""``vgpumgr op cancel``."""

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
    """Stop an operation before its next step and undo what it did; waits for its end.

    \b
    Examples:
      vgpumgr op cancel 3f2a
      vgpumgr op cancel 3f2a -o json
    """
    check_format("cancel", output)
    check_id(operation)
    session = get_session(context)
    daemon = open_daemon(session.options)
    daemon.request("DELETE", locate(operation)).document()
    print_operation(session, daemon.wait_operation(operation), output)
