"""``vgpumgr gpu list``."""

from __future__ import annotations

from typing import Any

from vgpumgr.cli import gpu_text
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session


def _short_model(gpu: dict[str, Any]) -> str:
    """The model without the vendor, which every one of them would repeat."""
    return str(gpu["model"]).removeprefix("NVIDIA ")


COLUMNS = (
    Column("index", lambda g: gpu_text.or_absent(g["index"]), lambda g: g["index"], right=True),
    Column("model", _short_model, lambda g: g["model"], wraps=True),
    Column("uuid", lambda g: gpu_text.or_absent(g["uuid"]), lambda g: g["uuid"], wide=True),
    Column("pci", lambda g: str(g["pci"])),
    Column(
        "numa", lambda g: gpu_text.or_absent(g["numa_node"]), lambda g: g["numa_node"], spare=True
    ),
    Column(
        "iommu",
        lambda g: gpu_text.or_absent(g["iommu_group"] and g["iommu_group"]["number"]),
        lambda g: g["iommu_group"] and g["iommu_group"]["number"],
        spare=True,
    ),
    Column("driver", lambda g: gpu_text.or_absent(g["driver"]), lambda g: g["driver"], spare=True),
    Column(
        "driver_version",
        lambda g: gpu_text.or_absent(g["driver_version"]),
        lambda g: g["driver_version"],
        wide=True,
    ),
    Column("mig", lambda g: gpu_text.tell_mig(g["mig"])),
    Column("memory", gpu_text.tell_memory, lambda g: g["memory_total_bytes"], right=True),
    Column(
        "memory_used",
        lambda g: gpu_text.or_absent(g["memory_used_bytes"]),
        lambda g: g["memory_used_bytes"],
        wide=True,
        right=True,
    ),
    Column("slices", gpu_text.tell_slices, wraps=True),
    Column("used_by", gpu_text.tell_users, wraps=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the GPUs: where they are, how they are cut, who uses them.

    GPUs of all vendors; those that NVML does not speak about have no index, but an address.

    \b
    Examples:
      vgpumgr gpu list
      vgpumgr gpu list -o csv --no-header --columns index,uuid,memory
      vgpumgr --machine dgx-a100 gpu list -o json
    """
    run(get_session(context), Layout(output, columns, no_header))


def run(session: Session, layout: Layout) -> None:
    """Asks for the GPUs and prints them; those out of reach are named on standard error."""
    document = session.call("list_gpus")
    print_list(
        session.streams,
        document,
        [*document["gpus"], *map(gpu_text.as_row, document["others"])],
        COLUMNS,
        layout,
        name=lambda gpu: str(gpu["uuid"] or gpu["pci"]),
    )
    for lost in document["lost"]:
        session.streams.note(
            f"warning: GPU {lost['index']} does not answer: "
            f"{lost['nvml_text']} (NVML {lost['nvml_code']})"
        )
