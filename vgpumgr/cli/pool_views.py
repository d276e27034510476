"""``vgpumgr pool bindings``, ``top`` and ``report``: who has which GPU of a pool, who uses it, and who had it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Context, Option

from vgpumgr.cli.backend import find_pool_host, open_pool
from vgpumgr.cli.classes import format_free
from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    Row,
    or_absent,
    print_list,
    size_column,
    value_column,
)
from vgpumgr.cli.session import Session, get_session_here, number
from vgpumgr.errors import Exit, UsageError, VgpumgrError

if TYPE_CHECKING:
    from vgpumgr.tui.pool import PoolView

_SCHEMA = "vgpumgr/v1"
_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]{1,6})([hdw])")
_ONCE_WIDTH = 100
#: between the two samples of ``--once`` from which the time in use is known
_ONCE_S = 1.0
_OTHER_HOST = "its own host knows it: vgpumgr pool bindings, there"
#: what this host could know, and does not
_UNREAD = "not read: "
_NO_CHANNEL = "its calls are not forwarded, as of a GPU that is passed through"


def _read_since(text: str) -> int:
    """Seconds. Raises UsageError."""
    from vgpumgr.pool.ledger import DAYS

    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not seconds:
        raise UsageError(f"{text!r} is no duration", hint="--since 12h, 7d or 4w")
    if seconds > DAYS * _UNITS["d"]:
        raise UsageError(
            f"--since {text} is too long", why=f"hosts keep {DAYS} days", hint=f"--since {DAYS}d"
        )
    return seconds


def _read_by(text: str) -> str:
    if text not in ("claim", "tenant"):
        raise BadParameter(f"{text!r} is neither claim nor tenant")
    return text


def _read_sort(text: str) -> str:
    from vgpumgr.tui.pool import ORDERS

    if text not in ORDERS:
        raise BadParameter(f"{text!r} is none of {', '.join(ORDERS)}")
    return text


def list_bindings(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what uses them now, where this host knows that."""
    here = find_pool_host(session.options)
    channels: dict[str, Mapping[str, Any]] = {}
    problem = None
    if any(row["host"] == here and row["used_by"] for row in rows):
        try:
            found = session.call("list_channels")["channels"]
            channels = {channel["id"]: channel for channel in found}
        except VgpumgrError as error:
            problem = error.error
    for row in rows:
        row["use"], row["use_unknown"] = None, None
        if row["used_by"] is None:
            continue
        channel = channels.get(row["used_by"]["attachment"])
        if row["host"] != here:
            row["use_unknown"] = _OTHER_HOST
        elif problem is not None:
            row["use_unknown"] = f"{_UNREAD}{problem}"
        elif channel is None:
            row["use_unknown"] = _NO_CHANNEL
        elif channel["hidden"] or not channel["running"] or channel["keeper_hangs"]:
            row["use_unknown"] = f"{_UNREAD}{channel['problem'] or 'its keeper does not say it'}"
        else:
            row["use"] = _describe_use(channel)
    return rows


def _describe_use(channel: Mapping[str, Any]) -> dict[str, Any]:
    share = channel["share"] or {}
    return {
        "memory_used_bytes": channel["memory_bytes"],
        "gpu_used_s": share.get("used_s"),
        "throttled_s": share.get("throttled_s"),
        "charged_percent": share.get("charged_percent"),
        "processes": [
            {"pid": lane["pid"], "name": lane["name"], "memory_bytes": lane["memory_bytes"]}
            for lane in channel["lanes"]
        ],
    }


def _read_use(key: str) -> Callable[[Row], Any]:
    return lambda row: (row["use"] or {}).get(key)


def _format_processes(row: Row) -> str:
    """``python3 (812), nccl (90)``: as the guest names them."""
    found = row["use"]["processes"] if row["use"] else ()
    return or_absent(", ".join(f"{one['name']} ({one['pid']})" for one in found) or None)


def _format_used_memory(row: Row) -> str:
    from vgpumgr.model.text import format_size

    used = _read_use("memory_used_bytes")(row)
    return ABSENT if used is None else format_size(used)


def _format_seconds(key: str) -> Callable[[Row], str]:
    return lambda row: or_absent(
        None if (value := _read_use(key)(row)) is None else f"{value:.1f}s"
    )


