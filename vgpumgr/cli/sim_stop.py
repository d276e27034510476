"""``vgpumgr sim stop``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A running machine.")],
) -> None:
    """Stop a simulated machine and forget its state.

    \b
    Examples:
      vgpumgr sim stop dgx-a100
    """
    become_simulator(get_session(context), "stop", name)
