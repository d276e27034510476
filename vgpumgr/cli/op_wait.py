"""``vgpumgr op wait``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.http import rebuild_error
from vgpumgr.cli.op_text import check_id, print_operation
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    operation: Annotated[str, Argument(help="Its id, or the beginning of it.")],
    output: Output = None,
) -> None:
    """Wait until an operation has ended; exit with what it ended with.

    \b
    Examples:
      vgpumgr op wait 3f2a
      vgpumgr op wait 3f2a -o json
    """
    session = get_session(context)
    check_id(operation)
    ended = open_daemon(session.options).wait_operation(operation)
    print_operation(session, ended, output)
    if ended["error"]:
        raise rebuild_error(ended["error"])
