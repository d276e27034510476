"""``vgpumgr sim stop``."""

from __future__ import annotations

from typing import Annotated

import typer

from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A running machine.")],
) -> None:
    """Stop a simulated machine and forget its state.

    \b
    Examples:
      vgpumgr sim stop dgx-a100
    """
    become_simulator(get_session(context), "stop", name)
