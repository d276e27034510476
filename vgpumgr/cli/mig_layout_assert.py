"""``vgpumgr mig layout assert``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.layout_text import LayoutFile, Selected, read_file
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single, tell_notes
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import Exit


def command(
    context: Context, file: LayoutFile, config: Selected = None, output: Output = None
) -> int:
    """Say how the GPUs differ from a layout.

    Ends with 0 when they do not, with 3 when they do.

    \b
    Examples:
      vgpumgr mig layout assert web.yaml
      vgpumgr mig layout assert config.yaml -c all-1g.10gb -o json
    """
    return run(get_session(context), file, config, output)


def run(session: Session, file: str, name: str | None, output: Format | None) -> int:
    """Asks for the differences and prints them."""
    check_single("assert", output)
    document = session.call("assert_layout", **read_file(file), name=name)
    tell_notes(session.streams, document, output)
    print_single(session.streams, document, output, render(document))
    return int(Exit.OK if document["matches"] else Exit.DIFFERENT)


def render(document: dict[str, Any]) -> Iterator[str]:
    """Each difference, or that there is none."""
    for one in document["differences"]:
        yield f"GPU {one['gpu_index']}: {one['text']}"
    if document["matches"]:
        yield f"as {document['layout']} says"
