"""``vgpumgr mig list``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli import gpu_text
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Columns, GpuOption, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.model.sizes import format_size


def _uuids(row: dict[str, Any]) -> list[str]:
    return [c["uuid"] for c in row["compute_instances"] if c["uuid"]]


def _users(row: dict[str, Any]) -> str:
    vms = dict.fromkeys(c["vm"] for c in row["compute_instances"] if c["vm"])
    if vms or row["vm"]:
        return ", ".join(vms) or str(row["vm"])
    return ", ".join(map(gpu_text.tell_process, row["processes"])) or gpu_text.ABSENT


COLUMNS = (
    Column("gpu", lambda r: str(r["gpu_index"]), right=True),
    Column("gpu_uuid", lambda r: str(r["gpu_uuid"]), wide=True),
    Column("instance", lambda r: str(r["id"]), right=True),
    Column("profile", lambda r: str(r["profile"])),
    Column("placement", lambda r: gpu_text.tell_placement(r["placement"])),
    Column(
        "memory", lambda r: format_size(r["memory_bytes"]), lambda r: r["memory_bytes"], spare=True
    ),
    Column("uuid", lambda r: " ".join(_uuids(r)) or gpu_text.ABSENT, lambda r: " ".join(_uuids(r))),
    Column("used_by", _users, wraps=True),
)


def command(
    context: Context,
    gpu: GpuOption = None,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the MIG instances: profile, place, UUID, user.

    \b
    Examples:
      vgpumgr mig list
      vgpumgr mig list --gpu 0 -o name
    """
    run(get_session(context), gpu, Layout(output, columns, no_header))


def run(session: Session, selector: str | None, layout: Layout) -> None:
    """Asks for the instances and prints them."""
    document = session.call("list_mig_instances", selector=selector)
    print_list(
        session.streams,
        document,
        document["instances"],
        COLUMNS,
        layout,
        name=lambda row: " ".join(_uuids(row)) or f"{row['gpu_uuid']}/{row['id']}",
    )
