"""``vgpumgr mdev``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    find_row,
    or_absent,
    print_list,
    print_row,
    print_single,
    size_column,
    value_column,
)
from vgpumgr.cli.session import DryRun, call, get_streams, get_verbosity, number
from vgpumgr.cli.text import render_plan
from vgpumgr.errors import VgpuNotFoundError

app = App()
VgpuName = Annotated[
    str, Argument(metavar="VGPU", help="UUID or unique prefix, or its function's address.")
]
Where = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Index, UUID, bus address, or name of a parent."),
]
Attributes = Annotated[
    list[str] | None,
    Option("--attr", metavar="NAME=VALUE", help="An attribute to write; several in their order."),
]
_DONE = {
    "create vGPU": "created",
    "delete vGPU": "deleted",
    "define vGPU": "defined",
    "start vGPU": "started",
    "stop vGPU": "stopped",
    "adopt vGPU": "took over",
}


def _gpu(row: dict[str, Any]) -> str:
    return str(row["gpu"] if row["gpu_index"] is None else row["gpu_index"])


def _pixels(row: dict[str, Any]) -> str:
    pixels = row["resolution"]
    return f"{pixels['width']}x{pixels['height']}" if pixels else ABSENT


TYPES = (
    Column("gpu", _gpu),
    value_column("address", "gpu", wide=True),
    value_column("framework", wide=True),
    value_column("id"),
    value_column("name"),
    size_column("memory", "framebuffer_bytes"),
    value_column("mig", "mig_profile", spare=True),
    value_column("heads", right=True, spare=True),
    Column("resolution", _pixels, spare=True),
    value_column("fps", "frame_rate_limit", right=True, wide=True),
    value_column("max", "max_instances", right=True),
    value_column("free", right=True),
    Column("why", lambda r: r["reason"] or "", wide=True, wraps=True, below=True),
)  # fmt: skip


@app.listing("types")
def list_types(context: Context, gpu: Where = None) -> None:
    """List the vGPU types and how many more of each fit.

    The number counts all limits: a GPU holds vGPUs of one size unless mixed sizes are switched on,
    one on each virtual function, and a removed vGPU that is still open keeps its capacity. With -o
    wide it says why none fits.

    \b
    Examples:
      vgpumgr mdev types
      vgpumgr mdev types --gpu 0 -o wide
      vgpumgr mdev types -o csv --columns name,free
    """
    document = call(context, "list_vgpu_types", selector=gpu)
    if not document["types"]:
        get_streams(context).note(get_streams(context).address(f"note: {document['note']}"))
    print_list(
        context, document, document["types"], TYPES, "name", where=lambda row: f"GPU {_gpu(row)}"
    )


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


VGPUS = (
    Column("vgpu", lambda r: str(r["uuid"] or r["parent"]), short=True),
    value_column("type"),
    value_column("id", "type_id", wide=True),
    value_column("parent"),
    Column("gpu", lambda r: or_absent(r["gpu"]), wide=True),
    value_column("framework", wide=True),
    Column("state", _state, wraps=True),
    Column("start", _start),
    Column("group", lambda r: or_absent(r["iommu_group"]), wide=True, right=True),
    Column("attributes", _attributes, wide=True, wraps=True),
    Column("used_by", _users, wraps=True),
)


@app.listing("list")
def list_vgpus(context: Context) -> None:
    """List the vGPUs, also defined ones and those of others.

    State releasing: removed while it was open; its capacity is free when its holder closes it. Ghost:
    the same, but not removed by vgpumgr. Missing: ours, removed by another program, and free. A
    narrow terminal gets unique beginnings of the UUIDs, which every command takes.

    \b
    Examples:
      vgpumgr mdev list
      vgpumgr mdev list -o wide
      vgpumgr mdev list -o name
    """
    document = call(context, "list_vgpus")
    print_list(
        context,
        document,
        document["vgpus"],
        VGPUS,
        name=lambda row: str(row["uuid"] or row["parent"]),
    )


@app.named("show")
def show(context: Context, vgpu: VgpuName) -> None:
    """Show one vGPU: type, place, state, and who has it.

    \b
    Examples:
      vgpumgr mdev show 6f1c2a2e
      vgpumgr mdev show 6f1c2a2e -o json
    """
    rows = call(context, "list_vgpus")["vgpus"]
    row = find_row(rows, _list_names, vgpu, VgpuNotFoundError, "vGPU", "vgpumgr mdev list")
    name = str(row["uuid"] or row["parent"])
    print_row(context, {"schema": "vgpumgr/v1", "vgpu": row}, f"vGPU {name}", row, VGPUS, name)


def _list_names(row: dict[str, Any]) -> list[str]:
    return [str(name) for name in (row["uuid"], row["parent"]) if name]


@app.named("create")
def create(
    context: Context,
    type: Annotated[
        str, Argument(metavar="TYPE", help="A vGPU type: name, id, or unique part of a name.")
    ],
    gpu: Where = None,
    uuid: Annotated[
        str | None, Option("--uuid", metavar="UUID", help="Default: a new one.")
    ] = None,
    attr: Attributes = None,
    placement: Annotated[
        int | None,
        Option(
            "--placement",
            metavar="N",
            parser=number(int, 0),
            help="The place on a GPU of several sizes.",
        ),
    ] = None,
    mixed_sizes: Annotated[
        bool, Option("--mixed-sizes", help="Switch the GPU to vGPUs of several sizes first.")
    ] = False,
    define: Annotated[bool, Option("--define", help="It can be started again.")] = False,
    auto: Annotated[bool, Option("--auto", help="It starts at every boot.")] = False,
    spread: Annotated[
        bool, Option("--spread/--pack", help="Emptiest GPU, or the fullest that fits.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Create a vGPU of a type.

    A MIG-backed one gets its GPU instance. Works with mediated devices and with virtual functions
    that take a vGPU type. If it fails, it is undone.

    \b
    Examples:
      vgpumgr mdev create A100-4C
      vgpumgr mdev create nvidia-222 --gpu 0 --attr nvidia/vgpu_params=frame_rate_limiter=0
      vgpumgr mdev create mtty-1 --auto -o name
    """
    asked = {
        "type": type,
        "gpu": gpu,
        "uuid": uuid,
        "attributes": list(attr or ()),
        "placement": placement,
        "mixed_sizes": mixed_sizes,
        "define": define,
        "auto": auto,
        "spread": spread,
    }
    _change(context, "create_vgpu", asked, dry_run)


