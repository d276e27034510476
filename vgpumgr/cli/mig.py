"""``vgpumgr mig``."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli import layout
from vgpumgr.cli.layout import AllowDisruptive, LayoutFile, change, read_file
from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    find_row,
    print_list,
    print_row,
    size_column,
    value_column,
)
from vgpumgr.cli.session import (
    DOCUMENTS,
    DryRun,
    Format,
    GpuOption,
    OutFile,
    Yes,
    call,
    get_format,
    get_streams,
    number,
)
from vgpumgr.cli.text import (
    describe_placement,
    describe_process,
    describe_share_capacity,
    list_holders,
    list_shares,
    name_holder,
)
from vgpumgr.errors import Exit, SliceNotFoundError
from vgpumgr.model.choices import MAX_COUNT

app = App()
app.add_typer(layout.app, name="layout", help="Files of slices and vGPUs; also: gpu layout.")

MigGpu = Annotated[str, Argument(metavar="GPU", help="Index, UUID or unique prefix, bus address.")]
_INSTANCE_HELP = "MIG UUID or unique prefix; or GPU/INSTANCE as 0/3."
InstanceName = Annotated[str, Argument(metavar="INSTANCE", help=_INSTANCE_HELP)]
_GPU = (value_column("gpu", "gpu_index", right=True), value_column("gpu_uuid", wide=True))


def _uuids(row: dict[str, Any]) -> str:
    return " ".join(c["uuid"] for c in row["compute_instances"] if c["uuid"])


def _users(row: dict[str, Any]) -> str:
    holders = [n for c in row["compute_instances"] if (n := name_holder(c))]
    holders = list_holders(row) if row.get("shares") or not holders else holders
    if holders:
        return ", ".join(dict.fromkeys(holders))
    return ", ".join(map(describe_process, row["processes"])) or ABSENT


def _describe_shares(row: dict[str, Any]) -> str:
    """What its shares are, and what still fits beside them."""
    shares = row.get("shares")
    if not shares:
        return ABSENT
    held = [f"{name} {share}" for name, share in list_shares(shares)]
    return ", ".join([*held, describe_share_capacity(shares)])


INSTANCES = (
    *_GPU,
    value_column("instance", "id", right=True),
    value_column("profile"),
    Column("placement", lambda r: describe_placement(r["placement"])),
    size_column("memory", "memory_bytes", right=False, spare=True),
    Column("shares", _describe_shares, wide=True, wraps=True),
    Column("uuid", lambda r: _uuids(r) or ABSENT, _uuids),
    Column("used_by", _users, wraps=True),
)


@app.listing("list")
def list_instances(context: Context, gpu: GpuOption = None) -> None:
    """List the MIG instances with profile, place, UUID and user.

    \b
    Examples:
      vgpumgr mig list
      vgpumgr mig list --gpu 0 -o name
      vgpumgr mig list --filter profile=2g.* --filter used_by= --sort gpu,-placement
    """
    document = call(context, "list_mig_instances", selector=gpu)
    print_list(
        context,
        document,
        document["instances"],
        INSTANCES,
        name=lambda row: _uuids(row) or f"{row['gpu_uuid']}/{row['id']}",
    )
    _print_note(context, document)


@app.named("show")
def show_instance(context: Context, instance: InstanceName) -> None:
    """Show one MIG instance: profile, place, and who has it.

    \b
    Examples:
      vgpumgr mig show 0/3
      vgpumgr mig show MIG-6f1c2a2e -o json
    """
    rows = call(context, "list_mig_instances", selector=None)["instances"]
    row = find_row(
        rows, _list_names, instance, SliceNotFoundError, "GPU instance", "vgpumgr mig list"
    )
    name = f"{row['gpu_index']}/{row['id']}"
    title = f"GPU instance {name}"
    print_row(context, {"schema": "vgpumgr/v1", "instance": row}, title, row, INSTANCES, name)


def _list_names(row: dict[str, Any]) -> list[str]:
    uuids = [c["uuid"] for c in row["compute_instances"] if c["uuid"]]
    return [f"{row['gpu_index']}/{row['id']}", f"{row['gpu_uuid']}/{row['id']}", *uuids]


def _print_note(context: Context, document: dict[str, Any]) -> None:
    """Why the list is empty, on standard error. Documents of several hosts have one by host."""
    if get_format(context) in DOCUMENTS:
        return
    note, streams = document.get("note"), get_streams(context)
    for one in note.values() if isinstance(note, dict) else [note]:
        if one:
            streams.note(streams.address(f"note: {one}"))


def _places(row: dict[str, Any], key: str) -> str:
    return " ".join(map(describe_placement, row[key])) or ABSENT


PROFILES = (
    *_GPU,
    value_column("profile", "name"),
    value_column("id", wide=True, right=True),
    value_column("slices", right=True),
    size_column("memory", "memory_bytes", right=False),
    value_column("sm", "sm_count", right=True),
    Column("free", lambda r: f"{r['free']}/{r['max_instances']}", lambda r: r["free"], right=True),
    value_column("max", "max_instances", wide=True, right=True),
    Column("free_at", lambda r: _places(r, "free_placements"), wraps=True),
    Column("placements", lambda r: _places(r, "placements"), wide=True, wraps=True),
    Column(
        "why_not", lambda r: r["why_not"] or ABSENT, lambda r: r["why_not"], wide=True, wraps=True
    ),
)


@app.listing("profiles")
def list_profiles(context: Context, gpu: GpuOption = None) -> None:
    """List the MIG profiles and how many more of each fit.

    \b
    Examples:
      vgpumgr mig profiles --gpu 0
      vgpumgr mig profiles -o wide
    """
    document = call(context, "list_mig_profiles", selector=gpu)
    print_list(context, document, document["profiles"], PROFILES, "name")
    _print_note(context, document)


def _moves(row: dict[str, Any]) -> str:
    moves = [
        f"{m['profile']} {describe_placement(m['from'])} to {describe_placement(m['to'])}"
        for m in row["moves"]
    ]
    return ", ".join(moves) or ABSENT


MOVES = (
    *_GPU,
    Column("possible", lambda r: "yes" if r["possible"] else "no"),
    Column("at", lambda r: describe_placement(r["at"]) if r["at"] else ABSENT, wide=True),
    Column("moves", _moves, wide=True, wraps=True),
    value_column("how", "sentence", wraps=True),
)


@app.listing("defrag")
def plan_defrag(
    context: Context,
    plan: Annotated[str, Option("--plan", metavar="PROFILE", help="The profile that must fit.")],
    gpu: GpuOption = None,
) -> int:
    """Show which moves would let one more profile fit.

    Changes nothing. Slices in use stay at their place; those of VMs that are shut off may move. Exit
    code 0: it fits already; 3: something has to move; 6: nothing helps.

    \b
    Examples:
      vgpumgr mig defrag --plan 3g.40gb
      vgpumgr mig defrag --plan 2g.20gb --gpu 0 -o json
    """
    document = call(context, "plan_defrag", profile=plan, selector=gpu)
    options = document["options"]
    print_list(context, document, options, MOVES, "gpu_uuid")
    best = options[0]
    return int(Exit.DIFFERENT if best["moves"] or best["remove"] else Exit.OK)


@app.single("create")
def create(
    context: Context,
    gpu: MigGpu,
    mig_profile: Annotated[
        str, Argument(metavar="PROFILE", help="Its name, a unique beginning of it, or its id.")
    ],
    place: Annotated[
        int | None,
        Option(
            "--place",
            metavar="START",
            parser=number(int, 0),
            help="Where on the memory axis; default: where it leaves the most capacity.",
        ),
    ] = None,
    count: Annotated[
        int, Option("--count", metavar="N", parser=number(int, 1, MAX_COUNT), help="How many.")
    ] = 1,
    dry_run: DryRun = False,
) -> int:
    """Create GPU instances of a profile.

    Each gets a compute instance of its size. What the GPU has stays. They are yours, as those of a
    layout: attach takes an idle one, detach leaves it there, and restore brings it back after a boot.
    MIG mode must be on. If it fails, it is undone.

    \b
    Examples:
      vgpumgr mig create 0 2g.20gb
      vgpumgr mig create 0 1g.10gb --count 3 --dry-run
      vgpumgr mig create 0 3g --place 0
    """
    asked = {"gpu": gpu, "profile": mig_profile, "start": place, "count": count}
    return change(context, "create_mig", asked, yes=False, dry_run=dry_run)


@app.single("destroy")
def destroy(
    context: Context,
    instances: Annotated[
        list[str] | None, Argument(metavar="[INSTANCE]...", help=_INSTANCE_HELP)
    ] = None,
    gpus: Annotated[
        list[str] | None,
        Option("--all", metavar="GPU", help="All GPU instances of a GPU; several."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Destroy GPU instances with what is in them.

    Refuses if one is in use, and names its user. Asks before it destroys anything. If it fails, it is
    undone.

    \b
    Examples:
      vgpumgr mig destroy 0/3 0/5
      vgpumgr mig destroy MIG-6f1c2a2e --dry-run
      vgpumgr mig destroy --all 0 --yes
    """
    asked = {"instances": list(instances or ()), "gpus": list(gpus or ())}
    return change(context, "destroy_mig", asked, yes=yes, dry_run=dry_run)


