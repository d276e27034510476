"""``vgpumgr web``: the daemon's web page, for a browser on this machine."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
from typing import Annotated

from typer import Context, Option

from vgpumgr.cli.backend import open_daemon
from vgpumgr.cli.http import HttpBackend
from vgpumgr.cli.main import App
from vgpumgr.cli.session import GlobalOptions, Session, Streams, get_session, number
from vgpumgr.errors import Exit, RouteNotFoundError, UsageError
from vgpumgr.model.page import PAGE
from vgpumgr.model.routes import API

app = App()
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_S = 30 * 86400


@app.command("web")
def open_page(
    context: Context,
    port: Annotated[
        int,
        Option("--port", metavar="N", parser=number(int, 0, 65535), help="0: any that is free."),
    ] = 0,
    read_only: Annotated[bool, Option("--read-only", help="The page changes nothing.")] = False,
    expires: Annotated[
        str,
        Option(
            "--expires", metavar="DURATION", help="When the page's session ends, as 30m or 12h."
        ),
    ] = "12h",
) -> int:
    """Open the web page of a host's GPUs, slices and VMs.

    Prints an address for a browser on this machine, and serves it until Ctrl-C. The address works
    once. The page may do what the user of this command may do. docs/web.md

    \b
    Examples:
      vgpumgr web
      vgpumgr web --read-only --port 8080
      vgpumgr --host gpu1 web
    """
    session = get_session(context)
    if session.options.hosts:
        raise UsageError("web shows one host", hint="--host NAME")
    expires_s = read_duration(expires)
    backend = open_daemon(session.options)
    _check_page(backend)
    asyncio.run(_serve(session, backend, port, expires_s, read_only=read_only))
    return int(Exit.OK)


def read_duration(text: str) -> float:
    """Seconds. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,7})([smhd])", text)
    duration_s = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < duration_s <= _MAX_S:
        raise UsageError(
            f"--expires {text} is no duration of at most 30 days",
            why="it is a whole number and one of s, m, h, d",
            hint="--expires 12h",
        )
    return duration_s


def _check_page(backend: HttpBackend) -> None:
    """Raises AccessDeniedError, RouteNotFoundError where the page would show nothing else."""
    backend.request("GET", API).document()
    answer = backend.request("GET", f"{PAGE}/")
    if answer.status >= 400:
        try:
            answer.document()
        except RouteNotFoundError as error:
            raise backend.explain_version(error) from None


async def _serve(
    session: Session, backend: HttpBackend, port: int, expires_s: float, *, read_only: bool
) -> None:
    """Serves until SIGINT or SIGTERM. Raises UsageError where the port cannot be had."""
    from vgpumgr.cli.gateway.gate import Gate
    from vgpumgr.cli.gateway.server import Gateway, open_listener
    from vgpumgr.host.clock import SleeplessClock

    end = asyncio.Event()
    for number_of in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number_of, end.set)
    try:
        listener = open_listener(port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on 127.0.0.1:{port}", cause=error.strerror, hint="vgpumgr web --port 0"
        ) from error
    program = _name_program(session.options)
    with listener:
        gate = Gate(
            SleeplessClock(),
            listener.getsockname()[1],
            expires_s,
            read_only=read_only,
            command=f"{program} web",
        )
        _announce(session.streams, gate.address)
        await Gateway(gate, backend, program).serve(listener, end)


def _name_program(options: GlobalOptions) -> str:
    """``vgpumgr`` with the machine or host of the page: its commands are pasted into other shells, whose environment
    names none or another one.
    """
    named = [(name, getattr(options, name)) for name in ("machine", "host")]
    return shlex.join(
        ["vgpumgr", *(word for name, value in named if value for word in (f"--{name}", value))]
    )


def _announce(streams: Streams, address: str) -> None:
    streams.print(address)
    streams.out.flush()
    streams.note("open it in a browser on this machine; it works once, and Ctrl-C ends it")
