"""``vgpumgr mdev types``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import ABSENT, or_absent
from vgpumgr.cli.mdev_text import Where
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.model.sizes import format_size


def _gpu(row: dict[str, Any]) -> str:
    return str(row["gpu"] if row["gpu_index"] is None else row["gpu_index"])


def _size(row: dict[str, Any]) -> str:
    size = row["framebuffer_bytes"]
    return ABSENT if size is None else format_size(size)


def _pixels(row: dict[str, Any]) -> str:
    pixels = row["resolution"]
    return f"{pixels['width']}x{pixels['height']}" if pixels else ABSENT


COLUMNS = (
    Column("gpu", _gpu),
    Column("address", lambda r: str(r["gpu"]), wide=True),
    Column("framework", lambda r: str(r["framework"]), wide=True),
    Column("id", lambda r: str(r["id"])),
    Column("name", lambda r: str(r["name"])),
    Column("memory", _size, lambda r: r["framebuffer_bytes"], right=True),
    Column("mig", lambda r: or_absent(r["mig_profile"]), lambda r: r["mig_profile"], spare=True),
    Column("heads", lambda r: or_absent(r["heads"]), lambda r: r["heads"], right=True, spare=True),
    Column("resolution", _pixels, spare=True),
    Column(
        "fps", lambda r: or_absent(r["frame_rate_limit"]), lambda r: r["frame_rate_limit"],
        right=True, wide=True,
    ),
    Column("max", lambda r: or_absent(r["max_instances"]), lambda r: r["max_instances"], right=True),
    Column("free", lambda r: str(r["free"]), right=True),
    Column("why", lambda r: r["reason"] or "", wide=True, wraps=True, below=True),
)  # fmt: skip


def command(
    context: Context,
    gpu: Where = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the vGPU types of each GPU, and how many more of each can really be created.

    A GPU holds vGPUs of one size unless mixed sizes are switched on, one on each virtual function,
    and what was removed but is still held keeps its room: all that is counted. With -o wide it says
    why there is no room.

    \b
    Examples:
      vgpumgr mdev types
      vgpumgr mdev types --gpu 0 -o wide
      vgpumgr mdev types -o csv --columns name,free
    """
    run(get_session(context), gpu, Layout(output, columns, no_header))


def run(session: Session, selector: str | None, layout: Layout) -> None:
    """Asks for the types and prints them."""
    document = session.call("list_vgpu_types", selector=selector)
    if not document["types"]:
        session.streams.note(session.streams.address(f"note: {document['note']}"))
    print_list(
        session.streams,
        document,
        document["types"],
        COLUMNS,
        layout,
        name=lambda row: row["name"],
        where=lambda row: f"GPU {_gpu(row)}",
    )
