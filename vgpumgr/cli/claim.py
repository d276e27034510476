"""``vgpumgr claim``: what a VM, a process or a container may use of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.backend import open_any_pool
from vgpumgr.cli.classes import format_free
from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    Column,
    Row,
    or_absent,
    print_list,
    print_row,
    print_single,
    size_column,
    value_column,
)
from vgpumgr.cli.session import DryRun, get_session, get_session_at_one, number
from vgpumgr.errors import Exit, UsageError

app = App()
_SCHEMA = "vgpumgr/v1"
_PROFILE = "Of each GPU: a share of it (share:8GiB,30%), or a whole one (whole)."
ClaimName = Annotated[str, Argument(metavar="CLAIM", help="Its name.")]
GpuCount = number(int, 1, 64)


def _format_percent(row: Row) -> str:
    from vgpumgr.model.shares import format_percent

    percent = row["compute_percent"]
    return or_absent(None if percent is None else format_percent(percent))


def _format_place(row: Row) -> str:
    """``gpu-a:0,3``: the host, and its GPUs."""
    lease = row["lease"]
    return or_absent(lease and f"{lease['host']}:{','.join(map(str, lease['gpu_indices']))}")


def _format_user(row: Row) -> str:
    """``vm vm01``: what has its slice by the claim."""
    use = row["used_by"]
    return or_absent(use and f"{use['kind']} {use['name']}")


def _read_until(row: Row) -> float | None:
    """When its lease ends, or the claim."""
    until: float | None = (row["lease"] or {}).get("until_s") or row["until_s"]
    return until


def _format_until(row: Row) -> str:
    from vgpumgr.pool.control.times import format_moment

    until = _read_until(row)
    if until is None and row["for_s"] is not None:
        return f"{row['for_s']:g} s"
    return or_absent(None if until is None else format_moment(until))


_COLUMNS = (
    value_column("name"),
    value_column("state"),
    value_column("class", spare=True),
    value_column("tenant", spare=True),
    value_column("binding", wide=True),
    value_column("anti_affinity", wide=True),
    Column("where", lambda row: or_absent(",".join(row["where"]) or None), wide=True),
    value_column("gpus", right=True),
    size_column("memory", "memory_bytes"),
    Column("time", _format_percent, lambda row: row["compute_percent"], right=True),
    Column("on", _format_place, lambda row: (row["lease"] or {}).get("host")),
    value_column("place", right=True),
    Column("used_by", _format_user, lambda row: (row["used_by"] or {}).get("name")),
    value_column("if_lost", wide=True),
    Column("until", _format_until, _read_until, wide=True),
    Column("preemptible", lambda row: or_absent(row["preemptible"]), wide=True),
    Column(
        "token", lambda row: or_absent((row["lease"] or {}).get("token")), wide=True, right=True
    ),
    Column("why", lambda row: or_absent(row["why"]), lambda row: row["why"], wraps=True),
)


@app.named("create")
def create(
    context: Context,
    claim: ClaimName,
    profile: Annotated[str, Option("--profile", metavar="PROFILE", help=_PROFILE)],
    gpus: Annotated[
        int, Option("--gpus", metavar="N", parser=GpuCount, help="So many GPUs of one host.")
    ] = 1,
    class_name: Annotated[
        str,
        Option("--class", metavar="CLASS", help="How it is placed: vgpumgr pool class list."),
    ] = "default",
    if_lost: Annotated[
        Literal["keep", "move"],
        Option(
            "--if-lost",
            help="Where its host is lost: keep the lease and what runs, or end both and move.",
        ),
    ] = "keep",
    tenant: Annotated[
        str | None, Option("--tenant", metavar="TENANT", help="Whose quota and priority it has.")
    ] = None,
    anti_affinity: Annotated[
        str | None,
        Option(
            "--anti-affinity",
            metavar="GROUP",
            help="Not on a host that has another claim of this group.",
        ),
    ] = None,
    binding: Annotated[
        Literal["reserve", "late"],
        Option(
            "--binding",
            help="Reserve a lease now; or have one only while a command runs by the claim, or from claim bind on.",
        ),
    ] = "reserve",
    where: Annotated[
        list[str] | None,
        Option(
            "--where",
            metavar="HOST,...",
            help="On one of these hosts: names or patterns, here for this one, any.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        Option(
            "--until",
            metavar="TIME",
            help="The lease ends then: 2026-12-01T12:00, in this machine's time zone.",
        ),
    ] = None,
    duration: Annotated[
        str | None,
        Option("--for", metavar="DURATION", help="A lease ends so long after its grant: 2h, 90m."),
    ] = None,
    preempt_vm: Annotated[
        bool,
        Option(
            "--preemptible-vm",
            help="Preemption may also detach a VM that uses it, where its class or tenant can be preempted.",
        ),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Claim GPUs of the pool.

    The claim is granted at once where they are free. Otherwise it waits, and says why. A claim of a
    higher priority preempts leases that can be preempted; --dry-run names them, and changes nothing.
    A lease with an end is announced to end 5 minutes before; then the claim is deleted, and one that
    binds late is idle.

    \b
    Examples:
      vgpumgr claim create train --profile share:8GiB,30%
      vgpumgr claim create large --profile whole --gpus 2 -o json
      vgpumgr claim create web --profile share:4GiB,10% --class spread --if-lost move
      vgpumgr claim create lesson --profile share:4GiB,10% --tenant teaching
      vgpumgr claim create web-2 --profile share:4GiB,10% --anti-affinity web
      vgpumgr claim create vm01 --profile share:4GiB,10% --where here
      vgpumgr claim create test --profile whole --where 'gpu-a*'
      vgpumgr claim create batch --profile share:8GiB,30% --binding late
      vgpumgr claim create today --profile whole --until 2099-12-01T18:00
      vgpumgr claim create short --profile share:8GiB,30% --for 2h
      vgpumgr claim create urgent --profile whole --tenant vision --dry-run
    """
    asked = (claim, class_name, profile, gpus, if_lost, tenant, anti_affinity, where or ())
    more: dict[str, Any] = {
        "late": binding == "late",
        "until": until,
        "duration": duration,
        "preempt_vm": preempt_vm,
    }
    with open_any_pool(get_session_at_one(context, "claim create").options) as pool:
        if not dry_run:
            _print(context, pool.create(*asked, **more))
            return
        row, victims = pool.try_create(*asked, **more)
    document = {"schema": _SCHEMA, "dry_run": True, "claim": row, "preempts": victims}
    print_row(context, document, f"claim {claim} (dry run)", row, _COLUMNS, claim)
    _report_victims(context, claim, victims)


