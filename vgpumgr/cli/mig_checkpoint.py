"""``vgpumgr mig checkpoint``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.layout_text import write_document
from vgpumgr.cli.output import Format
from vgpumgr.cli.session import Session, get_session


def command(
    context: Context,
    file: Annotated[
        str | None, Argument(metavar="[FILE]", help="Where to; without it, print it.")
    ] = None,
) -> None:
    """Save MIG mode, instances and placements of all GPUs, as nvidia-mig-parted does.

    \b
    Examples:
      vgpumgr mig checkpoint before-upgrade.json
    """
    run(get_session(context), file)


def run(session: Session, file: str | None) -> None:
    """Asks for the checkpoint and writes it."""
    write_document(session, session.call("checkpoint_mig"), file, Format.JSON)
