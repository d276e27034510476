"""``vgpumgr mdev stop``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.mdev_text import DryRun, VgpuName, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context, vgpu: VgpuName, dry_run: DryRun = False, output: Output = None
) -> None:
    """Remove a vGPU and keep its definition.

    \b
    Examples:
      vgpumgr mdev stop 6f1c2a2e
      vgpumgr mdev stop 6f1c2a2e --dry-run
    """
    change(get_session(context), "stop_vgpu", {"vgpu": vgpu}, dry_run, output)
