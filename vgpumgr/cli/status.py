"""``vgpumgr status``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.drift_text import render_drift, render_interrupted
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError


def command(context: Context, output: Output = None) -> None:
    """Show whether everything is as it is recorded, and what waits.

    \b
    Examples:
      vgpumgr status
      vgpumgr status -o json
    """
    session = get_session(context)
    if output in (Format.CSV, Format.MARKDOWN, Format.NAME):
        raise UsageError(f"status has no {output} output", hint="-o json")
    document = session.call("status")
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    else:
        session.streams.print(session.streams.address("\n".join(render(document))))


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
