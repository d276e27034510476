"""``vgpumgr attach``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

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
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import render_plan, tell_usable


class Transport(StrEnum):
    """``--transport``."""

    AUTO = "auto"
    RING = "ring"
    SERIAL = "serial"


class Numa(StrEnum):
    """``--numa``."""

    PREFER = "prefer"
    STRICT = "strict"
    OFF = "off"


def command(
    context: Context,
    vm: Annotated[str, Argument(help="Name or UUID of the libvirt domain.")],
    profile: Annotated[str, Option("--profile", metavar="PROFILE", help=PROFILE_HELP)],
    gpu: GpuOption = None,
    backend: BackendOption = Way.AUTO,
    live: Annotated[bool, Option("--live", help="The running machine; or fail.")] = False,
    config: Annotated[bool, Option("--config", help="The next start only.")] = False,
    transport: Annotated[
        Transport, Option("--transport", help="Shared memory, virtio-serial, or both.")
    ] = Transport.AUTO,
    hello_timeout: Annotated[
        float,
        Option(
            "--hello-timeout", metavar="SECONDS", help="How long to wait for the running guest."
        ),
    ] = 15.0,
    spread: Annotated[
        bool,
        Option("--spread/--pack", help="Emptiest GPU, or where the least room is lost."),
    ] = False,
    count: Annotated[
        int, Option("--count", help="So many of them: all or none.", min=1, max=16)
    ] = 1,
    numa: Annotated[
        Numa,
        Option(
            "--numa",
            help="A GPU on the NUMA node that the VM is bound to: preferred, or no other (strict).",
        ),
    ] = Numa.PREFER,
    add: Annotated[
        bool, Option("--add", help="One more, besides what the VM has already.")
    ] = False,
    display: DisplayOption = Screen.OFF,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")] = False,
    output: Output = None,
) -> None:
    """Give a VM a slice of a GPU, or a whole one.

    Finds a GPU with room, cuts the slice or takes the device from the host, and gives it to the
    domain. If anything fails, everything before it is undone. Without --live and --config: the next
    start always, a running guest now if it can take the devices.

    1c.3g.40gb is one compute slice of a 3g.40gb: it joins such a GPU instance if an attachment has
    one with room, and shares its memory. A VM that is bound to a NUMA node (numatune, vcpupin,
    emulatorpin) gets a GPU of that node if one has room. --dry-run says why it would be that GPU.

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
    asked = {
        "vm": vm,
        "profile": profile,
        "gpu": gpu,
        "backend": backend.value,
        "live": live,
        "config": config,
        "transport": transport.value,
        "hello_timeout_s": hello_timeout,
        "spread": spread,
        "add": add,
        "display": display.value,
        "count": count,
        "numa": numa.value,
    }
    run(get_session(context), asked, dry_run, output)


def run(session: Session, asked: dict[str, Any], dry_run: bool, output: Format | None) -> None:
    """Asks for it and tells what was done."""
    check_single("attach", output, named=True)
    document = session.call("attach", dry_run=dry_run, **asked)
    print_single(session.streams, document, output, render(document), lambda: _name(document))


def _name(document: dict[str, Any]) -> str:
    result = document["plan"]["result"]
    return "\n".join(result.get("attachments") or [result["attachment"]])


def render(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done, and from when on the guest can use it."""
    result = document["plan"]["result"]
    what = f"{_tell_times(result)}{result['profile']} {_tell_where(result)}"
    if document["dry_run"]:
        yield f"would attach {what} to {result['vm']}:"
    else:
        yield f"attached {what} to {result['vm']} ({tell_usable(document['usable'])}):"
    yield from render_plan(document["plan"])
    yield from (f"  note: {note}" for note in document["notes"])


def _tell_times(result: dict[str, Any]) -> str:
    seats = result.get("seats")
    return f"{len(seats)} times " if seats else ""


def _tell_where(result: dict[str, Any]) -> str:
    seats = result.get("seats") or [result]
    if seats[0]["gpu_index"] is None:
        return f"({', '.join(result['devices'])})"
    return f"on GPU {', '.join(str(seat['gpu_index']) for seat in seats)}"
