"""``vgpumgr mdev create``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.mdev_text import Attributes, DryRun, Where, change
from vgpumgr.cli.options import Output
from vgpumgr.cli.session import get_session


def command(
    context: Context,
    type: Annotated[
        str, Argument(metavar="TYPE", help="A vGPU type: name, id, or unique part of a name.")
    ],
    gpu: Where = None,
    uuid: Annotated[
        str | None, Option("--uuid", metavar="UUID", help="Default: a new one.")
    ] = None,
    attr: Attributes = None,
    placement: Annotated[
        int | None, Option("--placement", min=0, help="Where on a GPU of several sizes.")
    ] = None,
    mixed_sizes: Annotated[
        bool, Option("--mixed-sizes", help="Switch the GPU to vGPUs of several sizes first.")
    ] = False,
    define: Annotated[bool, Option("--define", help="It can be started again.")] = False,
    auto: Annotated[bool, Option("--auto", help="It comes back at boot.")] = False,
    spread: Annotated[
        bool, Option("--spread/--pack", help="Emptiest GPU, or the fullest with room.")
    ] = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Create a vGPU of a type, with the GPU instance that it needs, if it is MIG-backed.

    Works with mediated devices and with virtual functions that take a vGPU type, whichever the GPU
    has. What fails is undone.

    \b
    Examples:
      vgpumgr mdev create A100-4C
      vgpumgr mdev create nvidia-222 --gpu 0 --attr nvidia/vgpu_params=frame_rate_limiter=0
      vgpumgr mdev create mtty-1 --auto -o name
    """
    asked = {
        "type": type,
        "gpu": gpu,
        "uuid": uuid,
        "attributes": list(attr or ()),
        "placement": placement,
        "mixed_sizes": mixed_sizes,
        "define": define,
        "auto": auto,
        "spread": spread,
    }
    change(get_session(context), "create_vgpu", asked, dry_run, output)
