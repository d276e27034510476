"""``vgpumgr virtio``: channels, their workers and the guest's processes on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from typer import Argument, BadParameter, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    Column,
    open_archive,
    or_absent,
    print_list,
    print_single,
    size_column,
    value_column,
)
from vgpumgr.cli.session import (
    DOCUMENTS,
    DryRun,
    LimitOption,
    OutFile,
    Session,
    Yes,
    call,
    confirm,
    get_format,
    get_session,
    get_streams,
    get_verbosity,
    number,
)
from vgpumgr.cli.text import (
    describe_lane_users,
    describe_share,
    describe_worker,
    note_hidden,
    render_channel,
    render_libraries,
    render_limits,
    render_outcome,
    render_sandbox,
    render_share,
)
from vgpumgr.errors import ConfirmationNeededError, VgpumgrError
from vgpumgr.model.choices import Priority
from vgpumgr.model.text import format_exact, format_vm, parse_size

app = App()


def _read_size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadParameter(str(error)) from None


def _read_percent(text: str) -> float:
    return number(float)(text.removesuffix("%"))


COLUMNS = (
    value_column("vm"),
    value_column("id", wide=True),
    value_column("profile", spare=True),
    Column("device", lambda c: or_absent(c["device"]), wide=True),
    Column("transport", lambda c: or_absent(c["transport"])),
    Column("worker", describe_worker),
    value_column("pid", "worker_pid", right=True),
    Column("lanes", lambda c: str(len(c["lanes"])), right=True),
    Column("used_by", describe_lane_users, wraps=True),
    Column("share", describe_share, spare=True),
    size_column("memory", "memory_bytes", spare=True),
    value_column("calls", right=True, spare=True),
    size_column("in", "bytes_in", spare=True),
    size_column("out", "bytes_out", spare=True),
    value_column("restarts", "worker_restarts", wide=True, right=True),
)


@app.listing("list")
def list_channels(context: Context) -> None:
    """List the channels with their workers and transports.

    A lane is the stream of one process of the guest.

    \b
    Examples:
      vgpumgr virtio list
      vgpumgr virtio list -o csv --columns vm,calls,in,out
    """
    document = call(context, "list_channels")
    rows = document["channels"]
    print_list(context, document, rows, COLUMNS, "vm")
    note_hidden(get_streams(context), rows, "virtio list")


@app.named("show")
def show_channel(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
) -> None:
    """Show one channel and the guest's processes on it.

    Each process is shown with its calls, bytes and memory; then the limits of the VM, and what
    is used of them.

    \b
    Examples:
      vgpumgr virtio show vm01
      vgpumgr virtio show vm01 -o json
    """
    document = call(context, "show_channel", selector=vm)
    lines: list[str] = []
    for channel in document["channels"]:
        lines.append(f"channel of {channel['vm']}  ({channel['id']})")
        lines.append(f"  device        {or_absent(channel['device'])}")
        lines += render_share(channel)
        lines += render_channel(channel)
        lines += render_limits(channel)
        lines += render_sandbox(document["sandboxes"], channel["id"])
        # an older daemon has none
        lines += render_libraries(document.get("libraries", []), channel["id"])
        lines += _render_links(channel, document.get("links", []))
    print_single(context, document, lines, lambda: document["channel"]["vm"])


def _render_links(channel: dict[str, Any], links: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The other host, and each program's link to it."""
    host = channel.get("gpu_host")
    if host is None:
        return
    yield f"  GPU of        {f'host {host}' if host else 'no host now: no program runs'}"
    for link in links:
        if link["channel"] == channel["id"]:
            text = f", {link['text']}" if link["text"] else ""
            again = f", connected {link['connections']} times" if link["connections"] > 1 else ""
            where = f" to {link['where']}" if link["where"] else ""
            yield f"  link          {link['name']} ({link['pid']}): {link['state']}{where}{again}{text}"


