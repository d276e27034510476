"""``vgpumgr sim start``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session
from vgpumgr.cli.simulator import become_simulator, format_arguments


def command(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A machine file's name; see sim list.")],
    libvirt: Annotated[
        str | None,
        Option("--libvirt", metavar="URI", help="The hypervisor that goes with it."),
    ] = None,
    file: Annotated[
        Path | None,
        Option("--file", metavar="FILE", help="A machine file of your own (TOML)."),
    ] = None,
    output: Output = None,
) -> None:
    """Start a simulated machine; it keeps its state until `sim stop`.

    \b
    Examples:
      vgpumgr sim start dgx-a100
      vgpumgr --machine dgx-a100 gpu list
    """
    arguments = ["start", name]
    if libvirt is not None:
        arguments += ["--libvirt", libvirt]
    if file is not None:
        arguments += ["--file", str(file)]
    become_simulator(get_session(context), *arguments, *format_arguments(output))
