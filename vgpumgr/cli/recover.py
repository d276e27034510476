"""``vgpumgr recover``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.drift_text import render_drift
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.session import get_session
from vgpumgr.errors import Exit, UsageError


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
    if output in (Format.CSV, Format.MARKDOWN, Format.NAME):
        raise UsageError(f"recover has no {output} output", hint="-o json")
    document = session.call("recover", release=release, readd=readd)
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    else:
        session.streams.print(session.streams.address("\n".join(render(document))))
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