_BINDINGS = (  # a list of several hosts begins with the host
    value_column("gpu", "gpu_index", right=True),
    value_column("model", wide=True),
    value_column("name"),
    value_column("tenant", spare=True),
    Column("gpus", lambda row: format_free([row["gpu_milli"]]), lambda row: row["gpu_milli"], right=True),
    size_column("memory", "memory_bytes"),
    Column("state", lambda row: "ending" if row["ending"] else "used" if row["used_by"] else "free"),
    Column(
        "used_by",
        lambda row: " ".join((row["used_by"]["kind"], row["used_by"]["name"])) if row["used_by"] else ABSENT,
    ),
    Column("memory_used", _format_used_memory, _read_use("memory_used_bytes"), right=True),
    Column("gpu_time", _format_seconds("gpu_used_s"), _read_use("gpu_used_s"), right=True),
    Column("processes", _format_processes, wraps=True),
    Column("throttled", _format_seconds("throttled_s"), _read_use("throttled_s"), right=True, wide=True),
    Column("attachment", lambda row: (row["used_by"] or {}).get("attachment") or ABSENT, wide=True),
    Column("unknown", lambda row: or_absent(row["use_unknown"]), wide=True, wraps=True),
)  # fmt: skip


def bindings(context: Context) -> None:
    """List who has which GPU of the pool, and who uses it.

    A row for each GPU of each lease, with the claim, its part of the GPU in thousandths, and the VM
    or command that uses it. For this host's leases it has the processes as the guest names them, their
    memory, and their time on the GPU. Other hosts know those of theirs.

    \b
    Examples:
      vgpumgr pool bindings
      vgpumgr pool bindings --filter host=gpu-a -o json
    """
    session = get_session_here(context, "pool bindings")
    with open_pool(session.options) as pool:
        rows = pool.list_bindings()
    rows = list_bindings(session, rows)
    print_list(context, {"schema": _SCHEMA, "bindings": rows}, rows, _BINDINGS, "name")


def _hours_column(name: str, key: str, **settings: bool) -> Column:
    return Column(
        name,
        lambda row: or_absent(None if row[key] is None else f"{row[key]:.2f}"),
        lambda row: row[key],
        right=True,
        **settings,
    )


def _wait_column(name: str, key: str) -> Column:
    return Column(
        name,
        lambda row: or_absent(None if row[key] is None else f"{row[key]:.1f}s"),
        lambda row: row[key],
        right=True,
    )


_REPORT = (
    Column("tenant", lambda row: or_absent(row["tenant"]), lambda row: row["tenant"]),
    Column("name", lambda row: str(row["name"] or "others"), lambda row: row["name"] or "others"),
    _hours_column("granted", "granted_gpu_hours", wide=True),
    _hours_column("allocated", "allocated_gpu_hours"),
    _hours_column("used", "used_gpu_hours"),
    _hours_column("idle", "idle_gpu_hours"),
    _hours_column("unknown", "unknown_gpu_hours"),
    value_column("grants", "granted", right=True, spare=True),
    _wait_column("wait_median", "wait_median_s"),
    _wait_column("wait_p95", "wait_p95_s"),
)


def report(
    context: Context,
    since: Annotated[
        str, Option("--since", metavar="DURATION", help="Such as 12h, 7d or 4w; at most 35d.")
    ] = "7d",
    tenant: Annotated[
        str | None, Option("--tenant", metavar="TENANT", help="Claims of this tenant only.")
    ] = None,
    by: Annotated[
        str,
        Option("--by", metavar="WHAT", parser=_read_by, help="claim or tenant."),
    ] = "claim",
) -> None:
    """Report GPU-hours and waits of claims and tenants.

    Allocated is what leases had of GPUs, used what an arbiter counted of that, idle the rest; of what
    is unknown no arbiter says how much was used. The reuse factor is the time of all leases, each of
    their GPUs counted whole, for each hour that a GPU was in the pool. Hosts keep 35 days.

    \b
    Examples:
      vgpumgr pool report --since 7d
      vgpumgr pool report --since 4w --by tenant -o csv
      vgpumgr pool report --tenant vision -o json
    """
    session, since_s = get_session_here(context, "pool report"), _read_since(since)
    with open_pool(session.options) as pool:
        found = pool.report(since_s, tenant)
    rows = found["claims"]
    if by == "tenant":
        rows = [{**row, "name": row["tenant"] or ABSENT} for row in found["tenants"]]
    columns = [column for column in _REPORT if by == "claim" or column.name != "name"]
    sources = found["tenants"] if by == "tenant" else None
    print_list(context, {"schema": _SCHEMA, **found}, rows, columns, _name_row, sources=sources)
    session.streams.note(_describe_totals(found))
    if silent := [one["name"] for one in found["hosts"] if not one["gpu_hours"]]:
        session.streams.note(f"nothing is counted by {', '.join(silent)} in that time")


