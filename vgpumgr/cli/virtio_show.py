"""``vgpumgr virtio show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_channel
from vgpumgr.errors import UsageError


def command(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    output: Output = None,
) -> None:
    """Show one channel: worker, transport, each guest process with calls, bytes and memory.

    \b
    Examples:
      vgpumgr virtio show vm01
      vgpumgr virtio show vm01 -o json
    """
    run(get_session(context), vm, output)


def run(session: Session, vm: str, output: Format | None) -> None:
    """Asks for the channel and prints it."""
    if output in (Format.CSV, Format.MARKDOWN):
        hint = f"vgpumgr virtio list -o {output}"
        raise UsageError(f"virtio show has no {output} output", hint=hint)
    document = session.call("show_channel", selector=vm)
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    elif output is Format.NAME:
        session.streams.print(document["channel"]["vm"])
    else:
        lines = [line for channel in document["channels"] for line in render(channel)]
        session.streams.print("\n".join(lines))


def render(channel: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"channel of {channel['vm']}  ({channel['id']})"
    yield f"  device        {or_absent(channel['device'])}"
    yield from render_channel(channel)
