"""What holds a process and its descendants: facts that the kernel shows below /proc, read as they are now.

Nothing here knows what was meant to hold. Of a process that cannot be read no fact holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpumgr.host.process import is_alive, list_descendants, read_identity

_PROC = Path("/proc")
#: AppArmor's for workers, in the package and in templates/apparmor; native/keeper/sandbox.c has them enter it
PROFILE = "vgpumgr-worker"
#: of a worker whose GPU is in another host, in the same file
RELAY_PROFILE = "vgpumgr-relay"
_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
#: what the kernel has loaded, for root to read
PROFILES = Path("/sys/kernel/security/apparmor/profiles")
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "mnt", "cgroup")
_CAPABILITIES = ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
#: most that the limits may allow; None: only that there is a number
_LIMITS = {"Max core file size": 0, "Max open files": 65536, "Max msgqueue size": 0}
#: of the root directory: a second level stands where a directory of the host could hide more
_ROOT = frozenset({"dev", "etc", "lib", "lib64", "proc", "usr"})
_NODES = re.compile(
    r"null|zero|urandom|nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia\d+|nvidia-caps/nvidia-cap\d+"
)
#: what a worker inherits or makes: memory, doorbells, sockets, pipes; its log; nodes of its root
_DESCRIPTORS = re.compile(
    r"/memfd:.*|anon_inode:.*|socket:\[\d+\]|pipe:\[\d+\]|/(dev/)?(null|nvidia[\w/-]*)|.*/worker\.log"
)
_ENVIRONMENT = ("VGPUMGR_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH=", "LANG=", "LC_ALL=")


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that holds or not, and how that is known or why it does not."""

    name: str
    holds: bool
    detail: str


def audit_tree(pid: int, outside: int, *, writable: Sequence[str] = ()) -> tuple[Fact, ...]:
    """The facts of a process and its descendants, each as the first of them has it that does not hold it.
    Descendants that end meanwhile do not count.

    ``outside`` is a process that is not confined, for comparison. ``writable`` are files of its root that it may write.
    """
    audited = [(pid, tuple(_audit(pid, outside, writable, stages=1)))]
    for one in list_descendants(pid):
        known = read_identity(one)
        # the worker itself loads no driver, and starts the sessions that do
        facts = tuple(_audit(one, outside, writable, stages=2))
        if known is not None and is_alive(known):
            audited.append((one, facts))  # of one that has ended meanwhile nothing could be read
    pids, per_process = zip(*audited, strict=True)
    found = []
    for facts in zip(*per_process, strict=True):
        failing = [(p, f) for p, f in zip(pids, facts, strict=True) if not f.holds]
        if failing and failing[0][0] != pid:
            bad, fact = failing[0]
            found.append(Fact(fact.name, False, f"process {bad}: {fact.detail}"))
        else:
            found.append(failing[0][1] if failing else facts[0])
    return tuple(found)


def audit_keeper(pid: int) -> tuple[Fact, ...]:
    """What a keeper has given up: it is outside of the sandbox, and has no rights all the same."""
    status = _read_pairs(pid, "status")
    users = set(status.get("Uid", "").split())
    held = sorted(name for name in _CAPABILITIES if not _is_zero(status.get(name, "unknown")))
    no_new = status.get("NoNewPrivs", "unknown")
    return (
        Fact(
            "keeper user", bool(users) and "0" not in users, ", ".join(sorted(users)) or "unknown"
        ),
        Fact("keeper capabilities", not held, ", ".join(held) or "none"),
        Fact("keeper NoNewPrivs", no_new == "1", no_new),
    )


def _audit(pid: int, outside: int, writable: Sequence[str], stages: int) -> Iterator[Fact]:
    status = _read_pairs(pid, "status")
    yield from _audit_identity(status, _read_pairs(outside, "status"))
    for name in _CAPABILITIES:
        value = status.get(name, "unknown")
        yield Fact(name, _is_zero(value), value)
    for name, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        value = status.get(name, "unknown")
        yield Fact(name, value == wanted, value)
    filters = status.get("Seccomp_filters", "0")
    yield Fact(
        "filters", filters.isdigit() and int(filters) >= stages, f"{filters} of {stages} stages"
    )
    for name in _NAMESPACES:
        yield _audit_namespace(pid, outside, name)
    yield _audit_profile(pid)
    yield _guard("root", lambda: _audit_root(pid))
    yield _guard("nodes", lambda: _audit_nodes(pid))
    yield _guard("mounts", lambda: _audit_mounts(pid, writable))
    yield _guard("descriptors", lambda: _audit_descriptors(pid, writable))
    yield _guard("environment", lambda: _audit_environment(pid))
    yield _guard("network", lambda: _audit_network(pid))
    yield _guard("dumpable", lambda: _audit_dumpable(pid, status))
    yield from _audit_limits(pid)


def _audit_identity(status: dict[str, str], outside: dict[str, str]) -> Iterator[Fact]:
    for name, field in (("user", "Uid"), ("group", "Gid")):
        ids = set(status.get(field, "").split())
        own = len(ids) == 1 and not ids & {"0", *outside.get(field, "").split()}
        why = f"{', '.join(sorted(ids)) or 'unknown'}"
        yield Fact(name, own, why if own else f"{why}: no id of its own")
    groups = status.get("Groups", "unknown")
    yield Fact("groups", not groups, groups or "none")


def _audit_namespace(pid: int, outside: int, name: str) -> Fact:
    links = []
    for one in (pid, outside):
        try:
            links.append(str((_PROC / str(one) / "ns" / name).readlink()))
        except OSError as error:
            return Fact(f"namespace {name}", False, str(error.strerror))
    own = links[0] != links[1]
    return Fact(f"namespace {name}", own, links[0] if own else "the host's")


