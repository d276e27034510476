"""``vgpumgr virtio guest-package``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import DOCUMENTS, Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session

DEFAULT = "vgpumgr-guest.tar.gz"


def command(
    context: Context,
    target: Annotated[
        str, Option("--output-file", "-f", metavar="FILE", help="Where to write it.")
    ] = DEFAULT,
    output: Output = None,
) -> None:
    """Write the archive that a VM needs to use its slice: agent, CUDA shims, unit, install.sh.

    \b
    Examples:
      vgpumgr virtio guest-package
      vgpumgr virtio guest-package -f /srv/vgpumgr-guest.tar.gz
    """
    run(get_session(context), target, output)


def run(session: Session, target: str, output: Format | None) -> None:
    """Asks for the archive and says what to do with it."""
    from pathlib import Path

    check_single("virtio guest-package", output)
    document = session.call("write_guest_package", target=str(Path(target).absolute()))
    print_single(session.streams, document, output, [document["path"]])
    if output not in DOCUMENTS:
        session.streams.note("in the VM, as root: tar xf it, then vgpumgr-guest/install.sh")
