"""What the worker is put into, as options of the keeper, which builds it (``native/keeper/sandbox.c``).

A keeper that root starts gives its worker a user id of its own out of :data:`USER_IDS`, and takes the next one itself:
no entry of /etc/passwd is needed, and no other channel of the host has them. Other users' workers keep their id, in a
user namespace. SECURITY.md says what the sandbox is to hold.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from vgpumgr.host import cgroups
from vgpumgr.host.cgroups import Cgroup, Controller, name_cgroup, remove_cgroups
from vgpumgr.host.confinement import Fact
from vgpumgr.host.files import read_text, replace_file
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.limits import LIMIT_KEYS, LimitKey, Limits

#: what neither systemd nor Debian hands out: below systemd's ids of foreign machines (2147352576), above those of
#: containers (1879048191); see systemd's UIDS-GIDS. The odd ones are the keepers'.
USER_IDS = range(1879048192, 2147352574, 2)
#: and its group: of the arbiters of all GPUs
ARBITER_USER = 2147352574
#: says to the daemon, or to a command without one, that workers may run without a sandbox
ALLOW_UNCONFINED = "VGPUMGR_ALLOW_UNCONFINED"
#: what the filter of system calls does: ``log`` has the kernel log what ``enforce`` refuses
FILTER = "VGPUMGR_WORKER_FILTER"
_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
_FILTERS = Path("/proc/sys/kernel/seccomp/actions_avail")
#: in the channel's directory: its control groups, as status and stop need them
_CGROUPS = "cgroups"
_KEYS: Mapping[str, Controller] = {"host-memory": "memory", "processes": "pids", "cpu": "cpu"}
_LIBRARIES = ("/lib64", "/usr/lib64", "/lib/{machine}-linux-gnu", "/usr/lib/{machine}-linux-gnu")
#: the loader's cache, where Debian's packages of the driver lead to it, and what the driver reads of its own
_FILES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/nvidia", "/usr/share/nvidia")


def is_unconfined(environ: Mapping[str, str]) -> bool:
    """Whether workers may run without a sandbox: by ``VGPUMGR_ALLOW_UNCONFINED=1``, and by no other value."""
    return environ.get(ALLOW_UNCONFINED) == "1"


def find_obstacle(environ: Mapping[str, str]) -> str | None:
    """Why the kernel builds no sandbox, as far as it says so itself: it has no user namespaces for us, or no
    filter of system calls.
    """
    if read_text(_NAMESPACES) == "0":
        return f"user namespaces are switched off ({_NAMESPACES}: 0)"
    # below a directory that is there: a unit of systemd's may hide all of them
    if (
        choose_filter(environ) != "off"
        and _FILTERS.parent.parent.is_dir()
        and not _FILTERS.exists()
    ):
        return f"this kernel filters no system calls ({_FILTERS}: absent)"
    return None


def choose_user_id(directory: Path) -> int:
    """The user id for the channel of that directory: the same each time, and no other channel's beside it.

    A user who is not root gets the own one.
    """
    if os.geteuid() != 0:
        return os.geteuid()
    digest = hashlib.sha256(str(directory.absolute()).encode()).digest()
    start = int.from_bytes(digest[:8], "big") % len(USER_IDS)
    taken = set(_list_taken(directory))
    return next(
        uid
        for number in range(len(USER_IDS))
        if (uid := USER_IDS[(start + number) % len(USER_IDS)]) not in taken
    )


def _list_taken(directory: Path) -> Iterator[int]:
    for neighbour in directory.parent.glob("*/user"):
        text = neighbour.read_text().strip() if neighbour.parent != directory else ""
        if text.isdigit():
            yield int(text)


def list_sandbox_options(
    directory: Path,
    worker: Path,
    worker_args: Sequence[str],
    environ: Mapping[str, str],
    devices: Sequence[str] = (),
) -> list[str]:
    """Words of the keeper's command line for the sandbox of a worker; ``environ`` is the worker's.

    The channel's directory keeps the user id in a file ``user``.
    """
    uid = choose_user_id(directory)
    gid = uid if os.geteuid() == 0 else os.getegid()
    if directory.is_dir():
        replace_file(directory / "user", f"{uid}\n", mode=0o600)
    words = ["--sandbox", f"{uid}:{gid}", "--filter", choose_filter(environ)]
    for path in sorted(set(_list_read(worker, worker_args, environ))):
        words += ["--read", path]
    for path in list_written(environ):
        words += ["--write", path]
    for path in devices:
        words += ["--device", path]
    return words


def choose_filter(environ: Mapping[str, str]) -> Literal["enforce", "log", "off"]:
    """What the filter of system calls does; a word that is none of these switches nothing off."""
    chosen = environ.get(FILTER, "")
    return next((mode for mode in ("enforce", "log", "off") if mode == chosen), "enforce")


def list_library_places(environ: Mapping[str, str]) -> Iterator[str]:
    """Where a worker's loader finds libraries: LD_LIBRARY_PATH, then the system's directories."""
    yield from filter(os.path.isabs, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    yield from (place.format(machine=os.uname().machine) for place in _LIBRARIES)


def _list_read(
    worker: Path, worker_args: Sequence[str], environ: Mapping[str, str]
) -> Iterator[str]:
    places = [*list_library_places(environ), *_FILES, str(worker.absolute().parent)]
    drivers = [environ.get("VGPUMGR_CUDA", "")]
    drivers += [word for flag, word in pairwise(worker_args) if flag == "--cuda"]
    places += [str(Path(driver).parent) for driver in drivers if Path(driver).is_absolute()]
    for word in worker_args:
        if word.startswith("--link="):
            places.append(word.removeprefix("--link="))
        if word.startswith("--math="):
            places += word.removeprefix("--math=").split(os.pathsep)
        if word.startswith("--link="):  # of a relay: certificates, and the socket of its dialer
            places.append(word.removeprefix("--link="))
    if machine := environ.get("VGPUMGR_SIM"):
        places.append(f"{machine}/memory")
    yield from (os.path.normpath(place) for place in places if Path(place).exists())


def list_written(environ: Mapping[str, str]) -> Iterator[str]:
    """Files that the worker may write: the state of a simulated machine, which stands for the driver's in the
    kernel, and the log of its driver.
    """
    if machine := environ.get("VGPUMGR_SIM"):
        yield f"{machine}/state"
    if (log := environ.get("VGPUMGR_SIM_LOG")) and Path(log).exists():
        yield log


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """A limit that the kernel holds, and the control group by which it does."""

    name: str
    limit: int
    cgroup: Cgroup

    @property
    def key(self) -> LimitKey:
        """The limit's key."""
        return LIMIT_KEYS[self.name]