def _name_row(row: Row) -> str:
    return str(row["name"] or "others")


def _describe_totals(found: Mapping[str, Any]) -> str:
    hours = f"{found['gpu_hours']:.2f} GPU-hours in the pool"
    parts = [hours, f"{found['allocated_gpu_hours']:.2f} allocated"]
    if found["used_gpu_hours"] is not None:
        parts.append(f"{found['used_gpu_hours']:.2f} used")
    if found["reuse_factor"] is not None:
        parts.append(f"reuse factor {found['reuse_factor']:.2f}")
    return "; ".join(parts)


def top(
    context: Context,
    once: Annotated[bool, Option("--once", help="Print one picture as text, for scripts.")] = False,
    interval: Annotated[
        float,
        Option(
            "--interval",
            metavar="SECONDS",
            parser=number(float, 0.5, 3600),
            help="How often to read the pool.",
        ),
    ] = 2.0,
    sort: Annotated[
        str,
        Option(
            "--sort",
            metavar="COLUMN",
            parser=_read_sort,
            help="Order of the leases of a GPU: time, memory, share or name.",
        ),
    ] = "time",
) -> int:
    """Watch hosts, GPUs and leases of the pool.

    Each lease has the VM or command that uses it, and on this host its memory and its part of the
    GPU's time since the last picture. s sorts by the next column, q quits. --once exits 1 if something
    could not be read.

    \b
    Examples:
      vgpumgr pool top
      vgpumgr pool top --once
      vgpumgr pool top --sort memory --interval 5
    """
    from vgpumgr.host.clock import SystemClock
    from vgpumgr.tui.pool import PoolView, draw_once

    session, clock = get_session_here(context, "pool top"), SystemClock()
    view = PoolView(sort)
    if not once:
        from vgpumgr.cli.top import TerminalMissingError

        if not session.streams.is_terminal:
            raise TerminalMissingError(
                "pool top needs a terminal",
                why="standard output is none",
                hint="vgpumgr pool top --once",
            )
        return _watch(session, view, interval)
    view.show(_take(session), clock.monotonic_s(), clock.wall_s())
    if view.has_counters():
        clock.sleep(_ONCE_S)
        view.show(_take(session), clock.monotonic_s(), clock.wall_s())
    width = session.streams.width if session.streams.is_terminal else _ONCE_WIDTH
    session.streams.print("\n".join(draw_once(view, width)))
    return int(Exit.ERROR if view.has_problem() else Exit.OK)


def _take(session: Session) -> dict[str, Any]:
    """The pool, and its leases with their use. Raises PoolNotFoundError, PoolStoreError."""
    with open_pool(session.options) as pool:
        found, rows = pool.describe(), pool.list_bindings()
    return {**found, "bindings": list_bindings(session, rows)}


def _watch(session: Session, view: PoolView, interval_s: float) -> int:
    """Until the user quits. Raises TerminalMissingError."""
    from vgpumgr.cli.top import TerminalMissingError
    from vgpumgr.host.clock import SystemClock

    try:
        from vgpumgr.tui.pool_app import PoolApp
    except ImportError as error:
        raise TerminalMissingError(
            "cannot show pool top on the terminal",
            cause=str(error),
            hint="pip install 'vgpumgr[tui]'; or vgpumgr pool top --once, which needs nothing",
        ) from error
    first = _take(session)  # what is wrong with the pool is said before the picture
    PoolApp(view, first, lambda: _take(session), SystemClock(), interval_s).run()
    return int(Exit.OK)


def register(app: App) -> None:
    """The verbs of this module, under their noun."""
    app.listing("bindings")(bindings)
    app.listing("report")(report)
    app.command("top")(top)
