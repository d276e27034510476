"""``vgpumgr mig restore``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.layout_text import AllowDisruptive, DryRun, LayoutFile, Yes, change, read_file
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    file: LayoutFile,
    allow_disruptive: AllowDisruptive = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> int:
    """Bring back what a checkpoint saved, placement by placement, by the least change.

    Reads what "vgpumgr mig checkpoint" and "nvidia-mig-parted checkpoint" write. GPUs that it does
    not name stay as they are.

    \b
    Examples:
      vgpumgr mig restore before-upgrade.json --dry-run
      vgpumgr mig restore before-upgrade.json --yes
    """
    asked = {**read_file(file), "allow": list(allow_disruptive or ())}
    session = get_session(context)
    return change(session, "restore_mig", asked, yes=yes, dry_run=dry_run, output=output)
