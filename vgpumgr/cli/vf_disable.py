"""``vgpumgr vf disable``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.pci_text import DryRun, FunctionArgument, Yes, change
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    function: FunctionArgument,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Remove all virtual functions of a device.

    Refuses while one is in use, and names who uses it. Asks first where the definition of a VM names
    one.

    \b
    Examples:
      vgpumgr vf disable 3a:00.0
    """
    session = get_session(context)
    asked = {"selector": function}
    change(session, "disable_vfs", asked, dry_run=dry_run, output=output, yes=yes)
