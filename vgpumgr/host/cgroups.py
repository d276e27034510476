"""A control group for one channel's worker: memory, processes, time on the processors; versions 1 and 2, also both.

It is made below the group of this process, for version 2 below the root, where groups may be beside processes; or
beside the leaf in which systemd starts a daemon whose group it delegates (``DelegateSubgroup=``, from version 254 on).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Controller = Literal["memory", "pids", "cpu"]
#: see ``DelegateSubgroup=`` in the daemon's unit
LEAF = "vgpumgr-main"
_PREFIX = "vgpumgr-k-"
_PERIOD_US = 100_000
_PATIENCE_S = 5.0
#: files of the limit and of what is used, in versions 1 and 2
_FILES: Mapping[tuple[Controller, int], tuple[str, str | None]] = {
    ("memory", 1): ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("memory", 2): ("memory.max", "memory.current"),
    ("pids", 1): ("pids.max", "pids.current"),
    ("pids", 2): ("pids.max", "pids.current"),
    ("cpu", 1): ("cpu.cfs_quota_us", None),
    ("cpu", 2): ("cpu.max", None),
}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """What holds one resource, or ``why`` nothing does; then there is no path."""

    controller: Controller
    version: int
    path: str | None
    why: str = ""

    def read_used(self) -> int | None:
        """Bytes or processes in it now; None where the kernel counts none, or it is gone."""
        name = _FILES[self.controller, self.version][1]
        if self.path is None or name is None:
            return None
        try:
            return int(Path(self.path, name).read_text())
        except (OSError, ValueError):
            return None

    def holds(self, pid: int) -> bool:
        """Whether the process is in it."""
        try:
            words = Path(self.path, "cgroup.procs").read_text().split() if self.path else []
        except OSError:
            return False
        return str(pid) in words


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A mounted hierarchy, and the group of this process in it."""

    version: int
    top: Path
    own: Path
    controllers: frozenset[str]


def name_cgroup(directory: Path) -> str:
    """The name for the channel of a directory: the same each time, so that what a killed keeper left is found."""
    digest = hashlib.sha256(str(directory.absolute()).encode()).hexdigest()
    return f"{_PREFIX}{directory.name[:32]}-{digest[:8]}"


def make_cgroups(
    name: str, limits: Mapping[Controller, int], proc: Path = Path("/proc/self")
) -> tuple[Cgroup, ...]:
    """Makes a group with the limits, one for each hierarchy that is needed. What cannot be made says why."""
    hierarchies = list(_list_hierarchies(proc))
    found = []
    for controller, limit in limits.items():
        one = next((h for h in hierarchies if controller in h.controllers), None)
        if one is None:
            why = "no hierarchy of control groups is mounted that has this controller"
            found.append(Cgroup(controller, 2, None, why))
            continue
        try:
            path = _choose_parent(one, controller) / name
            path.mkdir(mode=0o755, exist_ok=True)
            try:
                _write_limit(path, controller, one.version, limit)
                _try_enter(path)
            except OSError:
                _try_remove(str(path))
                raise
        except OSError as error:
            why = f"{error.filename or one.own}: {error.strerror}"
            found.append(Cgroup(controller, one.version, None, why))
        else:
            found.append(Cgroup(controller, one.version, str(path)))
    return tuple(found)


def remove_cgroups(cgroups: Iterable[Cgroup]) -> None:
    """Ends what is left in them, whose keeper has ended, and removes them; absent is no error. A process that is stuck
    in a driver keeps its group.
    """
    end = time.monotonic() + _PATIENCE_S
    for path in {c.path for c in cgroups if c.path is not None}:
        while not _try_remove(path) and time.monotonic() < end:
            _kill_all(path)
            time.sleep(0.005)


def _kill_all(path: str) -> None:
    with contextlib.suppress(OSError):
        for pid in map(int, Path(path, "cgroup.procs").read_text().split()):
            if pid:  # 0 is one that this pid namespace does not see, and would mean ourselves
                os.kill(pid, signal.SIGKILL)


def _try_remove(path: str) -> bool:
    """Whether there is nothing to be waited for."""
    try:
        Path(path).rmdir()
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


def list_obstacles() -> dict[Controller, str]:
    """What keeps this process from making groups, by the controller; tried with one that is removed at once."""
    limits: dict[Controller, int] = {"memory": 1 << 30, "pids": 100, "cpu": 100}
    made = make_cgroups(f"{_PREFIX}doctor-{os.getpid()}", limits)
    remove_cgroups(made)
    return {one.controller: one.why for one in made if one.path is None}


def _list_hierarchies(proc: Path) -> Iterator[_Hierarchy]:
    """Version 1 first: a controller that is bound there is in no other."""
    groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
    own = {name: path for _, names, path in groups for name in names.split(",")}
    found = []
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, top = before.split()[3:5]
        kind, _, options = after.split()[:3]
        words = frozenset(options.split(","))
        if kind == "cgroup2" and "" in own:
            place = _find_own(Path(top), root, own[""])
            found.append(_Hierarchy(2, Path(top), place, _read_words(place / "cgroup.controllers")))
        elif kind == "cgroup" and (names := words & own.keys()):
            place = _find_own(Path(top), root, own[min(names)])
            found.append(_Hierarchy(1, Path(top), place, words))
    yield from sorted(found, key=lambda h: h.version)


def _find_own(top: Path, root: str, group: str) -> Path:
    """The group's directory; its mount may show a part of the hierarchy only."""
    inside = os.path.relpath(group, root)
    return top if inside == "." or inside.startswith("..") else top / inside


def _read_words(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text().split())
    except OSError:
        return frozenset()


def _choose_parent(one: _Hierarchy, controller: Controller) -> Path:
    """A group of version 2 that has processes has no groups with controllers beside them, but for the root."""
    if one.version == 1:
        return one.own
    parent = one.own.parent if one.own.name == LEAF else one.top
    if controller not in _read_words(parent / "cgroup.subtree_control"):
        (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    return parent


def _try_enter(path: Path) -> None:
    """A process of ours may enter it; one that is in a control group outside of the cgroup namespace's root may not
    (ENOENT, see ``cgroup_attach_permissions`` in the kernel's kernel/cgroup/cgroup.c). Raises OSError.
    """
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as waiting:
        try:
            (path / "cgroup.procs").write_text(str(waiting.pid))
        except OSError as error:
            raise OSError(error.errno, f"cannot be entered: {error.strerror}", str(path)) from error


def _write_limit(path: Path, controller: Controller, version: int, limit: int) -> None:
    file = path / _FILES[controller, version][0]
    if controller != "cpu":
        file.write_text(str(limit))
        if controller == "memory":
            _forbid_swap(path, version, limit)
        return
    quota = limit * _PERIOD_US // 100
    if version == 1:
        (path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    file.write_text(str(quota) if version == 1 else f"{quota} {_PERIOD_US}")


def _forbid_swap(path: Path, version: int, limit: int) -> None:
    """What is above the limit must not go to the host's swap instead; not every kernel counts that."""
    name, value = ("memory.memsw.limit_in_bytes", limit) if version == 1 else ("memory.swap.max", 0)
    with contextlib.suppress(OSError):
        (path / name).write_text(str(value))