def _report_victims(context: Context, claim: str, victims: Sequence[Row]) -> None:
    """Names what would end for a claim."""
    for one in victims:
        grace = f", after {one['grace_s']:g} s" if one["grace_s"] else ""
        place = f"{one['host']}:{','.join(map(str, one['gpu_indices']))}"
        get_session(context).streams.note(
            f"claim {claim} preempts claim {one['name']} on {place}: {one['ends']}{grace}"
        )


@app.listing("list")
def list_claims(context: Context) -> None:
    """List the claims of the pool.

    They stand in the order of the queue. Those that wait have a place in it, and a reason.

    \b
    Examples:
      vgpumgr claim list
      vgpumgr claim list --filter state=waiting -o json
    """
    with open_any_pool(get_session_at_one(context, "claim list").options) as pool:
        rows = pool.list_claims()
    print_list(context, {"schema": _SCHEMA, "claims": rows}, rows, _COLUMNS, "name")


@app.named("show")
def show(context: Context, claim: ClaimName) -> None:
    """Show one claim: what it asks for, its lease, why it waits.

    \b
    Examples:
      vgpumgr claim show train
      vgpumgr claim show train -o json
    """
    with open_any_pool(get_session_at_one(context, "claim show").options) as pool:
        _print(context, pool.show(claim))


@app.named("wait")
def wait(
    context: Context,
    claim: ClaimName,
    timeout_s: Annotated[
        float | None,
        Option(
            "--timeout",
            metavar="SECONDS",
            parser=number(float, 0),
            help="Wait no longer; by default until it is granted.",
        ),
    ] = None,
) -> int:
    """Wait until a claim is granted.

    Its place in the queue and the reason stand on standard error whenever they change. When the time
    is over the exit code is 8, and the claim waits on.

    \b
    Examples:
      vgpumgr claim wait train
      vgpumgr claim wait train --timeout 600
    """
    session = get_session_at_one(context, "claim wait")
    with open_any_pool(session.options) as pool:
        row = pool.wait(claim, timeout_s, session.streams.note)
    _print(context, row)
    return int(Exit.OK if row["state"] == "granted" else Exit.PENDING)


