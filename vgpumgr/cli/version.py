"""``vgpumgr version``."""

from __future__ import annotations

from vgpumgr import __version__
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session


def command(context: Context, output: Output = None) -> None:
    """Show the version of vgpumgr.

    \b
    Examples:
      vgpumgr version
      vgpumgr version -o json
    """
    run(get_session(context), output)


def run(session: Session, output: Format | None) -> None:
    """Prints the version."""
    check_single("version", output)
    document = {"schema": "vgpumgr/v1", "version": __version__}
    print_single(session.streams, document, output, [f"vgpumgr {__version__}"])
