"""The arbiter of a GPU: the process that gives its shares their time (docs/adr/0018-shares-by-turns.md).

One for each GPU with shares. The start of a channel makes sure that it runs; it ends by itself when its last channel
has gone. Nothing of it is kept in this process: whether one runs is what its socket says.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

from vgpumgr.errors import ChannelStartError
from vgpumgr.host.files import DIRECTORY, make_directory
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import LIB_DIR
from vgpumgr.model.choices import ComputePolicy

ARBITER_PROGRAM = LIB_DIR / "bin" / "vgpumgr-arbiter"
START_S = 10.0
_POLL_S = 0.01


def ensure(gpu_uuid: str, policy: str, directory: Path) -> Path:
    """The socket of the GPU's arbiter, which is started if none runs. ``policy`` is a ``ComputePolicy``, the same for
    all shares of a GPU. Raises ChannelStartError.
    """
    path = directory / f"{gpu_uuid}.sock"
    try:
        make_directory(directory, DIRECTORY)
        with lock_file(directory / f"{gpu_uuid}.lock", timeout_s=START_S):
            if not is_running(path):
                _start(path, ComputePolicy(policy))
    except (OSError, TimeoutError) as error:
        raise _refuse(gpu_uuid, str(error)) from error
    return path


def is_running(path: Path) -> bool:
    """Whether an arbiter listens at that socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(START_S)
        sock.connect(str(path))
        return True
    return False


def _start(path: Path, policy: ComputePolicy) -> None:
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            [ARBITER_PROGRAM, "--socket", path, "--policy", policy],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    end = time.monotonic() + START_S
    while not is_running(path):
        if process.poll() is not None or time.monotonic() > end:
            why = (
                f"it ended with status {process.returncode}"
                if process.poll() is not None
                else "it does not listen"
            )
            raise _refuse(path.stem, f"{why}; {log} has its words")
        time.sleep(_POLL_S)


def _refuse(gpu_uuid: str, cause: str) -> ChannelStartError:
    return ChannelStartError(
        f"the arbiter of GPU {gpu_uuid} does not start",
        cause=cause,
        why="it gives the shares of the GPU their time: no channel of a share starts without it",
        hint="vgpumgr doctor",
    )
