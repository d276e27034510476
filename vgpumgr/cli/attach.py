"""``vgpumgr attach`` and ``vgpumgr detach``, and ``vgpumgr why``: what keeps a profile from a VM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import Column, print_list, print_notes, print_single, value_column
from vgpumgr.cli.session import (
    PROFILE_HELP,
    BackendOption,
    ClaimOption,
    DisplayOption,
    DryRun,
    EqualOption,
    GpuOption,
    LimitOption,
    PolicyOption,
    PriorityOption,
    Session,
    TransportOption,
    UnconfinedOption,
    Yes,
    call,
    choose_wanted,
    confirm,
    get_layout,
    get_session,
    get_streams,
    get_verbosity,
    number,
)
from vgpumgr.cli.text import describe_lane_users, describe_usable, render_outcome
from vgpumgr.errors import (
    ConfirmationNeededError,
    SeveralAttachmentsError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.model.choices import (
    HELLO_TIMEOUT_S,
    MAX_COUNT,
    BackendChoice,
    Display,
    Numa,
    Transport,
)
from vgpumgr.model.text import format_vm

app = App()


@app.named("attach")
def attach(
    context: Context,
    vm: Annotated[str, Argument(help="Name or UUID of the libvirt domain.")],
    profile: Annotated[
        str | None, Option("--profile", metavar="PROFILE", help=PROFILE_HELP)
    ] = None,
    equal: EqualOption = None,
    claim: ClaimOption = None,
    gpu: GpuOption = None,
    backend: BackendOption = BackendChoice.AUTO,
    live: Annotated[bool, Option("--live", help="The running machine; or fail.")] = False,
    config: Annotated[bool, Option("--config", help="The next start only.")] = False,
    transport: TransportOption = Transport.AUTO,
    hello_timeout: Annotated[
        float,
        Option(
            "--hello-timeout",
            metavar="SECONDS",
            parser=number(float),
            help="How long to wait for the running guest.",
        ),
    ] = HELLO_TIMEOUT_S,
    spread: Annotated[
        bool, Option("--spread/--pack", help="Emptiest GPU, or where the least capacity is lost.")
    ] = False,
    count: Annotated[
        int,
        Option(
            "--count", metavar="N", parser=number(int, 1, MAX_COUNT), help="How many: all or none."
        ),
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
    compute_policy: PolicyOption = None,
    priority: PriorityOption = None,
    limit: LimitOption = None,
    allow_unconfined: UnconfinedOption = False,
    display: DisplayOption = Display.OFF,
    dry_run: DryRun = False,
) -> None:
    """Give a VM a slice of a GPU, or a whole one.

    Selects a GPU with free capacity, creates the slice or takes the device from the host, and adds
    it to the domain. If a step fails, all steps are undone. Without --live and --config: the next
    start always, a running guest now if it can take the devices. For a MIG profile the guest needs
    an agent, which "vgpumgr virtio guest-package" has.

    An idle MIG instance of the applied layout is taken before one is created; --gpu MIG-UUID takes
    that device; detach leaves it. 1c.3g.40gb is one compute slice of a 3g.40gb: it joins a GPU
    instance of an attachment that has one free, and shares its memory. A VM that is bound to a NUMA
    node (numatune, vcpupin, emulatorpin) gets a GPU of that node if one has capacity. --dry-run
    explains the selection. A share (share:8GiB,30%) is memory and time of a GPU that is not in MIG
    mode and that several VMs have shares of; --equal 4 is a quarter of one. share:4GiB,50%@1g.10gb
    is a share of a MIG instance of that profile, which the first makes or takes; --gpu MIG-UUID
    names one. What the VM's programs may take, all together, --limit says. --claim gives the VM what
    a claim of the pool has on this host: a share of the leased GPU, or all of it, by passthrough where
    the GPU has an IOMMU group.

    \b
    Examples:
      vgpumgr attach vm01 --profile 1g.10gb
      vgpumgr attach vm01 --profile 3g.40gb --gpu 2 --dry-run
      vgpumgr attach vm01 --profile 1g.10gb --add
      vgpumgr attach vm01 --profile 1g.10gb --limit device-memory=4GiB --limit cpu=150%
      vgpumgr attach vm01 --profile 1c.3g.40gb --count 2 --numa strict
      vgpumgr attach vm01 --profile 1g.10gb --transport serial -o json
      vgpumgr attach vm01 --profile passthrough --gpu 3b:00.0
      vgpumgr attach vm01 --profile passthrough --count 2 --numa strict
      vgpumgr attach vm01 --profile "NVIDIA A100-4C"
      vgpumgr attach vm01 --profile vf:4
      vgpumgr attach vm01 --profile share:8GiB,30% --compute-policy fixed
      vgpumgr attach vm01 --profile share:8GiB --compute-policy best-effort
      vgpumgr attach vm01 --profile share:8GiB,30% --priority high
      vgpumgr attach vm01 --profile share:4GiB,50%@1g.10gb
      vgpumgr attach vm01 --equal 4
      vgpumgr attach vm01 --equal 4 --gpu MIG-6f1c2a2e
      vgpumgr attach vm01 --claim train
    """
    document = call(
        context,
        "attach",
        dry_run=dry_run,
        vm=vm,
        **choose_wanted(profile, equal, claim, "attach"),
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
        limits=tuple(limit or ()),
        allow_unconfined=allow_unconfined,
        compute_policy=compute_policy,
        **({} if priority is None else {"priority": priority}),  # an older daemon does not know it
    )
    lines = _render_attach(document, get_verbosity(context, dry_run=dry_run))
    print_single(context, document, lines, lambda: _name(document))


def _name(document: dict[str, Any]) -> str:
    result = document["plan"]["result"]
    return "\n".join(result.get("attachments") or [result["attachment"]])


def _render_attach(document: dict[str, Any], verbosity: int) -> Iterator[str]:
    """What was or would be done, and from when on the guest can use it."""
    result = document["plan"]["result"]
    what = _describe_slices(result)
    if document["dry_run"]:
        head = f"would attach {what} to {result['vm']}"
    else:
        # the plan waits for the agent only if the running guest has the devices
        is_live = any(step["kind"] == "channel.hello" for step in document["plan"]["steps"])
        when = describe_usable(document["usable"], is_live=is_live)
        head = f"attached {what} to {result['vm']} ({when})"
    yield from render_outcome(head, document, verbosity)


def _describe_slices(result: dict[str, Any]) -> str:
    """``2 times 1g.10gb on GPU 0, 1``."""
    placements = result.get("seats") or ()
    what = f"{len(placements)} times {result['profile']}" if placements else result["profile"]
    gpus = [str(one["gpu_index"]) for one in placements or [result] if one["gpu_index"] is not None]
    return (
        f"{what} on GPU {', '.join(gpus)}" if gpus else f"{what} ({', '.join(result['devices'])})"
    )


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
    users = "" if yes else _list_users(get_session(context), vm, attachment)
    if users and not dry_run:
        _confirm(get_session(context), asked, users)
    document = call(context, "detach", dry_run=dry_run, **asked)
    name = document["plan"]["subject"]
    lines = [*_render_detach(document, get_verbosity(context, dry_run=dry_run))]
    if users and dry_run:
        lines.append(f"  note: {users} in {vm} will lose the GPU")
    print_single(context, document, lines, lambda: name)


def _list_users(session: Session, vm: str, attachment: str | None) -> str:
    """The programs in the guest that use the slice now."""
    try:
        channels = session.call("show_channel", selector=vm)["channels"]
    except SeveralAttachmentsError:
        channels = session.call("list_channels")["channels"] if attachment else []
    except VgpumgrError:
        return ""  # nothing to lose, or detach itself says what is wrong
    meant = [c for c in channels if attachment in (None, c["id"], c["profile"])]
    return ", ".join(describe_lane_users(channel) for channel in meant if channel["lanes"])


def _confirm(session: Session, asked: dict[str, Any], users: str) -> None:
    """Asks, as the slice is in use now."""
    vm, attachment = asked["vm"], asked["attachment"]
    which = f" --attachment {attachment}" if attachment else ""
    which += " --all" if asked["every"] else ""
    refusal = ConfirmationNeededError(
        f"programs in {vm} use the slice",
        held_by=[users],
        hint=f"vgpumgr detach {format_vm(vm)}{which} --yes",
    )
    confirm(session.streams, f"{users} in {vm} will lose the GPU. Detach?", refusal)


def _render_detach(document: dict[str, Any], verbosity: int) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    what = plan["result"].get("profile", "leftover devices")
    word = "would detach" if document["dry_run"] else "detached"
    yield from render_outcome(f"{word} {what} from {plan['subject']}", document, verbosity)


def _explain(row: dict[str, Any]) -> str:
    moving = f"; or without removing anything: {row['moving']}" if row["moving"] else ""
    return f"{row['sentence']}{moving}"


def _name_gpu(row: dict[str, Any]) -> Any:
    """The index, or the address of a GPU without one."""
    return row["gpu"] if row["gpu_index"] is None else row["gpu_index"]


COLUMNS = (
    Column("gpu", lambda r: str(_name_gpu(r)), _name_gpu, right=True),
    value_column("gpu_uuid", wide=True),
    Column("fits", lambda r: "yes" if r["fits"] else "no"),
    Column("why", _explain, wraps=True),
)


@app.listing("why")
def why(
    context: Context,
    profile: Annotated[str | None, Argument(help=PROFILE_HELP)] = None,
    gpu: GpuOption = None,
    claim: ClaimOption = None,
) -> None:
    """Explain why a profile does not fit, and what would help.

    Any profile that attach takes: of MIG, a vGPU type, vf, passthrough, a share. Or a claim of the pool.

    One GPU is explained in a sentence, several in a table.

    \b
    Examples:
      vgpumgr why 3g.40gb
      vgpumgr why 1g.10gb+me --gpu 0
      vgpumgr why A100-4C
      vgpumgr why vf
      vgpumgr why share:8GiB,30%
      vgpumgr why share:4GiB,50%@1g.10gb --gpu 0
      vgpumgr why --claim train
    """
    if claim is None and profile is None:
        raise UsageError("missing argument 'PROFILE'", hint="vgpumgr why PROFILE, or --claim CLAIM")
    wanted = {} if profile is None else {"profile": profile}
    wanted |= {} if claim is None else {"claim": claim}
    document = {"notes": [], **call(context, "why", **wanted, selector=gpu)}
    rows = document["gpus"]
    print_notes(context, document)  # an older daemon has none
    if get_layout(context).is_default and len(rows) == 1:
        index, name = _name_gpu(rows[0]), document["profile"]
        get_streams(context).print(f"GPU {index}: {name} {_explain(rows[0])}")
        return
    print_list(
        context, document, rows, COLUMNS, name=lambda row: str(row["gpu_uuid"] or row["gpu"])
    )
