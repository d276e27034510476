"""``vgpumgr sim env``."""

from __future__ import annotations

from typing import Annotated

import typer

from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A running machine.")],
) -> None:
    """Print the variables that let any other program see the machine.

    \b
    Examples:
      eval "$(vgpumgr sim env dgx-a100)"; nvitop
    """
    become_simulator(get_session(context), "env", name)
