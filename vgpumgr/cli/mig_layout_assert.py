"""``vgpumgr mig layout assert``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.layout_text import LayoutFile, Selected, check_format, read_file, tell_notes
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
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
    check_format(output, "assert")
    document = session.call("assert_layout", **read_file(file), name=name)
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    else:
        tell_notes(session, document)
        for one in document["differences"]:
            session.streams.print(f"GPU {one['gpu_index']}: {one['text']}")
        if document["matches"]:
            session.streams.print(f"as {document['layout']} says")
    return int(Exit.OK if document["matches"] else Exit.DIFFERENT)
