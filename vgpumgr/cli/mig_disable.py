"""``vgpumgr mig disable``."""

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
    """Turn MIG mode off.

    Destroys the MIG instances; those in use are refused. Where
    somebody uses the GPU he is named, the request stays pending until a reset, and the exit code is
    8.

    \b
    Examples:
      vgpumgr mig disable 0
      vgpumgr mig disable 0000:07:00.0 --dry-run
    """
    asked = {"gpu": gpu, "enabled": False}
    session = get_session(context)
    return change(session, "set_mig_mode", asked, yes=yes, dry_run=dry_run, output=output)
