"""Runs in the lab host: vgpumgr's command line, loaded once and forked for every command.

Python takes seconds to load vgpumgr under TCG; a forked child runs the same ``main`` on the same machine at once. On
each port ``lab.vgpumgr.N`` a line "ID {"argv": [...], "env": {...}}" is answered by a JSON object with status, stdout
and stderr, and a line "\\036ID STATUS"; the ports are independent of each other. With "module" another program runs.
vgpumgr's own helpers are forked too: each takes as long to load. The lab host with systemd runs the installed package,
which starts them itself.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.support.forked import be_vgpumgr, exit_as, load

MARK = b"\x1e"


def serve(name: str) -> None:
    """Answer on one port for ever; every command runs in a process of its own."""
    port, rest = os.open(name, os.O_RDWR), b""
    # blocks until somebody listens
    os.write(port, MARK + b"ready 0\n")
    while True:
        data = os.read(port, 65536)
        if not data:
            time.sleep(0.1)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            answer(port, line)


def answer(port: int, line: bytes) -> None:
    """Run one command in a child; what it prints goes to files."""
    name, _, text = line.partition(b" ")
    command = json.loads(text)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            run(command, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reply = {"status": status, "stdout": read(out.fileno()), "stderr": read(err.fileno())}
    send(port, json.dumps(reply).encode() + MARK + name + b" %d\n" % (status % 256))


def read(file: int) -> str:
    """All of an open file."""
    return Path(f"/proc/self/fd/{file}").read_text(errors="replace")


def run(command: dict[str, object], out: int, err: int) -> None:
    """Be vgpumgr."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, 1024)
    environment = command.get("env")
    os.environ.update(environment if isinstance(environment, dict) else {})
    words = command["argv"]
    assert isinstance(words, list)
    exit_as(partial(be, command), words)


def be(command: dict[str, object]) -> object:
    """The module that is asked for, or the command line."""
    if module := command.get("module"):
        runpy.run_module(str(module), run_name="__main__", alter_sys=True)
        return 0
    return be_vgpumgr()


def send(port: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(port, data) :]


def main(names: list[str]) -> None:
    """Load, then serve the ports, each in a process of its own."""
    load()
    for name in names[1:]:
        if os.fork() == 0:
            serve(name)
    serve(names[0])


if __name__ == "__main__":
    main(sys.argv[1:])
