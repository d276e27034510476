"""``vgpumgr mdev adopt``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.mdev_text import DryRun, VgpuName, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context, vgpu: VgpuName, dry_run: DryRun = False, output: Output = None
) -> None:
    """Take over a vGPU, or a definition of mdevctl, that somebody else made.

    Nothing about it is changed; from then on it can be deleted, defined and attached here.

    \b
    Examples:
      vgpumgr mdev adopt 6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11
      vgpumgr mdev adopt 6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11 --dry-run
    """
    change(get_session(context), "adopt_vgpu", {"vgpu": vgpu}, dry_run, output)
