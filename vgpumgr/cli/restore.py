"""``vgpumgr restore``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import check_single, print_single
from vgpumgr.cli.session import get_session
from vgpumgr.errors import Exit


def command(
    context: Context,
    timeout: Annotated[
        float,
        Option("--timeout", metavar="SECONDS", min=1, help="After that nothing more is begun."),
    ] = 240.0,
    early: Annotated[
        bool,
        Option("--early", help="Only functions that are taken at every boot; without NVML."),
    ] = False,
    boot: Annotated[
        bool, Option("--boot", help="libvirt does not run yet: do not ask it.")
    ] = False,
    output: Output = None,
) -> int:
    """Bring MIG mode, layouts, the slices of VMs and passthrough back after a boot.

    Creates what is missing at its old place, and starts the channels of attached VMs. Destroys
    nothing; what stands in the way is told, with exit code 3. vgpumgr-passthrough.service runs it
    with --early before anybody uses the GPUs, vgpumgr-restore.service with --boot before libvirt
    starts VMs.

    \b
    Examples:
      vgpumgr restore
      vgpumgr restore --timeout 60 -o json
    """
    session = get_session(context)
    check_single("restore", output)
    document = session.call("restore", timeout_s=timeout, early=early, boot=boot)
    lines = [f"  + {text}" for text in document["done"]]
    lines += [f"  ! {session.streams.address(text)}" for text in document["problems"]]
    lines += [f"  note: {text}" for text in document["notes"]]
    print_single(session.streams, document, output, lines or ["nothing is missing"])
    return int(Exit.DIFFERENT if document["problems"] else Exit.OK)
