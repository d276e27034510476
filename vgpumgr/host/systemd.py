"""What systemd and a service tell each other: sockets passed in, notifications sent back.

Protocols: sd_listen_fds(3), sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

_FIRST_FD = 3


def take_listening_socket(
    environ: MutableMapping[str, str] | None = None,
) -> socket.socket | None:
    """The socket that systemd listens on for us; None if it did not start us through one.

    The variables are taken away: they are not meant for our children.
    """
    env = os.environ if environ is None else environ
    wanted = {name: env.pop(name, None) for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if wanted.get("LISTEN_PID") != str(os.getpid()) or wanted.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(_FIRST_FD, False)
    return socket.socket(fileno=_FIRST_FD)


def notify(message: str, environ: Mapping[str, str] | None = None) -> bool:
    """Sends e.g. ``READY=1``; whether anybody is there to hear it."""
    env = os.environ if environ is None else environ
    path = env.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    if path.startswith("@"):
        path = "\0" + path[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message.encode(), path)
    except OSError:
        return False
    return True


def read_watchdog_s(environ: Mapping[str, str] | None = None) -> float | None:
    """How often to notify ``WATCHDOG=1``: half of what systemd waits for; None without a watchdog."""
    env = os.environ if environ is None else environ
    usec = env.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return max(int(usec) / 2e6, 0.05)
