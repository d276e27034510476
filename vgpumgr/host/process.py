"""Processes of this host: their names, whether they live, and who holds a device file open."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.host.files import list_names, read_text
from vgpumgr.model.frozen import dataclass

if TYPE_CHECKING:
    from vgpumgr.model.attachment import RunPart

_PROC = Path("/proc")
#: the user that a daemon works for; None: this process's own
_CALLER: ContextVar[int | str | None] = ContextVar("caller", default=None)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A process with one of the asked-for files open."""

    pid: int
    name: str | None
    path: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name or 'unknown'}), which has {self.path} open"


def read_name(pid: int, proc: Path = _PROC) -> str | None:
    """The name the kernel has for the process (15 characters), None if it is gone."""
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return None


def read_words(pid: int, proc: Path = _PROC) -> list[str]:
    """The words of its command line, none if it is gone or a thread of the kernel."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def read_identity(pid: int, proc: Path = _PROC) -> ProcessId | None:
    """The process with its start time (field 22 of /proc/PID/stat), None if it is gone."""
    fields = _read_stat(pid, proc)
    return ProcessId(pid, int(fields[19])) if fields else None


def is_alive(process: ProcessId, proc: Path = _PROC) -> bool:
    """Whether exactly that process still runs; a zombie does not."""
    fields = _read_stat(process.pid, proc)
    return bool(fields) and fields[0] not in "ZX" and int(fields[19]) == process.start_ticks


def has_ended(run: RunPart | None, boot_id: str) -> bool:
    """Whether the process of a run has ended; False where there is no run."""
    if run is None:
        return False
    return run.boot_id != boot_id or not is_alive(ProcessId(run.pid, run.start_ticks))


def read_owner(pid: int, proc: Path = _PROC) -> tuple[int, int] | None:
    """uid and gid that a process runs as; None if it is gone."""
    try:
        found = (proc / str(pid)).stat()
    except OSError:
        return None
    return found.st_uid, found.st_gid


@contextmanager
def acting_for(uid: int | str | None) -> Iterator[None]:
    """Meanwhile ``name_caller`` names this user; text is the name of another caller."""
    token = _CALLER.set(uid)
    try:
        yield
    finally:
        _CALLER.reset(token)


def name_caller() -> str:
    """Who asks for what is done now: the daemon's caller, else who ran this program, by sudo or not."""
    uid = _CALLER.get()
    if isinstance(uid, str):
        return uid
    if uid is None:
        behind = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
        uid = int(behind) if behind.isdecimal() else os.getuid()
    import pwd  # few operations name their caller

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def read_state(pid: int, proc: Path = _PROC) -> str | None:
    """The scheduler state letter, ``D`` for uninterruptible sleep; None if the process is gone."""
    fields = _read_stat(pid, proc)
    return fields[0] if fields else None


def list_descendants(pid: int, proc: Path = _PROC) -> Iterator[int]:
    """Children of any of its threads, their children, and so on; a child before its own."""
    for task in list_names(proc / str(pid) / "task"):
        text = read_text(proc / str(pid) / "task" / task / "children") or ""
        for child in map(int, text.split()):
            yield child
            yield from list_descendants(child, proc)


def find_stuck(pid: int, proc: Path = _PROC) -> list[int]:
    """Those of its descendants that are in uninterruptible sleep now."""
    return [one for one in list_descendants(pid, proc) if read_state(one, proc) == "D"]


def describe_stuck(pid: int) -> str:
    """For an administrator."""
    return f"process {pid}, /proc/{pid}/stack says where"


def kill_tree(pid: int, grace_s: float = 3.0, patience_s: float = 10.0) -> list[int]:
    """Kills a process, then those of its descendants that have not ended by themselves; those that do not end even so.
    A process that is stopped is killed, too. Raises PermissionError.
    """
    # known before their parent ends, which leaves them to others
    known = [one for one in map(read_identity, (pid, *list_descendants(pid))) if one is not None]
    left = [one for one in known if one.pid == pid]
    for targets, wait_s in ((left, grace_s), (known, patience_s)):
        for one in targets:
            with contextlib.suppress(ProcessLookupError):
                if is_alive(one):
                    os.kill(one.pid, signal.SIGKILL)
        end_s = time.monotonic() + wait_s
        while any(map(_runs, known)) and time.monotonic() < end_s:
            time.sleep(0.02)
    return [one.pid for one in known if _runs(one)]


def _runs(process: ProcessId) -> bool:
    return is_alive(process) and read_state(process.pid) not in (None, "Z")


def find_qemu(vm_uuid: str, proc: Path = _PROC) -> int | None:
    """The pid of the QEMU that runs a VM, by the UUID on its command line; None if none does.

    libvirt may have lost a VM that runs on.
    """
    wanted = b"-uuid\0" + vm_uuid.encode() + b"\0"
    for pid in _list_pids(proc):
        try:
            if wanted in (proc / str(pid) / "cmdline").read_bytes():
                return pid
        except OSError:
            continue
    return None


def list_holders(wanted: Callable[[str], bool], proc: Path = _PROC) -> list[Holder]:
    """Processes that have a file open whose path ``wanted`` accepts; one entry per process and
    path.

    Processes that this user may not inspect are left out: without root the list is incomplete.
    """
    return [
        Holder(pid, read_name(pid, proc), path)
        for pid in _list_pids(proc)
        for path in sorted({path for path in _list_open_paths(pid, proc) if wanted(path)})
    ]


def _list_pids(proc: Path) -> list[int]:
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def _list_open_paths(pid: int, proc: Path) -> Iterator[str]:
    try:
        entries = list(os.scandir(proc / str(pid) / "fd"))
    except OSError:
        return
    for entry in entries:
        try:
            yield str(Path(entry.path).readlink())
        except OSError:
            continue


def _read_stat(pid: int, proc: Path) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which itself may contain anything."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
