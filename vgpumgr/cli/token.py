"""``vgpumgr token``: who may call this host's daemon over the network."""

from __future__ import annotations

import re
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.backend import create_token, open_tokens
from vgpumgr.cli.main import App
from vgpumgr.cli.output import Column, Row, or_absent, print_list, print_single, value_column
from vgpumgr.cli.session import get_session, get_session_here
from vgpumgr.errors import UsageError
from vgpumgr.model.callers import ROLE_NAMES
from vgpumgr.model.text import format_time

app = App()
_SCHEMA = "vgpumgr/v1"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?")
_TENANT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_S = 3650 * 86400
_NEVER = "never"
TokenName = Annotated[str, Argument(metavar="NAME", help="Its name, which the audit log has.")]

_COLUMNS = (
    value_column("name"),
    value_column("role"),
    Column("tenant", lambda row: or_absent(row["tenant"])),
    Column("subject", lambda row: or_absent(row["subject"]), spare=True),
    Column("created", lambda row: format_time(row["created_s"]), lambda row: row["created_s"]),
    Column(
        "expires",
        lambda row: "expired" if row["expired"] else _format_expiry(row["expires_s"]),
        lambda row: row["expires_s"],
    ),
)


def _format_expiry(expires_s: float | None) -> str:
    return _NEVER if expires_s is None else format_time(expires_s)


@app.named("create")
def create(
    context: Context,
    name: TokenName,
    role: Annotated[
        str,
        Option(
            "--role",
            metavar="ROLE",
            help="What it may do: admin as root, operator as group vgpumgr, viewer reads, tenant has its claims.",
        ),
    ],
    tenant: Annotated[
        str | None, Option("--tenant", metavar="TENANT", help="Of the role tenant: whose claims.")
    ] = None,
    expires: Annotated[
        str, Option("--expires", metavar="DURATION", help="When it ends, as 12h or 30d; never.")
    ] = "90d",
    subject: Annotated[
        str | None,
        Option(
            "--subject",
            metavar="NAME",
            help="It stands for client certificates with this subject, as CN=alice,O=Lab.",
        ),
    ] = None,
) -> None:
    """Make a token for the daemon's network listener.

    It is printed once; only its hash is kept. A caller that has it may do what its role may. With
    --subject there is none: a client's certificate proves the caller (key listen.client_ca).

    \b
    Examples:
      vgpumgr token create alice --role tenant --tenant vision
      vgpumgr token create ci --role operator --expires 30d
      vgpumgr token create ops --role admin --subject CN=ops,O=Lab
    """
    from vgpumgr.host.clock import SystemClock

    session = get_session_here(context, "token create")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"no name of a token: {name!r}",
            why="it has at most 64 letters, digits, dots, dashes, underscores and @",
            hint="vgpumgr token create alice --role viewer",
        )
    _check_role(role, tenant)
    now_s = SystemClock().wall_s()
    duration_s = _read_duration(expires)
    record, secret = create_token(
        session.options, name=name, role=role, created_s=now_s, tenant=tenant or "",
        subject=subject or "", expires_s=None if duration_s is None else now_s + duration_s,
    )  # fmt: skip
    document = {"schema": _SCHEMA, "token": _describe(record, now_s), "secret": secret}
    if secret is None:
        print_single(context, document, [f"token {name} stands for {subject}"], lambda: name)
        return
    print_single(context, document, [secret], lambda: name)
    session.streams.note(f"token {name}: it is shown this once; vgpumgr listener has the address")


def _check_role(role: str, tenant: str | None) -> None:
    """Raises UsageError."""
    if role not in ROLE_NAMES:
        raise UsageError(f"no role: {role!r}", hint=f"--role {'|'.join(ROLE_NAMES)}")
    if role == "tenant" and tenant is None:
        raise UsageError("whose claims?", hint="--role tenant --tenant NAME")
    if role != "tenant" and tenant is not None:
        raise UsageError(
            f"a token of role {role} has no tenant", hint="--role tenant --tenant NAME"
        )
    if tenant is not None and not _TENANT.fullmatch(tenant):
        raise UsageError(f"no name of a tenant: {tenant!r}", hint="vgpumgr tenant list")


def _read_duration(text: str) -> int | None:
    """Seconds; None: without an end. Raises UsageError."""
    if text == _NEVER:
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    duration_s = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < duration_s <= _MAX_S:
        raise UsageError(
            f"--expires {text} is no duration of at most 3650 days",
            why="it is a whole number and one of s, m, h, d",
            hint="--expires 30d, or --expires never",
        )
    return duration_s


@app.listing("list")
def list_tokens(context: Context) -> None:
    """List the tokens, without what proves them.

    \b
    Examples:
      vgpumgr token list
      vgpumgr token list -o json
    """
    from vgpumgr.host.clock import SystemClock

    tokens = open_tokens(get_session_here(context, "token list").options).read()
    now_s = SystemClock().wall_s()
    rows = [_describe(one, now_s) for one in tokens]
    print_list(context, {"schema": _SCHEMA, "tokens": rows}, rows, _COLUMNS, "name")


@app.named("revoke")
def revoke(context: Context, name: TokenName) -> None:
    """End a token.

    The daemon refuses it from now on, and ends its event streams.

    \b
    Examples:
      vgpumgr token revoke alice
    """
    from vgpumgr.host.clock import SystemClock

    options = get_session_here(context, "token revoke").options
    row = _describe(open_tokens(options).revoke(name), SystemClock().wall_s())
    document = {"schema": _SCHEMA, "token": row, "revoked": True}
    print_single(context, document, [f"token {name} is revoked"], lambda: name)
    get_session(context).streams.note("what it has begun goes on: vgpumgr op list")


def _describe(token: Any, now_s: float) -> Row:
    return {
        "name": token.name,
        "role": token.role,
        "tenant": token.tenant or None,
        "subject": token.subject or None,
        "created_s": token.created_s,
        "expires_s": token.expires_s,
        "expired": not token.is_valid(now_s),
    }
