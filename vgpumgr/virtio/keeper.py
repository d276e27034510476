"""Keepers and the channels they own: starting, asking and stopping them.

The keeper (``vgpumgr-keeper``, C) lives as long as the attachment and outlives the daemon, so nothing of it is kept in
this process: a :class:`Keeper` is only a directory, and every answer comes from the keeper's control socket.
``RUN/channels/ID`` holds its sockets and logs; below it ``qemu/`` belongs to QEMU's user, who makes the serial socket
there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vgpumgr import __version__
from vgpumgr.errors import (
    ChannelStartError,
    Exit,
    LibraryNotFoundError,
    NotPermittedError,
    VgpumgrError,
)
from vgpumgr.errors.unexpected import advise_installation
from vgpumgr.host.cgroups import remove_cgroups
from vgpumgr.host.confinement import Fact, audit_keeper, audit_tree
from vgpumgr.host.files import DIRECTORY, make_directory, read_text
from vgpumgr.host.gpu_nodes import list_gpu_nodes
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.host.process import describe_stuck, kill_tree
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import HOLDER_NAME
from vgpumgr.virtio.arbiter import LONGEST_PATH, ensure
from vgpumgr.virtio.channel import (
    ChannelPaths,
    ChannelSpec,
    ChannelStatus,
    HostLibrary,
)
from vgpumgr.virtio.channel_status import describe, describe_hanging, refuse_memory
from vgpumgr.virtio.keeper_options import KEEPER_PROGRAM as KEEPER_PROGRAM
from vgpumgr.virtio.keeper_options import KeeperOptions as KeeperOptions
from vgpumgr.virtio.links import (
    DIAL_PROGRAM,
    GRACE_S,
    LINK_DIRECTORY,
    RELAY_PROGRAM,
    start_dialer,
    stop_agent,
    write_link,
)
from vgpumgr.virtio.mathematics import list_used, list_worker_options
from vgpumgr.virtio.overuse import Overuse, enforce, read_report, report_failure
from vgpumgr.virtio.sandbox import (
    audit_cgroups,
    choose_user_id,
    find_obstacle,
    is_unconfined,
    list_written,
    make_cgroups,
    read_cgroups,
    read_watchdog,
)
from vgpumgr.virtio.sessions import KeeperStatus
from vgpumgr.virtio.share_time import (
    LATE_S,
    Figures,
    ShareClock,
    Window,
    compare,
    note_failure,
    read_time,
)


class KeeperError(VgpumgrError):
    """The channel's keeper could not be started, or does not answer."""

    id: ClassVar[str] = "VG071"
    exit_code: ClassVar[Exit] = Exit.ERROR
    http_status: ClassVar[int] = 503


