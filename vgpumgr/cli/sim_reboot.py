"""``vgpumgr sim reboot``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A running machine.")],
) -> None:
    """Reboot a simulated machine.

    Its processes are killed, its MIG instances are gone, and MIG mode as well where the GPU does
    not keep it. What vgpumgr remembers on disk stays.

    \b
    Examples:
      vgpumgr sim reboot dgx-a100
      vgpumgr --machine dgx-a100 restore
    """
    become_simulator(get_session(context), "reboot", name)
