"""``vgpumgr daemon``."""

from __future__ import annotations

from vgpumgr.cli.backend import run_daemon
from vgpumgr.cli.declarations import Context
from vgpumgr.cli.session import check_here, get_session


def command(context: Context) -> None:
    """Serve this machine's API on its unix socket, until SIGTERM.

    The daemon is the only one that changes the machine. It takes systemd's socket where it is
    started through one.

    \b
    Examples:
      vgpumgr daemon
      vgpumgr --machine dgx-a100 daemon
    """
    session = get_session(context)
    check_here(session, "vgpumgr daemon")
    run_daemon(session.options)