@dataclass(frozen=True, slots=True)
class Keeper:
    """The keeper that lives (or not) in ``directory``, one directory for each attachment."""

    directory: Path

    @property
    def ivshmem_socket(self) -> Path:
        """Where QEMU's ``ivshmem-doorbell`` device connects."""
        return self.directory / "ivshmem.sock"

    @property
    def control_socket(self) -> Path:
        """Where requests go; its owner's only."""
        return self.directory / "control.sock"

    @property
    def worker_log(self) -> Path:
        """What workers wrote to their standard output and error."""
        return self.directory / "worker.log"

    def start(self, options: KeeperOptions, *, timeout_s: float = 30) -> None:
        """Starts the keeper, which detaches itself; on return its sockets exist.

        A worker is being started then: see wait_ready(). Raises KeeperError with the keeper's own
        message, for instance if one runs here already.
        """
        words = options.arguments(self.directory)
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KeeperError(
                f"cannot start the channel's keeper in {self.directory}", cause=str(error)
            ) from error
        if done.returncode:
            raise KeeperError(
                f"cannot start the channel's keeper in {self.directory}",
                cause=done.stderr.strip() or f"exit status {done.returncode}",
            )

    def is_running(self) -> bool:
        """Whether a keeper is here, also one that hangs."""
        try:
            self.status()
        except KeeperError as error:
            return _hangs(error)
        return True

    def status(self, *, timeout_s: float = 10) -> KeeperStatus:
        """What the keeper knows now."""
        request = {"command": "status"}
        return decode(KeeperStatus, self._request(request, timeout_s=timeout_s))

    def find_process(self) -> int | None:
        """The keeper's process, whether it answers or not; None: it has ended."""
        text = (read_text(self.directory / "keeper.pid") or "").strip()
        with contextlib.suppress(OSError):
            # another process may have that number meanwhile
            if text and Path(f"/proc/{text}/exe").readlink().name == KEEPER_PROGRAM.name:
                return int(text)
        return None

    def kill(self) -> None:
        """Ends a keeper that hangs, and what it has started. Raises KeeperError where a process is stuck."""
        pid = self.find_process()
        if pid is None:
            return
        try:
            # its worker notices, says so to the guest, and ends; what does not is killed then
            left = kill_tree(pid)
        except PermissionError as error:
            raise KeeperError(
                f"the keeper in {self.directory} hangs, and is not this user's", cause=str(error)
            ) from error
        if left:
            raise KeeperError(
                f"the keeper in {self.directory} hangs and does not end",
                cause=f"stuck in the kernel: {', '.join(map(describe_stuck, left))}",
                hint="it ends with a reboot at the latest",
            )

    def wait_ready(self, *, timeout_s: float = 60) -> KeeperStatus:
        """Waits until the worker has initialised (its CUDA came up) and said so.

        Raises KeeperError with the worker's own message if it fails, or at the end of the time.
        """
        end = time.monotonic() + timeout_s
        while True:
            status = self.status()
            if status.worker.state == "ready":
                return status
            gave_up = status.worker.state == "failed" or (
                status.worker.state == "waiting"
                and status.worker.message
                and status.worker.failures >= 3
            )
            if gave_up or time.monotonic() > end:
                raise KeeperError(
                    "the worker that runs the VM's CUDA calls does not start",
                    cause=status.worker.message
                    or f"still {status.worker.state} after {timeout_s:g} s",
                    hint=f"see {self.worker_log}",
                )
            time.sleep(0.02)

    def set_size(self, size_bytes: int) -> KeeperStatus:
        """Changes the memory's size: now if no QEMU is connected, else for its next connection."""
        return decode(KeeperStatus, self._request({"command": "set-size", "size": size_bytes}))

    def restart_worker(self) -> None:
        """Ends the worker and all sessions; another one starts at once."""
        self._request({"command": "restart"})

    def limit_memory(self, size_bytes: int, *, timeout_s: float = 10) -> None:
        """Another limit of device memory, at once. Raises ShareInUseError where more is held, and nothing has changed
        then; KeeperError where the keeper knows no such request, or its worker does not answer.
        """
        request = {"command": "limit", "device-memory": size_bytes}
        number = decode(KeeperStatus, self._request(request)).change.number
        end = time.monotonic() + timeout_s
        while (status := self.status()).change.answered < number:
            if time.monotonic() > end:
                raise KeeperError(
                    f"the worker of the keeper in {self.directory} does not answer",
                    why=f"it is to have another limit of device memory since {timeout_s:g} s",
                    hint="vgpumgr virtio restart ends it and starts another",
                )
            time.sleep(0.02)
        if status.change.error:
            raise refuse_memory(size_bytes, status.memory_used)

    def set_compute(self, compute: float, priority: str = "normal") -> None:
        """Another percentage of the GPU's time for a share, and its priority, from its next turn on."""
        self._request({"command": "share", "compute": compute, "priority": priority})

    def stop(self, *, timeout_s: float = 15) -> None:
        """Ends worker and keeper and waits until its sockets are gone; no keeper is no error, and one that hangs is
        killed.
        """
        try:
            self._request({"command": "stop"})
        except KeeperError as error:
            if _hangs(error):
                self.kill()
            if _hangs(error) or not self.control_socket.exists():
                return
        end = time.monotonic() + timeout_s
        while self.control_socket.exists() and self.is_running():
            if time.monotonic() > end:
                raise KeeperError(f"the keeper in {self.directory} does not stop")
            time.sleep(0.02)

    def _request(
        self, request: Mapping[str, object], *, timeout_s: float = 10
    ) -> dict[str, object]:
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(timeout_s)
                sock.connect(str(self.control_socket))
                sock.sendall(json.dumps(request).encode() + b"\n")
                with sock.makefile("rb") as answers:
                    line = answers.readline()
        except OSError as error:
            raise KeeperError(f"no keeper answers in {self.directory}", cause=str(error)) from error
        answer = (
            json.loads(line) if line else {"ok": False, "error": "the keeper closed the connection"}
        )
        if not isinstance(answer, dict) or not answer.get("ok"):
            raise KeeperError(
                f"the keeper in {self.directory} refused {request['command']}",
                cause=str(answer.get("error")),
            )
        return answer


