"""``vgpumgr passthrough list``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list, tell_notes
from vgpumgr.cli.session import get_session


def _in_the_way(row: dict[str, Any]) -> str:
    if row["verdict"] in ("viable", "bindable"):
        return _tell_all(row, row["users"]) or ABSENT
    return _tell_all(row, row["blockers"]) or row["why"] or ABSENT


def _tell_all(row: dict[str, Any], texts: list[str]) -> str:
    """Each once; the row's own function needs no name."""
    own = str(row["address"])
    parts = [part for text in texts for part in _strip(own, text).split("; ")]
    return "; ".join(dict.fromkeys(parts))


def _strip(own: str, blocker: str) -> str:
    if blocker.startswith(f"{own} ("):
        _, _, blocker = blocker.partition("): ")
        if not blocker:
            return "its driver is the host's"
    return blocker.replace(f"{own} is ", "it is ")


def _taken(row: dict[str, Any]) -> str:
    binding = row["binding"]
    if binding is None:
        return ABSENT
    return f"{binding['previous'] or 'no driver'}{', at boot' if binding['persist'] else ''}"


def _resets(row: dict[str, Any]) -> str:
    methods = row["reset_methods"]
    return ABSENT if methods is None else " ".join(methods) or "none"


def _index(row: dict[str, Any]) -> str:
    """NVML counts the GPUs that it has anew: the number of one that was taken is another's now."""
    return or_absent(None if row["binding"] else row["gpu_index"])


COLUMNS = (
    Column("address", lambda r: str(r["address"])),
    Column("gpu", _index, right=True),
    Column("kind", lambda r: str(r["kind"])),
    Column("model", lambda r: str(r["model"]), wraps=True),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("group", lambda r: or_absent(r["iommu_group"]), right=True),
    Column("numa", lambda r: or_absent(r["numa_node"]), wide=True, right=True),
    Column("reset", _resets, wide=True),
    Column("power", lambda r: or_absent(r["power_state"]), wide=True),
    Column("companions", lambda r: " ".join(r["companions"]) or ABSENT, wide=True),
    Column("taken_from", _taken, spare=True),
    Column("vm", lambda r: str(r["verdict"])),
    Column("in_the_way", _in_the_way, wraps=True, below=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List GPUs of all vendors and their virtual functions.

    Says of each whether it can go to a VM (now; once bound; not, because somebody uses it or shares
    its IOMMU group), and who is in the way.

    \b
    Examples:
      vgpumgr passthrough list
      vgpumgr passthrough list -o wide
    """
    session = get_session(context)
    document = session.call("list_passthrough")
    tell_notes(session.streams, document, output)
    layout = Layout(output, columns, no_header)
    print_list(
        session.streams, document, document["functions"], COLUMNS, layout, lambda r: r["address"]
    )
