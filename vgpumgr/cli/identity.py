"""``vgpumgr pool identity``: by what other hosts know this one, where GPUs are used over the network."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from vgpumgr.cli.backend import read_pool_identity
from vgpumgr.cli.output import print_single
from vgpumgr.cli.session import get_session_here
from vgpumgr.model.text import format_time

_SCHEMA = "vgpumgr/v1"


def identity(
    context: Context,
    rotate: Annotated[
        bool, Option("--rotate", help="Make a new one; the one of before counts no more.")
    ] = False,
) -> None:
    """Show by what other hosts know this one.

    Where GPUs are used over the network, each host is a certificate authority of its own. The pool's
    store has its certificate, and by that other hosts trust it, for this host's name only. With a new
    one, attachments get new certificates within seconds; programs that run are not cut.

    \b
    Examples:
      vgpumgr pool identity
      vgpumgr pool identity --rotate
    """
    session = get_session_here(context, "pool identity")
    found = read_pool_identity(session.options, rotate=rotate)
    listens = ", ".join(found["listens"]) or "at no address: [link] listen in vgpumgr.toml"
    lines = [
        f"host {found['host']}",
        f"  fingerprint  {found['fingerprint']} (SHA-256)",
        f"  until        {format_time(found['ca_ends_s'])}",
        f"  certificate  until {format_time(found['listener_ends_s'])}; it is renewed by itself",
        f"  listens      {listens}",
    ]
    print_single(context, {"schema": _SCHEMA, "identity": found}, lines)
