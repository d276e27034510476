"""``vgpumgr mig layout export``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.layout_text import write_document
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import UsageError


class Dialect(StrEnum):
    """``--format``."""

    OWN = "vgpumgr"
    MIG_PARTED = "mig-parted"
    VGPU_DM = "vgpu-device-manager"


def command(
    context: Context,
    file: Annotated[
        str | None, Argument(metavar="[FILE]", help="Where to; without it, print it.")
    ] = None,
    label: Annotated[
        str, Option("-l", "--label", metavar="NAME", help="What to call the layout.")
    ] = "current",
    format_: Annotated[Dialect, Option("--format", help="Whose format.")] = Dialect.OWN,
    placements: Annotated[
        bool, Option(help="Say where each instance is, not only how many.")
    ] = True,
    output: Output = None,
) -> None:
    """Write what there is as a layout file.

    Applying it changes nothing. --no-placements makes a file that fits other hosts too.

    \b
    Examples:
      vgpumgr mig layout export now.yaml
      vgpumgr mig layout export --format mig-parted -l web-tier
      vgpumgr mig layout export -o json
    """
    asked = {"dialect": format_.value, "label": label, "placements": placements}
    run(get_session(context), file, asked, output)


def run(session: Session, file: str | None, asked: dict[str, Any], output: Format | None) -> None:
    """Asks for the file and writes it."""
    if output not in (None, Format.JSON, Format.YAML):
        raise UsageError(f"export has no {output} output", hint="-o yaml")
    write_document(session, session.call("export_layout", **asked), file, output or Format.YAML)