@app.named("restart")
def restart_channel(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    keeper: Annotated[
        bool,
        Option(
            "--keeper",
            help="The keeper, too: a running guest then has no ring until its next start.",
        ),
    ] = False,
    limit: LimitOption = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """End the worker of a VM's channels and start it anew.

    For a driver that answers no more, or for other limits: those that --limit names change, the
    others and the slice stay. Programs in the guest lose the GPU; those that start afterwards have
    it. Asks first if there are any.

    \b
    Examples:
      vgpumgr virtio restart vm01
      vgpumgr virtio restart vm01 --dry-run
      vgpumgr virtio restart vm01 --keeper --yes
      vgpumgr virtio restart vm01 --limit device-memory=4GiB --limit cpu=none
    """
    users = "" if yes else _list_users(get_session(context), vm)
    if users and not dry_run:
        refusal = ConfirmationNeededError(
            f"programs in {vm} use the slice",
            held_by=[users],
            hint=f"vgpumgr virtio restart {format_vm(vm)} --yes",
        )
        confirm(get_streams(context), f"{users} in {vm} will lose the GPU. Restart?", refusal)
    limits = tuple(limit or ())
    document = call(
        context, "restart_channel", vm=vm, keeper=keeper, limits=limits, dry_run=dry_run
    )
    plan = document["plan"]
    head = f"{'would restart' if dry_run else 'restarted'} the channel of {plan['subject']}"
    lines = [*render_outcome(head, document, get_verbosity(context, dry_run=dry_run))]
    if users and dry_run:
        lines.append(f"  note: {users} in {vm} will lose the GPU")
    print_single(context, document, lines, lambda: str(plan["subject"]))


def _list_users(session: Session, vm: str) -> str:
    """The programs in the guest that use the channel now."""
    try:
        channels = session.call("show_channel", selector=vm)["channels"]
    except VgpumgrError:
        return ""  # nothing to lose, or the restart itself says what is wrong
    return ", ".join(describe_lane_users(channel) for channel in channels if channel["lanes"])


@app.named("set")
def set_share(
    context: Context,
    vm: Annotated[str, Argument(help="The VM's name or UUID, or the attachment's id.")],
    memory: Annotated[
        int | None,
        Option("--memory", metavar="SIZE", parser=_read_size, help="Memory of the GPU, as 6GiB."),
    ] = None,
    compute: Annotated[
        float | None,
        Option("--compute", metavar="PERCENT", parser=_read_percent, help="Of the GPU's time."),
    ] = None,
    at_exit: Annotated[
        bool,
        Option("--at-exit", help="Memory below what programs use waits until they use less."),
    ] = False,
    priority: Annotated[
        Priority | None,
        Option("--priority", help="A higher one gets its turns first within its percentage."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Change a VM's share while programs use it.

    What is not given stays as it is. Programs go on; those that start afterwards see a device of the
    new size. Less memory than they use now is refused, or waits for their end with --at-exit; another
    --memory stands in its place then, and the present size gives it up.

    \b
    Examples:
      vgpumgr virtio set vm01 --memory 6GiB --compute 40
      vgpumgr virtio set vm01 --compute 25% --dry-run
      vgpumgr virtio set vm01 --memory 4GiB --at-exit
      vgpumgr virtio set vm01 --priority high
    """
    document = call(
        context,
        "set_share",
        vm=vm,
        memory_bytes=memory,
        compute=compute,
        dry_run=dry_run,
        # an older daemon does not know these
        **({"at_exit": True} if at_exit else {}),
        **({"priority": priority} if priority is not None else {}),
    )
    plan = document["plan"]
    word = "would change" if dry_run else "changed"
    head = f"{word} the share of {plan['subject']} to {plan['result']['profile']}"
    if (waits := plan["result"].get("memory_at_exit")) is not None:
        head += f", and to {format_exact(waits)} at its programs' end"
    if priority is not None:
        head += f", {priority} priority"
    lines = [*render_outcome(head, document, get_verbosity(context, dry_run=dry_run))]
    print_single(context, document, lines, lambda: str(plan["subject"]))


@app.single("guest-package")
def write_guest_package(
    context: Context,
    out: OutFile = None,
    form: Annotated[
        Literal["tar", "iso"] | None,
        Option(
            "--format", help="An archive, or the image of a CD; the default is what FILE ends with."
        ),
    ] = None,
) -> None:
    """Write the package that a VM needs to use its slice.

    It has the agent, the CUDA shims, a systemd unit and install.sh, which also runs in a chroot of an
    image (virt-customize, packer). As the image of a CD it reaches a VM without a network. Without
    --out it is vgpumgr-guest.tar.gz or vgpumgr-guest.iso.

    \b
    Examples:
      vgpumgr virtio guest-package
      vgpumgr virtio guest-package --out /srv/vgpumgr-guest.tar.gz
      vgpumgr virtio guest-package --out /var/lib/libvirt/images/vgpumgr-guest.iso
    """
    streams = get_streams(context)
    image = form == "iso" or (form is None and (out or "").lower().endswith(".iso"))
    out = out or f"vgpumgr-guest.{'iso' if image else 'tar.gz'}"
    with open_archive(streams, out) as target:
        document = call(context, "write_guest_package", target=str(target), image=image)
    if out == "-":
        return
    print_single(context, document, [document["path"]])
    if get_format(context) in DOCUMENTS:
        return
    if image:
        path = document["path"]
        streams.note(f"a VM with a CD drive: virsh change-media VM DRIVE {path} --insert")
        streams.note(f"else: virsh attach-disk VM {path} sdz --type cdrom --mode readonly --config")
        streams.note("in the VM, as root: mount -L VGPUMGR /mnt; sh /mnt/install.sh")
    else:
        streams.note("in the VM, as root: tar xf it, then vgpumgr-guest/install.sh")