#: a keeper waits for nothing: one that needs longer hangs, as far as it is shown; before it is killed it has more time
ANSWER_S = 4.0
WORKER_PROGRAM = LIB_DIR / "bin" / "vgpumgr-worker"
#: starts a worker, and has a CUDA context on its slice for as long as it runs
HOLD_PROGRAM = LIB_DIR / "bin" / HOLDER_NAME
#: the guest's, which serves a command of this host as well
AGENT_PROGRAM = LIB_DIR / "guest" / "vgpumgr-guestd"


def find_other_version(lib: Path = LIB_DIR) -> str | None:
    """What is wrong where the programs of channels are not of this version; None where they do not say."""
    own = read_text(lib / "version") or __version__  # a package's is longer than that of its source
    theirs = read_text(lib / "channels.version")
    if theirs in (None, own):
        return None
    return f"the programs of channels are of version {theirs}, and this command of version {own}"


def check_programs(programs: Sequence[Path], lib: Path = LIB_DIR) -> None:
    """Raises LibraryNotFoundError where the package vgpumgr-host lacks one of them, or is of another version."""
    if missing := [str(path) for path in programs if not os.access(path, os.X_OK)]:
        raise LibraryNotFoundError(
            "the programs of channels are not installed",
            cause=f"there is no {', '.join(missing)}",
            why="the package vgpumgr-host has them",
            hint=advise_installation(),
        )
    if other := find_other_version(lib):
        raise LibraryNotFoundError(other, hint=advise_installation())


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
        """Starts the keeper and its worker; running is no error. Raises LibraryNotFoundError."""
        if self.read_status(spec.id) is not None:
            return
        if spec.link is not None:
            self._start_link(spec)
            return
        self.check_installed()
        self._prepare(spec)
        keeper = self._keeper(spec.id)
        cgroups = make_cgroups(keeper.directory, spec.limits)
        arbiter = self._find_arbiter(spec)
        options = KeeperOptions(
            worker=HOLD_PROGRAM,
            worker_args=(
                str(self._worker),
                f"--channel-number={spec.number}",
                f"--channel-device={spec.cuda_device}",
                f"--watchdog={read_watchdog({**os.environ, **self._machine.variables})}",
                f"--limits={spec.limits.for_worker}",
                *list_worker_options({**os.environ, **self._machine.variables}),
            ),
            shm_size_bytes=spec.memory_bytes,
            serial=Path(self.paths(spec.id).control) if spec.serial else None,
            socket_owner=spec.socket_owner if os.geteuid() == 0 else None,
            env={**self._machine.variables, "CUDA_VISIBLE_DEVICES": spec.cuda_device},
            devices=self._list_nodes(spec),
            cgroups=sorted({one.path for one in cgroups if one.path is not None}),
            confined=spec.confined,
            compute=spec.compute,
            compute_policy=spec.compute_policy,
            priority=spec.priority,
            arbiter=arbiter,
        )
        try:
            keeper.start(options)
        except KeeperError:
            remove_cgroups(cgroups)
            raise

    def _start_link(self, spec: ChannelSpec) -> None:
        """The same with a relay in the place of the worker, and the dialer beside it."""
        assert spec.link is not None
        check_programs((KEEPER_PROGRAM, RELAY_PROGRAM, DIAL_PROGRAM))
        self._prepare(spec)
        keeper = self._keeper(spec.id)
        user = choose_user_id(keeper.directory)
        try:
            write_link(self._machine, keeper.directory, spec.link, spec.id, user)
        except OSError as error:
            raise ChannelStartError(
                f"the link of {spec.vm_name} cannot be made", cause=str(error)
            ) from error
        options = KeeperOptions(
            worker=RELAY_PROGRAM,
            worker_args=(
                f"--link={keeper.directory / LINK_DIRECTORY}",
                f"--grace={GRACE_S}",
                f"--channel-number={spec.number}",
            ),
            shm_size_bytes=spec.memory_bytes,
            serial=Path(self.paths(spec.id).control) if spec.serial else None,
            socket_owner=spec.socket_owner if os.geteuid() == 0 else None,
            env=self._machine.variables,
            confined=spec.confined,
        )
        start_dialer(keeper.directory, user)
        keeper.start(options)

    def _find_arbiter(self, spec: ChannelSpec) -> Path | None:
        """The socket of the arbiter of what a share is of, which runs from now on."""
        if spec.compute is None or spec.compute_policy is None:
            return None
        return ensure(spec.cuda_device, spec.compute_policy, self._machine.run_dir / "arbiter")

    def _list_nodes(self, spec: ChannelSpec) -> tuple[str, ...]:
        if spec.gpu is None:
            return ()
        return list_gpu_nodes(
            self._machine, spec.gpu, spec.gpu_instance_id, spec.compute_instance_id
        )

    def stop(self, channel_id: str, *, keeps_sockets: bool = False) -> None:
        """Ends worker and keeper and removes what they leave; absent is no error."""
        keeper = self._keeper(channel_id)
        keeper.stop()
        stop_agent(keeper.directory)
        # of a keeper that was killed
        remove_cgroups(one.cgroup for one in read_cgroups(keeper.directory))
        if not keeps_sockets:
            shutil.rmtree(keeper.directory, ignore_errors=True)

    def check_installed(self) -> None:
        """Raises LibraryNotFoundError."""
        check_programs((KEEPER_PROGRAM, self._worker, HOLD_PROGRAM))

    def find_obstacle(self) -> str | None:
        """What the kernel says before it is tried; another obstacle shows when the keeper builds the sandbox."""
        environ = {**os.environ, **self._machine.variables}
        return None if is_unconfined(environ) else find_obstacle(environ)

    def restart_worker(self, channel_id: str) -> None:
        """Another worker, at once."""
        self._keeper(channel_id).restart_worker()

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        """Size of the ring's memory from the next connection of a QEMU on."""
        self._keeper(channel_id).set_size(memory_bytes)

    def start_arbiter(self, spec: ChannelSpec) -> None:
        """See ``channel.Channels``."""
        self._find_arbiter(spec)

    def set_share(self, channel_id: str, memory_bytes: int, compute: float, priority: str) -> None:
        """See ``channel.Channels``: memory first, which may be refused."""
        keeper = self._keeper(channel_id)
        try:
            keeper.limit_memory(memory_bytes)
            keeper.set_compute(compute, priority)
        except KeeperError as error:
            if _is_absent(error) and not keeper.is_running():
                return  # the next one has what is recorded
            raise

    def read_status(self, channel_id: str) -> ChannelStatus | None:
        """The channel as it is now; None if no keeper runs.

        Raises:
            KeeperError: a keeper is there but refuses to answer.
            NotPermittedError: it is another user's.
        """
        if self._measure(channel_id) > LONGEST_PATH:
            return None  # no socket can have that path
        try:
            status = self._keeper(channel_id).status(timeout_s=ANSWER_S)
        except KeeperError as error:
            if _is_absent(error):
                return None
            if _hangs(error):
                return describe_hanging(channel_id, self._keeper(channel_id).find_process())
            if isinstance(error.__cause__, PermissionError):
                raise NotPermittedError(
                    f"cannot inspect channel {channel_id} as this user",
                    cause=error.cause,
                    why="its keeper answers only to the user who attached it",
                    hint="the same command with sudo",
                ) from error
            raise
        directory = self._keeper(channel_id).directory
        found = (read_report(directory), read_time(directory))
        return describe(channel_id, status, read_cgroups(directory), *found)

    def compare_memory(
        self, channel_id: str, limit: int, processes: Mapping[int, int | None] | None
    ) -> Overuse | None:
        """The limit ``device-memory`` against what the driver says that each process of the GPU has (None: it does not
        answer); the session that was ended for it. Raises KeeperError, OSError.
        """
        keeper = self._keeper(channel_id)
        if processes is None:
            report_failure(keeper.directory, "NVML does not answer")
            return None
        status = keeper.status()
        if not status.worker.pid:
            return None
        lanes = {x.session_pid: (x.lane, x.memory_bytes) for x in status.lanes if x.session_pid}
        expected = any(told for _, told in lanes.values())
        return enforce(
            keeper.directory, status.worker.pid, limit, processes, lanes,
            opened=status.opened_bytes, expected=expected,
        )  # fmt: skip

    def compare_time(
        self,
        channel_id: str,
        clock: ShareClock,
        figures: Figures | None,
        read_clock_s: Callable[[], float],
    ) -> Window | None:
        """What a share's turns were charged for against the time that the driver says its processes had (None: it has
        no such figures); a window in which its sessions had more. Raises KeeperError, OSError.
        """
        keeper = self._keeper(channel_id)
        if figures is None:
            clock.reset()
            note_failure(keeper.directory)
            return None
        status = keeper.status()
        share, worker = status.share, status.worker.pid
        is_late = read_clock_s() - figures.at_s > LATE_S
        if share is None or not share.kept or not worker or is_late:
            clock.reset()
            return None
        return compare(keeper.directory, clock, figures, share.used_ns, worker)

    def audit(self, channel_id: str) -> tuple[Fact, ...]:
        """See ``channel.Channels``."""
        status = self.read_status(channel_id)
        if status is None or status.worker_pid is None:
            return ()
        written = list_written({**os.environ, **self._machine.variables})
        worker = audit_tree(status.worker_pid, status.keeper_pid, writable=tuple(written))
        held = audit_cgroups(self._keeper(channel_id).directory, status.worker_pid)
        return (*worker, *held, *audit_keeper(status.keeper_pid))

    def list_libraries(self, channel_id: str) -> tuple[HostLibrary, ...]:
        """See ``channel.Channels``."""
        status = self.read_status(channel_id)
        if status is None or status.worker_pid is None:
            return ()
        return list_used({**os.environ, **self._machine.variables}, status.worker_pid)

    def list_ids(self) -> tuple[str, ...]:
        """Ids of all channels that left a directory here."""
        directory = self._machine.run_dir / "channels"
        if not directory.is_dir():
            return ()
        # a hidden one is tried by trial.py, and is no attachment's
        found = (path.name for path in directory.iterdir() if path.is_dir())
        return tuple(sorted(name for name in found if not name.startswith(".")))

    def _keeper(self, channel_id: str) -> Keeper:
        return Keeper(self._machine.run_dir / "channels" / channel_id)

    def _measure(self, channel_id: str) -> int:
        """Characters of its longest socket's path."""
        paths = self.paths(channel_id)
        return max(len(paths.ring), len(paths.control))

    def _prepare(self, spec: ChannelSpec) -> None:
        directory = self._keeper(spec.id).directory
        longest = self._measure(spec.id)
        if longest > LONGEST_PATH:
            raise ChannelStartError(
                f"cannot start channel {spec.id}",
                why=f"its socket's path has {longest} characters, {LONGEST_PATH} are possible",
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
    """Whether no process listens (any more), other than one that does not answer in time."""
    cause = error.__cause__
    return cause is None or isinstance(cause, FileNotFoundError | ConnectionError)


def _hangs(error: KeeperError) -> bool:
    """Whether it does not take or answer a request: a keeper waits for nothing and answers at once."""
    return isinstance(error.__cause__, TimeoutError | BlockingIOError)