@app.single("enable")
def enable(context: Context, gpu: MigGpu, yes: Yes = False, dry_run: DryRun = False) -> int:
    """Turn MIG mode on.

    Ampere boards change it by a reset, later ones at once. If the GPU is in use, its holder is named,
    the request stays pending until a reset, and the exit code is 8.

    \b
    Examples:
      vgpumgr mig enable 0
      vgpumgr mig enable 0000:07:00.0 --dry-run
    """
    asked = {"gpu": gpu, "enabled": True}
    return change(context, "set_mig_mode", asked, yes=yes, dry_run=dry_run)


@app.single("disable")
def disable(context: Context, gpu: MigGpu, yes: Yes = False, dry_run: DryRun = False) -> int:
    """Turn MIG mode off.

    Destroys the MIG instances; refuses if one is in use. If the GPU is in use, its holder is named,
    the request stays pending until a reset, and the exit code is 8.

    \b
    Examples:
      vgpumgr mig disable 0
      vgpumgr mig disable 0000:07:00.0 --dry-run
    """
    asked = {"gpu": gpu, "enabled": False}
    return change(context, "set_mig_mode", asked, yes=yes, dry_run=dry_run)


@app.command("checkpoint")
def checkpoint(context: Context, out: OutFile = None) -> None:
    """Save MIG mode, instances and placements of all GPUs.

    The format is that of nvidia-mig-parted.

    \b
    Examples:
      vgpumgr mig checkpoint --out before-upgrade.json
    """
    layout.write_document(context, call(context, "checkpoint_mig"), out, Format.JSON)


@app.single("restore")
def restore(
    context: Context,
    file: LayoutFile,
    allow_disruptive: AllowDisruptive = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Restore the instances of a checkpoint by the least change.

    Each instance gets its old placement. Reads the files of "vgpumgr mig checkpoint" and
    "nvidia-mig-parted checkpoint". GPUs that the file does not name stay unchanged.

    \b
    Examples:
      vgpumgr mig restore before-upgrade.json --dry-run
      vgpumgr mig restore before-upgrade.json --yes
    """
    asked = {**read_file(file), "allow": list(allow_disruptive or ())}
    return change(context, "restore_mig", asked, yes=yes, dry_run=dry_run)
