"""What the commands on PCI functions share: showing plans, asking first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Option
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.question import confirm
from vgpumgr.cli.session import Session
from vgpumgr.errors import ConfirmationNeededError, UsageError

FunctionArgument = Annotated[
    str,
    Argument(metavar="FUNCTION", help="Bus address, GPU index, UUID or prefix, part of the model."),
]
_DRIVER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")]
Yes = Annotated[bool, Option("-y", "--yes", help="Do not ask.")]


def check_driver(name: str | None) -> None:
    """Raises UsageError for what cannot be the name of a driver, before modprobe hears of it."""
    if name is not None and not _DRIVER.fullmatch(name):
        raise UsageError(f'no driver is called "{name}"', hint="--driver vfio-pci")


def change(
    session: Session,
    operation: str,
    asked: dict[str, Any],
    *,
    dry_run: bool,
    output: Format | None,
    yes: bool,
) -> None:
    """Plans, asks where somebody uses the function, does it, and tells what was done."""
    check_single("this command", output, named=True)
    with session.open_backend(session.options) as backend:
        if not dry_run and not yes:
            plan = backend.call(operation, dry_run=True, **asked)
            if plan["concerns"]:
                _confirm(session, plan)
                asked = {**asked, "confirmed": True}
        elif not dry_run:
            asked = {**asked, "confirmed": True}
        document = backend.call(operation, dry_run=dry_run, **asked)
    lines = render_change(document)
    print_single(session.streams, document, output, lines, lambda: document["subject"])


def _confirm(session: Session, plan: dict[str, Any]) -> None:
    """Without a terminal there is nobody to ask: exit 2, nothing done."""
    if not session.streams.is_terminal:
        raise ConfirmationNeededError(
            f"{plan['subject']} is in use, and there is no terminal to ask on",
            why="who uses it loses it, and the kernel may wait until he lets go",
            held_by=plan["concerns"],
            hint="the same with --yes, or with --dry-run to see it",
        )
    session.streams.err.write("\n".join(render_change(plan)) + "\n")
    confirm("Who uses it will lose it. Go on?")


def render_change(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done, and who uses it."""
    word = "would be done" if document["dry_run"] else "done"
    steps = document["steps"]
    yield f"{document['change']} {document['subject']}: {word if steps else 'nothing to do'}"
    yield from (f"  {step['description']}" for step in steps)
    if document["dry_run"]:
        yield from (f"  in use: {concern}" for concern in document["concerns"])
    yield from (f"  note: {note}" for note in document["notes"])
