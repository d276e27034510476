"""``vgpumgr version``."""

from __future__ import annotations

from vgpumgr import __version__
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
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
    if output in (Format.JSON, Format.YAML):
        document = {"schema": "vgpumgr/v1", "version": __version__}
        print_document(session.streams, document, output)
    else:
        session.streams.print(f"vgpumgr {__version__}")
