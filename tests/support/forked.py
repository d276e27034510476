"""vgpumgr's command line, loaded once and forked for every command: most of a command's time is its start.

A forked child runs the same ``main`` with the arguments, environment, directory and streams that it is given, as a
process of its own; its helpers are forked too. Where the start itself matters (limits, signals, an installed program),
a test starts Python.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
#: slow to load, for few commands; all others are loaded at once
LEFT_OUT = (
    "vgpumgr.cli.remote", "vgpumgr.cli.top", "vgpumgr.server", "vgpumgr.sim", "vgpumgr.tui",
    "vgpumgr.virtio.codegen", "vgpumgr.virtio.spec", "vgpumgr.__main__",
)  # fmt: skip
#: what helpers load by these names
VENDORS = ("libnvidia-ml.so.1", "libamdsmi.so")
#: of one request, which carries an environment
_LARGEST = 1 << 18


def load(left_out: Sequence[str] = LEFT_OUT) -> None:
    """Import what a command may need, and let its helpers be forked as well."""
    import vgpumgr
    from vgpumgr.host import helper

    for name in ("typer.main", "libvirt", "yaml"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(vgpumgr.__path__, "vgpumgr.", onerror=print):
        if not module.name.startswith(tuple(left_out)):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    helper._spawn = fork_helper  # type: ignore[assignment]
    gc.collect()
    gc.freeze()


class Forked:
    """A forked helper: what ``vgpumgr.host.helper`` asks of a ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """The same, waited for. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("helper", timeout)
            time.sleep(0.01)
        return status


def fork_helper(argv: Sequence[str], env: Mapping[str, str]) -> tuple[socket.socket, Forked]:
    """``vgpumgr.host.helper._spawn`` without loading Python."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        be_helper(argv, env, theirs.fileno())
    theirs.close()
    return ours, Forked(child)


def be_helper(argv: Sequence[str], env: Mapping[str, str], descriptor: int) -> NoReturn:
    """Be ``python -m MODULE ARGUMENT... DESCRIPTOR``."""
    status = 1
    try:
        # what its parent has opened is never closed by the death of an object here
        gc.freeze()
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, 1024)
        os.environ.clear()
        os.environ.update(env)
        # a simulated machine's: the dynamic linker looks at its variable when a program starts only
        for folder in env.get("LD_LIBRARY_PATH", "").split(":"):
            for name in VENDORS:
                if (library := Path(folder) / name).is_file():
                    ctypes.CDLL(str(library))
        sys.argv = [*argv[2:], str(descriptor)]
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
        status = 0
    finally:
        os._exit(status)


def exit_as(program: Callable[[], object], words: Sequence[str]) -> NoReturn:
    """Be a program with these arguments: its exit status is this process's."""
    sys.argv = ["vgpumgr", *words]
    status: object = 70
    try:
        status = program()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status if isinstance(status, int) else bool(status))


def be_vgpumgr() -> int:
    """The command line."""
    from vgpumgr.__main__ import main

    return main()


def serve(asked: int) -> None:
    """Fork a command for each request, until nobody can ask any more."""
    load(tuple(name for name in LEFT_OUT if name not in ("vgpumgr.sim", "vgpumgr.__main__")))
    requests = socket.socket(fileno=asked)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 4)
        if not data:
            return
        if os.fork() == 0:
            _watch(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Start the command, say its number, wait for it, and say how it ended."""
    answer, *streams = descriptors
    try:
        pid = os.fork()
        if pid == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, 1024)
            os.environ.clear()
            os.environ.update(request["env"])
            os.umask(request["umask"])
            os.chdir(request["directory"])
            exit_as(be_vgpumgr, request["words"])
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        os.write(answer, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
    finally:
        os._exit(0)


@cache
def _start_server() -> socket.socket:
    """Where requests go; the server ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # variables of one test are not another's
    plain = {
        k: v for k, v in os.environ.items() if not k.startswith(("VGPUMGR_", "LD_", "PYTEST_"))
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
        pass_fds=[theirs.fileno()], cwd=ROOT, env=plain | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    theirs.close()
    atexit.register(server.wait, 60)
    atexit.register(ours.close)
    return ours


def run_vgpumgr(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    given: str = "",
    merged: bool = False,
    umask: int | None = None,
    timeout_s: float = 300,
) -> subprocess.CompletedProcess[str]:
    """``vgpumgr WORD...``, and what it printed; with ``merged`` both streams in ``stdout``, in their order. Raises
    subprocess.TimeoutExpired after the command has been killed.
    """
    ours, theirs = socket.socketpair()
    files = [os.memfd_create(name) for name in ("in", "out", "err")]
    try:
        os.write(files[0], given.encode())
        os.lseek(files[0], 0, os.SEEK_SET)
        request = {
            "words": words,
            "env": dict(os.environ if env is None else env),
            "directory": str(cwd or Path.cwd()),
            "umask": _read_umask() if umask is None else umask,
        }
        out, err = files[1], files[1 if merged else 2]
        socket.send_fds(
            _start_server(), [json.dumps(request).encode()], [theirs.fileno(), files[0], out, err]
        )
        theirs.close()
        status = _wait(ours, words, timeout_s)
        stdout, stderr = (_read(file) for file in files[1:])
        return subprocess.CompletedProcess(["vgpumgr", *words], status, stdout, stderr)
    finally:
        for file in files:
            os.close(file)
        ours.close()
        theirs.close()


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read(file: int) -> str:
    with open(file, newline=None, closefd=False) as stream:
        stream.seek(0)
        return stream.read()


def _wait(answer: socket.socket, words: Sequence[str], timeout_s: float) -> int:
    deadline, said = time.monotonic() + timeout_s, b""
    while said.count(b"\n") < 2:
        ready, _, _ = select.select([answer], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            if said:
                os.kill(int(said.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(["vgpumgr", *words], timeout_s)
        more = answer.recv(64)
        assert more, f"no answer: {words}"
        said += more
    return int(said.split()[1])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
