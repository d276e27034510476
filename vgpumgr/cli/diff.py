"""``vgpumgr diff``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.drift_text import render_drift, render_interrupted
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import check_single, print_single
from vgpumgr.cli.session import get_session
from vgpumgr.errors import Exit


def command(context: Context, output: Output = None) -> int:
    """Compare what is recorded with what is; exit code 3 where they differ.

    \b
    Examples:
      vgpumgr diff
      vgpumgr diff -o json
    """
    session = get_session(context)
    check_single("diff", output)
    document = session.call("diff")
    found = [*render_interrupted(document["interrupted"]), *render_drift(document["drift"])]
    lines = map(session.streams.address, found or ["no differences"])
    print_single(session.streams, document, output, lines)
    same = not document["drift"] and not document["interrupted"]
    return int(Exit.OK if same else Exit.DIFFERENT)
