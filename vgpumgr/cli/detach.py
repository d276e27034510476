"""``vgpumgr detach``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.question import confirm
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_plan, tell_lane_users
from vgpumgr.errors import ConfirmationNeededError, UsageError, VgpumgrError


def command(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    attachment: Annotated[
        str | None,
        Option(
            "--attachment", metavar="ID|PROFILE", help="Which of several: its id, or its profile."
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Every one that the VM has.")] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")] = False,
    output: Output = None,
) -> None:
    """Take a VM's slice back and free it.

    Undoes all that attach did, also where only part of it is left. Asks first when programs in the
    guest are using the slice. Of a VM with several attachments, one has to be named, or --all.

    \b
    Examples:
      vgpumgr detach vm01
      vgpumgr detach vm01 --yes -o json
      vgpumgr detach vm01 --dry-run
      vgpumgr detach vm02 --attachment 1g.10gb
      vgpumgr detach vm02 --all
    """
    asked = {"vm": vm, "attachment": attachment, "every": every}
    run(get_session(context), asked, yes, dry_run, output)


def run(
    session: Session, asked: dict[str, Any], yes: bool, dry_run: bool, output: Format | None
) -> None:
    """Asks where needed, does it, and tells what was done."""
    check_single("detach", output, named=True)
    if asked["every"] and asked["attachment"]:
        raise UsageError("--all and --attachment contradict each other", hint="one of them")
    if not yes and not dry_run:
        _confirm(session, asked)
    document = session.call("detach", dry_run=dry_run, **asked)
    name = document["plan"]["subject"]
    print_single(session.streams, document, output, render(document), lambda: name)


def _confirm(session: Session, asked: dict[str, Any]) -> None:
    """Asks only when somebody uses the slice now."""
    vm, attachment = asked["vm"], asked["attachment"]
    try:
        channels = session.call("show_channel", selector=vm)["channels"]
    except VgpumgrError:
        return  # nothing to lose, or detach itself says what is wrong
    meant = [c for c in channels if attachment in (None, c["id"], c["profile"])]
    users = ", ".join(tell_lane_users(channel) for channel in meant if channel["lanes"])
    if not users:
        return
    if not session.streams.is_terminal:
        raise ConfirmationNeededError(
            f"programs in {vm} use the slice",
            held_by=[users],
            hint=f"vgpumgr detach {vm}{_tell_which(asked)} --yes",
        )
    confirm(f"{users} in {vm} will lose the GPU. Detach?")


def _tell_which(asked: dict[str, Any]) -> str:
    which = f" --attachment {asked['attachment']}" if asked["attachment"] else ""
    return which + (" --all" if asked["every"] else "")


def render(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    what = plan["result"].get("profile", "leftover devices")
    word = "would detach" if document["dry_run"] else "detached"
    yield f"{word} {what} from {plan['subject']}:"
    yield from render_plan(plan)
    yield from (f"  note: {note}" for note in document["notes"])
