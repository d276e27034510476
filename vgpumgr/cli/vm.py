"""``vgpumgr vm``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import ABSENT, Column, or_absent, print_list, print_single, value_column
from vgpumgr.cli.session import (
    DOCUMENTS,
    PROFILE_HELP,
    BackendOption,
    DisplayOption,
    GpuOption,
    TransportOption,
    call,
    get_format,
    get_streams,
)
from vgpumgr.cli.text import (
    describe_lane_users,
    describe_usable,
    is_live,
    note_hidden,
    render_attachment,
    render_channel,
)
from vgpumgr.model.choices import BackendChoice, Display, Transport

app = App()
VmName = Annotated[str, Argument(help="The VM's name or UUID, or an attachment's id.")]


def _of_attachments(row: dict[str, Any], key: str) -> str:
    """What all its attachments say, in their order: ``1g.10gb, 3g.40gb``."""
    return ", ".join(or_absent(a[key]) for a in row["attachments"]) or ABSENT


def _usable(row: dict[str, Any]) -> str:
    """When the guest can use them; once, if it is the same for all."""
    words = [describe_usable(a["usable"], is_live=is_live(row, a)) for a in row["attachments"]]
    return ", ".join(words if len(set(words)) > 1 else words[:1]) or ABSENT


def _of_channels(row: dict[str, Any], describe: Callable[[dict[str, Any]], str]) -> str:
    words = [word for channel in row["channels"] if (word := describe(channel)) != ABSENT]
    return ", ".join(words) or ABSENT


COLUMNS = (
    value_column("name"),
    value_column("uuid", wide=True),
    value_column("state"),
    Column("profile", lambda r: _of_attachments(r, "profile")),
    Column("backend", lambda r: _of_attachments(r, "backend"), spare=True),
    Column("gpu", lambda r: _of_attachments(r, "gpu"), wide=True),
    Column("device", lambda r: _of_attachments(r, "device"), wide=True),
    Column("usable", _usable, lambda r: r["usable"]),
    Column("transport", lambda r: _of_channels(r, lambda c: or_absent(c["transport"])), spare=True),
    Column("used_by", lambda r: _of_channels(r, describe_lane_users), wraps=True),
    Column("problems", lambda r: "; ".join(r["problems"]) or ABSENT, wraps=True),
)


@app.listing("list")
def list_vms(context: Context) -> None:
    """List the VMs, their attachments and GPU users.

    \b
    Examples:
      vgpumgr vm list
      vgpumgr vm list -o csv --columns name,profile,usable
    """
    document = call(context, "list_vms")
    rows = document["vms"]
    print_list(context, document, rows, COLUMNS, "name")
    note_hidden(get_streams(context), [c for row in rows for c in row["channels"]], "vm list")


@app.named("show")
def show_vm(context: Context, vm: VmName) -> None:
    """Show one VM, its attachments and channels.

    \b
    Examples:
      vgpumgr vm show vm01
      vgpumgr vm show vm01 -o json
    """
    document = call(context, "show_vm", selector=vm)
    shown = document["vm"]
    print_single(context, document, render(shown), lambda: shown["name"])


def render(vm: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"VM {vm['name']}  {vm['state']}"
    yield f"  uuid          {vm['uuid']}"
    if not vm["attachments"]:
        yield "  attachment    none"
    else:
        yield f"  in live       {', '.join(vm['devices_live']) or 'nothing'}"
        yield f"  in config     {', '.join(vm['devices_config']) or 'nothing'}"
    channels = {channel["id"]: channel for channel in vm["channels"]}
    for attachment in vm["attachments"]:
        yield from render_attachment(vm, attachment)
        if attachment["id"] in channels:
            yield from render_channel(channels[attachment["id"]])
    yield from (f"  problem: {problem}" for problem in vm["problems"])


@app.single("xml")
def show_xml(
    context: Context,
    vm: VmName,
    profile: Annotated[
        str | None, Option("--profile", metavar="PROFILE", help=PROFILE_HELP)
    ] = None,
    gpu: GpuOption = None,
    backend: BackendOption = BackendChoice.AUTO,
    display: DisplayOption = Display.OFF,
    transport: TransportOption = Transport.AUTO,
) -> None:
    """Print a VM's definition, as it is or as after an attach.

    Changes nothing. The decisions of the plan, and advice on the VM's firmware, memory and NUMA
    nodes, go to standard error.

    \b
    Examples:
      vgpumgr vm xml vm01
      vgpumgr vm xml vm01 --profile passthrough --gpu 3b:00.0
      vgpumgr vm xml vm01 --profile 1g.10gb --backend forward > vm01.xml
    """
    document = call(
        context,
        "show_vm_xml",
        selector=vm,
        profile=profile,
        gpu=gpu,
        backend=backend,
        display=display,
        transport=transport,
    )
    for note in document["notes"] if get_format(context) not in DOCUMENTS else ():
        get_streams(context).note(note)
    print_single(context, document, [document["xml"].rstrip("\n")])
