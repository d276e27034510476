"""``vgpumgr mdev define``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.mdev_text import Attributes, DryRun, Where, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    vgpu: Annotated[
        str | None,
        Argument(metavar="[VGPU]", help="A vGPU of ours; with --type the UUID of a new one."),
    ] = None,
    type: Annotated[
        str | None, Option("--type", metavar="TYPE", help="A new one, started later.")
    ] = None,
    gpu: Where = None,
    attr: Attributes = None,
    auto: Annotated[
        bool | None,
        Option(
            "--auto/--manual", help="At boot, or only by mdev start; the default for a new one."
        ),
    ] = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Let a vGPU come back: at boot, or when it is started.

    Mediated devices are defined where mdevctl looks for them (/etc/mdevctl.d), so that both programs
    see the same. Repeat it to change a definition: what is not named stays as it is.

    \b
    Examples:
      vgpumgr mdev define 6f1c2a2e --auto
      vgpumgr mdev define --type A100-4C --gpu 0
    """
    asked = {
        "vgpu": vgpu,
        "type": type,
        "gpu": gpu,
        "attributes": None if attr is None else list(attr),
        "auto": auto,
    }
    change(get_session(context), "define_vgpu", asked, dry_run, output)
