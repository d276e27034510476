"""``vgpumgr recover``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.drift_text import render_drift
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import check_single, print_single
from vgpumgr.cli.session import get_session
from vgpumgr.errors import Exit


def command(
    context: Context,
    release: Annotated[
        bool, Option("--release", help="Free the slices of VMs that are gone.")
    ] = False,
    readd: Annotated[
        bool, Option("--readd", help="Give VMs the devices again that they have lost.")
    ] = False,
    output: Output = None,
) -> int:
    """Settle what a crash interrupted and make good what differs; exit code 3 if some is left.

    Interrupted attaches are undone, interrupted detaches finished, dead keepers started again, lost
    records read from the VMs' metadata. What would take something away or change a VM's devices is
    only reported without its option.

    \b
    Examples:
      vgpumgr recover
      vgpumgr recover --release
    """
    session = get_session(context)
    check_single("recover", output)
    document = session.call("recover", release=release, readd=readd)
    lines = map(session.streams.address, render(document))
    print_single(session.streams, document, output, lines)
    left = document["drift"] or not all(action["done"] for action in document["actions"])
    return int(Exit.DIFFERENT if left else Exit.OK)


def render(document: dict[str, Any]) -> Iterator[str]:
    """What was done, then what still differs."""
    for action in document["actions"]:
        yield f"  {'+' if action['done'] else '!'} {action['subject']}: {action['text']}"
    if document["drift"]:
        yield "still different:"
        yield from render_drift(document["drift"])
    elif not document["actions"]:
        yield "nothing to recover"
