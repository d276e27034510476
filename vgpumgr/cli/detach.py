"""``vgpumgr detach``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, print_document
from vgpumgr.cli.question import confirm
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_plan, tell_lane_users
from vgpumgr.errors import ConfirmationNeededError, UsageError, VgpumgrError


def command(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")] = False,
    output: Output = None,
) -> None:
    """Take a VM's slice back and free it.

    Undoes all that attach did, also where only part of it is left. Asks first when programs in the
    guest are using the slice.

    \b
    Examples:
      vgpumgr detach vm01
      vgpumgr detach vm01 --yes -o json
      vgpumgr detach vm01 --dry-run
    """
    run(get_session(context), vm, yes, dry_run, output)


def run(session: Session, vm: str, yes: bool, dry_run: bool, output: Format | None) -> None:
    """Asks where needed, does it, and tells what was done."""
    if output in (Format.CSV, Format.MARKDOWN):
        raise UsageError(f"detach has no {output} output", hint="-o json")
    if not yes and not dry_run:
        _confirm(session, vm)
    document = session.call("detach", vm=vm, dry_run=dry_run)
    if output in (Format.JSON, Format.YAML):
        print_document(session.streams, document, output)
    elif output is Format.NAME:
        session.streams.print(document["plan"]["subject"])
    else:
        session.streams.print("\n".join(render(document)))


def _confirm(session: Session, vm: str) -> None:
    """Asks only when somebody uses the slice now."""
    try:
        channel = session.call("show_channel", selector=vm)["channel"]
    except VgpumgrError:
        return  # nothing to lose, or detach itself says what is wrong
    users = tell_lane_users(channel)
    if not channel["lanes"]:
        return
    if not session.streams.is_terminal:
        raise ConfirmationNeededError(
            f"programs in {vm} use the slice",
            held_by=[users],
            hint=f"vgpumgr detach {vm} --yes",
        )
    confirm(f"{users} in {vm} will lose the GPU. Detach?")


def render(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    what = plan["result"].get("profile", "leftover devices")
    word = "would detach" if document["dry_run"] else "detached"
    yield f"{word} {what} from {plan['subject']}:"
    yield from render_plan(plan)
    yield from (f"  note: {note}" for note in document["notes"])
