"""``vgpumgr status``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.drift_text import render_drift, render_interrupted
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import check_single, print_single
from vgpumgr.cli.session import get_session


def command(context: Context, output: Output = None) -> None:
    """Show whether everything is as it is recorded, and what waits.

    \b
    Examples:
      vgpumgr status
      vgpumgr status -o json
    """
    session = get_session(context)
    check_single("status", output)
    document = session.call("status")
    lines = map(session.streams.address, render(document))
    print_single(session.streams, document, output, lines)


def render(document: dict[str, Any]) -> Iterator[str]:
    """Counts, then everything that is not as it should be."""
    yield f"attachments  {or_absent(document['attachments'])}"
    yield f"GPUs         {or_absent(document['gpus'])}"
    yield f"VMs          {or_absent(document['vms'])}"
    yield f"journal      {document['journal'] or 'not known'}"
    yield from (f"late         {helper}" for helper in document["late"])
    yield from (f"problem      {problem}" for problem in document["problems"])
    yield from render_interrupted(document["interrupted"])
    if document["drift"] is None:
        yield "differences  not known"
    elif not document["drift"]:
        yield "differences  none"
    else:
        yield "differences"
        yield from render_drift(document["drift"])
