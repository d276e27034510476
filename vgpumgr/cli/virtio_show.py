"""``vgpumgr virtio show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_channel


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
    check_single("virtio show", output, named=True, hint=f"vgpumgr virtio list -o {output}")
    document = session.call("show_channel", selector=vm)
    lines = (line for channel in document["channels"] for line in render(channel))
    print_single(session.streams, document, output, lines, lambda: document["channel"]["vm"])


def render(channel: dict[str, Any]) -> Iterator[str]:
    """The text, line by line."""
    yield f"channel of {channel['vm']}  ({channel['id']})"
    yield f"  device        {or_absent(channel['device'])}"
    yield from render_channel(channel)