@app.named("bind")
def bind(context: Context, claim: ClaimName) -> int:
    """Let a claim that binds late have its lease on this host.

    It has it until what is attached by it is detached, or until vgpumgr claim release. While no GPU
    is free the claim waits, and the exit code is 8. vgpumgr run --claim binds for itself.

    \b
    Examples:
      vgpumgr claim bind train
      vgpumgr claim wait train
    """
    with open_any_pool(get_session_at_one(context, "claim bind").options) as pool:
        row = pool.bind(claim)
    _print(context, row)
    return int(Exit.OK if row["state"] == "granted" else Exit.PENDING)


@app.named("release")
def release(context: Context, claim: ClaimName) -> None:
    """End the lease of a claim that binds late.

    Nothing may use it. The claim stays, and others have its GPUs. A claim that does not bind late
    keeps its lease: vgpumgr claim delete frees that.

    \b
    Examples:
      vgpumgr claim release train
    """
    with open_any_pool(get_session_at_one(context, "claim release").options) as pool:
        _print(context, pool.release(claim))


_CANDIDATES = (
    value_column("name"),
    value_column("model"),
    Column("free", lambda row: format_free(row["free_milli"].values()), lambda row: sum(row["free_milli"].values())),
    Column("chosen", lambda row: "yes" if row["chosen"] else or_absent(None)),
    Column("why", lambda row: row["why"], wraps=True),
)  # fmt: skip


@app.listing("explain")
def explain(context: Context, claim: ClaimName) -> None:
    """Explain which host a claim has or would get.

    Every host has its score, or the reason why the claim gets no GPU there. The smallest GPUs that
    are enough come first, and of these the least score.
    The claim's own lease counts as free. What a claim that waits would preempt is named.

    \b
    Examples:
      vgpumgr claim explain train
      vgpumgr claim explain train -o json
    """
    with open_any_pool(get_session_at_one(context, "claim explain").options) as pool:
        row, rows = pool.explain(claim)
        victims = pool.list_victims(claim)
    document = {"schema": _SCHEMA, "claim": row, "hosts": rows, "preempts": victims}
    print_list(context, document, rows, _CANDIDATES, "name")
    if row["why"]:
        get_session(context).streams.note(
            f"claim {claim} waits: {row['why']}" if row["place"] else f"claim {claim}: {row['why']}"
        )
    _report_victims(context, claim, victims)


@app.named("resize")
def resize(
    context: Context,
    claim: ClaimName,
    profile: Annotated[str | None, Option("--profile", metavar="PROFILE", help=_PROFILE)] = None,
    gpus: Annotated[
        int | None,
        Option("--gpus", metavar="N", parser=GpuCount, help="So many GPUs of one host."),
    ] = None,
) -> None:
    """Change the size of a claim, on the host that it is on.

    It keeps what it has until the host has what it asks for.

    \b
    Examples:
      vgpumgr claim resize train --profile share:16GiB,50%
      vgpumgr claim resize large --gpus 4
    """
    if profile is None and gpus is None:
        raise UsageError("resize to what?", hint=f"vgpumgr claim resize {claim} --profile whole")
    with open_any_pool(get_session_at_one(context, "claim resize").options) as pool:
        _print(context, pool.resize(claim, profile, gpus))


@app.single("delete")
def delete(context: Context, claim: ClaimName) -> int:
    """Delete a claim and free its GPUs.

    They are free when the host has ended what runs. Until then the exit code is 8: the claim goes
    as soon as the host is heard and has ended it. Of a machine that is dead, vgpumgr pool remove
    frees them.

    \b
    Examples:
      vgpumgr claim delete train
    """
    with open_any_pool(get_session_at_one(context, "claim delete").options) as pool:
        is_gone, lost = pool.delete(claim)
    document = {"schema": _SCHEMA, "claim": claim, "deleted": is_gone, "unheard_host": lost}
    text = f"claim {claim} is deleted"
    if not is_gone:
        text = f"claim {claim} is deleted as soon as its host has ended what runs"
    lines = [text]
    if lost:
        lines.append(
            f"host {lost} is not heard; if that machine is dead: vgpumgr pool remove {lost} --confirm-dead"
        )
    print_single(context, document, lines)
    return int(Exit.OK if is_gone else Exit.PENDING)


def _print(context: Context, row: Row) -> None:
    name = row["name"]
    print_row(context, {"schema": _SCHEMA, "claim": row}, f"claim {name}", row, _COLUMNS, name)
