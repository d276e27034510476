"""``vgpumgr attach`` and ``vgpumgr detach``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.options import (
    PROFILE_HELP,
    BackendOption,
    DisplayOption,
    DryRun,
    GpuOption,
    Yes,
    number,
)
from vgpumgr.cli.output import print_single
from vgpumgr.cli.reader import App
from vgpumgr.cli.session import Session, call, confirm, get_session
from vgpumgr.cli.text import describe_lane_users, describe_usable, render_plan
from vgpumgr.errors import (
    ConfirmationNeededError,
    SeveralAttachmentsError,
    UsageError,
    VgpumgrError,
)

app = App()


@app.named("attach")
def attach(
    context: Context,
    vm: Annotated[str, Argument(help="Name or UUID of the libvirt domain.")],
    profile: Annotated[str, Option("--profile", metavar="PROFILE", help=PROFILE_HELP)],
    gpu: GpuOption = None,
    backend: BackendOption = "auto",
    live: Annotated[bool, Option("--live", help="The running machine; or fail.")] = False,
    config: Annotated[bool, Option("--config", help="The next start only.")] = False,
    transport: Annotated[
        Literal["auto", "ring", "serial"],
        Option("--transport", help="Shared memory, virtio-serial, or both."),
    ] = "auto",
    hello_timeout: Annotated[
        float,
        Option(
            "--hello-timeout",
            metavar="SECONDS",
            parser=number(float),
            help="How long to wait for the running guest.",
        ),
    ] = 15.0,
    spread: Annotated[
        bool, Option("--spread/--pack", help="Emptiest GPU, or where the least capacity is lost.")
    ] = False,
    count: Annotated[
        int,
        Option("--count", metavar="N", parser=number(int, 1, 16), help="How many: all or none."),
    ] = 1,
    numa: Annotated[
        Literal["prefer", "strict", "off"],
        Option(
            "--numa",
            help="A GPU on the NUMA node that the VM is bound to: preferred, or no other (strict).",
        ),
    ] = "prefer",
    add: Annotated[
        bool, Option("--add", help="One more, besides what the VM has already.")
    ] = False,
    display: DisplayOption = "off",
    dry_run: DryRun = False,
) -> None:
    """Give a VM a slice of a GPU, or a whole one.

    Selects a GPU with free capacity, creates the slice or takes the device from the host, and adds
    it to the domain. If a step fails, all steps are undone. Without --live and --config: the next
    start always, a running guest now if it can take the devices.

    1c.3g.40gb is one compute slice of a 3g.40gb: it joins a GPU instance of an attachment that has
    one free, and shares its memory. A VM that is bound to a NUMA node (numatune, vcpupin,
    emulatorpin) gets a GPU of that node if one has capacity. --dry-run explains the selection.

    \b
    Examples:
      vgpumgr attach vm01 --profile 1g.10gb
      vgpumgr attach vm01 --profile 3g.40gb --gpu 2 --dry-run
      vgpumgr attach vm01 --profile 1g.10gb --add
      vgpumgr attach vm01 --profile 1c.3g.40gb --count 2 --numa strict
      vgpumgr attach vm01 --profile 1g.10gb --transport serial -o json
      vgpumgr attach vm01 --profile passthrough --gpu 3b:00.0
      vgpumgr attach vm01 --profile passthrough --count 2 --numa strict
      vgpumgr attach vm01 --profile "NVIDIA A100-4C"
      vgpumgr attach vm01 --profile vf:4
    """
    document = call(
        context,
        "attach",
        dry_run=dry_run,
        vm=vm,
        profile=profile,
        gpu=gpu,
        backend=backend,
        live=live,
        config=config,
        transport=transport,
        hello_timeout_s=hello_timeout,
        spread=spread,
        add=add,
        display=display,
        count=count,
        numa=numa,
    )
    lines = _render_attach(document)
    print_single(context, document, lines, lambda: _name(document))


def _name(document: dict[str, Any]) -> str:
    result = document["plan"]["result"]
    return "\n".join(result.get("attachments") or [result["attachment"]])


def _render_attach(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done, and from when on the guest can use it."""
    result = document["plan"]["result"]
    what = f"{_describe_times(result)}{result['profile']} {_describe_where(result)}"
    if document["dry_run"]:
        yield f"would attach {what} to {result['vm']}:"
    else:
        yield f"attached {what} to {result['vm']} ({describe_usable(document['usable'])}):"
    yield from render_plan(document["plan"])
    yield from (f"  note: {note}" for note in document["notes"])


def _describe_times(result: dict[str, Any]) -> str:
    seats = result.get("seats")
    return f"{len(seats)} times " if seats else ""


def _describe_where(result: dict[str, Any]) -> str:
    seats = result.get("seats") or [result]
    if seats[0]["gpu_index"] is None:
        return f"({', '.join(result['devices'])})"
    return f"on GPU {', '.join(str(seat['gpu_index']) for seat in seats)}"


@app.named("detach")
def detach(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    attachment: Annotated[
        str | None,
        Option(
            "--attachment", metavar="ID|PROFILE", help="Which of several: its id, or its profile."
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Every one that the VM has.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take a VM's slice back and free it.

    Undoes a complete attach or an incomplete one. Asks first if programs in the guest use the slice.
    Of a VM with several attachments, name one, or --all.

    \b
    Examples:
      vgpumgr detach vm01
      vgpumgr detach vm01 --yes -o json
      vgpumgr detach vm01 --dry-run
      vgpumgr detach vm02 --attachment 1g.10gb
      vgpumgr detach vm02 --all
    """
    if every and attachment:
        raise UsageError("--all and --attachment contradict each other", hint="one of them")
    asked = {"vm": vm, "attachment": attachment, "every": every}
    if not yes and not dry_run:
        _confirm(get_session(context), asked)
    document = call(context, "detach", dry_run=dry_run, **asked)
    name = document["plan"]["subject"]
    print_single(context, document, _render_detach(document), lambda: name)


def _confirm(session: Session, asked: dict[str, Any]) -> None:
    """Asks only if the slice is in use now."""
    vm, attachment = asked["vm"], asked["attachment"]
    try:
        channels = session.call("show_channel", selector=vm)["channels"]
    except SeveralAttachmentsError:
        channels = session.call("list_channels")["channels"] if attachment else []
    except VgpumgrError:
        return  # nothing to lose, or detach itself says what is wrong
    meant = [c for c in channels if attachment in (None, c["id"], c["profile"])]
    users = ", ".join(describe_lane_users(channel) for channel in meant if channel["lanes"])
    if users:
        which = f" --attachment {attachment}" if attachment else ""
        which += " --all" if asked["every"] else ""
        refusal = ConfirmationNeededError(
            f"programs in {vm} use the slice",
            held_by=[users],
            hint=f"vgpumgr detach {vm}{which} --yes",
        )
        confirm(session.streams, f"{users} in {vm} will lose the GPU. Detach?", refusal)


def _render_detach(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    what = plan["result"].get("profile", "leftover devices")
    word = "would detach" if document["dry_run"] else "detached"
    yield f"{word} {what} from {plan['subject']}:"
    yield from render_plan(plan)
    yield from (f"  note: {note}" for note in document["notes"])