@app.named("delete")
def delete(
    context: Context,
    vgpu: VgpuName,
    yes: Annotated[bool, Option("-y", "--yes", help="It never asks; for scripts.")] = False,  # noqa: ARG001
    dry_run: DryRun = False,
) -> None:
    """Delete a vGPU, its definition, and its GPU instance.

    Refuses if the vGPU is in use, or not ours: see adopt. If the device is still open, removal
    completes when its holder closes it.

    \b
    Examples:
      vgpumgr mdev delete 6f1c2a2e
      vgpumgr mdev delete 6f1c2a2e --dry-run
    """
    _change(context, "delete_vgpu", {"vgpu": vgpu}, dry_run)


@app.named("define")
def define(
    context: Context,
    vgpu: Annotated[
        str | None,
        Argument(metavar="[VGPU]", help="A vGPU of ours; with --type the UUID of a new one."),
    ] = None,
    type: Annotated[
        str | None, Option("--type", metavar="TYPE", help="A new one, started later.")
    ] = None,
    gpu: Where = None,
    attr: Attributes = None,
    auto: Annotated[
        bool | None,
        Option(
            "--auto/--manual", help="At boot, or only by mdev start; the default for a new one."
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Define a vGPU, which starts at boot or on demand.

    Definitions of mediated devices are mdevctl's (/etc/mdevctl.d), so that both programs see the
    same. Repeat the command to change a definition: what it does not name stays unchanged.

    \b
    Examples:
      vgpumgr mdev define 6f1c2a2e --auto
      vgpumgr mdev define --type A100-4C --gpu 0
    """
    asked = {
        "vgpu": vgpu,
        "type": type,
        "gpu": gpu,
        "attributes": None if attr is None else list(attr),
        "auto": auto,
    }
    _change(context, "define_vgpu", asked, dry_run)


@app.named("start")
def start(context: Context, vgpu: VgpuName, dry_run: DryRun = False) -> None:
    """Create a defined vGPU.

    \b
    Examples:
      vgpumgr mdev start 6f1c2a2e
      vgpumgr mdev start 6f1c2a2e --dry-run
    """
    _change(context, "start_vgpu", {"vgpu": vgpu}, dry_run)


@app.named("stop")
def stop(context: Context, vgpu: VgpuName, dry_run: DryRun = False) -> None:
    """Remove a vGPU and keep its definition.

    \b
    Examples:
      vgpumgr mdev stop 6f1c2a2e
      vgpumgr mdev stop 6f1c2a2e --dry-run
    """
    _change(context, "stop_vgpu", {"vgpu": vgpu}, dry_run)


@app.named("adopt")
def adopt(context: Context, vgpu: VgpuName, dry_run: DryRun = False) -> None:
    """Take over a vGPU or definition of another program.

    Nothing about it is changed; from then on it can be deleted, defined and attached here.

    \b
    Examples:
      vgpumgr mdev adopt 6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11
      vgpumgr mdev adopt 6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11 --dry-run
    """
    _change(context, "adopt_vgpu", {"vgpu": vgpu}, dry_run)


def _change(context: Context, operation: str, asked: dict[str, Any], dry_run: bool) -> None:
    """Calls the operation and prints what was done."""
    document = call(context, operation, dry_run=dry_run, **asked)
    result = document["plan"]["result"]
    verbosity = get_verbosity(context, dry_run=dry_run)
    lines = map(get_streams(context).address, render(document, verbosity))
    print_single(context, document, lines, lambda: result["vgpu"])


def render(document: dict[str, Any], verbosity: int = 0) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    name, result = plan["operation"], plan["result"]
    word = f"would {name.partition(' ')[0]}" if document["dry_run"] else _DONE[name]
    if not plan["steps"]:
        word = "already ours:" if name == "adopt vGPU" else f"already {_DONE[name]}"
    yield f"{word} {result['type']} on {result['parent']}: {result['vgpu']}"
    yield from render_plan(plan, verbosity)
    yield from (f"  note: {note}" for note in document["notes"])
