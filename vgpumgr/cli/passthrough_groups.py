"""``vgpumgr passthrough groups``."""

from __future__ import annotations

from typing import Annotated, Any

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import DOCUMENTS, Column, Layout, print_list, tell_notes
from vgpumgr.cli.session import get_session

COLUMNS = (
    Column("group", lambda r: str(r["group"]), right=True),
    Column("vm", lambda r: str(r["verdict"])),
    Column("address", lambda r: str(r["address"])),
    Column("kind", lambda r: str(r["kind"])),
    Column("model", lambda r: str(r["model"]), wraps=True),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("used_by", lambda r: "; ".join(r["users"]) or ABSENT, wraps=True),
)


def command(
    context: Context,
    all_groups: Annotated[bool, Option("--all", help="Also groups without a GPU.")] = False,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List IOMMU groups with all their members.

    A group goes to one VM as a whole. Bridges stay with the host and do not count.

    \b
    Examples:
      vgpumgr passthrough groups
      vgpumgr passthrough groups --all -o json
    """
    session = get_session(context)
    document = session.call("list_pci_groups", all_groups=all_groups)
    tell_notes(session.streams, document, output)
    rows = [row for group in document["groups"] for row in _list_rows(group)]
    layout = Layout(output, columns, no_header)
    print_list(session.streams, document, rows, COLUMNS, layout, lambda r: r["address"])
    for group in document["groups"]:
        if group["why"] and output not in DOCUMENTS:
            hint = f"; try: {session.streams.address(group['hint'])}" if group["hint"] else ""
            session.streams.note(f"group {group['number']}: {group['why']}{hint}")


def _list_rows(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**member, "group": group["number"], "verdict": group["verdict"]}
        for member in group["members"]
    ]
