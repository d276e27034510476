"""``vgpumgr passthrough`` and ``vgpumgr vf``: functions of PCI devices, physical and virtual ones."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    find_row,
    or_absent,
    print_list,
    print_notes,
    print_row,
    print_single,
    size_column,
    value_column,
)
from vgpumgr.cli.session import (
    DOCUMENTS,
    DryRun,
    Streams,
    Yes,
    call,
    confirm,
    get_layout,
    get_session,
    get_streams,
    get_verbosity,
    number,
)
from vgpumgr.errors import ConfirmationNeededError, PciNotFoundError, UsageError
from vgpumgr.model.text import parse_size

app = App()
vfs = App()
FunctionArgument = Annotated[
    str,
    Argument(metavar="FUNCTION", help="Bus address, GPU index, UUID or prefix, part of the model."),
]
FunctionName = Annotated[
    str, Argument(metavar="FUNCTION", help="Bus address, with or without the domain; GPU index.")
]
VfName = Annotated[str, Argument(metavar="VF", help="Bus address, with or without the domain.")]
_DRIVER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def _read_driver(name: str) -> str:
    """Raises UsageError for a word that cannot be the name of a driver."""
    if not _DRIVER.fullmatch(name):
        raise UsageError(f'no driver is called "{name}"', hint="--driver vfio-pci")
    return name


def _in_the_way(row: dict[str, Any]) -> str:
    if row["verdict"] in ("viable", "bindable"):
        return _join(row, row["users"]) or ABSENT
    return _join(row, row["blockers"]) or row["why"] or ABSENT


def _join(row: dict[str, Any], texts: list[str]) -> str:
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
    """NVML renumbers the GPUs that it still has: the index of a bound one is another's now."""
    return or_absent(None if row["binding"] else row["gpu_index"])


FUNCTIONS = (
    value_column("address"),
    Column("gpu", _index, right=True),
    value_column("kind"),
    value_column("model", wraps=True),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("group", lambda r: or_absent(r["iommu_group"]), right=True),
    Column("numa", lambda r: or_absent(r["numa_node"]), wide=True, right=True),
    Column("reset", _resets, wide=True),
    Column("power", lambda r: or_absent(r["power_state"]), wide=True),
    Column("companions", lambda r: " ".join(r["companions"]) or ABSENT, wide=True),
    Column("taken_from", _taken, spare=True),
    value_column("vm", "verdict"),
    Column("in_the_way", _in_the_way, wraps=True, below=True),
)


@app.listing("list")
def list_functions(context: Context) -> None:
    """List GPUs and VFs, and what keeps them from VMs.

    GPUs of all vendors. The column vm says whether the function can go to a VM: now, once it is
    bound, or not, because it is in use or shares its IOMMU group.

    \b
    Examples:
      vgpumgr passthrough list
      vgpumgr passthrough list -o wide
    """
    document = call(context, "list_passthrough")
    print_notes(context, document)
    rows = document["functions"]
    print_list(context, document, rows, FUNCTIONS, "address")


@app.named("show")
def show_function(context: Context, function: FunctionName) -> None:
    """Show one PCI function, and what keeps it from a VM.

    \b
    Examples:
      vgpumgr passthrough show 07:00.0
      vgpumgr passthrough show 0000:07:00.0 -o json
    """
    document = call(context, "list_passthrough")
    hint = "vgpumgr passthrough list"
    rows, names = document["functions"], _add_former(document["functions"])
    row = find_row(rows, names, function, PciNotFoundError, "GPU or VF", hint)
    print_notes(context, document)
    shown, name = {"schema": "vgpumgr/v1", "function": row}, str(row["address"])
    print_row(context, shown, f"function {name}", row, FUNCTIONS, name)


def _list_names(row: dict[str, Any]) -> list[str]:
    """The address with and without its domain, and the index that NVML has for it."""
    address, index = str(row["address"]), _index(row) if "gpu_index" in row else ABSENT
    return [address, address.partition(":")[2], *([index] if index != ABSENT else [])]


def _add_former(rows: Sequence[dict[str, Any]]) -> Callable[[dict[str, Any]], list[str]]:
    """Names of a function, with the index that a bound GPU had, where NVML has given it to no other."""
    taken = Counter(_index(row) for row in rows)
    taken.update(str(row["gpu_index"]) for row in rows if row["binding"])

    def list_names(row: dict[str, Any]) -> list[str]:
        former = str(row["gpu_index"])
        is_former = row["binding"] and row["gpu_index"] is not None and taken[former] == 1
        return _list_names(row) + ([former] if is_former else [])

    return list_names


MEMBERS = (
    value_column("group", right=True),
    value_column("vm", "verdict"),
    value_column("address"),
    value_column("kind"),
    value_column("model", wraps=True),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("used_by", lambda r: "; ".join(r["users"]) or ABSENT, wraps=True),
)


