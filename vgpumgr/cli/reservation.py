"""``vgpumgr reservation``: GPUs of a pool that are a tenant's at a time of day."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.backend import open_pool
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
from vgpumgr.cli.session import get_session_here, number

app = App()
_SCHEMA = "vgpumgr/v1"
_PROFILE = "Of each GPU: a share of it (share:8GiB,30%), or a whole one (whole)."
_TIME = "in the zone of --zone"
ReservationName = Annotated[str, Argument(metavar="RESERVATION", help="Its name.")]
GpuCount = number(int, 1, 64)


def _format_holder(row: Row) -> str:
    """``tenant teaching``: for whom it is."""
    return f"tenant {row['tenant']}" if row["tenant"] else f"claims {', '.join(row['claims'])}"


def _format_percent(row: Row) -> str:
    from vgpumgr.model.shares import format_percent

    percent = row["compute_percent"]
    return or_absent(None if percent is None else format_percent(percent))


_COLUMNS = (
    value_column("name"),
    value_column("state"),
    Column("for", _format_holder, lambda row: row["tenant"] or row["claims"]),
    value_column("gpus", right=True),
    size_column("memory", "memory_bytes"),
    Column("time", _format_percent, lambda row: row["compute_percent"], right=True),
    Column("from", lambda row: row["from"], lambda row: row["from_s"]),
    Column("until", lambda row: row["until"], lambda row: row["until_s"]),
    value_column("every"),
    value_column("zone", wide=True),
    value_column("class", wide=True),
    Column("on", lambda row: or_absent(", ".join(row["places"]) or None), wraps=True),
    Column("why", lambda row: or_absent(row["why"]), lambda row: row["why"], wraps=True),
)


@app.named("create")
def create(
    context: Context,
    reservation: ReservationName,
    profile: Annotated[str, Option("--profile", metavar="PROFILE", help=_PROFILE)],
    begin: Annotated[
        str, Option("--from", metavar="TIME", help=f"When it begins: 2026-12-07T08:00, {_TIME}.")
    ],
    end: Annotated[
        str, Option("--until", metavar="TIME", help=f"When it ends: 2026-12-07T12:00, {_TIME}.")
    ],
    gpus: Annotated[
        int, Option("--gpus", metavar="N", parser=GpuCount, help="So many GPUs, of any hosts.")
    ] = 1,
    tenant: Annotated[
        str | None, Option("--tenant", metavar="TENANT", help="For the claims of this tenant.")
    ] = None,
    claims: Annotated[
        list[str] | None,
        Option(
            "--claim-pattern",
            metavar="PATTERN",
            help="For claims with such names instead, as 'lesson-*'; several.",
        ),
    ] = None,
    every: Annotated[
        Literal["week"] | None,
        Option("--every", help="Each week at that time of day from then on."),
    ] = None,
    zone: Annotated[
        str | None,
        Option("--zone", metavar="ZONE", help="As Europe/Berlin; by default this machine's."),
    ] = None,
    class_name: Annotated[
        str,
        Option("--class", metavar="CLASS", help="Of GPUs: vgpumgr pool class list."),
    ] = "default",
) -> None:
    """Reserve GPUs for a tenant, or for claims by their names.

    In its time only these claims are granted there. Before it, a claim of others is granted there
    only if it ends before (claim create --until or --for). GPUs that are leased without an end are
    not reserved; if too few are left, the claims in the way are named.

    \b
    Examples:
      vgpumgr reservation create lab --tenant vision --profile whole --from 2099-12-07T08:00 --until 2099-12-07T12:00
      vgpumgr reservation create ml --claim-pattern 'ml-*' --profile share:8GiB,30% --from 2099-12-07T08:00 \
        --until 2099-12-07T12:00 --every week --zone Europe/Berlin
    """
    with open_pool(get_session_here(context, "reservation create").options) as pool:
        row = pool.reservations.create(
            reservation, begin, end, profile, gpus, tenant=tenant, claims=claims or (),
            class_name=class_name, weekly=every is not None, zone=zone,
        )  # fmt: skip
    _print(context, row)


@app.listing("list")
def list_reservations(context: Context) -> None:
    """List the reservations of the pool.

    That which comes next stands first, what is over last.

    \b
    Examples:
      vgpumgr reservation list
      vgpumgr reservation list --filter tenant=teaching -o json
    """
    with open_pool(get_session_here(context, "reservation list").options) as pool:
        rows = pool.reservations.list_all()
    print_list(context, {"schema": _SCHEMA, "reservations": rows}, rows, _COLUMNS, "name")


@app.named("show")
def show(context: Context, reservation: ReservationName) -> None:
    """Show one reservation, its times and its GPUs.

    \b
    Examples:
      vgpumgr reservation show course
    """
    with open_pool(get_session_here(context, "reservation show").options) as pool:
        _print(context, pool.reservations.show(reservation))


@app.single("delete")
def delete(context: Context, reservation: ReservationName) -> None:
    """Delete a reservation.

    Claims keep their leases.

    \b
    Examples:
      vgpumgr reservation delete course
    """
    with open_pool(get_session_here(context, "reservation delete").options) as pool:
        pool.reservations.delete(reservation)
    document = {"schema": _SCHEMA, "reservation": reservation, "deleted": True}
    print_single(context, document, [f"reservation {reservation} is deleted"])


def _print(context: Context, row: Row) -> None:
    name = row["name"]
    document = {"schema": _SCHEMA, "reservation": row}
    print_row(context, document, f"reservation {name}", row, _COLUMNS, name)
