"""Starts and stops simulated machines: the state, the file system's process, the ``env`` file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from vgpumgr.errors import UsageError
from vgpumgr.host.files import READABLE, open_private, replace_file
from vgpumgr.sim import fuse
from vgpumgr.sim.hostfiles import build_tree
from vgpumgr.sim.machine import (
    SimulatorError,
    boot_state,
    create_machine,
    destroy_machine,
    list_clients,
    machine_directory,
    machine_env,
    running_machine,
)
from vgpumgr.sim.tree import MachineTree
from vgpumgr.sim.writefaults import Sleepers, WriteFaults

BOOT_ID = "boot_id"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def start(
    name: str,
    libvirt_uri: str | None = None,
    data_file: Path | None = None,
    memory_bytes: int | None = None,
) -> tuple[Path, str | None]:
    """Start a machine, of the known ones or of a data file. All its CUDA programs together get ``memory_bytes``.

    Returns its directory, and why its ``/sys`` only is a snapshot (None: it behaves).

    Raises SimulatorError and its kin; nothing is left behind then.
    """
    directory = create_machine(name, data_file)
    try:
        write_env(name, directory, libvirt_uri)
        if memory_bytes is not None:
            replace_file(directory / "memory", f"{memory_bytes}\n")
        without_fuse = boot_file_system(name, directory)
    except BaseException:
        stop(name)
        raise
    return directory, without_fuse


def boot_file_system(name: str, directory: Path) -> str | None:
    """Give the machine its ``/sys`` and ``/proc`` as after boot, and a new boot id. Returns as ``start``."""
    replace_file(directory / BOOT_ID, str(uuid.uuid4()))
    without_fuse = fuse.available()
    if without_fuse is None:
        start_file_system(name, directory)
    else:
        tree = read_tree(name, WriteFaults(), Sleepers())
        fuse.write_snapshot(tree.root(), directory / "root")
    return without_fuse


def read_tree(name: str, faults: WriteFaults, sleepers: Sleepers) -> MachineTree:
    """The files of a running machine as after its last boot."""
    directory = machine_directory(name)
    boot_id = (directory / BOOT_ID).read_text()
    return build_tree(running_machine(name), boot_id, directory, faults, sleepers)


def write_env(name: str, directory: Path, libvirt_uri: str | None) -> None:
    """The machine's variables, for ``vgpumgr --machine NAME``."""
    variables = machine_env(name)
    if libvirt_uri is not None:
        variables["VGPUMGR_LIBVIRT_URI"] = libvirt_uri
    lines = "".join(f"{key}={value}\n" for key, value in variables.items())
    replace_file(directory / "env", lines)


def start_file_system(name: str, directory: Path) -> None:
    """Start the process that serves ``/sys`` and ``/proc``, and wait until it does."""
    root = directory / "root"
    with os.fdopen(open_private(directory / "fuse.log", _APPEND, READABLE), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", "sim", "serve", name],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
    replace_file(directory / "fuse.pid", f"{process.pid}\n")
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (os.path.ismount(root) and (root / "sys").is_dir()):
        if process.poll() is not None or time.monotonic() > deadline:
            cause = (directory / "fuse.log").read_text(errors="replace").strip()
            raise SimulatorError(f"cannot mount the /sys of {name}", cause=cause[-500:] or None)
        time.sleep(0.02)


def serve(name: str) -> None:
    """The file system's process; returns when it is unmounted."""
    root = machine_directory(name) / "root"
    faults, sleepers = WriteFaults(), Sleepers()
    fuse.serve(read_tree(name, faults, sleepers), root, faults, sleepers)


def stop(name: str) -> int:
    """Stop a machine, as by pulling its plug: its keepers end, its state is forgotten.

    Returns how many channels it had: the VMs' definitions still name them. Raises
    MachineNotFoundError if it does not run.
    """
    running_machine(name)
    directory = machine_directory(name)
    channels = len(list(directory.glob("host/run/channels/*")))
    for pid_file in sorted(directory.glob("host/run/**/*.pid")):
        end_process(pid_file)
    unmount(directory / "root")
    end_process(directory / "fuse.pid")
    destroy_machine(name)
    return channels


def tell(name: str, what: str, line: str) -> None:
    """Ask a running machine for something that happens to it: a line for a file of ``control``.

    Raises MachineNotFoundError, UsageError, or SimulatorError where the machine refuses.
    """
    running_machine(name)
    path = machine_directory(name) / "root/.sim" / what
    if "/" in what or not path.is_file():
        known = ", ".join(sorted(entry.name for entry in path.parent.iterdir()))
        raise UsageError(f"{name} cannot be told {what!r}", why=f"it understands {known}")
    if not line:
        raise UsageError(f"{what!r} needs words", hint="vgpumgr sim tell --help")
    try:
        # one write, which is one request; O_TRUNC would be another call
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as err:
        raise SimulatorError(
            f"{name} cannot do that: {what} {line}", cause=f"write {path}: {err.strerror}"
        ) from err


def reboot(name: str) -> None:
    """Reboot a machine: everything that ran on it is dead, what is no setting of the hardware is as after boot.

    What is remembered on disk (``host/state``) stays, ``/run`` is empty. Raises MachineNotFoundError.
    """
    running_machine(name)
    directory = machine_directory(name)
    for pid_file in sorted(directory.glob("host/run/**/*.pid")):
        end_process(pid_file)
    for pid in list_clients(directory):
        kill_client(pid)
    shutil.rmtree(directory / "host" / "run", ignore_errors=True)
    boot_state(directory)
    unmount(directory / "root")
    end_process(directory / "fuse.pid")
    boot_file_system(name, directory)


def kill_client(pid: int) -> None:
    """Kill a process that computes on the machine, and wait until it is gone."""
    if pid == os.getpid():
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def unmount(root: Path) -> None:
    """Unmount the machine's files, even if somebody stands in them."""
    if not os.path.ismount(root):
        return
    tools = (["fusermount3", "-uz"], ["umount", "-l"])
    for tool in tools:
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*tool, str(root)], capture_output=True, check=False).returncode == 0:
                return
    raise SimulatorError(f"cannot unmount {root}")


def end_process(pid_file: Path) -> None:
    """End the process that a pid file names, if it is one of ours and still there."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"vgpumgr" not in command:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
