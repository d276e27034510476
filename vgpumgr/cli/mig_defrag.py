"""``vgpumgr mig defrag``."""

from __future__ import annotations

from typing import Annotated, Any

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.gpu_text import tell_placement
from vgpumgr.cli.options import Columns, GpuOption, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import Exit


def _tell_moves(row: dict[str, Any]) -> str:
    moves = [
        f"{m['profile']} {tell_placement(m['from'])} to {tell_placement(m['to'])}"
        for m in row["moves"]
    ]
    return ", ".join(moves) or "-"


COLUMNS = (
    Column("gpu", lambda r: str(r["gpu_index"]), right=True),
    Column("gpu_uuid", lambda r: str(r["gpu_uuid"]), wide=True),
    Column("possible", lambda r: "yes" if r["possible"] else "no"),
    Column("at", lambda r: tell_placement(r["at"]) if r["at"] else "-", wide=True),
    Column("moves", _tell_moves, wide=True, wraps=True),
    Column("how", lambda r: str(r["sentence"]), wraps=True),
)


def command(
    context: Context,
    plan: Annotated[
        str, Option("--plan", metavar="PROFILE", help="The profile that room is wanted for.")
    ],
    gpu: GpuOption = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> int:
    """Show which moves would make room for one more instance of a profile. Changes nothing.

    Slices that are in use stay where they are; those of VMs that are shut off may move. Exit code 0
    where it fits as it is, 3 where something has to move, 6 where nothing helps.

    \b
    Examples:
      vgpumgr mig defrag --plan 3g.40gb
      vgpumgr mig defrag --plan 2g.20gb --gpu 0 -o json
    """
    return run(get_session(context), plan, gpu, Layout(output, columns, no_header))


def run(session: Session, profile: str, selector: str | None, layout: Layout) -> int:
    """Asks for the options, prints them, and tells by the exit code whether one is needed."""
    document = session.call("plan_defrag", profile=profile, selector=selector)
    options = document["options"]
    print_list(
        session.streams, document, options, COLUMNS, layout, name=lambda row: str(row["gpu_uuid"])
    )
    best = options[0]
    return int(Exit.DIFFERENT if best["moves"] or best["remove"] else Exit.OK)
