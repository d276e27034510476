"""``vgpumgr mig profiles``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli import gpu_text
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Columns, GpuOption, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.model.sizes import format_size


def _places(row: dict[str, Any], key: str) -> str:
    return " ".join(map(gpu_text.tell_placement, row[key])) or gpu_text.ABSENT


COLUMNS = (
    Column("gpu", lambda r: str(r["gpu_index"]), right=True),
    Column("gpu_uuid", lambda r: str(r["gpu_uuid"]), wide=True),
    Column("profile", lambda r: str(r["name"])),
    Column("id", lambda r: str(r["id"]), wide=True, right=True),
    Column("slices", lambda r: str(r["slices"]), right=True),
    Column("memory", lambda r: format_size(r["memory_bytes"]), lambda r: r["memory_bytes"]),
    Column("sm", lambda r: str(r["sm_count"]), right=True),
    Column("free", lambda r: f"{r['free']}/{r['max_instances']}", lambda r: r["free"], right=True),
    Column("max", lambda r: str(r["max_instances"]), wide=True, right=True),
    Column("free_at", lambda r: _places(r, "free_placements"), wraps=True),
    Column("placements", lambda r: _places(r, "placements"), wide=True, wraps=True),
    Column(
        "why_not",
        lambda r: r["why_not"] or gpu_text.ABSENT,
        lambda r: r["why_not"],
        wide=True,
        wraps=True,
    ),
)


def command(
    context: Context,
    gpu: GpuOption = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the MIG profiles of each GPU and how many more of each fit now.

    \b
    Examples:
      vgpumgr mig profiles --gpu 0
      vgpumgr mig profiles -o wide
    """
    run(get_session(context), gpu, Layout(output, columns, no_header))


def run(session: Session, selector: str | None, layout: Layout) -> None:
    """Asks for the profiles and prints them."""
    document = session.call("list_mig_profiles", selector=selector)
    print_list(
        session.streams,
        document,
        document["profiles"],
        COLUMNS,
        layout,
        name=lambda row: str(row["name"]),
    )
