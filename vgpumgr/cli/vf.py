"""``vgpumgr vf``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    or_absent,
    print_list,
    print_notes,
    size_column,
    value_column,
)
from vgpumgr.cli.passthrough import FunctionArgument, change
from vgpumgr.cli.session import DryRun, Yes, call, number
from vgpumgr.errors import UsageError
from vgpumgr.model.text import parse_size

app = App()


def _users(row: dict[str, Any]) -> str:
    waiting = [f'configured for vm "{vm}"' for vm in row["configured"]]
    return "; ".join(row["users"] or waiting) or ABSENT


def _quotas(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row["quotas"].items()) or ABSENT


COLUMNS = (
    value_column("physical"),
    Column("count", lambda r: f"{r['count']}/{r['total']}", lambda r: r["count"], right=True),
    Column("vf", lambda r: or_absent(r["index"]), right=True),
    Column("address", lambda r: or_absent(r["address"])),
    Column("driver", lambda r: or_absent(r["driver"])),
    Column("group", lambda r: or_absent(r["iommu_group"]), right=True),
    size_column("memory", "framebuffer_bytes", wide=True),
    Column("quotas", _quotas, wide=True),
    Column("used_by", _users, wraps=True),
)


@app.listing("list")
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
        COLUMNS,
        name=lambda r: r["address"] or r["physical"],
    )


def _list_rows(physical: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {"physical": physical["address"], "count": physical["count"], "total": physical["total"]}
    empty = {"index": None, "address": None, "driver": None, "iommu_group": None}
    none = {**empty, "users": [physical["why_not"]] if physical["why_not"] else []}
    for vf in physical["vfs"] or [
        {**none, "configured": [], "quotas": {}, "framebuffer_bytes": None}
    ]:
        yield {**vf, **head}


@app.named("enable")
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


@app.named("disable")
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
