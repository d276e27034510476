"""``vgpumgr sim env``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A running machine.")],
) -> None:
    """Print the variables that let any other program see the machine.

    \b
    Examples:
      eval "$(vgpumgr sim env dgx-a100)"; nvitop
    """
    become_simulator(get_session(context), "env", name)