@app.listing("groups")
def list_groups(
    context: Context,
    all_groups: Annotated[bool, Option("--all", help="Also groups without a GPU.")] = False,
) -> None:
    """List IOMMU groups with all their members.

    A group goes to one VM as a whole. Bridges stay with the host and do not count.

    \b
    Examples:
      vgpumgr passthrough groups
      vgpumgr passthrough groups --all -o json
    """
    document = call(context, "list_pci_groups", all_groups=all_groups)
    print_notes(context, document)
    rows = [
        {**member, "group": group["number"], "verdict": group["verdict"]}
        for group in document["groups"]
        for member in group["members"]
    ]
    sources = [member for group in document["groups"] for member in group["members"]]
    shown = print_list(context, document, rows, MEMBERS, "address", sources=sources)
    numbers = {row["group"] for row in shown}
    for group in document["groups"]:
        if (
            group["number"] in numbers
            and group["why"]
            and get_layout(context).format not in DOCUMENTS
        ):
            hint = f"; try: {get_streams(context).address(group['hint'])}" if group["hint"] else ""
            get_streams(context).note(f"group {group['number']}: {group['why']}{hint}")


@app.named("bind")
def bind(
    context: Context,
    function: FunctionArgument,
    companions: Annotated[
        Literal["vfio", "stub", "keep"],
        Option(
            help="Audio, USB and other functions of the device: for the VM too (vfio), only away"
            " from the host (stub), or unchanged (keep)."
        ),
    ] = "vfio",
    whole_group: Annotated[
        bool, Option("--whole-group", help="Also other devices of the IOMMU group.")
    ] = False,
    persist: Annotated[
        bool | None, Option("--persist/--no-persist", help="Again at every boot.")
    ] = None,
    driver: Annotated[
        str | None,
        Option(
            "--driver",
            metavar="NAME",
            parser=_read_driver,
            help="The driver that gets it; the default is vfio-pci, or what the kernel has for its"
            " device in particular.",
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take a function and its companions from the host.

    Records their drivers; unbind restores them. Asks first if the function is the boot display, is
    in use, or has disks on it. Never takes a function with mounted disks.

    \b
    Examples:
      vgpumgr passthrough bind 0
      vgpumgr passthrough bind 3b:00.0 --persist
      vgpumgr passthrough bind 3b:00.0 --companions stub --dry-run
    """
    asked = {
        "selector": function,
        "driver": driver,
        "companions": companions,
        "whole_group": whole_group,
        "persist": persist,
    }
    change(context, "bind_pci", asked, dry_run=dry_run, yes=yes)


@app.named("unbind")
def unbind(
    context: Context,
    function: FunctionArgument,
    only: Annotated[bool, Option("--only", help="Without its companions.")] = False,
    driver: Annotated[
        str | None,
        Option(
            "--driver",
            metavar="NAME",
            parser=_read_driver,
            help="The driver that gets it instead of its old one.",
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Give a function and its companions back to the host.

    Each gets the driver that it had before. Asks first if one is in use.

    \b
    Examples:
      vgpumgr passthrough unbind 3b:00.0
      vgpumgr passthrough unbind 3b:00.0 --driver nvidia
    """
    asked = {"selector": function, "only": only, "driver": driver}
    change(context, "unbind_pci", asked, dry_run=dry_run, yes=yes)


def change(
    context: Context, operation: str, asked: dict[str, Any], *, dry_run: bool, yes: bool
) -> None:
    """Plans, asks if the function is in use, executes, and prints what was done."""
    session = get_session(context)
    with session.open_backend(session.options) as backend:
        if not dry_run and not yes:
            plan = backend.call(operation, dry_run=True, **asked)
            if plan["concerns"]:
                _confirm(session.streams, plan)
                asked = {**asked, "confirmed": True}
        elif not dry_run:
            asked = {**asked, "confirmed": True}
        document = backend.call(operation, dry_run=dry_run, **asked)
    lines = render_change(document, get_verbosity(context, dry_run=dry_run))
    print_single(context, document, lines, lambda: document["subject"])


def _confirm(streams: Streams, plan: dict[str, Any]) -> None:
    refusal = ConfirmationNeededError(
        f"{plan['subject']} is in use, and there is no terminal to ask on",
        why="its holder loses it, and the kernel may wait until the holder closes it",
        held_by=plan["concerns"],
        hint="the same with --yes, or with --dry-run to see it",
    )
    confirm(streams, "Its holder will lose it. Go on?", refusal, render_change(plan))


def render_change(document: dict[str, Any], verbosity: int = 0) -> Iterator[str]:
    """What was or would be done, and what is in use."""
    word = "would be done" if document["dry_run"] else "done"
    steps = document["steps"]
    yield f"{document['change']} {document['subject']}: {word if steps else 'nothing to do'}"
    if verbosity >= 0:
        yield from (f"  {step['description']}" for step in steps)
    if document["dry_run"]:
        yield from (f"  in use: {concern}" for concern in document["concerns"])
    yield from (f"  note: {note}" for note in document["notes"])


def _vf_users(row: dict[str, Any]) -> str:
    waiting = [f'configured for vm "{vm}"' for vm in row["configured"]]
    return "; ".join(row["users"] or waiting) or ABSENT


def _quotas(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row["quotas"].items()) or ABSENT


VFS = (
    value_column("physical"),
    Column("count", lambda r: f"{r['count']}/{r['total']}", lambda r: r["count"], right=True),
    Column("vf", lambda r: or_absent(r["index"]), right=True),
    Column("address", lambda r: or_absent(r["address"])),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("group", lambda r: or_absent(r["iommu_group"]), right=True),
    size_column("memory", "framebuffer_bytes", wide=True),
    Column("quotas", _quotas, wide=True),
    Column("used_by", _vf_users, wraps=True),
)


@vfs.listing("list")
def list_vfs(
    context: Context,
    function: Annotated[
        str | None, Argument(metavar="[FUNCTION]", help="Only the VFs of this function.")
    ] = None,
) -> None:
    """List virtual functions and their users.

    A physical function without VFs has a line of its own. Quotas are read for one FUNCTION only;
    memory is shown if the vendor's library reports it (AMD).

    \b
    Examples:
      vgpumgr vf list
      vgpumgr vf list 3a:00.0 -o json
    """
    document = call(context, "list_vfs", selector=function)
    print_notes(context, document)
    print_list(
        context,
        document,
        [row for physical in document["physicals"] for row in _list_rows(physical)],
        VFS,
        name=lambda r: r["address"] or r["physical"],
        sources=[
            one for physical in document["physicals"] for one in physical["vfs"] or [physical]
        ],
    )


@vfs.named("show")
def show_vf(context: Context, vf: VfName) -> None:
    """Show one virtual function: driver, quotas, users.

    \b
    Examples:
      vgpumgr vf show 3a:00.1
      vgpumgr vf show 3a:00.1 -o json
    """
    rows = _read_vfs(context, None)
    row = find_row(rows, _list_names, vf, PciNotFoundError, "VF", "vgpumgr vf list")
    # quotas are read for one physical function only
    rows = _read_vfs(context, row["physical"])
    row = next((one for one in rows if one["address"] == row["address"]), row)
    name = str(row["address"])
    print_row(context, {"schema": "vgpumgr/v1", "vf": row}, f"VF {name}", row, VFS, name)


def _read_vfs(context: Context, physical: str | None) -> list[dict[str, Any]]:
    """The virtual functions that there are."""
    document = call(context, "list_vfs", selector=physical)
    rows = [row for one in document["physicals"] for row in _list_rows(one)]
    return [row for row in rows if row["address"]]


def _list_rows(physical: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {"physical": physical["address"], "count": physical["count"], "total": physical["total"]}
    empty = {"index": None, "address": None, "driver": None, "iommu_group": None}
    none = {**empty, "users": [physical["why_not"]] if physical["why_not"] else []}
    for vf in physical["vfs"] or [
        {**none, "configured": [], "quotas": {}, "framebuffer_bytes": None}
    ]:
        yield {**vf, **head}


@vfs.named("enable")
def enable(
    context: Context,
    function: FunctionArgument,
    count: Annotated[
        int | None,
        Option(
            "-n", "--count", metavar="N", parser=number(int), help="How many; the default is all."
        ),
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(
            "--quota",
            metavar="NAME=VALUE",
            help="A quota of each, if the driver has it (Intel): a number, a size, or a word.",
        ),
    ] = None,
    persist: Annotated[bool, Option("--persist", help="Again at every boot.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Enable virtual functions of a device.

    The host's drivers do not get them. Another number first disables all VFs, which is possible only
    while none is in use. NVIDIA boards use sriov-manage, which enables all of them; for GPUs of AMD's
    GIM driver the number is changed by AMD's host library.

    \b
    Examples:
      vgpumgr vf enable 3a:00.0 --count 4
      vgpumgr vf enable 3a:00.0 -n 2 --quota exec_quantum_ms=20 --persist
      vgpumgr vf enable 3a:00.0 -n 2 --quota vram_quota=4GiB --quota sched_priority=high
    """
    asked = {
        "selector": function,
        "count": count,
        "persist": persist,
        "quotas": dict(_parse_quota(word) for word in quota or ()),
    }
    change(context, "enable_vfs", asked, dry_run=dry_run, yes=yes)


def _parse_quota(text: str) -> tuple[str, int | str]:
    """``NAME=N``, a size such as ``4GiB``, or a word such as ``high``."""
    name, _, value = text.partition("=")
    if name and value.isdecimal():
        return name, int(value)
    if name and value.isascii() and value.isalpha() and value.islower():
        return name, value
    with contextlib.suppress(ValueError):
        if name and value:
            return name, parse_size(value)
    raise UsageError(
        f'"{text}" is no quota', hint="--quota exec_quantum_ms=20 --quota vram_quota=4GiB"
    )


@vfs.named("disable")
def disable(
    context: Context, function: FunctionArgument, yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Disable all virtual functions of a device.

    Refuses while one is in use, and names its user. Asks first if the definition of a VM names one.

    \b
    Examples:
      vgpumgr vf disable 3a:00.0
    """
    asked = {"selector": function}
    change(context, "disable_vfs", asked, dry_run=dry_run, yes=yes)
