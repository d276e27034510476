"""``vgpumgr mig enable``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.layout_text import DryRun, MigGpu, Yes, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    gpu: MigGpu,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> int:
    """Turn MIG mode on.

    Ampere boards change it by a reset, later ones at once. Where
    somebody uses the GPU he is named, the request stays pending until a reset, and the exit code is
    8.

    \b
    Examples:
      vgpumgr mig enable 0
      vgpumgr mig enable 0000:07:00.0 --dry-run
    """
    asked = {"gpu": gpu, "enabled": True}
    session = get_session(context)
    return change(session, "set_mig_mode", asked, yes=yes, dry_run=dry_run, output=output)
