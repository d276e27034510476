"""``vgpumgr passthrough unbind``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.pci_text import DryRun, FunctionArgument, Yes, change, check_driver
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    function: FunctionArgument,
    only: Annotated[bool, Option("--only", help="Not what was taken with it.")] = False,
    driver: Annotated[
        str | None,
        Option("--driver", metavar="NAME", help="To this driver, not the one of before."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Give a function, and what was taken with it, back to the host.

    Each gets the driver that it had before. Asks first when a VM or somebody else uses it.

    \b
    Examples:
      vgpumgr passthrough unbind 3b:00.0
      vgpumgr passthrough unbind 3b:00.0 --driver nvidia
    """
    asked = {"selector": function, "only": only, "driver": driver}
    check_driver(driver)
    session = get_session(context)
    change(session, "unbind_pci", asked, dry_run=dry_run, output=output, yes=yes)
