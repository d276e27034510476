"""``vgpumgr host``: what ssh runs on the other host."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

from typer import Context

from vgpumgr.cli.backend import find_socket
from vgpumgr.cli.http import connect_unix
from vgpumgr.cli.main import App
from vgpumgr.cli.session import get_session

app = App()


@app.command("dial-stdio")
def dial_stdio(context: Context) -> None:
    """Join standard input and output to the daemon's socket.

    \b
    Examples:
      ssh gpu1 vgpumgr host dial-stdio
    """
    stream = connect_unix(find_socket(get_session(context).options))
    assert isinstance(stream, socket.socket)
    threading.Thread(target=_send, args=(stream,), daemon=True).start()
    while data := stream.recv(1 << 16):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _send(stream: socket.socket) -> None:
    """Standard input to the socket; its end is passed on."""
    with contextlib.suppress(OSError):
        while data := os.read(0, 1 << 16):
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