def make_cgroups(directory: Path, limits: Limits) -> tuple[Cgroup, ...]:
    """Makes what the limits need, and writes it down beside the sockets. What cannot be made says why."""
    wanted = {key.name: limit for key, limit in limits.items() if key.of_cgroup and limit}
    made = cgroups.make_cgroups(
        name_cgroup(directory), {_KEYS[name]: limit for name, limit in wanted.items()}
    )
    pairs = zip(wanted.items(), made, strict=True)
    found = [LimitGroup(name, limit, one) for (name, limit), one in pairs]
    try:
        replace_file(directory / _CGROUPS, json.dumps(encode(found)), mode=0o600)
    except BaseException:
        remove_cgroups(made)
        raise
    return made


def read_cgroups(directory: Path) -> tuple[LimitGroup, ...]:
    """The limits of a channel that the kernel holds; none of a channel that an older version started."""
    try:
        text = (directory / _CGROUPS).read_text()
    except OSError:
        return ()
    return decode(tuple[LimitGroup, ...], json.loads(text))


def audit_cgroups(directory: Path, worker_pid: int) -> Iterator[Fact]:
    """Whether the worker is in its control groups, or why there is none."""
    for one in (group.cgroup for group in read_cgroups(directory)):
        holds = one.holds(worker_pid)
        detail = f"the worker is not in {one.path}" if one.path else one.why
        yield Fact(f"cgroup {one.controller}", holds, f"{one.path}" if holds else detail)


#: seconds after which a call is named, and after which its session ends: ``60``, or ``60:3600``
WATCHDOG = "VGPUMGR_WATCHDOG"
_WATCHDOG_DEFAULT = (60, 0)


def read_watchdog(environ: Mapping[str, str]) -> str:
    """The watchdog's limits as the worker's option; a word that says none changes nothing."""
    words = environ.get(WATCHDOG, "").split(":")
    limits = [int(word) for word in words if word.isdecimal() and len(word) < 10]
    if len(limits) != len(words) or len(limits) > 2:
        limits = list(_WATCHDOG_DEFAULT)
    return ":".join(map(str, (*limits, 0)[:2]))
