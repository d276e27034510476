"""``vgpumgr mdev list``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session


def _state(row: dict[str, Any]) -> str:
    return str(row["state"]) if row["ours"] else f"{row['state']}, not ours"


def _start(row: dict[str, Any]) -> str:
    if not row["defined"]:
        return ABSENT
    return "auto" if row["auto"] else "manual"


def _attributes(row: dict[str, Any]) -> str:
    return ", ".join(f"{a['name']}={a['value']}" for a in row["attributes"]) or ABSENT


def _users(row: dict[str, Any]) -> str:
    return ", ".join([*([row["vm"]] if row["vm"] else []), *row["held_by"]]) or ABSENT


COLUMNS = (
    Column("vgpu", lambda r: str(r["uuid"] or r["parent"]), short=True),
    Column("type", lambda r: str(r["type"])),
    Column("id", lambda r: str(r["type_id"]), wide=True),
    Column("parent", lambda r: str(r["parent"])),
    Column("gpu", lambda r: or_absent(r["gpu"]), wide=True),
    Column("framework", lambda r: str(r["framework"]), wide=True),
    Column("state", _state, wraps=True),
    Column("start", _start),
    Column("group", lambda r: or_absent(r["iommu_group"]), wide=True, right=True),
    Column("attributes", _attributes, wide=True, wraps=True),
    Column("used_by", _users, wraps=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the vGPUs: what there is, what is only defined, and what others made.

    State releasing: removed while somebody had it open; its room is free once he lets go. Ghost: the
    same, but it was not vgpumgr that removed it. Missing: ours, removed without us, and free.
    A narrow terminal gets unique beginnings of the UUIDs, which every command takes.

    \b
    Examples:
      vgpumgr mdev list
      vgpumgr mdev list -o wide
      vgpumgr mdev list -o name
    """
    run(get_session(context), Layout(output, columns, no_header))


def run(session: Session, layout: Layout) -> None:
    """Asks for the vGPUs and prints them."""
    document = session.call("list_vgpus")
    print_list(
        session.streams,
        document,
        document["vgpus"],
        COLUMNS,
        layout,
        name=lambda row: str(row["uuid"] or row["parent"]),
    )
