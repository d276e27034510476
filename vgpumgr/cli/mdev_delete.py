"""``vgpumgr mdev delete``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.mdev_text import DryRun, VgpuName, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context, vgpu: VgpuName, dry_run: DryRun = False, output: Output = None
) -> None:
    """Remove a vGPU, its definition, and the GPU instance that was made for it.

    Refused while somebody has it open, and for what is not ours: see adopt. A removal that cannot end
    because somebody opened it meanwhile ends by itself once he lets go.

    \b
    Examples:
      vgpumgr mdev delete 6f1c2a2e
      vgpumgr mdev delete 6f1c2a2e --dry-run
    """
    change(get_session(context), "delete_vgpu", {"vgpu": vgpu}, dry_run, output)
