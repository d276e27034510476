"""``vgpumgr op wait``."""

from __future__ import annotations

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.http import rebuild_error
from vgpumgr.cli.op_text import OperationId, check_format, check_id, print_operation
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    operation: OperationId,
    output: Output = None,
) -> None:
    """Wait until an operation has ended; exit with what it ended with.

    \b
    Examples:
      vgpumgr op wait 3f2a
      vgpumgr op wait 3f2a -o json
    """
    check_format("wait", output)
    check_id(operation)
    session = get_session(context)
    ended = open_daemon(session.options).wait_operation(operation)
    print_operation(session, ended, output)
    if ended["error"]:
        raise rebuild_error(ended["error"])
