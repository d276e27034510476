"""``vgpumgr passthrough bind``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.pci_text import DryRun, FunctionArgument, Yes, change, check_driver
from vgpumgr.cli.session import get_session


class Companions(StrEnum):
    """``--companions``."""

    VFIO = "vfio"
    STUB = "stub"
    KEEP = "keep"


def command(
    context: Context,
    function: FunctionArgument,
    companions: Annotated[
        Companions,
        Option(
            help="Audio, USB and other functions of the device: for the VM too (vfio), only away"
            " from the host (stub), or left where they are (keep)."
        ),
    ] = Companions.VFIO,
    whole_group: Annotated[
        bool, Option("--whole-group", help="Also other devices of the IOMMU group.")
    ] = False,
    persist: Annotated[
        bool | None, Option("--persist/--no-persist", help="Again at every boot.")
    ] = None,
    driver: Annotated[
        str | None,
        Option(
            "--driver",
            metavar="NAME",
            help="The driver that gets it; the default is vfio-pci, or what the kernel has for its"
            " device in particular.",
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Take a function, and what goes with it, from the host, for a VM.

    Remembers the drivers of before; unbind gives them back. Asks first when it is the boot display or
    somebody uses it, or disks are on it. Never takes a function with mounted disks.

    \b
    Examples:
      vgpumgr passthrough bind 0
      vgpumgr passthrough bind 3b:00.0 --persist
      vgpumgr passthrough bind 3b:00.0 --companions stub --dry-run
    """
    asked = {
        "selector": function,
        "driver": driver,
        "companions": companions.value,
        "whole_group": whole_group,
        "persist": persist,
    }
    check_driver(driver)
    session = get_session(context)
    change(session, "bind_pci", asked, dry_run=dry_run, output=output, yes=yes)
