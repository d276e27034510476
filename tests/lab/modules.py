"""Runs in the lab host: Ansible's Python, loaded once and forked for every module.

A module comes as an archive of sources, which Python compiles anew each time; under TCG that is most of a play.
``python -m tests.lab.modules serve SOCKET SITE`` loads what modules need from the packages in SITE, and
``... run SOCKET`` stands in for the interpreter of the play: a module on its standard input runs in a fork of the
server, with its own arguments, environment, directory and streams.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
from pathlib import Path

#: of one request, which carries an environment
_LARGEST = 1 << 18
#: what the role's tasks run
MODULES = ("command", "copy", "file", "stat", "systemd_service", "user")


def load(site: str) -> None:
    """Import what Ansible's modules import, from the packages that the play is run with."""
    sys.path.append(site)
    importlib.import_module("ansible.module_utils._internal._ansiballz._loader")
    for folder in ("common", "_internal"):
        package = importlib.import_module(f"ansible.module_utils.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
    for name in MODULES:
        importlib.import_module(f"ansible.modules.{name}")
        # it is the program of a module's process, and is found as one
        del sys.modules[f"ansible.modules.{name}"]
    sys.path.remove(site)
    gc.collect()
    gc.freeze()


def serve(path: str, site: str) -> None:
    """Fork a process for each request."""
    load(site)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path + ".new")
    listening.listen()
    Path(path + ".new").rename(path)
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(asked)
        asked.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _answer(asked: socket.socket) -> None:
    """Be the parent of one module, and say how it ended."""
    from tests.support.forked import exit_as

    try:
        data, streams, _, _ = socket.recv_fds(asked, _LARGEST, 3)
        request = json.loads(data)
        if (pid := os.fork()) == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, 1024)
            os.environ.clear()
            os.environ.update(request["env"])
            os.chdir(request["directory"])
            exit_as(_be_module, [])
        asked.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    finally:
        os._exit(0)


def _be_module() -> int:
    """What Python does with a program on its standard input."""
    names: dict[str, object] = {"__name__": "__main__"}
    main = sys.modules["__main__"]
    with contextlib.suppress(AttributeError):
        del main.__file__
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), names)
    return 0


def run(path: str) -> int:
    """Have the program on standard input run; its exit status."""
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(path)
    request = {"env": dict(os.environ), "directory": str(Path.cwd())}
    socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2])
    return int(asked.recv(16) or b"70")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    sys.exit(run(sys.argv[2]))