def _audit_profile(pid: int) -> Fact:
    """A host without AppArmor, or without the profile, has the rest of the sandbox: that is no failure."""
    if not (_PROC / str(pid)).exists():
        return Fact("AppArmor", False, "unknown")
    if _read(_APPARMOR).strip() != "Y":
        return Fact("AppArmor", True, "off on this host")
    label = _read(_PROC / str(pid) / "attr/apparmor/current").strip()
    names, _, mode = label.partition(" ")
    if {PROFILE, RELAY_PROFILE} & set(names.split("//&")):
        return Fact("AppArmor", mode == "(enforce)", label)
    if f"{PROFILE} (" not in _read(PROFILES):
        return Fact("AppArmor", True, f"the profile {PROFILE} is not loaded")
    return Fact("AppArmor", False, f"{label or 'unknown'}: not in the profile {PROFILE}")


def _audit_root(pid: int) -> Fact:
    names = set(_list(_PROC / str(pid) / "root"))
    # what was bound keeps its path: its parents are directories with nothing else in them
    extra = sorted(n for n in names - _ROOT if _holds_more(pid, n))
    if extra or "proc" not in names:
        return Fact("root", False, "the host's, or more than is needed: " + ", ".join(extra[:5]))
    return Fact("root", True, ", ".join(sorted(names)))


def _holds_more(pid: int, name: str) -> bool:
    """Whether anything is there that is neither a mount nor leads to one."""
    mounts = _list_mount_points(pid)
    stack = [f"/{name}"]
    while stack:
        path = stack.pop()
        if path in mounts:
            continue
        if not any(mount.startswith(f"{path}/") for mount in mounts):
            return True
        stack += [f"{path}/{child}" for child in _list(Path(f"{_PROC}/{pid}/root{path}"))]
    return False


def _list_mount_points(pid: int) -> set[str]:
    return {line.split()[4] for line in _read_bytes(pid, "mountinfo").splitlines()}


def _audit_nodes(pid: int) -> Fact:
    directory = _PROC / str(pid) / "root/dev"
    names = [n for n in _list(directory) if n != "nvidia-caps"]
    if (directory / "nvidia-caps").is_dir():
        names += [f"nvidia-caps/{n}" for n in _list(directory / "nvidia-caps")]
    extra = sorted(n for n in names if not _NODES.fullmatch(n))
    detail = f"not its own: {', '.join(extra[:5])}" if extra else ", ".join(sorted(names))
    return Fact("nodes", not extra, detail)


def _audit_mounts(pid: int, writable: Sequence[str]) -> Fact:
    allowed = {"/proc", *writable}
    open_ = []
    for line in _read_bytes(pid, "mountinfo").splitlines():
        place, options = line.split()[4:6]
        hidden = place.startswith("/proc/")  # /dev/null is there, for what is not to be seen
        if "ro" not in options.split(",") and place not in allowed and not hidden:
            open_.append(place)
    detail = f"writable: {', '.join(open_[:5])}" if open_ else "read-only"
    return Fact("mounts", not open_, detail)


def _audit_descriptors(pid: int, writable: Sequence[str]) -> Fact:
    directory = _PROC / str(pid) / "fd"
    names = []
    for number in _list(directory):
        try:
            names.append(str((directory / number).readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    extra = sorted(n for n in names if not _DESCRIPTORS.fullmatch(n) and n not in writable)
    detail = f"more than is needed: {', '.join(extra[:5])}" if extra else f"{len(names)} known"
    return Fact("descriptors", not extra, detail)


def _audit_environment(pid: int) -> Fact:
    words = _read_bytes(pid, "environ").split("\0")
    extra = sorted(w.partition("=")[0] for w in words if w and not w.startswith(_ENVIRONMENT))
    return Fact("environment", not extra, ", ".join(extra[:5]) or "what concerns it")


def _audit_network(pid: int) -> Fact:
    lines = _read_bytes(pid, "net/dev").splitlines()[2:]
    names = [line.partition(":")[0].strip() for line in lines]
    return Fact("network", names in ([], ["lo"]), ", ".join(names) or "no device")


def _audit_dumpable(pid: int, status: dict[str, str]) -> Fact:
    """The kernel gives the files of a process that cannot be dumped to root."""
    owner = (_PROC / str(pid) / "fd").stat().st_uid
    own = status.get("Uid", "").split()[:1]
    if not own:
        return Fact("dumpable", False, "unknown")
    dumpable = own == [str(owner)]
    return Fact("dumpable", not dumpable, "yes" if dumpable else "no")


def _audit_limits(pid: int) -> Iterator[Fact]:
    text = _read(_PROC / str(pid) / "limits")
    for name, most in _LIMITS.items():
        found = re.search(rf"^{name}\s+(\S+)", text, re.MULTILINE)
        value = found[1] if found else "unknown"
        yield Fact(name.lower(), value.isdigit() and int(value) <= most, value)


def _guard(name: str, read: Callable[[], Fact]) -> Fact:
    try:
        return read()
    except OSError as error:
        return Fact(name, False, f"cannot be read: {error.strerror}")


def _is_zero(value: str) -> bool:
    return bool(value) and not value.strip("0")


def _read_pairs(pid: int, name: str) -> dict[str, str]:
    lines = _read(_PROC / str(pid) / name).splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _read_bytes(pid: int, name: str) -> str:
    return (_PROC / str(pid) / name).read_bytes().decode(errors="replace")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _list(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
