"""The machine's channels: a directory with a keeper for each attachment.

``RUN/channels/ID`` holds the keeper's sockets and logs; below it ``qemu/`` belongs to QEMU's user,
who makes the serial socket there. Keepers outlive this process; whether one runs is asked at its
socket, never remembered.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from vgpumgr.errors import ChannelStartError, NotPermittedError
from vgpumgr.host.files import DIRECTORY, make_directory
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.virtio.channel import ChannelPaths, ChannelSpec, ChannelStatus, Lane
from vgpumgr.virtio.keeper import Keeper, KeeperError, KeeperOptions, KeeperStatus, LaneStatus

WORKER_PROGRAM = LIB_DIR / "bin" / "vgpumgr-worker"
#: a UNIX socket's address ends there (sun_path, see unix(7))
_LONGEST_PATH = 107
#: the keeper tries a failing worker again and again; nobody waits longer than this many times
_HOPELESS_FAILURES = 3


class KeeperChannels:
    """See ``channel.Channels``."""

    def __init__(self, machine: Machine, worker: Path = WORKER_PROGRAM) -> None:
        self._machine = machine
        self._worker = worker

    def paths(self, channel_id: str) -> ChannelPaths:
        """Where the channel's sockets are or will be."""
        keeper = self._keeper(channel_id)
        return ChannelPaths(
            ring=str(keeper.ivshmem_socket), control=str(keeper.directory / "qemu" / "serial.sock")
        )

    def start(self, spec: ChannelSpec) -> None:
        """Starts the keeper and its worker; running is no error."""
        if self.read_status(spec.id) is not None:
            return
        self._prepare(spec)
        options = KeeperOptions(
            worker=self._worker,
            worker_args=(
                f"--channel-number={spec.number}",
                f"--channel-device={spec.cuda_device}",
            ),
            shm_size_bytes=spec.memory_bytes,
            serial=Path(self.paths(spec.id).control) if spec.serial else None,
            socket_owner=spec.socket_owner if os.geteuid() == 0 else None,
            env={**self._machine.variables, "CUDA_VISIBLE_DEVICES": spec.cuda_device},
        )
        self._keeper(spec.id).start(options)

    def stop(self, channel_id: str) -> None:
        """Ends worker and keeper and removes what they leave; absent is no error."""
        keeper = self._keeper(channel_id)
        keeper.stop()
        shutil.rmtree(keeper.directory, ignore_errors=True)

    def restart_worker(self, channel_id: str) -> None:
        """Another worker, at once."""
        self._keeper(channel_id).restart_worker()

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        """Size of the ring's memory from the next connection of a QEMU on."""
        self._keeper(channel_id).set_size(memory_bytes)

    def read_status(self, channel_id: str) -> ChannelStatus | None:
        """The channel as it is now; None if no keeper runs.

        Raises:
            KeeperError: a keeper is there but does not answer.
            NotPermittedError: it is another user's.
        """
        if self._measure(channel_id) > _LONGEST_PATH:
            return None  # nobody can listen there
        try:
            status = self._keeper(channel_id).status()
        except KeeperError as error:
            if _is_absent(error):
                return None
            if isinstance(error.__cause__, PermissionError):
                raise NotPermittedError(
                    f"cannot look at channel {channel_id} as this user",
                    cause=error.cause,
                    why="its keeper answers only to the user who attached it",
                    hint="the same command with sudo",
                ) from error
            raise
        return _describe(channel_id, status)

    def list_ids(self) -> tuple[str, ...]:
        """Ids of all channels that left a directory here."""
        directory = self._machine.run_dir / "channels"
        if not directory.is_dir():
            return ()
        return tuple(sorted(path.name for path in directory.iterdir() if path.is_dir()))

    def _keeper(self, channel_id: str) -> Keeper:
        return Keeper(self._machine.run_dir / "channels" / channel_id)

    def _measure(self, channel_id: str) -> int:
        """Characters of its longest socket's path."""
        paths = self.paths(channel_id)
        return max(len(paths.ring), len(paths.control))

    def _prepare(self, spec: ChannelSpec) -> None:
        directory = self._keeper(spec.id).directory
        longest = self._measure(spec.id)
        if longest > _LONGEST_PATH:
            raise ChannelStartError(
                f"cannot start channel {spec.id}",
                why=f"its socket's path has {longest} characters, {_LONGEST_PATH} are possible",
                hint="choose a shorter VGPUMGR_RUN_DIR",
            )
        try:
            # whatever our umask: QEMU's user must get through to its sockets
            for passage in (self._machine.run_dir, directory.parent, directory):
                make_directory(passage, 0o711 if passage == directory else DIRECTORY)
                passage.chmod(stat.S_IMODE(passage.stat().st_mode) | 0o111)
            with contextlib.suppress(FileExistsError):
                (directory / "qemu").mkdir(mode=0o700)
            if spec.socket_owner is not None and os.geteuid() == 0:
                os.chown(directory / "qemu", *spec.socket_owner, follow_symlinks=False)
        except OSError as error:
            raise ChannelStartError(f"cannot start channel {spec.id}", cause=str(error)) from error


def _is_absent(error: KeeperError) -> bool:
    """Nobody listens (any more), which is not the same as nobody answering in time."""
    cause = error.__cause__
    return cause is None or isinstance(cause, FileNotFoundError | ConnectionError)


def _describe(channel_id: str, status: KeeperStatus) -> ChannelStatus:
    worker, guest = status.worker, status.guest
    ready = worker.state == "ready"
    hopeless = worker.state == "waiting" and worker.failures >= _HOPELESS_FAILURES
    last_exit = "" if worker.last_exit in worker.message else worker.last_exit
    parts = (worker.state, worker.message, last_exit)
    wrong = "" if ready else ": ".join(part for part in parts if part)
    return ChannelStatus(
        id=channel_id,
        keeper_pid=status.keeper_pid,
        worker_pid=worker.pid or None,
        worker_ready=ready,
        worker_failed=worker.state == "failed" or hopeless,
        hello_ring="ring" in status.transports,
        hello_serial="serial" in status.transports,
        memory_bytes=status.memory_size,
        worker_restarts=max(0, worker.starts - 1),
        problem=status.error or guest.mismatch or wrong or None,
        lanes=tuple(map(_describe_lane, status.lanes)),
        calls=status.totals.calls + status.totals.posts,
        bytes_in=status.totals.bytes_in,
        bytes_out=status.totals.bytes_out,
        protocol_errors=status.violations.count,
    )


def _describe_lane(lane: LaneStatus) -> Lane:
    return Lane(
        id=lane.lane,
        pid=lane.pid,
        name=lane.name,
        ring=lane.transport == "ring",
        calls=lane.calls + lane.posts,
        bytes_in=lane.bytes_in,
        bytes_out=lane.bytes_out,
        memory_bytes=lane.memory_bytes,
    )
