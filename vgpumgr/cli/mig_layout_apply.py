"""``vgpumgr mig layout apply``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.layout_text import (
    AllowDisruptive,
    DryRun,
    LayoutFile,
    Selected,
    Yes,
    change,
    read_file,
)
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    file: LayoutFile,
    config: Selected = None,
    allow_disruptive: AllowDisruptive = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> int:
    """Bring the GPUs to a layout by the least change.

    FILE is a layout, or a plan that "plan --out" saved: that is refused when the GPUs are no longer
    as they were. Slices in use stay unless --allow-disruptive names them. Asks before it destroys
    anything. What fails is undone.

    \b
    Examples:
      vgpumgr mig layout apply web.yaml
      vgpumgr mig layout apply config.yaml -c all-1g.10gb --yes
      vgpumgr mig layout apply plan.json
    """
    asked = {**read_file(file), "name": config, "allow": list(allow_disruptive or ())}
    session = get_session(context)
    return change(session, "apply_layout", asked, yes=yes, dry_run=dry_run, output=output)
