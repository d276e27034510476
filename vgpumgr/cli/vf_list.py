"""``vgpumgr vf list``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list, tell_notes
from vgpumgr.cli.session import get_session
from vgpumgr.model.sizes import format_size


def _users(row: dict[str, Any]) -> str:
    waiting = [f'configured for vm "{vm}"' for vm in row["configured"]]
    return "; ".join(row["users"] or waiting) or ABSENT


def _quotas(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row["quotas"].items()) or ABSENT


def _memory(row: dict[str, Any]) -> str:
    share = row["framebuffer_bytes"]
    return ABSENT if share is None else format_size(share)


COLUMNS = (
    Column("physical", lambda r: str(r["physical"])),
    Column("count", lambda r: f"{r['count']}/{r['total']}", lambda r: r["count"], right=True),
    Column("vf", lambda r: or_absent(r["index"]), right=True),
    Column("address", lambda r: or_absent(r["address"])),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("group", lambda r: or_absent(r["iommu_group"]), right=True),
    Column("memory", _memory, lambda r: r["framebuffer_bytes"], wide=True, right=True),
    Column("quotas", _quotas, wide=True),
    Column("used_by", _users, wraps=True),
)


def command(
    context: Context,
    function: Annotated[
        str | None, Argument(metavar="[FUNCTION]", help="Only those of this one.")
    ] = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List virtual functions and who uses them.

    A physical function without any has a line of its own. Quotas are read for one FUNCTION only;
    memory is shown where the vendor's library says it (AMD).

    \b
    Examples:
      vgpumgr vf list
      vgpumgr vf list 3a:00.0 -o json
    """
    session = get_session(context)
    document = session.call("list_vfs", selector=function)
    tell_notes(session.streams, document, output)
    rows = [row for physical in document["physicals"] for row in _list_rows(physical)]
    layout = Layout(output, columns, no_header)
    print_list(
        session.streams, document, rows, COLUMNS, layout, lambda r: r["address"] or r["physical"]
    )


def _list_rows(physical: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {
        "physical": physical["address"],
        "count": physical["count"],
        "total": physical["total"],
    }
    empty = {"index": None, "address": None, "driver": None, "iommu_group": None}
    none = {**empty, "users": [physical["why_not"]] if physical["why_not"] else []}
    for vf in physical["vfs"] or [
        {**none, "configured": [], "quotas": {}, "framebuffer_bytes": None}
    ]:
        yield {**vf, **head}
