"""``vgpumgr why``."""

from __future__ import annotations

from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.options import Columns, GpuOption, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session


def _tell(row: dict[str, Any]) -> str:
    moving = f"; or without removing anything: {row['moving']}" if row["moving"] else ""
    return f"{row['sentence']}{moving}"


COLUMNS = (
    Column("gpu", lambda r: str(r["gpu_index"]), right=True),
    Column("gpu_uuid", lambda r: str(r["gpu_uuid"]), wide=True),
    Column("fits", lambda r: "yes" if r["fits"] else "no"),
    Column("why", _tell, wraps=True),
)


def command(
    context: Context,
    profile: Annotated[str, Argument(help="A MIG profile, such as 3g.40gb.")],
    gpu: GpuOption = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """Say for each GPU whether a profile can be had now, and if not, why not and what would help.

    \b
    Examples:
      vgpumgr why 3g.40gb
      vgpumgr why 1g.10gb+me --gpu 0
    """
    run(get_session(context), profile, gpu, Layout(output, columns, no_header))


def run(session: Session, profile: str, selector: str | None, layout: Layout) -> None:
    """Asks and tells: one GPU as sentences, several as a table."""
    document = session.call("why", profile=profile, selector=selector)
    rows = document["gpus"]
    if layout.format is None and len(rows) == 1:
        gpu, profile = rows[0]["gpu_index"], document["profile"]
        session.streams.print(f"GPU {gpu}: {profile} {_tell(rows[0])}")
        return
    print_list(
        session.streams, document, rows, COLUMNS, layout, name=lambda row: str(row["gpu_uuid"])
    )
