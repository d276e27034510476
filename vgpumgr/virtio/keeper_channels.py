"""The machine's channels: a directory, a keeper and a control socket for each.

``RUN/channels/ID`` holds the keeper's sockets and logs; below it ``qemu/`` belongs to QEMU's user,
who makes the serial socket there. Keepers outlive this process; whether one runs is asked at its
socket, never remembered.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from vgpumgr.errors import ChannelStartError
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.virtio.channel import ChannelPaths, ChannelSpec, ChannelStatus, Lane

_START_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05
#: a UNIX socket's address ends there (sun_path)
_LONGEST_PATH = 107


class KeeperChannels:
    """See ``channel.Channels``."""

    def __init__(self, machine: Machine, clock: Clock | None = None) -> None:
        self._machine = machine
        self._clock = clock or SystemClock()

    def paths(self, channel_id: str) -> ChannelPaths:
        """Where the channel's sockets are or will be."""
        directory = self._directory(channel_id)
        return ChannelPaths(
            ring=str(directory / "ivshmem.sock"), control=str(directory / "qemu" / "serial.sock")
        )

    def start(self, spec: ChannelSpec) -> None:
        """Starts the keeper and its worker; running is no error."""
        if self.read_status(spec.id) is not None:
            return
        self._prepare(spec)
        try:
            done = subprocess.run(
                self._command(spec),
                env={**self._machine.child_env(), "CUDA_VISIBLE_DEVICES": spec.cuda_device},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_START_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ChannelStartError("cannot start the keeper", cause=str(error)) from error
        if done.returncode != 0:
            raise ChannelStartError("cannot start the keeper", cause=done.stderr.strip())

    def stop(self, channel_id: str) -> None:
        """Ends worker and keeper; absent is no error."""
        if self._ask(channel_id, {"command": "stop"}) is not None:
            deadline_s = self._clock.monotonic_s() + _STOP_TIMEOUT_S
            while self.read_status(channel_id) is not None:
                if self._clock.monotonic_s() >= deadline_s:
                    raise ChannelStartError(
                        f"the keeper of channel {channel_id} does not end",
                        why=f"waited {_STOP_TIMEOUT_S:g} s",
                    )
                self._clock.sleep(_POLL_S)
        shutil.rmtree(self._directory(channel_id), ignore_errors=True)

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        """Size of the ring's memory from the next connection of a QEMU on."""
        answer = self._ask(channel_id, {"command": "set-size", "size": memory_bytes})
        if answer is None or not answer.get("ok"):
            cause = answer.get("error") if answer else "its keeper does not run"
            raise ChannelStartError(f"cannot resize channel {channel_id}", cause=str(cause))

    def read_status(self, channel_id: str) -> ChannelStatus | None:
        """The channel as it is now; None if no keeper runs."""
        answer = self._ask(channel_id, {"command": "status"})
        return None if answer is None else _decode_status(channel_id, answer)

    def _directory(self, channel_id: str) -> Path:
        return self._machine.run_dir / "channels" / channel_id

    def _prepare(self, spec: ChannelSpec) -> None:
        directory = self._directory(spec.id)
        paths = self.paths(spec.id)
        if max(len(paths.ring), len(paths.control)) > _LONGEST_PATH:
            raise ChannelStartError(
                f"cannot start channel {spec.id}",
                why=f"the path of its socket is longer than {_LONGEST_PATH} characters: {paths.control}",
                hint="choose a shorter VGPUMGR_RUN_DIR",
            )
        try:
            directory.mkdir(mode=0o711, parents=True, exist_ok=True)
            (directory / "qemu").mkdir(mode=0o700, exist_ok=True)
            if spec.socket_owner is not None and os.geteuid() == 0:
                os.chown(directory / "qemu", *spec.socket_owner)
        except OSError as error:
            raise ChannelStartError(f"cannot start channel {spec.id}", cause=str(error)) from error

    def _command(self, spec: ChannelSpec) -> list[str]:
        paths = self.paths(spec.id)
        command = [
            str(LIB_DIR / "bin" / "vgpumgr-keeper"),
            *("--dir", str(self._directory(spec.id))),
            *("--worker", str(LIB_DIR / "bin" / "vgpumgr-worker")),
            *("--shm-size", f"{spec.memory_bytes >> 20}M"),
            "--detach",
        ]
        if spec.serial:
            command += ["--serial", paths.control]
        if spec.socket_owner is not None and os.geteuid() == 0:
            command += ["--socket-owner", "{}:{}".format(*spec.socket_owner)]
        return command

    def _ask(self, channel_id: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """One line of JSON each way; None if nobody listens. Raises ChannelStartError when nobody
        answers.
        """
        path = self._directory(channel_id) / "control.sock"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_ANSWER_TIMEOUT_S)
                connection.connect(str(path))
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = connection.makefile("rb").readline()
        except TimeoutError as error:
            raise ChannelStartError(
                f"the keeper of channel {channel_id} does not answer", cause=f"{path}: {error}"
            ) from error
        except OSError:
            return None
        try:
            document = json.loads(answer)
        except ValueError:
            return None  # it ended in the middle of its answer
        return document if isinstance(document, dict) else None


def _decode_status(channel_id: str, answer: dict[str, Any]) -> ChannelStatus:
    worker, guest, totals = answer["worker"], answer["guest"], answer["totals"]
    ready = worker["state"] == "ready"
    problem = answer["error"] or guest["mismatch"] or ("" if ready else _tell_worker(worker))
    return ChannelStatus(
        id=channel_id,
        keeper_pid=answer["keeper_pid"],
        worker_pid=worker["pid"] or None,
        worker_ready=ready,
        worker_failed=worker["state"] == "failed",
        hello_ring=guest["ring"] is not None,
        hello_serial=guest["serial"] is not None,
        memory_bytes=answer["memory_size"],
        worker_restarts=max(0, worker["starts"] - 1),
        problem=problem or None,
        lanes=tuple(_decode_lane(lane) for lane in answer["lanes"]),
        calls=totals["calls"] + totals["posts"],
        bytes_in=totals["bytes_in"],
        bytes_out=totals["bytes_out"],
    )


def _tell_worker(worker: dict[str, Any]) -> str:
    parts = (worker["state"], worker["message"], worker["last_exit"])
    return ": ".join(part for part in parts if part)


def _decode_lane(lane: dict[str, Any]) -> Lane:
    return Lane(
        id=lane["lane"],
        pid=lane["pid"],
        name=lane["name"],
        ring=lane["transport"] == "ring",
        calls=lane["calls"] + lane["posts"],
        bytes_in=lane["bytes_in"],
        bytes_out=lane["bytes_out"],
        memory_bytes=lane["memory_bytes"],
    )
