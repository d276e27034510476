"""``vgpumgr vm xml``."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.options import (
    PROFILE_HELP,
    BackendOption,
    DisplayOption,
    GpuOption,
    Output,
    Screen,
    Way,
)
from vgpumgr.cli.output import DOCUMENTS, Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session


def command(
    context: Context,
    vm: Annotated[str, Argument(help="Name or UUID.")],
    profile: Annotated[
        str | None, Option("--profile", metavar="PROFILE", help=PROFILE_HELP)
    ] = None,
    gpu: GpuOption = None,
    backend: BackendOption = Way.AUTO,
    display: DisplayOption = Screen.OFF,
    output: Output = None,
) -> None:
    """Print a VM's definition, as it is or as an attach would make it.

    Touches nothing. What the plan decides, and advice on the VM's firmware, memory and NUMA nodes,
    goes to standard error.

    \b
    Examples:
      vgpumgr vm xml vm01
      vgpumgr vm xml vm01 --profile passthrough --gpu 3b:00.0
      vgpumgr vm xml vm01 --profile 1g.10gb --backend forward > vm01.xml
    """
    asked = {
        "selector": vm,
        "profile": profile,
        "gpu": gpu,
        "backend": backend.value,
        "display": display.value,
    }
    run(get_session(context), asked, output)


def run(session: Session, asked: dict[str, str | None], output: Format | None) -> None:
    """Asks for it and prints it."""
    check_single("vm xml", output)
    document = session.call("show_vm_xml", **asked)
    for note in document["notes"] if output not in DOCUMENTS else ():
        session.streams.note(note)
    print_single(session.streams, document, output, [document["xml"].rstrip("\n")])
