"""The arbiter of a GPU or of an instance of MIG: the process that gives its shares their time
(docs/adr/0018-shares-by-turns.md).

One for each GPU, and for each instance, with shares. The start of a channel makes sure that it runs; it ends by itself
some time after its last channel has gone. Nothing of it is kept in this process: whether one runs is what it answers at
its socket.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from pathlib import Path

from vgpumgr.errors import ChannelStartError
from vgpumgr.errors.unexpected import advise_installation
from vgpumgr.host.files import DIRECTORY, make_directory
from vgpumgr.host.machine import LIB_DIR
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.virtio.sandbox import ARBITER_USER

#: a UNIX socket's address ends there (sun_path, see unix(7))
LONGEST_PATH = 107
ARBITER_PROGRAM = LIB_DIR / "bin" / "vgpumgr-arbiter"
#: for its start, and for its answer; it waits for nothing itself
START_S = 10.0
_PAUSE_S = 0.02
#: exit status: another one has this GPU
_RUNS_ALREADY = 3
#: struct vg_share_message of native/transport/share.h: what, compute, fixed, priority, text
_MESSAGE = struct.Struct("=IIII96s")
_PING, _WELCOME = 4, 64


def ensure(device: str, policy: str, directory: Path, *, linger_s: int | None = None) -> Path:
    """The socket of the arbiter of a GPU or a MIG device, by its UUID, which is started if none runs, and stays for at
    least ``linger_s`` seconds from now (None: half a minute). ``policy`` is a ``ComputePolicy``: it weighs best-effort
    shares as burst ones. An arbiter that runs with the other policy takes this one if it has no channel, and else
    refuses the channel, not this. Raises ChannelStartError.
    """
    # short: the paths of sockets are limited
    path = directory / f"{device.removeprefix('GPU-').removeprefix('MIG-').replace('-', '')}.sock"
    if len(str(path)) > LONGEST_PATH:
        raise ChannelStartError(
            f"cannot start the arbiter of {device}",
            why=f"its socket's path has {len(str(path))} characters, {LONGEST_PATH} are possible",
            hint="choose a shorter VGPUMGR_RUN_DIR",
        )
    kind = policy if policy == ComputePolicy.FIXED else ComputePolicy.BURST
    words = [str(ARBITER_PROGRAM), "--socket", str(path), "--policy", kind, "--detach"]
    words += ["--log", str(path.with_suffix(".log"))]
    if linger_s is not None:
        words += ["--linger", str(linger_s)]
    if os.geteuid() == 0:
        words += ["--user", f"{ARBITER_USER}:{ARBITER_USER}"]
    end = time.monotonic() + START_S
    try:
        make_directory(directory, DIRECTORY)
        # one that runs may be about to end: then its socket does not answer, and the next try finds none
        _start(words, device)
        while not is_running(path):
            if time.monotonic() > end:
                raise _refuse(device, f"nothing answers at {path}")
            time.sleep(_PAUSE_S)
            _start(words, device)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refuse(device, str(error)) from error
    return path


def is_running(path: Path) -> bool:
    """Whether an arbiter answers at that socket; then it ends no earlier than if a channel had just gone."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(START_S)
            sock.connect(str(path))
            sock.sendall(_MESSAGE.pack(_PING, 0, 0, 0, b""))
            answer = sock.recv(_MESSAGE.size)
    except OSError:
        return False
    return len(answer) == _MESSAGE.size and _MESSAGE.unpack(answer)[0] == _WELCOME


def _start(words: list[str], device: str) -> None:
    """One runs afterwards: this one, or another."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_S, check=False)
    if done.returncode not in (0, _RUNS_ALREADY):
        raise _refuse(device, done.stderr.strip() or f"exit status {done.returncode}")


def _refuse(device: str, cause: str) -> ChannelStartError:
    return ChannelStartError(
        f"the arbiter of {device} does not start",
        cause=cause,
        why="it gives the shares of a GPU or MIG instance their time: no channel of a share starts without it",
        hint=advise_installation() if not ARBITER_PROGRAM.exists() else "vgpumgr doctor",
    )
