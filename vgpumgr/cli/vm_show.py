"""``vgpumgr vm show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_attachment, render_channel


def command(
    context: Context,
    vm: Annotated[str, Argument(help="Name or UUID.")],
    output: Output = None,
) -> None:
    """Show one VM: its slice, its channel, who uses it.

    \b
    Examples:
      vgpumgr vm show vm01
      vgpumgr vm show vm01 -o json
    """
    run(get_session(context), vm, output)


def run(session: Session, vm: str, output: Format | None) -> None:
    """Asks for the VM and prints it."""
    check_single("vm show", output, named=True, hint=f"vgpumgr vm list -o {output}")
    document = session.call("show_vm", selector=vm)
    shown = document["vm"]
    print_single(session.streams, document, output, render(shown), lambda: shown["name"])


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
        yield from render_attachment(attachment)
        if attachment["id"] in channels:
            yield from render_channel(channels[attachment["id"]])
    yield from (f"  problem: {problem}" for problem in vm["problems"])
