"""``vgpumgr mig layout plan``."""

from __future__ import annotations

from typing import Annotated, Any

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.layout_text import (
    AllowDisruptive,
    LayoutFile,
    Selected,
    read_file,
    render_data,
    show_plan,
    write_file,
)
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import Exit


def command(
    context: Context,
    file: LayoutFile,
    config: Selected = None,
    allow_disruptive: AllowDisruptive = None,
    out: Annotated[
        str | None, Option("--out", metavar="PLAN", help="Save the plan for apply.")
    ] = None,
    output: Output = None,
) -> int:
    """Show the least change that brings the GPUs to a layout.

    Reads our own format, nvidia-mig-parted's and vgpu-device-manager's. Nothing is touched. Ends with
    3 when there is something to do, with 0 when there is not, with the refusal's code when it cannot
    be.

    \b
    Examples:
      vgpumgr mig layout plan web.yaml
      vgpumgr mig layout plan config.yaml -c all-1g.10gb -o json
      vgpumgr mig layout plan web.yaml --out plan.json
    """
    asked = {"name": config, "allow": list(allow_disruptive or ())}
    return run(get_session(context), file, asked, out, output)


def run(
    session: Session, file: str, asked: dict[str, Any], out: str | None, output: Format | None
) -> int:
    """Asks for the plan, saves and shows it."""
    check_single("plan", output)
    document = session.call("plan_layout", **read_file(file), **asked)
    if out is not None:
        write_file(out, render_data(document, Format.JSON))
    show_plan(session, document, output)
    return int(Exit.DIFFERENT if document["steps"] else Exit.OK)
