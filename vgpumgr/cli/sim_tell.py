"""``vgpumgr sim tell``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator


def command(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A machine that runs.")],
    what: Annotated[
        str, Argument(metavar="WHAT", help="hold, release, sriov, gone, driver or fault.")
    ],
    words: Annotated[
        list[str] | None,
        Argument(metavar="[WORD]...", help="What WHAT needs, also with a dash.", verbatim=True),
    ] = None,
) -> None:
    """Let something happen to a simulated machine: a VM takes a device, a device falls off the bus,
    writes to /sys fail.

    \b
    Examples:
      vgpumgr sim tell vgpu-l40s hold 0000:3a:00.4 vm1
      vgpumgr sim tell vgpu-l40s release 0000:3a:00.4
      vgpumgr sim tell intel-flex driver -vfio-pci
      vgpumgr sim tell vgpu-l40s fault ignore '*/current_vgpu_type'
      vgpumgr sim tell vgpu-l40s fault clear
    """
    become_simulator(get_session(context), "tell", name, what, *(words or ()))
