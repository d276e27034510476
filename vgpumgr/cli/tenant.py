"""``vgpumgr tenant``: whose claims of a pool are served first, and how much they may have."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, BadParameter, Context, Option

from vgpumgr.cli.backend import open_any_pool, open_pool
from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    Column,
    Row,
    or_absent,
    print_list,
    print_row,
    print_single,
    value_column,
)
from vgpumgr.cli.session import get_session_at_one, get_session_here, number
from vgpumgr.errors import UsageError

app = App()
_SCHEMA = "vgpumgr/v1"
_MAX_GPUS = 1_000_000
#: as many as one transaction of etcd holds
_MAX_SPLIT = 100
#: what ``--gpus`` says for no limit
_NONE = "none"
TenantName = Annotated[str, Argument(metavar="TENANT", help="Its name.")]
_QUOTA = "The most that all its leases have together, as 4 or 2.5; none: no limit."
_PRIORITY = "Claims of tenants with a higher priority are granted first."
_PREEMPTIBLE = "Its leases make way for claims of a higher priority."
_WEIGHT = "Of equal priority, the tenant that has least for its weight goes first."


def _read_quota(text: str) -> int | None:
    """Thousandths of a GPU; None for no limit."""
    if text == _NONE:
        return None
    gpus = number(float, 0, _MAX_GPUS)(text)
    milli = round(gpus * 1000)
    if abs(milli - gpus * 1000) > 1e-6:
        raise BadParameter(f"{text} has more than three decimals")
    return milli


def _format_gpus(milli: int | None) -> str:
    from vgpumgr.model.text import format_gpus

    return or_absent(None if milli is None else format_gpus(milli))


def _format_claims(row: Row) -> str:
    """``3 granted, 1 waiting``."""
    return or_absent(", ".join(f"{n} {state}" for state, n in row["claims"].items() if n) or None)


_COLUMNS = (
    value_column("name"),
    Column("used", lambda row: _format_gpus(row["used_milli"]), lambda row: row["used_milli"], right=True),
    Column("quota", lambda row: _format_gpus(row["quota_milli"]), lambda row: row["quota_milli"], right=True),
    value_column("priority", right=True),
    value_column("weight", right=True),
    Column("preemptible", lambda row: "yes" if row["preemptible"] else or_absent(None)),
    Column("claims", _format_claims, lambda row: sum(row["claims"].values())),
)  # fmt: skip
Quota = Annotated[str | None, Option("--gpus", metavar="N|none", help=_QUOTA)]


@app.named("create")
def create(
    context: Context,
    tenant: TenantName,
    gpus: Quota = None,
    priority: Annotated[
        int,
        Option("--priority", metavar="N", parser=number(int, -1000, 1000), help=_PRIORITY),
    ] = 0,
    weight: Annotated[
        int, Option("--weight", metavar="N", parser=number(int, 1, 1000), help=_WEIGHT)
    ] = 1,
    preemptible: Annotated[bool, Option("--preemptible", help=_PREEMPTIBLE)] = False,
) -> None:
    """Add a tenant: a team, a course or a user that claims GPUs.

    \b
    Examples:
      vgpumgr tenant create vision --gpus 4
      vgpumgr tenant create teaching --gpus 2.5 --priority 10
      vgpumgr tenant create batch --priority -10 --weight 3
    """
    quota = None if gpus is None else _parse(gpus)
    with open_any_pool(get_session_at_one(context, "tenant create").options) as pool:
        _print(
            context, pool.tenants.create(tenant, quota, priority, weight, preemptible=preemptible)
        )


@app.listing("list")
def list_tenants(context: Context) -> None:
    """List the tenants of the pool, and what they have.

    \b
    Examples:
      vgpumgr tenant list
      vgpumgr tenant list -o json
    """
    with open_any_pool(get_session_at_one(context, "tenant list").options) as pool:
        rows = pool.tenants.list_all()
    print_list(context, {"schema": _SCHEMA, "tenants": rows}, rows, _COLUMNS, "name")


@app.named("show")
def show(context: Context, tenant: TenantName) -> None:
    """Show one tenant.

    \b
    Examples:
      vgpumgr tenant show vision
    """
    with open_any_pool(get_session_at_one(context, "tenant show").options) as pool:
        _print(context, pool.tenants.show(tenant))


@app.named("set")
def change(
    context: Context,
    tenant: TenantName,
    gpus: Quota = None,
    priority: Annotated[
        int | None,
        Option("--priority", metavar="N", parser=number(int, -1000, 1000), help=_PRIORITY),
    ] = None,
    weight: Annotated[
        int | None, Option("--weight", metavar="N", parser=number(int, 1, 1000), help=_WEIGHT)
    ] = None,
    preemptible: Annotated[
        Literal["yes", "no"] | None, Option("--preemptible", help=_PREEMPTIBLE)
    ] = None,
) -> None:
    """Change a tenant's quota, priority, weight or preemption.

    Leases stay, also above a quota that has become smaller: then nothing more is granted.

    \b
    Examples:
      vgpumgr tenant set vision --gpus 8
      vgpumgr tenant set vision --gpus none --priority 5
      vgpumgr tenant set batch --preemptible yes
    """
    changes: dict[str, int | None] = {} if gpus is None else {"gpu_milli": _parse(gpus)}
    if priority is not None:
        changes["priority"] = priority
    if weight is not None:
        changes["weight"] = weight
    if preemptible is not None:
        changes["preemptible"] = preemptible == "yes"
    if not changes:
        raise UsageError("set what?", hint=f"vgpumgr tenant set {tenant} --gpus 8")
    with open_any_pool(get_session_at_one(context, "tenant set").options) as pool:
        _print(context, pool.tenants.change(tenant, changes))


_SHARES = (*_COLUMNS[:1], value_column("shares", right=True), *_COLUMNS[1:])


@app.listing("split")
def split(
    context: Context,
    tenants: Annotated[
        list[str], Argument(metavar="TENANT...", help="Those that have no entry yet are made.")
    ],
    profile: Annotated[
        str,
        Option("--profile", metavar="PROFILE", help="The unit: share:4GiB,12.5%, or whole."),
    ],
    class_name: Annotated[
        str, Option("--class", metavar="CLASS", help="Of the GPUs of this class.")
    ] = "default",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the quotas, and change nothing.")
    ] = False,
) -> None:
    """Divide the GPUs of the pool among tenants.

    By their weights, and in whole shares. Their quotas are all of the GPUs together: each gets
    its part, and where it does not come out even some get one share more than others.

    \b
    Examples:
      vgpumgr tenant split vision speech --profile share:4GiB,12.5%
      vgpumgr tenant split user01 user02 user03 --profile whole --dry-run
    """
    names = list(dict.fromkeys(tenants))
    if len(names) > _MAX_SPLIT:
        raise UsageError(f"{len(names)} tenants at once", why=f"at most {_MAX_SPLIT}")
    with open_pool(get_session_here(context, "tenant split").options) as pool:
        total, rows = pool.tenants.split(names, profile, class_name, dry_run=dry_run)
    document = {"schema": _SCHEMA, "shares": total, "dry_run": dry_run, "tenants": rows}
    print_list(context, document, rows, _SHARES, "name")


@app.single("delete")
def delete(context: Context, tenant: TenantName) -> None:
    """Remove a tenant that has no claims.

    \b
    Examples:
      vgpumgr tenant delete vision
    """
    with open_any_pool(get_session_at_one(context, "tenant delete").options) as pool:
        pool.tenants.delete(tenant)
    document = {"schema": _SCHEMA, "tenant": tenant, "deleted": True}
    print_single(context, document, [f"tenant {tenant} is deleted"])


def _parse(text: str) -> int | None:
    try:
        return _read_quota(text)
    except BadParameter as error:
        raise UsageError(
            f"no quota of GPUs: {text!r}", why=str(error.message), hint="--gpus 2.5, or --gpus none"
        ) from error


def _print(context: Context, row: Row) -> None:
    name = row["name"]
    print_row(context, {"schema": _SCHEMA, "tenant": row}, f"tenant {name}", row, _COLUMNS, name)
