"""``vgpumgr sim list``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator, format_arguments


def command(
    context: Context,
    output: Output = None,
) -> None:
    """List the machines that can be started, and those that run.

    \b
    Examples:
      vgpumgr sim list
      vgpumgr sim list -o json
    """
    become_simulator(get_session(context), "list", *format_arguments(output))
