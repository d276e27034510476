"""``vgpumgr diff``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.drift_text import render_drift, render_interrupted
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.session import get_session
from vgpumgr.errors import Exit, UsageError


def command(context: Context, output: Output = None) -> int:
    """Compare what is recorded with what is; exit code 3 where they differ.

    \b
    Examples:
      vgpumgr diff
      vgpumgr diff -o json
    """
    session = get_session(context)
    if output in (Format.CSV, Format.MARKDOWN, Format.NAME):
        raise UsageError(f"diff has no {output} output", hint="-o json")
    document = session.call("diff")
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    else:
        lines = [*render_interrupted(document["interrupted"]), *render_drift(document["drift"])]
        text = "\n".join(lines or ["no differences"])
        session.streams.print(session.streams.address(text))
    same = not document["drift"] and not document["interrupted"]
    return int(Exit.OK if same else Exit.DIFFERENT)
